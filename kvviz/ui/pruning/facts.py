"""Where pruning hurts: facts at chosen depths of a text, and whether the model still knows them at its end."""

import streamlit as st

from kvviz.ui.pruning.facts_inputs import ask
from kvviz.ui.shell import Page


def show(page: Page) -> None:
    """The whole view."""
    ask(page)
    st.caption(page.t("Press Ask: the model reads texts with facts in them under each policy, and is asked for each."))
