"""Texts that others wrote, made to appear in Streamlit's markdown exactly as they are."""

import re

from kvviz.errors import Refused
from kvviz.locale import Translate

# a colon opens ":material/..." and ":red[...]"; the one in "https://" opens nothing and keeps the address a link
_SIGNS = re.compile(r"[\\`*_\[\]<>$~#|&]|:(?=[a-zA-Z])")


def plain(text: str) -> str:
    """`text` with every sign of markdown escaped, for names, paths and messages that are not ours."""
    return _SIGNS.sub(lambda sign: "\\" + sign[0], text)


def failure(error: Exception, t: Translate) -> str:
    """Why a run ended: the sentence of a refusal; anything else is for the server's log, not for the screen."""
    return sentence(error, t) if isinstance(error, Refused) else t("The run failed. The server's log says why.")


def sentence(refusal: Refused, t: Translate) -> str:
    """What a refusal says, for `st.error`: the names in it are shown as typed, the rest is our own text."""
    facts = {name: plain(fact) if isinstance(fact, str) else fact for name, fact in refusal.facts.items()}
    return t(refusal.message).format(**facts)
