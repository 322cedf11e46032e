"""Which policies stand side by side: the visitor's choice, always beside the full cache and random."""

from collections.abc import Callable
from typing import NamedTuple

import streamlit as st

from kvviz.errors import Refused
from kvviz.locale import N_, Translate
from kvviz.policies import REGISTRY, Policy
from kvviz.ui.text import sentence
from kvviz.ui.url import several_from_url, several_to_url


class Arm(NamedTuple):
    """One policy of a comparison: `id` names its look, `make` gives it a budget."""

    id: str
    title: str  # marked
    make: Callable[..., Policy]


def _arms() -> dict[str, Arm]:
    """Every registered policy, sinks and window once for each position mode that is meant well."""
    arms = []
    for kind in REGISTRY.values():
        if kind.id == "sinks_window":
            arms.append(Arm(kind.id, N_("sinks + window, cache-relative"), kind))
            original = Arm(
                f"{kind.id}_original",
                N_("sinks + window, original positions"),
                lambda budget, kind=kind: kind(budget=budget, positions="original"),
            )
            arms.append(original)
        else:
            arms.append(Arm(kind.id, kind.title, kind))
    return {arm.id: arm for arm in arms}


ARMS = _arms()
CONTROL = "random"  # is always there
FULL = Arm("full", N_("full cache"), lambda budget: None)


def choose_arms(t: Translate, key: str, default: list[str]) -> list[str]:
    """The ids of the chosen arms, in the registry's order, the control last."""
    options = [arm for arm in ARMS if arm != CONTROL]
    chosen = st.pills(
        t("Policies"),
        options,
        default=several_from_url(f"{key}_arms", options, default),
        format_func=lambda arm: t(ARMS[arm].title),
        selection_mode="multi",
        key=f"{key}_arms",
        help=t(
            "The full cache and random choice (among all but the first {count} tokens and the newest) are always "
            "there: what is lost, and what an idea must beat."
        ).format(count=ARMS[CONTROL].make(budget=0.2).sinks),
    )
    several_to_url(f"{key}_arms", chosen, default)
    return [arm for arm in options if arm in chosen] + [CONTROL]


def sized_arms(t: Translate, chosen: list[str], budget: int | float, tokens: int) -> dict[str, Policy] | None:
    """Each arm's policy for a text of `tokens` tokens; None with the reason on the screen."""
    sized = {}
    for arm in chosen:
        try:
            sized[arm] = ARMS[arm].make(budget=budget).sized(tokens)
        except Refused as refusal:
            told = t("{policy}: {reason}").format(policy=t(ARMS[arm].title), reason=sentence(refusal, t))
            st.error(told, icon=":material/error:")
            return None
    return sized
