"""Which prompts go through the cache, and how much it may hold."""

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from kvviz.errors import Refused
from kvviz.geometry.layers import layer_shapes
from kvviz.geometry.memory import bytes_per_token
from kvviz.locale import N_
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, encode
from kvviz.ui.house import ModelKey
from kvviz.ui.prefix.presets import DESK_DAY, DESK_TITLE
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence
from kvviz.units import size

MOST_PROMPTS = 200
_SOURCES = {"desk": DESK_TITLE, "typed": N_("Typed or pasted, one a line"), "file": N_("File, one a line")}
_TYPED = """\
You are a helpful assistant. What is a cache?
You are a helpful assistant. What is a key?
You are a helpful assistant. What is a value?
What is a cache?
You are a helpful assistant. What is a cache?"""


@dataclass(frozen=True)
class ManyWanted:
    """Everything that decides a run through the cache; `budget_bytes` None is no limit."""

    model: ModelKey
    texts: tuple[str, ...]
    budget_bytes: int | None
    chat: bool = False
    verify: bool = False


def ask(page: Page) -> tuple[ManyWanted | None, tuple[Prompt, ...]]:
    """Draw the inputs; what they ask for and the prompts in ids, None and () with the reason on the screen."""
    t = page.t
    texts = _texts(page)
    left, middle, right = st.columns([5, 3, 4], vertical_alignment="bottom", gap="medium")
    percent = left.slider(
        t("Budget of the cache"), 1, 100, 15, format="%d %%",
        key="prefix_budget", bind="query-params",
        help=t("In % of what all prompts take when each is stored by itself. 100 %: no limit."),
    )  # fmt: skip
    chat = middle.toggle(t("Chat template"), key="prefix_many_chat", bind="query-params")
    verify = right.toggle(
        t("Also run every prompt cold"), key="prefix_verify", bind="query-params",
        help=t("Twice the work: the same prompts from nothing, for their times and to compare the logits."),
    )  # fmt: skip
    lm = page.resident.model if page.resident else None
    if lm is None or texts is None:
        return None, ()
    try:
        prompts = encoded(lm, texts, chat)
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None, ()
    tokens, each = sum(len(prompt.ids) for prompt in prompts), token_bytes(lm)
    budget = None if percent == 100 else tokens * each * percent // 100
    told = t("{prompts} prompts, {tokens} tokens: {size} if each were stored by itself.")
    facts = told.format(prompts=len(prompts), tokens=f"{tokens:,}", size=size(tokens * each))
    if budget is not None:
        room = t("The budget is {size}, room for {tokens} tokens.")
        facts += " " + room.format(size=size(budget), tokens=f"{budget // max(1, each):,}")
    st.caption(facts)
    _list(page, prompts)
    return ManyWanted(page.resident.key, tuple(texts), budget, chat, verify), prompts


def encoded(lm: LanguageModel, texts: list[str] | tuple[str, ...], chat: bool) -> tuple[Prompt, ...]:
    """The prompts in ids. Raises Refused for none, too many, and too long ones, with their line."""
    if not texts:
        raise Refused("There is no prompt. Type at least one line.")
    if len(texts) > MOST_PROMPTS:
        raise Refused(
            "There are {count} prompts and at most {limit} are allowed. Leave some out.",
            count=len(texts),
            limit=MOST_PROMPTS,
        )
    prompts = tuple(encode(lm, text, chat=chat, limit=settings().max_prompt_tokens) for text in texts)
    total, limit = sum(len(prompt.ids) for prompt in prompts), settings().max_policy_tokens
    if total > limit:
        raise Refused(
            "The prompts are {count:,} tokens long together and at most {limit:,} are allowed. Use fewer or shorter "
            "ones.",
            count=total,
            limit=limit,
        )
    return prompts


def token_bytes(lm: LanguageModel) -> int:
    """K and V of one token in all layers."""
    return bytes_per_token(layer_shapes(lm.config), lm.dtype.itemsize)


def _texts(page: Page) -> list[str] | None:
    """The prompts as typed; None while there is no file, or with the reason on the screen."""
    t = page.t
    source = st.segmented_control(
        t("Prompts from"),
        list(_SOURCES),
        format_func=lambda name: t(_SOURCES[name]),
        default="desk",
        required=True,
        key="prefix_source",
        persist_state="session",
    )
    if source == "desk":
        return list(DESK_DAY)
    if source == "typed":
        return lines_of(
            st.text_area(t("Prompts, one a line"), _TYPED, key="prefix_typed", persist_state="session", height=140)
        )
    file = st.file_uploader(t("A text file in UTF-8"), type="txt", key="prefix_file")
    if file is None:
        return None
    try:
        return lines_of(file.getvalue().decode("utf-8-sig"))
    except UnicodeDecodeError:
        st.error(t("This file is not UTF-8 text. Save it as UTF-8 and try again."), icon=":material/error:")
        return None


def lines_of(text: str) -> list[str]:
    """The lines of a list, those without any sign left out; white space at their ends stays."""
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _list(page: Page, prompts: tuple[Prompt, ...]) -> None:
    t = page.t
    with st.expander(t("The prompts, in order")):
        rows = {
            t("prompt"): range(len(prompts)),
            t("tokens"): [len(prompt.ids) for prompt in prompts],
            t("text"): [prompt.text.encode("utf-8", "backslashreplace").decode() for prompt in prompts],
        }
        st.dataframe(pd.DataFrame(rows), hide_index=True, key="prefix_prompts")
