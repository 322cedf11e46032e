"""The language switch: from the URL, the visitor's choice, or the browser's own language."""

import streamlit as st

from kvviz.locale import LANGUAGES, Translate, translator
from kvviz.ui.url import from_url, to_url

_KEY = "lang"


def choose_language() -> str:
    """Draw the switch and return the language in force, a key of `LANGUAGES`."""
    from_url(_KEY, list(LANGUAGES), default=_of_browser(st.context.locale), frame=True)
    chosen = st.segmented_control(
        "Language · 語言",
        list(LANGUAGES),
        format_func=LANGUAGES.__getitem__,
        required=True,
        key=_KEY,
        label_visibility="collapsed",
        width="stretch",
        persist_state="session",
    )
    to_url(_KEY, default=_of_browser(st.context.locale))
    return chosen


def current_translator() -> Translate:
    """The translator of the language chosen in this session."""
    return translator(st.session_state.get(_KEY) or "en")


def _of_browser(locale: str | None) -> str:
    """zh-TW for any traditional Chinese reader, English for everyone else."""
    return "zh-TW" if (locale or "").startswith(("zh-TW", "zh-HK", "zh-MO", "zh-Hant")) else "en"
