"""The run on the screen: text, cache grid, bytes and times, while it goes on and at any step afterwards."""

import numpy as np
import streamlit as st

from kvviz.analysis.formula import predicted_frame
from kvviz.analysis.runs import kinds_frame, speed, steps_frame
from kvviz.errors import Refused
from kvviz.figures.growth import cache_growth, token_times
from kvviz.geometry.memory import bytes_per_token
from kvviz.locale import Translate
from kvviz.records import Step
from kvviz.ui.components.cache_grid import cache_grid
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.growth.live_charts import live_bytes, live_times
from kvviz.ui.growth.run import GrowthRun, Wanted
from kvviz.ui.shell import Page
from kvviz.units import size

_HZ = 6  # redraws a second; more would take time from the model


def show_run(page: Page, run: GrowthRun, wanted: Wanted | None) -> None:
    """Draw `run`, alone and again and again while it works."""
    working = run.job.running
    st.fragment(_view, run_every=1 / _HZ if working else None)(page, run, wanted, working)


def _view(page: Page, run: GrowthRun, wanted: Wanted | None, working: bool) -> None:
    t = page.t
    if working and not run.job.running:
        st.rerun()  # the whole page once more: buttons, final figures
    steps = list(run.steps)
    _status(t, run, steps, wanted)
    if not steps:
        return
    at = len(steps) - 1
    if not working and at:
        at = st.slider(t("Back to step"), 0, at, at, key="step", help=t("Step 0 is the prefill."))
    _numbers(t, steps[: at + 1])
    text = run.text(at)
    token_strip(text.tokens, origins=text.origins, fresh_from=len(text.tokens) - 1, live=working, key="run_strip", t=t)
    st.markdown(t("**What the cache holds.** Each cell is one token in one layer, shaded by the length of its vector."))
    _grid(t, run, steps, at, working)
    _charts(page, run, steps[: at + 1], working)


def _status(t: Translate, run: GrowthRun, steps: list[Step], wanted: Wanted | None) -> None:
    if run.job.error is not None:
        error = run.job.error
        told = error.sentence(t) if isinstance(error, Refused) else t("The run failed. The server's log says why.")
        st.error(told, icon=":material/error:")
    elif run.job.running:
        _working(t, run, steps)
    elif run.job.stopped:
        st.info(t("Stopped after {count} tokens.").format(count=len(steps)), icon=":material/stop_circle:")
    if wanted is not None and wanted != run.wanted:
        st.warning(
            t("The settings above have changed since; what is shown belongs to the earlier ones."),
            icon=":material/history:",
        )


def _working(t: Translate, run: GrowthRun, steps: list[Step]) -> None:
    goal, done = run.wanted.max_new_tokens, len(steps)
    if run.recomputed or (steps and steps[-1].finish and run.wanted.compare):
        again = len(run.recomputed)
        st.progress(
            min(1.0, again / done), t("Again without the cache: token {done} of {goal}").format(done=again, goal=done)
        )
    elif run.ahead and not steps:
        st.progress(0.0, t("Waiting for a turn: {count} ahead of you").format(count=run.ahead))
    elif not steps:
        st.progress(0.0, t("Prefill: {count} tokens at once").format(count=len(run.prompt.ids)))
    else:
        st.progress(min(1.0, done / goal), t("Decode: token {done} of {goal}").format(done=done, goal=goal))


def _numbers(t: Translate, steps: list[Step]) -> None:
    now, pace = steps[-1], speed(steps)
    columns = st.columns(5)
    decode = pace["milliseconds_per_token"]
    rate = pace["tokens_per_second"]
    facts = (
        ("seen", t("Tokens seen"), f"{now.seen:,}", t("{count} stored in the fullest layer").format(count=f"{now.stored:,}")),
        ("bytes", t("Cache"), size(now.cache_bytes), t("{bytes} bytes").format(bytes=f"{now.cache_bytes:,}")),
        ("allocated", t("Allocated"), size(now.allocated_bytes), _device(t, now)),
        ("prefill", t("Prefill"), f"{pace['prefill_seconds'] * 1000:,.0f} ms", t("{count} tokens at once").format(count=len(steps[0].fed))),
        ("decode", t("Decode"), "–" if decode is None else f"{decode:,.1f} ms", "" if rate is None else t("{rate} tokens/s").format(rate=f"{rate:,.1f}")),
    )  # fmt: skip
    for column, (name, label, value, below) in zip(columns, facts, strict=True):
        with column.container(key=f"number_{name}"):
            st.metric(label, value)
            st.caption(below)


def _device(t: Translate, step: Step) -> str:
    if step.device_bytes is None:
        return t("storage behind the tensors")
    return t("CUDA allocator: {now}, peak {peak}").format(
        now=size(step.device_bytes), peak=size(step.device_peak_bytes)
    )


def _grid(t: Translate, run: GrowthRun, steps: list[Step], at: int, working: bool) -> None:
    keys, values = (
        np.concatenate([getattr(step, name) for step in steps], axis=1) for name in ("key_norms", "value_norms")
    )
    now = steps[at]
    labels = [token.label for token in run.text(at).tokens[: now.seen]]
    cache_grid(
        keys[:, : now.seen],
        values[:, : now.seen],
        [layer.stored for layer in now.layers],
        kinds=[layer.kind for layer in now.layers],
        prefill=len(steps[0].fed),
        labels=labels,
        capacity=len(run.prompt.ids) + run.wanted.max_new_tokens - 1 if working else steps[-1].seen,
        live=working,
        spans=None if working else (_span(keys), _span(values)),
        key="grid",
        t=t,
    )


def _span(norms: np.ndarray) -> tuple[float, float] | None:
    known = norms[np.isfinite(norms)]
    return (float(known.min()), float(known.max())) if known.size else None


def _charts(page: Page, run: GrowthRun, steps: list[Step], working: bool) -> None:
    t = page.t
    itemsize = run.lm.dtype.itemsize
    left, right = st.columns(2)
    measured, times = kinds_frame(steps), steps_frame(steps)
    left.markdown(t("**How fast does it grow?** By layer kind, measured and as the formula says."))
    right.markdown(t("**How long does a token take?** All of the prompt at once, then one by one."))
    if working:
        with left:
            live_bytes(measured, page, key="live_bytes")
        with right:
            live_times(times, page, key="live_times")
        return
    predicted = predicted_frame(run.shapes, itemsize, steps[-1].seen)
    per_token = size(bytes_per_token(run.shapes, itemsize))
    left.plotly_chart(
        cache_growth(measured, predicted, t, page.theme), theme=None, key="bytes",
        alt=t("Cache bytes against tokens: {count} a token while every layer grows").format(count=per_token),
    )  # fmt: skip
    right.plotly_chart(
        token_times(times, t, page.theme), theme=None, key="times", alt=t("Milliseconds per token, prefill and decode")
    )
