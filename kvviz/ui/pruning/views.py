"""The questions of the Pruning page, one view each."""

from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from kvviz.locale import N_
from kvviz.ui.pruning import watch
from kvviz.ui.shell import Page
from kvviz.ui.url import from_url, to_url


class View(NamedTuple):
    """One view: its name on the switch, the question it answers, what draws it."""

    title: str
    question: str
    show: Callable[[Page], None]


VIEWS: dict[str, View] = {
    "watch": View(N_("One policy, watched"), N_("Which tokens does a policy throw away, when and why?"), watch.show),
}


def choose_view(page: Page) -> str:
    """The switch, and under it the chosen view's question."""
    t, names = page.t, list(VIEWS)
    from_url("view", names, names[0])
    chosen = st.segmented_control(
        t("Question"),
        names,
        format_func=lambda name: t(VIEWS[name].title),
        key="view",
        required=True,
        label_visibility="collapsed",
    )
    to_url("view", names[0])
    st.subheader(t(VIEWS[chosen].question), anchor=False)
    return chosen
