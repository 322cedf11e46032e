"""Choices that live in the URL by their language-neutral ids.

Streamlit's own `bind="query-params"` writes an option as it is *shown*, so a link made in one language would
mean nothing in another. Use it for numbers and switches, and this for options with a translated text.
"""

from collections.abc import Sequence

import streamlit as st


def from_url(key: str, options: Sequence[str], default: str) -> None:
    """Before the widget `key` is drawn for the first time: start it with the URL's choice, or `default`."""
    if key not in st.session_state:
        asked = st.query_params.get(key)
        st.session_state[key] = asked if asked in options else default


def to_url(key: str, default: str) -> None:
    """After it is drawn: the choice into the URL, nothing for the default."""
    chosen = st.session_state[key]
    if chosen == default:
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != chosen:
        st.query_params[key] = chosen
