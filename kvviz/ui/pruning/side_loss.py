"""What each policy costs on the given text: its loss beyond the full cache's, token by token and in one row."""

import math

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from kvviz.analysis.compared import loss_change_frame
from kvviz.figures.policies import loss_beyond_full
from kvviz.locale import N_, Translate
from kvviz.policies import Policy
from kvviz.ui.pruning.side_arms import ARMS, FULL
from kvviz.ui.pruning.side_work import Compared
from kvviz.ui.shell import Page
from kvviz.units import size

_COLUMNS = {
    "perplexity": N_("perplexity"),
    "before": N_("before first eviction"),
    "after": N_("after it"),
    "full_after": N_("full cache, same tokens"),
    "kl": N_("mean KL after it (nats)"),
    "stored": N_("tokens stored"),
    "cache_bytes": N_("cache"),
    "peak_bytes": N_("peak while reading"),
}
WINDOW = 32  # tokens of the running mean when nobody has chosen


def names(t: Translate, found: Compared) -> dict[str, str]:
    """The policies of a comparison for people."""
    return {arm: t(ARMS[arm].title) for arm, _ in found.wanted.arms}


def losses(page: Page, found: Compared) -> None:
    """The picture, then the numbers."""
    t, scored = page.t, len(found.full.nll)
    window, zoom = _reading(t, scored)
    st.plotly_chart(
        loss_figure(page, found, window, zoom), theme=None, key="side_loss",
        alt=t("Loss of each policy beyond the full cache's, along the text"),
    )  # fmt: skip
    told = t(
        "Above 0 a token was harder to predict than with the full cache. A click on a name hides its line, a double "
        "click all others."
    )
    st.caption(told)
    for sentence in idle(t, found):
        st.info(sentence)
    st.table(table(t, found), hide_index=True)
    told = t(
        "Each policy is judged on {scored} tokens of this text, every one predicted from the true tokens before it. "
        "Before its first eviction a policy is the full cache; compare “after it” with the full cache on the same "
        "tokens. KL: how far the predicted distribution is from the full cache's. Stored: per layer, when the last "
        "token was predicted. Peak: the text is read a layer at a time, and one layer holds all of it meanwhile."
    )
    st.caption(told.format(scored=f"{scored:,}"))
    for sentence in late(t, found):
        st.caption(sentence)


def _reading(t: Translate, scored: int) -> tuple[int, bool]:
    """How the losses are drawn: over how many tokens they are averaged, and whether small ones are looked at."""
    left, right = st.columns([5, 3], vertical_alignment="bottom", gap="medium")
    most, window = min(256, scored), 1
    if most > 1:
        window = left.slider(
            t("Mean over so many tokens"), 1, most, min(WINDOW, most), key="side_window",
            help=t("1 shows every token by itself."),
        )  # fmt: skip
    told = t("The axis ends where half of the policies still fit; what loses more is cut off.")
    return window, right.toggle(t("Zoom in on small differences"), key="side_zoom", help=told)


def loss_figure(page: Page, found: Compared, window: int, zoom: bool = False) -> go.Figure:
    """The picture of losses."""
    frame = loss_change_frame(found.full, found.losses, window)
    firsts = {arm: run.first_eviction for arm, run in found.losses.items() if run.first_eviction is not None}
    return loss_beyond_full(frame, names(page.t, found), firsts, page.t, page.theme, zoom)


def table(t: Translate, found: Compared) -> pd.DataFrame:
    """One row a policy, the full cache first, in words and figures for people."""
    rows = found.evaluation.perplexities()
    arms = [t(FULL.title), *names(t, found).values()]
    shown = {t("policy"): arms}
    for name, word in _COLUMNS.items():
        if name == "stored":
            shown[t(word)] = [f"{value:,}" for value in rows[name]]
        elif name.endswith("_bytes"):
            shown[t(word)] = [size(value).replace(" ", "\u00a0") for value in rows[name]]
        else:
            shown[t(word)] = [number(value, 4 if name == "kl" else 2) for value in rows[name]]
    return pd.DataFrame(shown)


def number(value: float, digits: int) -> str:
    """A figure for people; a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def idle(t: Translate, found: Compared) -> list[str]:
    """Which policies had nothing to drop, and why."""
    quiet = [arm for arm, run in found.losses.items() if not run.evicted]
    if not quiet:
        return []
    tokens, budget = len(found.wanted.ids), dict(found.wanted.arms)[quiet[0]].budget
    if budget >= tokens:
        told = t("0 tokens evicted: the text ({tokens} tokens) is not longer than the budget ({budget}).")
        return [told.format(tokens=f"{tokens:,}", budget=f"{budget:,}")]
    told = t(
        "{policy}: 0 tokens evicted, because its prompt ({prompt} tokens) is not longer than the budget ({budget})."
    )
    facts = {"prompt": f"{max(1, tokens // 2):,}", "budget": f"{budget:,}"}
    return [told.format(policy=t(ARMS[arm].title), **facts) for arm in quiet]


def late(t: Translate, found: Compared) -> list[str]:
    """Which policies do not evict from the first token on."""
    told = t(
        "{policy} cuts once, at the end of the prompt, for which the first half of the text stands here ({prompt} "
        "tokens). Everything after it stays, so it holds more than the budget."
    )
    prompt = f"{max(1, len(found.wanted.ids) // 2):,}"
    said = []
    for arm, policy in found.wanted.arms:
        if policy.evicts == "prefill":
            said.append(told.format(policy=t(ARMS[arm].title), prompt=prompt))
            if policy.recent >= policy.budget and found.losses[arm].evicted:
                said.append(only_voters(t, arm, policy))
    return said


def only_voters(t: Translate, arm: str, policy: Policy) -> str:
    """A budget that the tokens asked for their votes fill already."""
    told = t(
        "{policy}: with {budget} tokens the last tokens of the prompt, whose votes decide, fill the budget by "
        "themselves. No earlier token stays, no sink either."
    )
    return told.format(policy=t(ARMS[arm].title), budget=f"{policy.budget:,}")
