"""What one token costs: layers x 2 x KV heads x head_dim x bytes, with this model's numbers."""

from typing import NamedTuple

import streamlit as st

from kvviz.analysis.formula import arithmetic_frame
from kvviz.locale import Translate
from kvviz.ui.growth.run import GrowthRun
from kvviz.words import LAYER_KINDS


def arithmetic(t: Translate, run: GrowthRun) -> None:
    """The product of each group of like layers, their sum, and where windows make it end."""
    st.subheader(t("What does one token cost?"), anchor=False)
    groups = arithmetic_frame(run.shapes, run.lm.dtype.itemsize)
    lines = [_product(t, row) for row in groups.itertuples()]
    if len(groups) > 1:
        total = f"{groups['bytes_per_token'].sum():,}"
        lines.append(t("together: {bytes} bytes per token while every layer grows").format(bytes=total))
    st.code("\n".join(lines), language=None, wrap_lines=True)
    note = t(
        "A {kind} layer looks at {window} tokens. Between steps it stores {kept}: the next token brings the last one. "
        "From there on its part of the cache is flat."
    )
    for row in groups.dropna(subset="window").itertuples():
        kind = t(LAYER_KINDS.get(row.kind, row.kind))
        st.caption(note.format(kind=kind, window=f"{row.window:,}", kept=f"{row.window - 1:,}"))


def _product(t: Translate, row: NamedTuple) -> str:
    same = row.key_width == row.value_width
    words = t(
        "{kind}: {layers} layers × 2 (K and V) × {heads} KV heads × {key} numbers × {bytes} bytes "
        "= {total} bytes per token"
    )
    if not same:  # MLA: one latent and one rotary part
        words = t(
            "{kind}: {layers} layers × {heads} KV heads × ({key} + {value}) numbers × {bytes} bytes "
            "= {total} bytes per token"
        )
    return words.format(
        kind=t(LAYER_KINDS.get(row.kind, row.kind)),
        layers=row.layers,
        heads=row.kv_heads,
        key=row.key_width,
        value=row.value_width,
        bytes=row.itemsize,
        total=f"{row.bytes_per_token:,}",
    )
