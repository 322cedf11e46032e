"""Why a token left one head's cache, in sentences and as a table."""

import numpy as np
import pandas as pd
import streamlit as st

from kvviz.analysis.evictions import Evictions
from kvviz.analysis.reasons import reasons
from kvviz.locale import N_, Translate
from kvviz.policies import NEVER
from kvviz.records import ROLES
from kvviz.ui.pruning.watch_run import WatchRun

_STAYS = {
    "sink": N_("It stays because it is one of the first tokens, which this policy never drops."),
    "recent": N_("It stays because it is recent."),
    "heavy": N_("It stays because of its score."),
}


def sentences(t: Translate, run: WatchRun, layer: int, head: int, position: int, now: int) -> list[str]:
    """What became of the token at `position` in one head by the step at `now`, and in all heads. Plain text."""
    evictions, labels = run.evictions(), run.text(len(run.steps)).labels
    token = t("Token {position} “{label}”").format(position=position, label=labels[position])
    if position >= evictions.tokens:
        return [token + " · " + t("the last that was written; the model has not read it, so it is in no cache.")]
    if position > now:
        return [token + " · " + t("is read only after the step that is shown.")]
    after = int(evictions.gone[evictions.layers.index(layer), head, position])
    place = t("layer {layer}, KV head {head}").format(layer=layer, head=head)
    if after > now:
        told = [
            f"{token} · " + t("still in the cache of {place}.").format(place=place),
            _stays(t, evictions, layer, head, position, now),
        ]
        if after != NEVER:
            told.append(t("It goes when token {step} “{label}” has been read.").format(step=after, label=labels[after]))
    else:
        left = t("left the cache of {place} when token {step} “{label}” had been read.")
        told = [f"{token} · " + left.format(place=place, step=after, label=labels[after])]
        told.append(_reason(t, reasons_of(run, layer, head).set_index("position").loc[position]))
    return [*told, _everywhere(t, evictions, position, now)]


def reasons_of(run: WatchRun, layer: int, head: int) -> pd.DataFrame:
    """`reasons` of a run, made once."""
    evictions = run.evictions()
    return run.once(("reasons", evictions.tokens, layer, head), lambda: reasons(evictions, layer, head))


def _stays(t: Translate, evictions: Evictions, layer: int, head: int, position: int, now: int) -> str:
    if not (evictions.gone[evictions.layers.index(layer), head] <= now).any():
        return t("There is still room for all.")
    role = evictions.roles(layer, head, range(position, position + 1))[0, now]
    return t(_STAYS[ROLES[role]])


def _reason(t: Translate, row: pd.Series) -> str:
    """Score, rank and cut of one eviction."""
    facts = {"rank": int(row["rank"]), "count": int(row["candidates"]), "score": f"{row['score']:.4g}"}
    facts["cut"] = f"{row['cut']:.4g}"
    if np.isnan(row["score"]):
        if facts["rank"] == 1:
            return t("The rule looks at age alone: it was the oldest of the {count} that could go.").format(**facts)
        told = t("The rule looks at age alone: it was number {rank} in age of the {count} that could go.")
        return told.format(**facts)
    if not np.isfinite(row["cut"]):
        return t("Its score was {score}; all {count} that could go had to go.").format(**facts)
    if row["score"] == row["cut"]:
        told = t(
            "Its score of {score} was number {rank} from below among the {count} that could go; one that stayed had as "
            "little, and of equal ones the older goes."
        )
        return told.format(**facts)
    told = t(
        "Its score of {score} was number {rank} from below among the {count} that could go; the lowest that stayed had "
        "{cut}."
    )
    return told.format(**facts)


def _everywhere(t: Translate, evictions: Evictions, position: int, now: int) -> str:
    gone = evictions.gone[:, :, position]
    if (gone <= now).all() and gone.min() == gone.max():
        return t("All {count} KV heads of all layers let go of it at the same time.").format(count=gone.size)
    held = int((gone > now).sum())
    told = t("{held} of the {count} KV heads of all layers hold it in the step that is shown.")
    told = told.format(held=held, count=gone.size)
    if held < gone.size:
        layer, head = np.unravel_index(gone.argmin(), gone.shape)
        first = t("The first to let go was head {head} of layer {layer}, after token {step}.")
        told += " " + first.format(head=head, layer=evictions.layers[layer], step=gone.min())
    return told


def table(t: Translate, run: WatchRun, layer: int, head: int) -> None:
    """Every token that one head lost, folded away."""
    frame, labels = reasons_of(run, layer, head), run.text(len(run.steps)).labels
    told = t("All tokens that layer {layer}, KV head {head} lost").format(layer=layer, head=head)
    with st.expander(told):
        if frame.empty:
            st.caption(t("None."))
            return
        shown = {
            t("position"): frame["position"],
            t("token"): [labels[position] for position in frame["position"]],
            t("went after token"): frame["evicted_after"],
            t("token read then"): [labels[after] for after in frame["evicted_after"]],
        }
        if frame["score"].notna().any():
            cut = frame["cut"].where(np.isfinite(frame["cut"]))
            shown |= {t("score"): frame["score"], t("lowest that stayed"): cut}
        shown |= {t("rank from below"): frame["rank"], t("could have gone"): frame["candidates"]}
        st.dataframe(pd.DataFrame(shown), hide_index=True, key="watch_reasons")
