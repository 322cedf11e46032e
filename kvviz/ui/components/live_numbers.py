"""Figures in large type while a model works: one element on the page, so that a change costs next to nothing."""

from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st

from kvviz.ui.components.styles import palette_css, source


class Fact(NamedTuple):
    """One figure: its name for the page; for people what it is, the value, a small line below, an explanation."""

    name: str
    label: str
    value: str
    below: str
    help: str | None = None


_NUMBERS = st.components.v2.component(
    "kvviz.live_numbers",
    html='<div class="kvviz"></div>\n',
    css=palette_css() + source("live_numbers.css"),
    js=source("shared.js", "live_numbers.js"),
)


def live_numbers(facts: Sequence[Fact], *, key: str) -> None:
    """Show `facts` side by side, in the place and size that `st.metric` gives them."""
    _NUMBERS(key=key, data=[fact._asdict() for fact in facts])
