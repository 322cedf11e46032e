"""A page with several questions: a switch, and one view of the page for each."""

from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from kvviz.ui.shell import Page
from kvviz.ui.url import from_url, to_url


class View(NamedTuple):
    """One view: its name on the switch, the question it answers, what draws it."""

    title: str
    question: str
    show: Callable[[Page], None]


def show_views(page: Page, views: dict[str, View]) -> None:
    """The switch, under it the chosen view's question, and the view; the choice is in the URL."""
    t, names = page.t, list(views)
    from_url("view", names, names[0])
    chosen = st.segmented_control(
        t("Question"),
        names,
        format_func=lambda name: t(views[name].title),
        key="view",
        required=True,
        label_visibility="collapsed",
    )
    to_url("view", names[0])
    st.subheader(t(views[chosen].question), anchor=False)
    views[chosen].show(page)
