"""What the visitor asks of the fact probe: how long the text, how many facts, the budget, the policies."""

from dataclasses import dataclass

import streamlit as st

from kvviz.policies import Policy
from kvviz.ui.house import ModelKey
from kvviz.ui.pruning.policy import choose_budget
from kvviz.ui.pruning.side_arms import choose_arms, sized_arms
from kvviz.ui.shell import Page
from kvviz.ui.url import from_url, to_url

LENGTHS = ("256", "512", "1024", "2048")
ROUNDS = ("2", "4", "9", "18")
DEPTHS = (10, 30, 50, 70, 90)  # percent of the text
_LENGTH, _ROUNDS = "512", "4"
_DEFAULT = ["window", "sinks_window", "h2o", "snapkv"]


@dataclass(frozen=True)
class Wanted:
    """Everything that decides a probe; two equal ones give the same figures. Budgets are in tokens."""

    model: ModelKey
    tokens: int
    rounds: int
    arms: tuple[tuple[str, Policy], ...]


def ask(page: Page) -> Wanted | None:
    """Draw the inputs; the probe they describe, None with the reason on the screen."""
    t = page.t
    length, rounds = st.columns([5, 5], vertical_alignment="bottom", gap="medium")
    with length:
        tokens = _choose(t("Text (tokens)"), "facts_length", LENGTHS, _LENGTH)
    with rounds:
        count = _choose(
            t("Placements"), "facts_rounds", ROUNDS, _ROUNDS, len(DEPTHS),
            t("Each text holds one fact at each depth; more texts, more certainty."),
        )  # fmt: skip
    budget = choose_budget(t, "facts")
    chosen = choose_arms(t, "facts", _DEFAULT)
    if page.resident is None or page.resident.model is None:
        return None
    arms = sized_arms(t, chosen, budget, tokens)
    return None if arms is None else Wanted(page.resident.key, tokens, count, tuple(arms.items()))


def _choose(label: str, key: str, options: tuple[str, ...], default: str, times: int = 1, help: str = "") -> int:
    from_url(key, options, default)
    chosen = st.segmented_control(
        label, options, format_func=lambda name: f"{int(name) * times:,}", key=key, required=True, help=help or None
    )
    to_url(key, default)
    return int(chosen)
