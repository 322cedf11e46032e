"""Which text the Pruning page reads: an example, typed, or from a file."""

import streamlit as st

from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.models.prompts import Prompt, encode
from kvviz.ui.growth.inputs import LONG_PAGE
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence

_SOURCES = {"example": N_("The example page"), "typed": N_("Typed or pasted"), "file": N_("File")}


def ask_text(
    page: Page, key: str, example: str = LONG_PAGE, *, past_context: bool = False, named: str = ""
) -> Prompt | None:
    """A text of at least two tokens, encoded; None with the reason on the screen. `named`: the example's own name."""
    t = page.t
    source = st.segmented_control(
        t("Text from"),
        list(_SOURCES),
        format_func=lambda name: named if named and name == "example" else t(_SOURCES[name]),
        default="example",
        required=True,
        key=f"{key}_source",
        persist_state="session",
    )
    text: str | None = example
    if source == "typed":
        text = st.text_area(t("Text"), example, key=f"{key}_text", persist_state="session", height=120)
    elif source == "file":
        text = _from_file(page, key)
    lm = page.resident.model if page.resident is not None else None
    if text is None or lm is None:  # a model on its way has no tokenizer yet
        return None
    try:
        prompt = encode(lm, text, limit=settings().max_policy_tokens, past_context=past_context)
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None
    if len(prompt.ids) < 2:
        told = t("A text of one token has nothing to predict: its perplexity is not defined. Give at least two tokens.")
        st.info(told)
        return None
    return prompt


def _from_file(page: Page, key: str) -> str | None:
    t = page.t
    file = st.file_uploader(t("A text file in UTF-8"), type="txt", key=f"{key}_file")
    if file is None:
        return None
    try:
        return file.getvalue().decode("utf-8-sig")
    except UnicodeDecodeError:
        st.error(t("This file is not UTF-8 text. Save it as UTF-8 and try again."), icon=":material/error:")
        return None
