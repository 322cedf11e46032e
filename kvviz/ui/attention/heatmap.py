"""The map of one head, or of a layer's heads together: every query's attention to every key."""

import numpy as np
import streamlit as st

from kvviz.analysis.maps import sink_columns
from kvviz.figures.heatmap import MODES, attention_map
from kvviz.locale import N_, Translate
from kvviz.records import MapView
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.recompute import kept
from kvviz.ui.attention.words import ground_sentence, heads_sentence, pooling_sentence
from kvviz.ui.shell import Page

WIDTH = 960  # pixels: nearly square cells, on a wide screen too

_HEADS = {"head": N_("this head"), "mean": N_("mean of the layer"), "max": N_("maximum of the layer")}
_RANGES_FROM = 40  # tokens; up to here every one is written at the axes
_NAMED = 12  # positions of hidden sinks


def heatmap(page: Page, summary: AttentionSummary, layer: int, head: int) -> None:
    """The map with its controls: which heads, which colours, which part of the text."""
    st.fragment(_heatmap)(page, summary, layer, head)


def _heatmap(page: Page, summary: AttentionSummary, layer: int, head: int) -> None:
    t = page.t
    st.subheader(t("How much does every query look at every key?"), anchor=False)
    left, right = st.columns(2, vertical_alignment="bottom")
    which = choice(t, left, t("Heads"), _HEADS, "map_heads")
    mode = choice(t, right, t("Colour"), MODES, "map_colour")
    queries, keys = _ranges(t, len(summary.ids))
    shown = head if which == "head" else which
    view = map_view(summary, layer, shown, queries, keys)
    st.plotly_chart(
        attention_map(view, summary.labels, mode, t, page.theme), theme=None, key="attention_map", width=WIDTH,
        alt=t("Attention of every query to every key, as a map"),
    )  # fmt: skip
    told = [heads_sentence(t, summary, layer, shown), ground_sentence(t)]
    if which != "max":
        told.append(_row_sum(t, summary, layer))
    st.caption(" ".join(told))
    if view.cell != (1, 1):
        zoom = t("Choose at most 256 queries and 256 keys above to see every value.")
        st.caption(pooling_sentence(t, *view.cell) + " " + zoom)
    if mode == "hidden":
        st.caption(_hidden(t, view, share=which != "max"))


def map_view(summary: AttentionSummary, layer: int, head: int | str, queries: range, keys: range) -> MapView:
    """The view of these ranges, with the sinks of the page's ε left out of one of its arrays; computed once."""
    epsilon, diagonal = st.session_state.get("epsilon", 0.3), st.session_state.get("diagonal", True)
    hidden = sink_columns(summary.of_layer(layer), head, epsilon, diagonal=diagonal)
    key = ("view", layer, head, queries, keys, hidden)
    return kept(summary, key, lambda: summary.view(layer, head, queries=queries, keys=keys, hidden=hidden))


def choice(t: Translate, place: object, label: str, options: dict[str, str], key: str) -> str:
    """One of a few named options."""
    return place.segmented_control(
        label,
        list(options),
        format_func=lambda name: t(options[name]),
        default=next(iter(options)),
        required=True,
        key=key,
        persist_state="session",
    )


def _ranges(t: Translate, count: int) -> tuple[range, range]:
    """The queries and keys to show; all of a short text."""
    if count <= _RANGES_FROM:
        return range(count), range(count)
    sides = st.columns(2, gap="large")
    ranges = []
    for side, label, name in zip(sides, (t("Queries from, to"), t("Keys from, to")), ("queries", "keys"), strict=True):
        # the length is part of the key: positions of another text are no choice in this one
        key = f"map_{name}_{count}"
        first, last = side.slider(label, 0, count - 1, (0, count - 1), key=key, persist_state="session")
        ranges.append(range(first, last + 1))
    return ranges[0], ranges[1]


def _row_sum(t: Translate, summary: AttentionSummary, layer: int) -> str:
    learned = summary.of_layer(layer).sink
    if not learned.any():
        return t("The attention of one query sums to 1.")
    told = t("This layer has a learned sink that is no token; on average it takes {share} of a query's attention.")
    return told.format(share=f"{learned.mean():.1%}")


def _hidden(t: Translate, view: MapView, share: bool) -> str:
    if not view.hidden:
        return t("No token is a sink here at this ε, so nothing is hidden.")
    named = ", ".join(map(str, view.hidden[:_NAMED])) + (" …" if len(view.hidden) > _NAMED else "")
    told = t("Hidden, at positions: {positions}.").format(positions=named)
    if not share:
        return told
    mass = view.hidden_mass
    shares = t(
        "{mean} of the attention of the queries shown goes there (from {least} to {most}); the rest is drawn as it is, "
        "not scaled up to 1."
    )
    facts = {"mean": np.mean(mass), "least": np.min(mass), "most": np.max(mass)}
    return told + " " + shares.format(**{name: f"{value:.1%}" for name, value in facts.items()})
