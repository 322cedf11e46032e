"""What the visitor asks of the view that puts policies side by side: a text, a budget, the policies."""

from dataclasses import dataclass

import streamlit as st

from kvviz.locale import Translate
from kvviz.policies import Policy
from kvviz.ui.house import ModelKey
from kvviz.ui.pruning.example import PROSE
from kvviz.ui.pruning.policy import choose_budget
from kvviz.ui.pruning.side_arms import choose_arms, sized_arms
from kvviz.ui.pruning.text import ask_text
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page

_DEFAULT = ["window", "sinks_window", "h2o", "snapkv"]


@dataclass(frozen=True)
class Wanted:
    """Everything that decides a comparison; two equal ones give the same figures. Budgets are in tokens."""

    model: ModelKey
    text: str
    ids: tuple[int, ...]
    arms: tuple[tuple[str, Policy], ...]
    new: int


def ask(page: Page) -> Wanted | None:
    """Draw the inputs; the comparison they describe, None with the reason on the screen."""
    t = page.t
    prompt = ask_text(page, "side", PROSE)
    left, right = st.columns([7, 4], vertical_alignment="bottom", gap="medium")
    with left:
        budget = choose_budget(t, "side")
    new = _new_tokens(t, right)
    chosen = choose_arms(t, "side", _DEFAULT)
    if prompt is None:
        return None
    arms = sized_arms(t, chosen, budget, len(prompt.ids))
    if arms is None:
        return None
    return Wanted(page.resident.key, prompt.text, prompt.ids, tuple(arms.items()), new)


def _new_tokens(t: Translate, place: st.delta_generator.DeltaGenerator) -> int:
    most = settings().max_new_tokens
    told = t("After the text, each policy's model writes on; 0 leaves that out.")
    return place.slider(
        t("Tokens to write"), 0, min(256, most), min(40, most), key="side_new", bind="query-params", help=told
    )
