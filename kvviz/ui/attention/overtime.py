"""Over time: what each cached token receives from query to query, and where the attention of each query goes."""

from collections.abc import Sequence

import streamlit as st

from kvviz.figures.overtime import NAMES, bands_over_time, received_over_time
from kvviz.locale import N_, Translate
from kvviz.records import BANDS, OverTime
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.heatmap import WIDTH, choice
from kvviz.ui.attention.recompute import kept, turn
from kvviz.ui.attention.words import ground_sentence, pooling_sentence
from kvviz.ui.shell import Page

_LAYERS = {"layer": N_("this layer"), "all": N_("all layers")}


def over_time(page: Page, summary: AttentionSummary, layer: int, origins: Sequence[str]) -> None:
    """The map of keys by queries and the bands; of decode steps alone where `origins` has tokens "generated"."""
    st.fragment(_over_time)(page, summary, layer, origins)


def _over_time(page: Page, summary: AttentionSummary, layer: int, origins: Sequence[str]) -> None:
    t, count = page.t, len(summary.ids)
    st.subheader(t("Does it stay so while the text grows?"), anchor=False)
    left, right = st.columns(2, gap="large", vertical_alignment="bottom")
    which = choice(t, left, t("Mean over the heads of"), _LAYERS, "time_layers")
    recent = right.slider(t("Recent: tokens before the query"), 1, 64, 16, key="recent", persist_state="session")
    prompt = sum(origin != "generated" for origin in origins)
    decoding = prompt < count
    queries = range(prompt, count) if decoding else range(count)
    with st.spinner(t("Reading the text once more")):
        over = _read(summary, layer if which == "layer" else None, queries, recent, prompt)
    st.plotly_chart(
        received_over_time(over, summary.labels, decoding, t, page.theme), theme=None, key="over_time", width=WIDTH,
        alt=t("Attention every cached token received from query to query"),
    )  # fmt: skip
    st.plotly_chart(
        bands_over_time(over, decoding, t, page.theme), theme=None, key="bands", width=WIDTH,
        alt=t("Share of the attention that goes to sinks, prompt, recent tokens and the token itself"),
    )  # fmt: skip
    with st.container(key="bands_mean"):
        st.text(_means(t, over))
    st.caption(_caption(t, layer if which == "layer" else None, decoding))
    if over.cell != (1, 1):
        st.caption(pooling_sentence(t, *over.cell))


def _read(summary: AttentionSummary, layer: int | None, queries: range, recent: int, prompt: int) -> OverTime:
    epsilon, diagonal = st.session_state.get("epsilon", 0.3), st.session_state.get("diagonal", True)
    key = ("over_time", layer, queries, recent, prompt, epsilon, diagonal)
    return kept(
        summary,
        key,
        lambda: summary.over_time(
            layer, queries, recent=recent, prompt_tokens=prompt, epsilon=epsilon, diagonal=diagonal, turn=turn
        ),
        takes_turns=True,
    )


def _means(t: Translate, over: OverTime) -> str:
    """The mean of every band over the queries shown."""
    means = over.bands.mean(axis=1)
    shares = [f"{t(NAMES[band][0])} {mean:.1%}" for band, mean in zip(BANDS, means, strict=True) if mean]
    return t("On average: {shares}").format(shares=" · ".join(shares))


def _caption(t: Translate, layer: int | None, decoding: bool) -> str:
    where = t("Mean over all layers and heads.") if layer is None else t("Layer {layer}, mean over its heads.")
    sinks = t("Sinks are those of each head at the ε above; a token counts once, as itself, sink, recent or rest.")
    told = [where.format(layer=layer), ground_sentence(t), sinks]
    if decoding:
        told.insert(1, t("The columns are the decode steps: the queries of the tokens that the model wrote."))
    return " ".join(told)
