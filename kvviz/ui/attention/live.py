"""How far a measuring run is, how it ended, and whether the inputs have changed since."""

import streamlit as st

from kvviz.geometry.layers import layer_shapes
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.run import AttentionRun, Wanted
from kvviz.ui.shell import Page
from kvviz.ui.text import failure


def show_run(page: Page, run: AttentionRun, wanted: Wanted | None) -> AttentionSummary | None:
    """Progress while it works; its summary when it has ended well."""
    t = page.t
    if run.job.running:
        st.fragment(_watch, run_every=0.25)(page, run)
        return None
    if run.job.error is not None:
        st.error(failure(run.job.error, t), icon=":material/error:")
    elif run.summary is None:
        st.info(t("Stopped after {count} layers; nothing is kept of them.").format(count=run.layers_done))
    if wanted != run.wanted:  # None, too: inputs that give no text are not those of what is shown
        told = t("The settings above have changed since; what is shown belongs to the earlier ones.")
        st.warning(told, icon=":material/history:")
    return run.summary


def _watch(page: Page, run: AttentionRun) -> None:
    if not run.job.running:
        st.rerun()
    t, total = page.t, len(layer_shapes(run.lm.config))
    told = t("Measured {done} of {total} layers").format(done=run.layers_done, total=total)
    if run.ahead and not run.layers_done:
        told = t("Waiting for a turn: {count} ahead of you").format(count=run.ahead)
    st.progress(min(1.0, run.layers_done / total), told)
