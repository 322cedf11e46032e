"""The StreamingLLM picture: a long text read with the full cache, in a window, and in a window with sinks."""

import streamlit as st

from kvviz.analysis.streaming import sinks_frame
from kvviz.locale import Translate
from kvviz.ui.pruning.policy import card
from kvviz.ui.pruning.streaming_inputs import Wanted, ask
from kvviz.ui.pruning.streaming_parts import MODE_NAMES, modes_table, picture, sinks_figure, sinks_table
from kvviz.ui.pruning.streaming_save import take_away
from kvviz.ui.pruning.streaming_words import drawn, verdict
from kvviz.ui.pruning.streaming_work import Streamed, read_all, seconds_needed, shelf
from kvviz.ui.pruning.task import Progress, Turn, result_of, run_or_stop
from kvviz.ui.shell import Page

WINDOW = 256  # tokens of the running mean when nobody has chosen


def show(page: Page) -> None:
    """The whole view."""
    t, wanted = page.t, ask(page)
    known = shelf()

    def work(progress: Progress, turn: Turn) -> Streamed:
        return read_all(page.resident.model, wanted, known, progress, turn)

    if wanted is not None:
        st.caption(_time_needed(t, wanted))
    task = run_or_stop(page, "streaming", wanted, None if wanted is None else work, t("Read"))
    if task is None:
        st.caption(t("Press Read: the model reads the text once with the full cache and once with each small one."))
        return
    found = result_of(page, task, wanted)
    if found is not None:
        _picture(page, found)
        _sinks(page, found)
        _modes(page, found)
        shown = (0, drawn(found))
        for policy in (policy for count, policy in found.wanted.arms if count in shown):
            card(page, policy)
        take_away(page, found, st.session_state.get("streaming_window", WINDOW))


def _time_needed(t: Translate, wanted: Wanted) -> str:
    seconds, measured = seconds_needed(wanted, shelf())
    if not seconds:
        return t("All of this has been read already: it is there at once.")
    facts = {"tokens": f"{len(wanted.ids):,}", "readings": len(wanted.arms) + 1, "time": _duration(t, seconds)}
    if measured:
        return t("{tokens} tokens, {readings} caches: about {time}, as fast as the last run was.").format(**facts)
    return t("{tokens} tokens, {readings} caches: about {time} for the default model on two CPU cores.").format(**facts)


def _duration(t: Translate, seconds: float) -> str:
    if seconds < 90:
        return t("{count} s").format(count=max(1, round(seconds)))
    return t("{count} min").format(count=round(seconds / 60))


def _picture(page: Page, found: Streamed) -> None:
    t = page.t
    options = [count for count in (16, 64, 256, 1024) if count <= len(found.full)] or [len(found.full)]
    default = max((count for count in options if count <= min(WINDOW, len(found.wanted.ids) // 8)), default=options[0])
    if st.session_state.get("streaming_window") not in options:
        st.session_state["streaming_window"] = default
    with st.container(key="streaming_verdict"):
        for sentence in verdict(t, found):
            st.markdown(sentence)
    window = st.segmented_control(t("Mean of (tokens)"), options, key="streaming_window", required=True)
    told = t("Running loss against position, with the full cache, the window, and sinks + window")
    st.plotly_chart(picture(page, found, window), theme=None, key="streaming_loss", alt=told)
    mode = t(MODE_NAMES[found.wanted.mode])
    told = t(
        "Sinks + window here: {mode}. Every token is predicted from the true tokens before it that the cache still "
        "holds; the cache's {budget} tokens include the newest one."
    )
    st.caption(told.format(mode=mode, budget=f"{found.wanted.budget:,}"))


def _sinks(page: Page, found: Streamed) -> None:
    t = page.t
    st.subheader(t("How many sinks does it take?"), anchor=False)
    measured = sinks_frame(found.by_sinks, found.wanted.budget)
    if measured.empty:
        st.info(verdict(t, found)[0])
        return
    told = t("Perplexity by number of sinks, measured here, beside the paper's models")
    st.plotly_chart(sinks_figure(page, found, measured), theme=None, key="streaming_sinks_bars", alt=told)
    st.table(sinks_table(t, found, measured), hide_index=True)
    st.caption(
        t(
            "Perplexity after the first eviction. All caches hold the same number of tokens: a sink takes a place of "
            "the window. Published: StreamingLLM (arXiv 2309.17453), Table 2, 400,000 tokens of PG19, caches of 2,048 "
            "tokens (Llama-2: 4,096). Other models, texts and sizes: compare the shape, not the level."
        )
    )


def _modes(page: Page, found: Streamed) -> None:
    """What the position modes come to that have been read so far, once there are two."""
    t, table = page.t, modes_table(page.t, found)
    if len(table) < 2:
        st.caption(t("Choose other positions above and press Read: both will stand beside each other here."))
        return
    st.subheader(t("Do positions matter?"), anchor=False)
    st.table(table, hide_index=True)
    st.caption(
        t(
            "Perplexity after the first eviction, same text and cache. Without sinks, original and cache-relative "
            "positions are the same: rotary attention sees distances, and within a window they stay. Naive positions "
            "put a new token at a wrong distance from all that is kept."
        )
    )
