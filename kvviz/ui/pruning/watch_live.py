"""A run under a policy on the screen, while it goes on: text, cache grid, bytes against the full cache."""

import numpy as np
import streamlit as st

from kvviz.analysis.runs import steps_frame
from kvviz.palette import colour
from kvviz.records import Step
from kvviz.ui.components.heads_grid import heads_grid
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.growth.live_charts import chart, line
from kvviz.ui.pruning.watch_run import Wanted, WatchRun, full_frame
from kvviz.ui.pruning.watch_status import done_so_far, numbers, status
from kvviz.ui.shell import Page

_HZ = 6  # redraws a second; more would take time from the model
_LIVE_POINTS = 200  # on a chart that is drawn again at every tick
_MIB = 1024**2


def live(page: Page, run: WatchRun, wanted: Wanted | None) -> None:
    """Draw `run` again and again until its job has ended; then the whole page runs once more."""
    st.fragment(_watch, run_every=1 / _HZ)(page, run, wanted)


def _watch(page: Page, run: WatchRun, wanted: Wanted | None) -> None:
    if not run.job.running:
        st.rerun()
    t, steps = page.t, list(run.steps)
    status(t, run, steps, wanted)
    if not steps:
        return
    numbers(t, run, steps)
    done_so_far(t, run, steps[-1])
    strip(page, run, steps, working=True)
    grid(page, run, steps, working=True)
    st.markdown(t("**How much is that of a full cache?**"))
    measured = steps_frame(steps[:: max(1, len(steps) // _LIVE_POINTS)])
    full = full_frame(run, steps[-1].seen)
    series = [
        line(t("full cache: formula"), full["seen_tokens"], full["bytes"] / _MIB, colour("evicted", page.theme)),
        line(
            t("this cache: measured"), measured["seen_tokens"], measured["cache_bytes"] / _MIB, colour("k", page.theme)
        ),
    ]
    series[0] |= {"showSymbol": False}
    series[0]["lineStyle"]["type"] = "dashed"
    chart(series, t("tokens seen"), t("cache (MiB)"), key="watch_live_bytes")


def strip(page: Page, run: WatchRun, steps: list[Step], *, working: bool, selected: int | None = None) -> None:
    """The text after the last of `steps`, shaded by how many heads still hold each token."""
    t, text, now = page.t, run.text(len(steps)), steps[-1]
    weights = np.zeros(len(text.tokens), dtype=np.float32)
    weights[: now.seen] = run.held_share(now)
    token_strip(
        text.tokens,
        origins=text.origins,
        weights=weights,
        weight_colour="k",
        scale=[(0, t("in no head's cache")), (1, t("in every head's cache"))],
        fresh_from=len(text.tokens) - 1 if working else None,
        live=working,
        selected=selected,
        height=150,
        on_select=None if working else _chosen,
        key="watch_live_strip" if working else "watch_strip",
        t=t,
    )


def _chosen() -> None:
    """A click on a token: the number beside it follows."""
    if st.session_state["watch_strip"]["selected"] is not None:
        st.session_state["watch_token"] = st.session_state["watch_strip"]["selected"]


def grid(page: Page, run: WatchRun, steps: list[Step], *, working: bool, selected: int | None = None) -> None:
    """What every layer holds after the last of `steps`, with holes where the policy evicted."""
    t, now = page.t, steps[-1]
    st.markdown(
        t("**What is left in the cache?** Each cell is one token in one layer; a hole is a token that is gone.")
    )
    last = len(run.prompt.ids) + run.wanted.max_new_tokens - 1 if working else run.steps[-1].seen
    heads_grid(
        run.holding(now),
        run.heads,
        kinds=[layer.kind for layer in now.layers],
        prefill=len(run.prompt.ids),
        labels=run.text(len(steps)).labels[: now.seen],
        capacity=last,
        selected=selected,
        live=working,
        key="watch_grid",
        t=t,
    )
