"""How a run is doing, in a line and in five numbers."""

import streamlit as st

from kvviz.analysis.runs import speed
from kvviz.locale import N_, Translate
from kvviz.records import Step
from kvviz.ui.components.live_numbers import Fact, live_numbers
from kvviz.ui.growth.run import GrowthRun, Wanted
from kvviz.ui.text import failure
from kvviz.units import size

# why a run ended -> what is said of its number of steps
ENDS = {
    "end": N_("The model ended its text after {count} tokens."),
    "limit": N_("All {count} new tokens are written."),
    "context": N_("After {count} tokens the model's context is full."),
}


def status(t: Translate, run: GrowthRun, steps: list[Step], wanted: Wanted | None) -> None:
    """Progress, the way it ended, or what went wrong; and whether the inputs have changed since."""
    if run.job.error is not None:
        st.error(failure(run.job.error, t), icon=":material/error:")
    elif run.job.running:
        done, goal, told = _progress(t, run, len(steps))
        st.progress(min(1.0, done / goal), told)
    elif run.job.stopped:
        st.info(t("Stopped after {count} tokens.").format(count=len(steps)), icon=":material/stop_circle:")
    elif steps and steps[-1].finish:
        st.caption(t(ENDS[steps[-1].finish]).format(count=len(steps)))
    if wanted is not None and wanted != run.wanted:
        told = t("The settings above have changed since; what is shown belongs to the earlier ones.")
        st.warning(told, icon=":material/history:")


def _progress(t: Translate, run: GrowthRun, done: int) -> tuple[int, int, str]:
    """How many of how many, and in words."""
    if run.wanted.compare and run.finished_decoding:
        again = len(run.recomputed)
        told = t("Again without the cache: token {done} of {goal}")
        return again, done, told.format(done=again, goal=done)
    if not done:
        if run.ahead:
            return 0, 1, t("Waiting for a turn: {count} ahead of you").format(count=run.ahead)
        return 0, 1, t("Prefill: {count} tokens at once").format(count=len(run.prompt.ids))
    goal = run.wanted.max_new_tokens
    return done, goal, t("Decode: token {done} of {goal}").format(done=done, goal=goal)


def numbers(t: Translate, steps: list[Step], live: bool = False) -> None:
    """Tokens, bytes and times after the last of `steps`; `live` ones are made to change many times."""
    facts = _facts(t, steps)
    if live:
        return live_numbers(facts, key="live_numbers")
    for column, fact in zip(st.columns(len(facts)), facts, strict=True):
        with column.container(key=f"number_{fact.name}", gap=None):
            st.metric(fact.label, fact.value, help=fact.help)
            st.caption(fact.below)


def _facts(t: Translate, steps: list[Step]) -> list[Fact]:
    now, pace = steps[-1], speed(steps)
    per_token, rate = pace["milliseconds_per_token"], pace["tokens_per_second"]
    room = t(
        "The storage behind the tensors. Room is taken for 256 tokens at a time, so that no step copies the cache."
    )
    return [
        Fact("seen", t("Tokens seen"), f"{now.seen:,}", t("{count} stored").format(count=f"{now.stored:,}")),
        Fact("bytes", t("Cache"), size(now.cache_bytes), t("{bytes} bytes").format(bytes=f"{now.cache_bytes:,}")),
        Fact("allocated", t("Allocated"), size(now.allocated_bytes), _allocator(t, now), room),
        Fact("prefill", t("Prefill"), _ms(pace["prefill_seconds"] * 1000), _together(t, steps[0])),
        Fact(
            "decode",
            t("Decode, per token"),
            _ms(per_token),
            _rate(t, rate),
            t("The median of all decode steps so far."),
        ),
    ]


def _ms(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:,.0f} ms" if milliseconds >= 100 else f"{milliseconds:.1f} ms"


def _rate(t: Translate, rate: float | None) -> str:
    return "" if rate is None else t("{rate} tokens/s").format(rate=f"{rate:,.1f}")


def _together(t: Translate, prefill: Step) -> str:
    return t("{count} tokens at once").format(count=f"{len(prefill.fed):,}")


def _allocator(t: Translate, step: Step) -> str:
    if step.device_bytes is None:
        return t("{bytes} bytes").format(bytes=f"{step.allocated_bytes:,}")
    told = t("CUDA allocator: {now}, peak {peak}")
    return told.format(now=size(step.device_bytes), peak=size(step.device_peak_bytes))
