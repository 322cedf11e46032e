"""Choices that live in the URL by their language-neutral ids.

Streamlit's own `bind="query-params"` writes an option as it is *shown*, so a link made in one language would
mean nothing in another. Use it for numbers and switches, and this for options with a translated text.
"""

from collections.abc import Sequence

import streamlit as st

PAGE = "kvviz.page"  # where the session keeps the path of the page it shows


def from_url(key: str, options: Sequence[str], default: str) -> None:
    """Before the widget `key` is drawn on a page for the first time: the URL's choice, the one kept, or `default`."""
    page, kept = st.session_state.get(_kept(key), (None, None))
    # The same key on another page is another widget to Streamlit, which forgets what the visitor has not clicked on.
    moved = page != st.session_state.get(PAGE)
    # A run that overtakes the first one finds the widget without a choice, which none of these may be.
    if st.session_state.get(key) not in options or moved:
        asked = st.query_params.get(key, kept)
        st.session_state[key] = asked if asked in options else default


def first_from_url(key: str, options: Sequence[str], default: str) -> str:
    """What a select box starts with: give its place as `index`.

    Not through the session state: a run that overtakes the first one would show, and take, the first of the options.
    """
    page, kept = st.session_state.get(_kept(key), (None, None))
    first = f"kvviz.first.{key}"
    moved = page != st.session_state.get(PAGE)
    if st.session_state.get(first) not in options or key not in st.session_state or moved:
        asked = st.query_params.get(key, kept)
        st.session_state[first] = asked if asked in options else default
    return st.session_state[first]


def to_url(key: str, default: str) -> None:
    """After it is drawn: the choice into the URL, nothing for the default; and kept for other pages."""
    chosen = st.session_state[key]
    st.session_state[_kept(key)] = st.session_state.get(PAGE), chosen
    if chosen == default:
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != chosen:
        st.query_params[key] = chosen


def several_from_url(key: str, options: Sequence[str], default: Sequence[str]) -> list[str]:
    """What a widget with many choices, which the URL joins by commas, starts with: give it as its `default`.

    Not through the session state: a run that overtakes the first one would leave the widget without a choice.
    """
    page, kept = st.session_state.get(_kept(key), (None, None))
    moved = page != st.session_state.get(PAGE)
    first = f"kvviz.first.{key}"
    if first not in st.session_state or key not in st.session_state or moved:
        asked = st.query_params.get(key)
        known = [name for name in (asked or "").split(",") if name in options]
        st.session_state[first] = known or (list(default) if kept is None else kept)
    return st.session_state[first]


def several_to_url(key: str, chosen: Sequence[str], default: Sequence[str]) -> None:
    """`to_url` for a widget with many choices; none at all is kept for other pages, but not in the URL."""
    st.session_state[_kept(key)] = st.session_state.get(PAGE), list(chosen)
    if not chosen or set(chosen) == set(default):
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != ",".join(chosen):
        st.query_params[key] = ",".join(chosen)


def _kept(key: str) -> str:
    return f"kvviz.kept.{key}"
