"""The text itself, shaded: what every token received, whom one token looks at, who looks at it."""

from collections.abc import Sequence

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.analysis.attention import mean_received
from kvviz.analysis.rows import received_by_all, strongest
from kvviz.locale import N_, Translate
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.positions import position_input
from kvviz.ui.attention.recompute import columns, rows
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.shell import Page

_MODES = {
    "received": N_("what it received"),
    "query": N_("as query: whom does it look at?"),
    "key": N_("as key: who looks at it?"),
}
_MEASURES = {
    "all": N_("mean over all heads"),
    "head": N_("mean in this head"),
    "peak": N_("the most from one later query, in this head"),
}
_HEADS = {"head": N_("this head"), "mean": N_("mean over the layer's heads")}
_POSITION = "strip_position"


def strip(page: Page, summary: AttentionSummary, layer: int, head: int, origins: Sequence[str]) -> None:
    """The strip, its controls, and the five strongest; `origins` as `token_strip` takes them."""
    st.fragment(_strip)(page, summary, layer, head, origins)


def _strip(page: Page, summary: AttentionSummary, layer: int, head: int, origins: Sequence[str]) -> None:
    t = page.t
    st.subheader(t("Which token looks at which?"), anchor=False)
    mode = _choice(t, st.container(), t("Shade every token by"), _MODES, "strip_mode")
    left, right, _ = st.columns([4, 2, 3], vertical_alignment="bottom", gap="medium")
    count = len(summary.ids)
    if mode == "received":
        measure = left.selectbox(
            t("Received, measured as"),
            list(_MEASURES),
            format_func=lambda name: t(_MEASURES[name]),
            key="strip_measure",
            persist_state="session",
        )
        position, weights = None, _received(summary, layer, head, measure)
    else:
        which = _choice(t, left, t("Heads"), _HEADS, "strip_heads")
        position = position_input(right, t("Token"), count, key=_POSITION, default=count - 1)
        weights = looks(summary, layer, head if which == "head" else None, position, mode)
    st.caption(_told(t, mode, layer, head, st.session_state.get("strip_measure"), st.session_state.get("strip_heads")))
    largest = float(np.nanmax(weights)) if np.isfinite(weights).any() else 0.0
    token_strip(
        summary.tokens,
        key="attention_strip",
        t=t,
        origins=origins,
        selected=position,
        weights=np.sqrt(weights / largest) if largest else weights,
        scale=[(np.sqrt(part), f"{part * largest:.3g}") for part in (0.0, 0.01, 0.1, 0.5, 1.0)] if largest else (),
        on_select=_chosen,
    )
    _list(t, summary, weights, mode, position)


def _choice(t: Translate, place: DeltaGenerator, label: str, options: dict[str, str], key: str) -> str:
    st.session_state.setdefault(key, next(iter(options)))  # not a default: a callback sets it, too
    return place.segmented_control(
        label, list(options), format_func=lambda name: t(options[name]), required=True, key=key, persist_state="session"
    )


def _chosen() -> None:
    """A click on the strip: the number beside it follows; a click on the received shades asks for a query."""
    st.session_state[_POSITION] = st.session_state["attention_strip"]["selected"]
    if st.session_state["strip_mode"] == "received":
        st.session_state["strip_mode"] = "query"


def _received(summary: AttentionSummary, layer: int, head: int, measure: str) -> np.ndarray:
    if measure == "all":
        return received_by_all(summary.layers)
    of = next(each for each in summary.layers if each.layer == layer)
    return (mean_received(of) if measure == "head" else of.peak_probability)[head]


def looks(summary: AttentionSummary, layer: int, head: int | None, position: int, mode: str) -> np.ndarray:
    """Row ("query") or column ("key") of the token at `position`, (T,), of one head or, with None, the heads' mean."""
    of_heads = (
        rows(summary, layer, [position])[:, 0] if mode == "query" else columns(summary, layer, [position])[:, :, 0]
    )
    return of_heads.mean(axis=0) if head is None else of_heads[head]


def _told(t: Translate, mode: str, layer: int, head: int, measure: str | None, heads: str | None) -> str:
    if mode == "received" and measure == "all":
        return t("Mean of what its queries gave it, over all layers and heads. Click a token to see whom it looks at.")
    if mode == "received":
        return t("Layer {layer}, head {head}. Click a token to see whom it looks at.").format(layer=layer, head=head)
    if heads == "mean":
        return t("Layer {layer}, mean over its heads. Click another token, or use the arrow keys.").format(layer=layer)
    told = t("Layer {layer}, head {head}. Click another token, or use the arrow keys.")
    return told.format(layer=layer, head=head)


def _list(t: Translate, summary: AttentionSummary, weights: np.ndarray, mode: str, position: int | None) -> None:
    titles = {
        "received": t("The five that received most"),
        "query": t("The five that token {position} looks at most"),
        "key": t("The five that look at token {position} most"),
    }
    with st.container(key="strip_top"):
        st.markdown("**" + titles[mode].format(position=position) + "**")
        # st.text, not markdown: the labels are the model's text
        lines = [
            f"{row.probability:.4f}   {row.position}   “{row.token}”"
            for row in strongest(weights, summary.labels).itertuples()
        ]
        st.text("\n".join(lines))
