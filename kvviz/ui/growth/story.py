"""What the run teaches: the arithmetic of a token's bytes, what a query is for, and where memory ends."""

import pandas as pd
import streamlit as st

from kvviz.analysis.formula import arithmetic_frame
from kvviz.analysis.headroom import capacity_frame, length_frame, measured_itemsize
from kvviz.geometry.gpus import GPUS
from kvviz.geometry.layers import query_heads
from kvviz.locale import Translate
from kvviz.models.devices import device_title, memory
from kvviz.records import Step
from kvviz.ui.growth.run import GrowthRun
from kvviz.units import size
from kvviz.words import LAYER_KINDS


def arithmetic(t: Translate, run: GrowthRun) -> None:
    """Layers x 2 x KV heads x head_dim x bytes, with this model's numbers, and what the last step measured."""
    st.subheader(t("What does one token cost?"), anchor=False)
    groups = arithmetic_frame(run.shapes, run.lm.dtype.itemsize)
    for row in groups.itertuples():
        st.code(_product(t, row), language=None)
    total = int(groups["bytes_per_token"].sum())
    if len(groups) > 1:
        st.code(
            t("together = {bytes} bytes per token while every layer grows").format(bytes=f"{total:,}"), language=None
        )
    windows = groups.dropna(subset="window")
    for row in windows.itertuples():
        note = t(
            "A {kind} layer looks at {window} tokens. Between steps it stores {kept}: the next token brings the last one. "
            "From there on its part of the cache is flat."
        )
        st.caption(
            note.format(
                kind=t(LAYER_KINDS.get(row.kind, row.kind)), window=f"{row.window:,}", kept=f"{row.window - 1:,}"
            )
        )


def _product(t: Translate, row: tuple) -> str:
    widths = (
        f"2 × {row.kv_heads} × {row.key_width}"
        if row.key_width == row.value_width
        else f"{row.kv_heads} × ({row.key_width} + {row.value_width})"
    )
    words = (
        t("{layers} layers × 2 (K and V) × {heads} KV heads × {width} numbers × {bytes} bytes")
        if row.key_width == row.value_width
        else t("{layers} layers × {heads} head × ({key} + {value}) numbers × {bytes} bytes")
    ).format(
        layers=row.layers,
        heads=row.kv_heads,
        width=row.key_width,
        key=row.key_width,
        value=row.value_width,
        bytes=row.itemsize,
    )
    kind = t(LAYER_KINDS.get(row.kind, row.kind))
    return f"{kind}: {words}\n= {row.layers} × {widths} × {row.itemsize} = {row.bytes_per_token:,} " + t(
        "bytes per token"
    )


def query(t: Translate, run: GrowthRun, step: Step) -> None:
    """Shapes of this step's attention, and the proof that what is stored stays as it is."""
    st.subheader(t("What is the query for, and why is it not cached?"), anchor=False)
    if not step.calls:
        st.caption(t("This model computes its attention itself, so its shapes cannot be shown."))
    else:
        _shapes(t, run, step)
    st.markdown(
        t(
            "The new token's query asks one question: which of the stored keys matter to me? Its answer, the weighted sum of "
            "the values, goes on to the next layer, and nobody ever asks for that query again. Its key and value are what every "
            "later token will look at, so those two stay."
        )
    )
    if st.button(
        t("Check: are K and V of earlier tokens still the same bits?"), key="check", icon=":material/fingerprint:"
    ):
        _verdicts(t, run)


def _shapes(t: Translate, run: GrowthRun, step: Step) -> None:
    rows = []
    for call in step.calls:
        kind = run.shapes[call.layer].kind
        rows.append(
            {
                t("layer"): f"{call.layer} ({t(LAYER_KINDS.get(kind, kind))})",
                t("Q: used once, thrown away"): _times(call.query),
                t("K: looked at by this step"): _times(call.key),
                t("V: summed up by this step"): _times(call.value),
            }
        )
    st.dataframe(pd.DataFrame(rows), hide_index=True)
    heads, kv_heads = query_heads(run.lm.config), step.calls[0].key[0]
    st.caption(
        t("Heads × tokens × numbers. {heads} query heads share {kv} KV heads; only K and V are stored.").format(
            heads=heads, kv=kv_heads
        )
    )


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{side:,}" for side in shape)


def _verdicts(t: Translate, run: GrowthRun) -> None:
    seen = run.steps[-1].seen
    labels = run.text().tokens
    for witness in run.witnesses:
        verdicts = witness.compare(run.cache, seen)
        held = [verdict for verdict in verdicts if verdict.held]
        same = sum(bool(verdict.key_equal and verdict.value_equal) for verdict in held)
        told = t(
            "Token {position} ({label}), copied after {then} tokens, compared after {now}: K and V equal bit for bit in {same} of {held} layers."
        )
        gone = len(verdicts) - len(held)
        line = told.format(
            position=witness.position,
            label=labels[witness.position].label,
            then=witness.seen,
            now=seen,
            same=same,
            held=len(held),
        )
        if gone:
            line += " " + t("{gone} layers no longer hold it: it left their window.").format(gone=gone)
        (st.text if same == len(held) else st.error)(line)


def headroom(t: Translate, run: GrowthRun) -> None:
    """The cache at lengths people ask for, and the tokens that fit beside the weights, from measured bytes."""
    st.subheader(t("Where does it end?"), anchor=False)
    measured = measured_itemsize(run.steps[-1], run.shapes)
    if measured is None:
        st.caption(t("This model keeps no keys and values."))
        return
    itemsize = round(measured)
    left, right = st.columns([1, 2])
    lengths = length_frame(run.shapes, itemsize)
    left.dataframe(
        pd.DataFrame(
            {
                t("tokens"): lengths["tokens"].map("{:,}".format),
                t("cache of one user"): lengths["cache_bytes"].map(size),
            }
        ),
        hide_index=True,
    )
    here = memory(run.lm.device)
    memories = {t("this device: {name}").format(name=device_title(run.lm.device)): here.total} | {
        gpu.name: gpu.memory_bytes for gpu in GPUS
    }
    fits = capacity_frame(run.shapes, itemsize, run.lm.weights_bytes, memories)
    right.dataframe(
        pd.DataFrame(
            {
                t("device"): fits["device"],
                t("memory"): fits["memory_bytes"].map(size),
                t("tokens that fit beside the weights"): fits["tokens_beside_weights"].map(lambda n: _count(t, n)),
                t("if the cache had it all"): fits["tokens_alone"].map(lambda n: _count(t, n)),
            }
        ),
        hide_index=True,
    )
    context = run.lm.context
    note = t("From the bytes this run measured: {bytes} per stored number in every layer, weights of {weights}.")
    st.caption(note.format(bytes=itemsize, weights=size(run.lm.weights_bytes)))
    if context:
        st.caption(t("The model itself was made for texts of at most {context} tokens.").format(context=f"{context:,}"))


def _count(t: Translate, tokens: int | None) -> str:
    return t("no end: every layer has a window") if pd.isna(tokens) else f"{tokens:,}"
