"""Tables of a run: why prompts found nothing, and what was evicted when."""

import pandas as pd
import streamlit as st

from kvviz.analysis.served import MISSES
from kvviz.locale import N_, Translate
from kvviz.ui.prefix.many_work import ManyResult
from kvviz.ui.shell import Page
from kvviz.units import size

EVENTS = {"stored": N_("stored"), "split": N_("split"), "evicted": N_("evicted")}


def misses_table(page: Page, result: ManyResult) -> None:
    """The prompts that took nothing from the tree, each with the reason."""
    t = page.t
    lines = misses(t, result.served)
    with st.container(key="prefix_misses"):
        for line in lines:
            st.text(line)


def misses(t: Translate, served: pd.DataFrame) -> list[str]:
    """One line a reason: which prompts found nothing because of it."""
    told = t("Prompt {numbers} found nothing. {reason}")
    groups = served[served["reason"] != ""].groupby("reason", sort=False)["request"]
    return [told.format(numbers=", ".join(map(str, numbers)), reason=t(MISSES[reason])) for reason, numbers in groups]


def events_table(page: Page, result: ManyResult) -> None:
    """What was evicted when; stored and split runs folded below."""
    t = page.t
    gone = result.events[result.events["event"] == "evicted"]
    st.markdown("**" + t("What was evicted, and when") + "**")
    if gone.empty:
        st.caption(t("Nothing: everything fits into the budget."))
    else:
        st.dataframe(events(t, gone), hide_index=True, key="prefix_evicted")
    with st.expander(t("Everything that happened in the tree")):
        st.dataframe(events(t, result.events), hide_index=True, key="prefix_events")


def events(t: Translate, frame: pd.DataFrame) -> pd.DataFrame:
    """Events with names for people."""
    return pd.DataFrame(
        {
            t("during prompt"): frame["request"],
            t("event"): frame["event"].map(lambda name: t(EVENTS[name])),
            t("node"): frame["node"],
            t("tokens"): frame["tokens"],
            t("bytes"): frame["bytes"].map(size),
            t("last used by prompt"): frame["last_use"],
            t("text"): frame["text"],
        }
    )
