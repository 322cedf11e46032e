"""The same model with another attention: what would it hold?"""

import pandas as pd
import streamlit as st

from kvviz.errors import Refused
from kvviz.figures.plan import context_curves
from kvviz.geometry.plan import Plan
from kvviz.locale import N_
from kvviz.ui.planner.inputs import ask_model
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence
from kvviz.units import size

_HEADS = {
    "as_is": N_("as it is"),
    "mha": N_("MHA: K and V for every query head"),
    "gqa": N_("GQA: groups share them"),
    "mqa": N_("MQA: all share one"),
    "mla": N_("MLA: one latent"),
}
_WINDOWS = {
    "as_is": N_("as it is"),
    "none": N_("none slide"),
    "every": N_("every layer slides"),
    "alternating": N_("every second slides"),
    "five_in_six": N_("five in six slide"),
}


def show(page: Page) -> None:
    """The view."""
    t = page.t
    chosen = ask_model(page)
    if chosen is None:
        return
    base = chosen[0]
    length, first, second, third, fourth, fifth = st.columns([2, 3, 2, 3, 2, 2], vertical_alignment="bottom")
    heads = first.selectbox(t("Heads"), list(_HEADS), index=4, format_func=lambda one: t(_HEADS[one]), key="what_heads")
    groups, rank = 8, 512
    if heads == "gqa":
        groups = int(second.number_input(t("Groups"), 1, 512, 8, key="what_groups"))
    elif heads == "mla":
        rank = int(second.number_input(t("Rank"), 1, 8192, 512, key="what_rank"))
    windows = third.selectbox(
        t("Windows"), list(_WINDOWS), format_func=lambda one: t(_WINDOWS[one]), key="what_windows"
    )
    window, sinks = 4096, 0
    if windows not in ("as_is", "none"):
        window = int(fourth.number_input(t("Window (tokens)"), 1, 10**6, 4096, key="what_window"))
        sinks = int(fifth.number_input(t("Sinks kept"), 0, 1024, 0, key="what_sinks"))
    tokens = int(length.number_input(t("Tokens of context"), 1, 10**8, 32_768, step=1024, key="what_tokens"))
    try:
        other = base.what_if(
            None if heads == "as_is" else heads, None if windows == "as_is" else windows, groups=groups, rank=rank,
            window=window, sinks=sinks,
        )  # fmt: skip
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return
    _draw(page, base, other, tokens)


def _draw(page: Page, base: Plan, other: Plan, tokens: int) -> None:
    t = page.t
    now, then = (plan.at(tokens=tokens).total_bytes for plan in (base, other))
    left, middle, right = st.columns(3)
    left.metric(t("As it is"), size(now))
    middle.metric(
        t("What if"), size(then), delta=f"{100 * (then / now - 1):+.1f} %" if now else None, delta_color="inverse"
    )
    right.metric(
        t("Bytes a token"),
        f"{other.bytes_per_token:,}",
        help=t("{count} as it is").format(count=f"{base.bytes_per_token:,}"),
    )
    names = {t("As it is"): base, t("What if"): other}
    frame = pd.concat([plan.curve().assign(model=name) for name, plan in names.items()], ignore_index=True)
    frame = frame[frame["tokens"] >= 128]
    st.plotly_chart(
        context_curves(frame, t=t, theme=page.theme), theme=None, key="what_curves",
        alt=t("Cache as it is and what if, against context"),
    )  # fmt: skip
    st.caption(
        t("The weights are taken to stay the same; what such a model would write is another question. ")
        + other.checked.sentence(t)
    )
