"""Budget sweep: what each policy's loss comes to as its budget shrinks."""

import streamlit as st

from kvviz.ui.pruning.side_arms import choose_arms
from kvviz.ui.pruning.text import ask_text
from kvviz.ui.shell import Page

_DEFAULT = ["window", "sinks_window", "h2o"]


def show(page: Page) -> None:
    """The whole view."""
    ask_text(page, "sweep")
    choose_arms(page.t, "sweep", _DEFAULT)
    st.caption(page.t("Press Sweep: the model reads the text under each policy at each budget."))
