"""Which two prompts are compared: a pair of examples, or typed."""

from dataclasses import dataclass

import streamlit as st

from kvviz.errors import Refused
from kvviz.locale import Translate
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, encode, encode_turns, turns_of
from kvviz.ui.house import ModelKey
from kvviz.ui.prefix.parting import Parting
from kvviz.ui.prefix.presets import PAIRS
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence

_FIRST = "gold"
_SIDES = ("first", "second")


@dataclass(frozen=True)
class PairWanted:
    """Everything that decides a comparison: two equal ones give the same figures."""

    model: ModelKey
    first: str
    second: str
    chat: bool = False


def ask(page: Page) -> tuple[PairWanted | None, Parting | None]:
    """Draw the inputs; what they ask for and its prompts in ids, None with the reason on the screen."""
    t = page.t
    _examples(t)
    chat = st.session_state["prefix_chat"]
    texts, prompts = [], []
    for place, side in zip(st.columns(2, gap="medium"), _SIDES, strict=True):
        with place:
            label = t("First prompt: fills the cache") if side == "first" else t("Second prompt: starts from it")
            texts.append(st.text_area(label, key=f"prefix_{side}", persist_state="session", height=100))
            prompts.append(_encoded(page, texts[-1], chat))
    st.toggle(
        t("Chat template"),
        key="prefix_chat",
        bind="query-params",
        help=t("Wraps both as the model was trained to be talked to; a line with nothing but --- parts two turns."),
    )
    if page.resident is None or None in prompts:
        return None, None
    return PairWanted(page.resident.key, *texts, chat), Parting(*prompts)


def encoded(lm: LanguageModel, text: str, chat: bool) -> Prompt:
    """A prompt as this page reads it: with `chat`, lines of "---" part the turns."""
    limit = settings().max_prompt_tokens
    return encode_turns(lm, turns_of(text), limit=limit) if chat else encode(lm, text, limit=limit)


def _encoded(page: Page, text: str, chat: bool) -> Prompt | None:
    """The prompt, or None with a sentence under its text."""
    if page.resident is None or page.resident.model is None:
        return None
    try:
        return encoded(page.resident.model, text, chat)
    except Refused as refusal:
        st.error(sentence(refusal, page.t), icon=":material/error:")
        return None


def _examples(t: Translate) -> None:
    def fill(name: str) -> None:
        pair = PAIRS[name]
        for side in _SIDES:
            st.session_state[f"prefix_{side}"] = getattr(pair, side)
        st.session_state["prefix_chat"] = pair.chat

    def chosen() -> None:
        if st.session_state["prefix_example"]:
            fill(st.session_state["prefix_example"])

    if "prefix_first" not in st.session_state:
        asked = st.session_state.get("prefix_chat") or st.query_params.get("prefix_chat") == "true"
        fill("template" if asked else _FIRST)
    st.pills(
        t("Examples"),
        list(PAIRS),
        format_func=lambda name: t(PAIRS[name].title),
        key="prefix_example",
        on_change=chosen,
        label_visibility="collapsed",
    )
