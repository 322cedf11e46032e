"""What the visitor asks of the streaming view: a long text, how much of it, the cache, positions and sink counts."""

from dataclasses import dataclass

import streamlit as st

from kvviz.engine.longtext import can_pass_context
from kvviz.errors import Refused
from kvviz.locale import Translate
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt
from kvviz.policies import Policy, SinksWindow, Window
from kvviz.texts import alice
from kvviz.ui.house import ModelKey
from kvviz.ui.pruning.text import ask_text
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence
from kvviz.ui.url import from_url, several_from_url, several_to_url, to_url

LENGTHS = ("512", "1024", "2048", "4096", "8192", "all")
MODES = ("relative", "original", "naive")
SINKS = (1, 2, 4, 8)  # beside 0, the window, which is always there
_LENGTH, _MODE, _BUDGET = "2048", "relative", 256


@dataclass(frozen=True)
class Wanted:
    """Everything that decides a run; two equal ones give the same figures. `arms` are policies by their sink count."""

    model: ModelKey
    ids: tuple[int, ...]
    mode: str
    budget: int
    arms: tuple[tuple[int, Policy], ...]


def ask(page: Page) -> Wanted | None:
    """Draw the inputs; the run they describe, None with the reason on the screen."""
    t = page.t
    prompt = ask_text(page, "streaming", alice(), past_context=True, named=t("Alice (a book)"))
    length, size = st.columns([5, 2], vertical_alignment="bottom", gap="medium")
    with length:
        tokens = _choose_length(t, prompt)
    budget = size.number_input(
        t("Cache (tokens)"), 1, 8192, _BUDGET, key="streaming_budget", bind="query-params",
        help=t("Tokens kept per layer and KV head by every policy here, sinks included."),
    )  # fmt: skip
    mode_place, sinks_place = st.columns([5, 4], vertical_alignment="bottom", gap="medium")
    with mode_place:
        mode = _choose_mode(t)
    with sinks_place:
        counts = _choose_sinks(t)
    if prompt is None or page.resident is None or page.resident.model is None:
        return None
    ids = _cut(page, page.resident.model, prompt, tokens)
    try:
        arms = tuple((count, arm(count, int(budget), mode)) for count in (0, *counts))
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None
    return Wanted(page.resident.key, ids, mode, int(budget), arms)


def arm(sinks: int, budget: int, mode: str) -> Policy:
    """The window for 0 sinks (renumbering does not change it), else sinks and window in that position mode."""
    if sinks == 0:
        return Window(budget=budget, positions="naive" if mode == "naive" else "original")
    return SinksWindow(budget=budget, sinks=sinks, positions=mode)


def _choose_length(t: Translate, prompt: Prompt | None) -> int | None:
    whole = t("whole text") if prompt is None else t("whole text ({count})").format(count=f"{len(prompt.ids):,}")
    from_url("streaming_length", LENGTHS, _LENGTH)
    chosen = st.segmented_control(
        t("Tokens to read"),
        LENGTHS,
        format_func=lambda name: whole if name == "all" else f"{int(name):,}",
        key="streaming_length",
        required=True,
    )
    to_url("streaming_length", _LENGTH)
    return None if chosen == "all" else int(chosen)


def _choose_mode(t: Translate) -> str:
    names = {"relative": t("cache-relative"), "original": t("original"), "naive": t("naive")}
    from_url("streaming_mode", MODES, _MODE)
    mode = st.segmented_control(
        t("Positions"),
        MODES,
        format_func=names.get,
        key="streaming_mode",
        required=True,
        help=t(
            "Cache-relative: what is kept is renumbered by its place in the cache, as in the paper. Original: each "
            "token keeps the position it was read at. Naive, a known mistake: a new token gets the cache's length as "
            "its position, and what is kept stays as it was."
        ),
    )
    to_url("streaming_mode", _MODE)
    return mode


def _choose_sinks(t: Translate) -> tuple[int, ...]:
    options = [str(count) for count in SINKS]
    chosen = st.pills(
        t("Sinks to measure, beside none"),
        options,
        default=several_from_url("streaming_sinks", options, options),
        selection_mode="multi",
        key="streaming_sinks",
        help=t("First tokens that always stay. Every count is one more reading of the text."),
    )
    several_to_url("streaming_sinks", chosen, options)
    return tuple(count for count in SINKS if str(count) in chosen)


def _cut(page: Page, lm: LanguageModel, prompt: Prompt, tokens: int | None) -> tuple[int, ...]:
    """The first tokens of the text, no more than the model can be given."""
    ids = prompt.ids if tokens is None else prompt.ids[:tokens]
    if lm.context is not None and len(ids) > lm.context and not can_pass_context(lm):
        told = page.t("{name} has positions for {count} tokens and no more: the text is cut there.")
        st.info(told.format(name=lm.title, count=f"{lm.context:,}"))
        ids = ids[: lm.context]
    return ids
