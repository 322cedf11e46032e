"""Why a policy costs what it costs: the attention it lost, and how alike the sets are that policies keep."""

import pandas as pd
import streamlit as st

from kvviz.analysis.compared import agreement_frame, lost_frame
from kvviz.figures.policies import agreement_matrix, lost_by_layer
from kvviz.locale import Translate
from kvviz.ui.pruning.side_arms import CONTROL
from kvviz.ui.pruning.side_loss import names
from kvviz.ui.pruning.side_work import Compared
from kvviz.ui.shell import Page


def lost(page: Page, found: Compared) -> None:
    """Attention that the full model gives to what each policy had dropped."""
    t = page.t
    frame = lost_frame(found.lost, found.evictions)
    if frame.empty:
        return
    st.subheader(t("How much of the attention falls on tokens that were gone?"), anchor=False)
    left, right = st.columns([3, 2], gap="large", vertical_alignment="center")
    left.plotly_chart(
        lost_by_layer(frame, names(t, found), t, page.theme), theme=None, key="side_lost",
        alt=t("Share of the full model's attention on dropped tokens, by layer"),
    )  # fmt: skip
    right.table(lost_table(t, found, frame), hide_index=True)
    told = t(
        "Of the attention in the full model, mean over its heads and over the queries after each policy's first "
        "eviction. A policy that loses little kept what the model looks at; random shows what chance loses."
    )
    right.caption(told)


def lost_table(t: Translate, found: Compared, frame: pd.DataFrame) -> pd.DataFrame:
    """The share lost over all layers, one row a policy, the smallest first."""
    means = frame.groupby("arm", sort=False)["lost_share"].mean().sort_values(kind="stable")
    called = names(t, found)
    return pd.DataFrame(
        {
            t("policy"): [called[arm] for arm in means.index],
            t("attention lost"): [f"{share:.2%}" for share in means],
        }
    )


def agreement(page: Page, found: Compared) -> None:
    """The matrix of Jaccard indices."""
    t, evictions = page.t, {arm: each for arm, each in found.evictions.items() if each.count}
    if len(evictions) < 2:
        return
    st.subheader(t("Do policies keep the same tokens?"), anchor=False)
    left, right = st.columns([3, 2], gap="large", vertical_alignment="center")
    left.plotly_chart(
        agreement_matrix(agreement_frame(evictions), names(t, found), t, page.theme), theme=None, key="side_agreement",
        alt=t("How alike the sets are that each two policies keep at the end of the text"),
    )  # fmt: skip
    kept = dict(found.wanted.arms)[next(iter(evictions))].budget / len(found.wanted.ids)
    told = t(
        "Tokens that both keep over tokens that either keeps, at the end of the text, mean over layers and KV heads "
        "(Jaccard index: 1 = the same tokens). Two draws of {percent} % of the text at one go "
        "would come to about {chance}."
    )
    right.markdown(told.format(percent=f"{100 * kept:.0f}", chance=f"{kept / (2 - kept):.2f}"))
    if CONTROL in evictions:
        told = t(
            "Random draws anew at every step: an old token has been in more draws, so what is left is mostly recent "
            "and shares much with a window."
        )
        right.caption(told)
