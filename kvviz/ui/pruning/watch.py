"""One policy, watched: a model reads and writes under it, and every token that leaves the cache says why."""

import streamlit as st

from kvviz.ui.pruning.watch_after import after
from kvviz.ui.pruning.watch_inputs import ask, run_or_stop
from kvviz.ui.pruning.watch_live import live
from kvviz.ui.shell import Page


def show(page: Page) -> None:
    """The whole view."""
    wanted, prompt = ask(page)
    run = run_or_stop(page, wanted, prompt)
    if run is None:
        st.caption(page.t("Press Run: the model reads the prompt and writes on, and the policy drops tokens for good."))
    elif run.job.running:
        live(page, run, wanted)
    else:
        after(page, run, wanted)
