"""The language switch: from the URL, the visitor's choice, or the browser's own language."""

import streamlit as st

from kvviz.locale import LANGUAGES, Translate, translator
from kvviz.ui.url import to_url

_KEY = "lang"
_FIRST = "kvviz.first_language"  # what the switch started with in this session


def choose_language() -> str:
    """Draw the switch and return the language in force, a key of `LANGUAGES`."""
    own = _of_browser(st.context.locale)
    if _FIRST not in st.session_state:
        asked = st.query_params.get(_KEY)
        st.session_state[_FIRST] = asked if asked in LANGUAGES else own
    chosen = st.segmented_control(
        "Language · 語言",
        list(LANGUAGES),
        format_func=LANGUAGES.__getitem__,
        # not through the session state: a run that overtakes the first one would leave the switch without a choice
        default=st.session_state[_FIRST],
        required=True,
        key=_KEY,
        label_visibility="collapsed",
        width="stretch",
        persist_state="session",
    )
    to_url(_KEY, default=own)
    return chosen


def current_translator() -> Translate:
    """The translator of the language chosen in this session."""
    return translator(st.session_state.get(_KEY) or "en")


def _of_browser(locale: str | None) -> str:
    """zh-TW for any traditional Chinese reader, English for everyone else."""
    return "zh-TW" if (locale or "").startswith(("zh-TW", "zh-HK", "zh-MO", "zh-Hant")) else "en"
