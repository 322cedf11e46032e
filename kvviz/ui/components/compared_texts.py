"""Texts in columns: what each has in common with the first, and from where on it goes its own way."""

from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st

from kvviz.ui.components.styles import palette_css, source

_TEXTS = st.components.v2.component(
    "kvviz.compared_texts",
    html='<div class="kvviz"><div class="cards"></div></div>',
    css=palette_css() + source("compared_texts.css"),
    js=source("shared.js", "compared_texts.js"),
)


class Card(NamedTuple):
    """One text: `same` is what it shares with the first one, `rest` what follows and differs."""

    title: str
    note: str
    same: str
    rest: str = ""


def compared_texts(cards: Sequence[Card], *, key: str) -> None:
    """Show the texts side by side, as many in a row as there is room for; nothing in them is obeyed as markup."""
    # a lone surrogate cannot travel as UTF-8; it is shown as its escape
    data = [
        {name: part.encode("utf-8", "backslashreplace").decode() for name, part in c._asdict().items()} for c in cards
    ]
    _TEXTS(key=key, data={"cards": data})
