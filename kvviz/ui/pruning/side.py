"""Policies side by side: one text, one budget, several ideas of what to throw away."""

import streamlit as st

from kvviz.ui.pruning.side_inputs import ask
from kvviz.ui.pruning.side_loss import losses
from kvviz.ui.pruning.side_lost import agreement, lost
from kvviz.ui.pruning.side_save import take_away
from kvviz.ui.pruning.side_texts import texts
from kvviz.ui.pruning.side_work import Compared, compare
from kvviz.ui.pruning.task import Progress, Turn, result_of, run_or_stop
from kvviz.ui.shell import Page


def show(page: Page) -> None:
    """The whole view."""
    wanted = ask(page)
    lm = page.resident.model if page.resident is not None else None

    def work(progress: Progress, turn: Turn) -> Compared:
        return compare(lm, wanted, progress, turn)

    task = run_or_stop(page, "side", wanted, None if wanted is None else work, page.t("Compare"))
    if task is None:
        st.caption(page.t("Press Compare: the model reads the text once under each policy, then writes on."))
        return
    found = result_of(page, task, wanted)
    if found is not None:
        losses(page, found)
        texts(page, found)
        lost(page, found)
        agreement(page, found)
        take_away(page, found)
