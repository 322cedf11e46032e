"""Which tokens are sinks, and in which heads; picking the head the rest of the page looks at."""

import streamlit as st

from kvviz.analysis.attention import sink_share_frame
from kvviz.figures.attention import head_map
from kvviz.locale import N_, Translate
from kvviz.summary import AttentionSummary
from kvviz.ui.shell import Page


def sinks(page: Page, summary: AttentionSummary) -> tuple[int, int]:
    """The sink map and the list of sinks; the (layer, head) chosen for the maps below."""
    t = page.t
    st.subheader(t("Where does attention go when nothing is relevant?"), anchor=False)
    left, right = st.columns([3, 2], gap="large")
    with right:
        epsilon = st.slider(
            t("ε: attention above which a token is a sink"), 0.05, 0.95, 0.3, 0.05, key="epsilon", bind="query-params"
        )
        diagonal = st.toggle(
            t("Count a token's attention to itself"),
            True,
            key="diagonal",
            bind="query-params",
            help=t(
                "As in Gu et al. 2024. Without it the last tokens, which few others can see, are judged more fairly."
            ),
        )
        _list(t, summary, epsilon, diagonal)
    shares = sink_share_frame(summary.layers, summary.heads(), epsilon, diagonal=diagonal)
    figure = head_map(shares, "sink_share", t("share of attention given to sinks"), t, page.theme)
    with left:
        st.plotly_chart(figure, theme=None, key="sink_map", alt=t("Share of attention given to sinks, layers by heads"))
        return _pick(t, summary)


def _list(t: Translate, summary: AttentionSummary, epsilon: float, diagonal: bool) -> None:
    found = summary.sinks(epsilon, diagonal=diagonal)
    total = sum(layer.received.shape[0] for layer in summary.layers)
    if found.empty:
        st.text(t("No token is a sink in any head at this ε."))
        return
    first = found.iloc[0]
    told = t("Position {position} ({token}) is a sink in {heads} of {total} heads: a rate of {rate}.")
    with st.container(key="sink_rate"):
        st.text(
            told.format(
                position=first["position"],
                token=first["token"],
                heads=first["heads"],
                total=total,
                rate=f"{first['rate']:.1%}",
            )
        )
    shown = found.head(50).rename(
        columns={name: t(word) for name, word in _COLUMNS.items()},
    )
    st.dataframe(shown, hide_index=True, height=280, key="sink_list")
    st.caption(t("Rate: share of all heads in which the token is a sink. Score: attention received on average."))


_COLUMNS = {
    "position": N_("position"),
    "token": N_("token"),
    "rate": N_("rate"),
    "heads": N_("sink heads"),
    "score": N_("score"),
}


def _pick(t: Translate, summary: AttentionSummary) -> tuple[int, int]:
    left, right = st.columns(2)
    numbers = [layer.layer for layer in summary.layers]
    layer = (
        left.select_slider(t("Open layer"), numbers, numbers[len(numbers) // 2], key="layer")
        if len(numbers) > 1
        else numbers[0]
    )
    heads = summary.layers[numbers.index(layer)].received.shape[0]
    head = right.slider(t("Open head"), 0, heads - 1, 0, key="head") if heads > 1 else 0
    return layer, head
