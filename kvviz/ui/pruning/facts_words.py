"""What the fact probe says about its numbers; every sentence is chosen and filled by what was measured."""

import pandas as pd

from kvviz.analysis.facts import by_holding, by_policy
from kvviz.locale import Translate
from kvviz.ui.pruning.facts_work import Probed

_HOPELESS = 0.5  # right answers of the full cache under which a loss says more about the model than about policies


def verdict(t: Translate, found: Probed) -> list[str]:
    """Whether the model knows the answers at all, then what pruning did."""
    full = by_policy(found.answers).iloc[0]
    told = t("With the full cache the model gives {right} of {count} answers right; guessing would give {chance} %.")
    sentences = [told.format(right=full["right"], count=full["placements"], chance=f"{100 * full['chance']:.0f}")]
    if full["low"] <= full["chance"]:
        sentences.append(t("That is no better than guessing: this model and these facts say nothing about policies."))
    elif full["right_share"] < _HOPELESS:
        sentences.append(t("That is above guessing, but little: read the policies' numbers beside it."))
    else:
        sentences.append(_holding(t, found))
    return [" ".join(sentences), *idle(t, found)]


def _holding(t: Translate, found: Probed) -> str:
    """Right answers by whether the answer's K and V were still there, over all policies but the full cache."""
    pruned = found.answers[found.answers["policy"] != "Full()"]
    counts = by_holding(pruned).set_index("held")
    sentences = []
    if gone := int(counts.loc["none", "placements"]):
        told = t("Where no head held the answer any more, the policies gave {right} of {count} right.")
        sentences.append(told.format(right=int(counts.loc["none", "right"]), count=gone))
    if some := int(counts.loc["some", "placements"]):
        told = t("Where only some heads held it: {right} of {count}.")
        sentences.append(told.format(right=int(counts.loc["some", "right"]), count=some))
    if kept := int(counts.loc["all", "placements"]):
        told = t("Where all heads held it: {right} of {count}.")
        sentences.append(told.format(right=int(counts.loc["all", "right"]), count=kept))
    return " ".join(sentences)


def idle(t: Translate, found: Probed) -> list[str]:
    """A sentence for every policy that evicted nothing."""
    names, quiet = found.names(t), by_policy(found.answers).query("evicted == 0")["policy"]
    told = t("{policy}: 0 tokens evicted: the text is shorter than the budget.")
    return [told.format(policy=names[policy]) for policy in quiet if policy != "Full()"]


def table(t: Translate, found: Probed) -> pd.DataFrame:
    """One row a policy, for people."""
    frame, names = by_policy(found.answers), found.names(t)
    stored = found.answers.groupby("policy", sort=False)["stored"].mean()
    return pd.DataFrame(
        {
            t("policy"): [names[policy] for policy in frame["policy"]],
            t("right"): [f"{row.right} / {row.placements}" for row in frame.itertuples()],
            t("95 % interval"): [f"{100 * row.low:.0f} – {100 * row.high:.0f} %" for row in frame.itertuples()],
            t("probability of the answer"): [f"{100 * value:.0f} %" for value in frame["probability"]],
            t("heads that hold it"): [f"{100 * value:.0f} %" for value in frame["held_share"]],
            t("tokens to look at"): [f"{stored[policy]:,.0f}" for policy in frame["policy"]],
        }
    )


def all_answers(t: Translate, found: Probed) -> pd.DataFrame:
    """Every answer, for people."""
    names, frame = found.names(t), found.answers
    return pd.DataFrame(
        {
            t("policy"): frame["policy"].map(names),
            t("text"): frame["round"] + 1,
            t("fact"): frame["fact"],
            t("depth (%)"): frame["depth_percent"],
            t("answer"): frame["answer"],
            t("model says"): frame["said"],
            t("right"): frame["right"],
            t("probability of the answer"): frame["probability"].round(3),
            t("heads that hold it (%)"): (100 * frame["held_share"]).round(1),
        }
    )
