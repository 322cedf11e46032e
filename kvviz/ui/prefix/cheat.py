"""Reusing what must not be reused: K and V of equal tokens after another beginning, and the damage."""

import pandas as pd
import streamlit as st

from kvviz.locale import Translate
from kvviz.prefix.pair import PrefixReuse
from kvviz.prefix.wrong import CheatResult, default_pairs
from kvviz.ui.prefix.distances import pair_name
from kvviz.ui.prefix.pair_inputs import PairWanted
from kvviz.ui.prefix.pair_work import cheating
from kvviz.ui.prefix.parting import Parting
from kvviz.ui.shell import Page
from kvviz.ui.task import result_of, run_or_stop

_KEY = "prefix_cheat"


def cheat(page: Page, wanted: PairWanted, reuse: PrefixReuse) -> CheatResult | None:
    """The choice of tokens, the button, the damage; the result for what is chosen now, None when there is none."""
    t = page.t
    st.subheader(t("And if the cache took them all the same?"), anchor=False)
    if not reuse.pairs:
        st.caption(t("No token after the shared prefix is in both prompts: there is nothing to take wrongly."))
        return None
    pairs = _choose(t, wanted, reuse)
    now = (wanted, tuple(pairs)) if pairs and page.resident is not None and wanted.model == page.resident.key else None
    work = None
    if now is not None and page.resident.model is not None:
        work = cheating(page.resident.model, Parting(reuse.first, reuse.second), pairs)
    task = run_or_stop(page, _KEY, now, work, t("Cheat"))
    if task is None or task.wanted[0] != wanted:
        st.caption(
            t(
                "Reads the second prompt with K and V of these tokens taken from the first one, in every layer, and "
                "compares what comes next."
            )
        )
        return None
    result = result_of(page, task, now)
    if result is None:
        return None
    _show(page, result)
    return result if task.wanted == now else None


def _choose(t: Translate, wanted: PairWanted, reuse: PrefixReuse) -> list[tuple[int, int]]:
    options = list(range(len(reuse.pairs)))
    if st.session_state.get(f"{_KEY}_of") != wanted or f"{_KEY}_pairs" not in st.session_state:
        usual = default_pairs(reuse.first.ids, reuse.second.ids)
        st.session_state[f"{_KEY}_of"] = wanted
        st.session_state[f"{_KEY}_pairs"] = [at for at in options if reuse.pairs[at] in usual]
    chosen = st.multiselect(
        t("Tokens whose K and V are taken from the first prompt"),
        options,
        format_func=lambda at: pair_name(t, reuse, at),
        key=f"{_KEY}_pairs",
    )
    return [reuse.pairs[at] for at in sorted(chosen)]


def _show(page: Page, result: CheatResult) -> None:
    t = page.t
    with st.container(key="prefix_damage"):
        for line in damage(t, result):
            st.text(line)
    left, right = st.columns([3, 4], gap="large")
    left.dataframe(top_five(t, result), hide_index=True, key="prefix_cheat_top")
    with right:
        for name, text in texts(t, result):
            st.caption(name)
            st.code(text, language=None, wrap_lines=True)


def damage(t: Translate, result: CheatResult) -> list[str]:
    """The divergence, and whether the next token and the text change."""
    (true, before), (other, after) = result.facts.top[0], result.facts.top_cheated[0]
    frame = result.top()
    names = [frame.loc[(frame["run"] == run) & (frame["rank"] == 1), "token"].iloc[0] for run in ("true", "cheated")]
    told = [t("KL divergence of the next token's distribution: {kl} nats.").format(kl=f"{result.kl:.4g}")]
    if true == other:
        same = t("The likeliest next token stays “{token}”, with {after} instead of {before}.")
        told.append(same.format(token=names[0], before=f"{before:.1%}", after=f"{after:.1%}"))
    else:
        change = t("The likeliest next token is “{after}” ({second}) instead of “{before}” ({first}).")
        told.append(change.format(before=names[0], after=names[1], first=f"{before:.1%}", second=f"{after:.1%}"))
    if result.text == result.text_cheated:
        told.append(t("The greedy text stays the same over {count} tokens.").format(count=len(result.facts.ids)))
    return told


def top_five(t: Translate, result: CheatResult) -> pd.DataFrame:
    """Rank by rank: the next token and its probability, true and cheated."""
    frame = result.top()
    true, cheated = (frame[frame["run"] == run].reset_index(drop=True) for run in ("true", "cheated"))
    return pd.DataFrame(
        {
            t("rank"): true["rank"],
            t("true"): true["token"],
            t("probability"): true["probability"].map("{:.1%}".format),
            t("cheated"): cheated["token"],
            t("probability, cheated"): cheated["probability"].map("{:.1%}".format),
        }
    )


def texts(t: Translate, result: CheatResult) -> list[tuple[str, str]]:
    """Both greedy continuations with what they are."""
    return [
        (t("The true text goes on"), result.text),
        (t("The cheated text goes on"), result.text_cheated),
    ]
