"""Where it ends: the cache at lengths people ask for, and the tokens that fit into known memories."""

import pandas as pd
import streamlit as st

from kvviz.analysis.headroom import capacity_frame, length_frame, measured_itemsize
from kvviz.geometry.gpus import GPUS
from kvviz.locale import Translate
from kvviz.models.devices import device_title, memory
from kvviz.ui.growth.run import GrowthRun
from kvviz.units import size


def headroom(t: Translate, run: GrowthRun) -> None:
    """Two tables that continue what the run measured."""
    st.subheader(t("Where does it end?"), anchor=False)
    measured = measured_itemsize(run.steps[-1], run.shapes)
    if measured is None:
        st.caption(t("This model keeps no keys and values."))
        return
    left, right = st.columns([1, 2], gap="large")
    with left:
        _lengths(t, run, round(measured))
    with right:
        _capacities(t, run, round(measured))
    told = t(
        "Continued from the bytes this run measured, {bytes} per stored number. The model's weights take {weights}."
    )
    st.caption(told.format(bytes=round(measured), weights=size(run.lm.weights_bytes)))
    if run.lm.context:
        told = t("The model itself was made for texts of at most {context} tokens.")
        st.caption(told.format(context=f"{run.lm.context:,}"))


def _lengths(t: Translate, run: GrowthRun, itemsize: int) -> None:
    lengths = length_frame(run.shapes, itemsize)
    table = {
        t("tokens"): lengths["tokens"].map("{:,}".format),
        t("cache (one conversation)"): lengths["cache_bytes"].map(size),
    }
    st.dataframe(pd.DataFrame(table), hide_index=True, key="lengths")


def _capacities(t: Translate, run: GrowthRun, itemsize: int) -> None:
    here = t("here: {name}").format(name=device_title(run.lm.device))
    memories = {here: memory(run.lm.device).total} | {gpu.name: gpu.memory_bytes for gpu in GPUS}
    fits = capacity_frame(run.shapes, itemsize, run.lm.weights_bytes, memories)
    table = {
        t("device"): fits["device"],
        t("memory"): fits["memory_bytes"].map(size),
        t("tokens, weights loaded"): [_count(t, tokens) for tokens in fits["tokens_beside_weights"]],
        t("tokens, cache alone"): [_count(t, tokens) for tokens in fits["tokens_alone"]],
    }
    st.dataframe(pd.DataFrame(table), hide_index=True, key="capacities")


def _count(t: Translate, tokens: int) -> str:
    return t("unlimited: every layer has a window") if pd.isna(tokens) else f"{tokens:,}"
