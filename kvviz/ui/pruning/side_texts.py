"""How each policy's model writes on after the same text, and where its words first differ."""

import streamlit as st

from kvviz.locale import Translate
from kvviz.ui.components.compared_texts import Card, compared_texts
from kvviz.ui.pruning.side_arms import ARMS, FULL
from kvviz.ui.pruning.side_work import Compared
from kvviz.ui.shell import Page
from kvviz.units import size


def texts(page: Page, found: Compared) -> None:
    """The texts in columns, the full cache's first."""
    if not found.written:
        return
    t = page.t
    st.subheader(t("What does the model write next?"), anchor=False)
    compared_texts(cards(t, found), key="side_texts")
    told = t(
        "After the same text, the most likely token each time. Shaded and underlined: from the first token that "
        "differs from the full cache's. The whole text is the prompt here; who evicts at a prompt's end does so there."
    )
    st.caption(told)


def cards(t: Translate, found: Compared) -> list[Card]:
    """One card an arm."""
    made = []
    for arm, written in found.written.items():
        note = t("{stored} tokens stored, {bytes}").format(
            stored=f"{written.stored:,}", bytes=size(written.cache_bytes)
        )
        cut = None
        if arm != FULL.id:
            cut = found.difference(arm)
            note += " · " + (
                t("differs from new token {number} on").format(number=cut + 1)
                if cut is not None
                else t("the same {count} tokens").format(count=len(written.ids))
            )
        same, rest = written.pieces[:cut], () if cut is None else written.pieces[cut:]
        title = t(FULL.title if arm == FULL.id else ARMS[arm].title)
        made.append(Card(title, note, "".join(same), "".join(rest)))
    return made
