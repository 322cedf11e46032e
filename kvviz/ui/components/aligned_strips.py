"""Aligned strips: two texts as tokens, one under the other, position by position."""

from collections.abc import Mapping, Sequence

import streamlit as st

from kvviz.locale import Translate
from kvviz.ui.components.styles import palette_css, source
from kvviz.ui.components.token_strip import KINDS, StripToken

STATES = ("reused", "again", "parted", "rest", "only")

_HTML = """<div class="kvviz">
<div class="list" role="table" tabindex="0"></div>
<div class="foot"><span class="legend"></span><span class="note" aria-live="polite"></span></div>
</div>"""

_ALIGNED = st.components.v2.component(
    "kvviz.aligned_strips",
    html=_HTML,
    css=palette_css() + source("aligned_strips.css"),
    js=source("shared.js", "aligned_strips.js"),
)


def states(shared: int, reused: int, first: int, second: int) -> list[str]:
    """The state (one of `STATES`) of every position of two texts of `first` and `second` tokens."""
    found = []
    for at in range(max(first, second)):
        if at < shared:
            found.append("reused" if at < reused else "again")
        elif at >= min(first, second):
            found.append("only")
        else:
            found.append("parted" if at == shared else "rest")
    return found


def aligned_strips(
    first: Sequence[StripToken],
    second: Sequence[StripToken],
    columns: Sequence[str],
    *,
    key: str,
    t: Translate,
    names: Mapping[str, str],
    height: int = 340,
) -> None:
    """Show both texts, each column in the colour of its state; `names` says what a state is called.

    Where both have the same token it stands once, over both lines. Raises ValueError for a wrong number of columns
    or an unknown state.
    """
    if len(columns) != max(len(first), len(second)):
        raise ValueError(f"{max(len(first), len(second))} positions but {len(columns)} columns")
    if unknown := set(columns) - set(STATES):
        raise ValueError(f"{', '.join(sorted(unknown))} is none of {', '.join(STATES)}")
    data = {
        "rows": [_row(first), _row(second)],
        "columns": [STATES.index(each) for each in columns],
        "states": list(STATES),
        "names": [names[each] for each in STATES],
        "height": height,
        "words": {
            "name": t("Both prompts, token by token: {count} positions").format(count=len(columns)),
            "one": t("Position {position}, id {id}: {label}"),
            "two": t("Position {position}: id {id} “{label}” and id {other} “{that}”"),
            "rows": [t("first"), t("second")],
        },
    }
    _ALIGNED(key=key, data=data)


def _row(tokens: Sequence[StripToken]) -> dict[str, object]:
    return {
        # a lone surrogate cannot travel as UTF-8; it is shown as its escape
        "labels": [token.label.encode("utf-8", "backslashreplace").decode() for token in tokens],
        "ids": [int(token.id) for token in tokens],
        "kinds": [KINDS.index(token.kind) for token in tokens],
    }
