"""The run on the screen: text, cache grid, bytes and times, while it goes on and at any step afterwards."""

import numpy as np
import streamlit as st

from kvviz.analysis.formula import predicted_frame
from kvviz.analysis.runs import kinds_frame, steps_frame
from kvviz.figures.growth import cache_growth, token_times
from kvviz.geometry.memory import bytes_per_token
from kvviz.locale import Translate
from kvviz.records import Step
from kvviz.ui.components.cache_grid import cache_grid
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.growth.live_figures import live_figures
from kvviz.ui.growth.run import GrowthRun, Wanted
from kvviz.ui.growth.status import numbers, status
from kvviz.ui.shell import Page
from kvviz.units import size

_HZ = 5  # redraws a second; each makes Streamlit look at every element of the page again


def show_run(page: Page, run: GrowthRun, wanted: Wanted | None) -> int | None:
    """Draw `run`, again and again while it works; the step that is shown, None when there is none to choose."""
    if run.job.running:
        st.fragment(_watch, run_every=1 / _HZ)(page, run, wanted)
        return None
    steps = run.steps
    status(page.t, run, steps, wanted)
    if not steps:
        return None
    at = len(steps) - 1
    if at:
        at = st.slider(page.t("Back to step"), 0, at, at, key="step", help=page.t("Step 0 is the prefill."))
    _draw(page, run, steps, at, working=False)
    return at


def _watch(page: Page, run: GrowthRun, wanted: Wanted | None) -> None:
    if not run.job.running:
        st.rerun()  # the whole page once more: buttons, final figures
    steps = list(run.steps)
    status(page.t, run, steps, wanted)
    if steps:
        _draw(page, run, steps, len(steps) - 1, working=True)


def _draw(page: Page, run: GrowthRun, steps: list[Step], at: int, working: bool) -> None:
    t, text = page.t, run.text(at)
    numbers(t, steps[: at + 1], live=working)
    token_strip(
        text.tokens,
        origins=text.origins,
        fresh_from=len(text.tokens) - 1,
        live=working,
        height=124,
        key="run_strip",
        t=t,
    )
    st.markdown(t("**What the cache holds.** Each cell is one token in one layer, shaded by the length of its vector."))
    _grid(t, run, steps, at, [token.label for token in text.tokens], working)
    if working:
        live_figures(t, steps, _titles(t))
    else:
        _charts(page, run, steps[: at + 1])


def _grid(t: Translate, run: GrowthRun, steps: list[Step], at: int, labels: list[str], working: bool) -> None:
    keys, values = (
        np.concatenate([getattr(step, name) for step in steps], axis=1) for name in ("key_norms", "value_norms")
    )
    now = steps[at]
    cache_grid(
        keys[:, : now.seen],
        values[:, : now.seen],
        [layer.stored for layer in now.layers],
        kinds=[layer.kind for layer in now.layers],
        prefill=len(steps[0].fed),
        labels=labels[: now.seen],
        capacity=len(run.prompt.ids) + run.wanted.max_new_tokens - 1 if working else steps[-1].seen,
        live=working,
        spans=(None, None) if working else (_span(keys), _span(values)),
        key="grid",
        t=t,
    )


def _span(norms: np.ndarray) -> tuple[float, float] | None:
    """Smallest and largest over the whole run, so that a shade means the same at every step of it."""
    known = norms[np.isfinite(norms)]
    return (float(known.min()), float(known.max())) if known.size else None


def _titles(t: Translate) -> tuple[str, str]:
    return (
        t("**How fast does it grow?** By layer kind: measured, and as the formula says."),
        t("**How long does a token take?** The prompt's all at once, then one by one."),
    )


def _charts(page: Page, run: GrowthRun, steps: list[Step]) -> None:
    t, itemsize = page.t, run.lm.dtype.itemsize
    left, right = st.columns(2, gap="large")
    for column, title in zip((left, right), _titles(t), strict=True):
        column.markdown(title)
    predicted = predicted_frame(run.shapes, itemsize, steps[-1].seen)
    growth = cache_growth(kinds_frame(steps), predicted, t, page.theme)
    told = t("Cache bytes against tokens: {size} a token while every layer grows")
    alt = told.format(size=size(bytes_per_token(run.shapes, itemsize)))
    left.plotly_chart(growth, theme=None, key="bytes", alt=alt)
    times = token_times(steps_frame(steps), t, page.theme)
    right.plotly_chart(times, theme=None, key="times", alt=t("Milliseconds per token, prefill and decode"))
