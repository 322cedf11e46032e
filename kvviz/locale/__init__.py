"""Message catalogues: the English sentence in the source is the key, a .po file holds each other language.

Marked for extraction are the first arguments of `t(...)`, `N_(...)` and `Refused(...)`. The language is
always passed, never global: the visitors of the app are threads of one process.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from babel.messages.pofile import read_po

LANGUAGES = {"en": "English", "zh-TW": "繁體中文"}

Translate = Callable[[str], str]


def N_(message: str) -> str:
    """Mark a message for the catalogues where it is written, to be translated where it is shown."""
    return message


@cache
def translator(language: str) -> Translate:
    """The function from an English message to its text in `language`; English for an unknown language."""
    if language == "en" or language not in LANGUAGES:
        return N_
    with catalogue_path(language).open("rb") as file:
        texts = {message.id: message.string for message in read_po(file) if message.id and message.string}
    return lambda message: texts.get(message, message)


def catalogue_path(language: str) -> Path:
    """Where the .po file of `language` (for example "zh-TW") lies."""
    return Path(__file__).parent / language.replace("-", "_") / "LC_MESSAGES" / "kvviz.po"
