"""Frames of a plan: every layer with its formula, and curves against the length of the text."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from kvviz.geometry.dtypes import Dtype
from kvviz.geometry.layers import LayerShape
from kvviz.geometry.memory import kinds_bytes, layer_bytes, least_bytes, least_layer_bytes
from kvviz.geometry.vllm import Held, reserve

_POINTS = 60


def layer_table(
    shapes: Sequence[LayerShape], dtype: Dtype, tokens: int, batch: int, block: int, in_flight: int
) -> pd.DataFrame:
    """One row a layer; bytes are those of all `batch` sequences of `tokens` tokens.

    Columns: layer, kind, window_tokens, kv_heads, key_width, value_width, bytes_per_token (of one sequence),
    state_bytes (of one sequence, whatever its length), tokens (that transformers stores of one sequence), bytes,
    formula, least_bytes, least_formula, vllm_bytes, vllm_formula.
    """
    reserved = reserve(shapes, dtype, tokens, block, in_flight)
    rows = [
        {
            "layer": shape.layer,
            "kind": shape.kind,
            "window_tokens": shape.window,
            "kv_heads": shape.kv_heads,
            "key_width": shape.key_width,
            "value_width": shape.value_width,
            "bytes_per_token": shape.bytes_per_token(dtype),
            "state_bytes": shape.fixed_bytes(dtype),
            "tokens": shape.stored(tokens),
            "bytes": batch * layer_bytes(shape, dtype, tokens),
            "formula": _formula(shape, dtype, tokens, batch, " − 1", shape.copies),
            "least_bytes": batch * least_layer_bytes(shape, dtype, tokens),
            "least_formula": _formula(shape, dtype, tokens, batch, ""),
            "vllm_bytes": batch * reserved.layer_bytes(shape.layer),
            "vllm_formula": _blocks(shape, reserved.held, tokens, batch, in_flight),
        }
        for shape in shapes
    ]
    return pd.DataFrame(rows).astype({"window_tokens": "Int64"})


def _formula(shape: LayerShape, dtype: Dtype, tokens: int, batch: int, less: str, copies: int = 1) -> str:
    parts = []
    if shape.kv_heads:
        widths = f"({shape.key_width} + {shape.value_width}) × {dtype.bits // 8} B"
        if dtype.block > 1:
            widths = f"({dtype.vector(shape.key_width)} + {dtype.vector(shape.value_width)}) B"
        each = widths if shape.kv_heads == 1 else f"{shape.kv_heads} × {widths}"
        if shape.index_width:
            each = f"({each} + {dtype.vector(shape.index_width)} B)"
        each = each if copies == 1 else f"{copies} × {each}"
        parts.append(f"{each} × {_length(shape, tokens, less)}")
    if shape.state and any(shape.state):
        channels, kernel, recurrent = shape.state
        parts += [f"{channels:,} × {kernel} × {dtype.state_itemsize} B"] if channels else []
        parts += [f"{recurrent:,} × 4 B"] if recurrent else []
    if shape.kv_heads and dtype.layer_bytes:
        parts.append(f"{dtype.layer_bytes} B")
    text = " + ".join(parts) or "0 B"
    return text if batch == 1 or not parts else f"{batch} × ({text})"


def _length(shape: LayerShape, tokens: int, less: str) -> str:
    if shape.window is None:
        return f"{tokens:,}"
    kept = f"{shape.sinks} + {shape.window:,}" if shape.sinks else f"{shape.window:,}"
    return f"min({tokens:,}, {kept}{less})"


def _blocks(shape: LayerShape, held: Iterable[Held], tokens: int, batch: int, in_flight: int) -> str:
    parts = []
    for part in held:
        if part.layer != shape.layer:
            continue
        count = "1"
        if part.block_tokens and shape.window is None:
            count = f"⌈{tokens:,} / {part.block_tokens}⌉"
        elif part.block_tokens and shape.kind == "chunked":
            count = f"⌈min({shape.window:,} + {in_flight:,}, {tokens:,}) / {part.block_tokens}⌉"
        elif part.block_tokens:
            window = shape.window + shape.sinks
            count = f"(⌈min({window:,} − 1 + {in_flight:,}, {tokens:,}) / {part.block_tokens}⌉ + 1)"
        parts.append(f"{count} × {part.page_bytes:,} B")
    text = " + ".join(parts) or "0 B"
    return text if batch == 1 or not parts else f"{batch} × ({text})"


def lengths(shapes: Sequence[LayerShape], longest: int) -> list[int]:
    """Lengths for a curve, evenly spaced on a logarithmic axis up to `longest`, and every corner a window makes."""
    spaced = np.unique(np.geomspace(1, max(longest, 1), _POINTS).astype(int)).tolist()
    corners = {shape.window + shape.sinks for shape in shapes if shape.window and shape.window + shape.sinks < longest}
    return sorted({*spaced, *corners})


def curve(
    shapes: Sequence[LayerShape], dtype: Dtype, at: Iterable[int], batch: int, block: int, in_flight: int
) -> pd.DataFrame:
    """One row a length. Columns: tokens, least_bytes, total_bytes, vllm_bytes (of all `batch` sequences)."""
    rows = []
    for tokens in at:
        total = sum(kinds_bytes(shapes, dtype, tokens).values())
        reserved = reserve(shapes, dtype, tokens, block, in_flight).bytes
        rows.append((tokens, batch * least_bytes(shapes, dtype, tokens), batch * total, batch * reserved))
    return pd.DataFrame(rows, columns=["tokens", "least_bytes", "total_bytes", "vllm_bytes"])


def kinds_curve(shapes: Sequence[LayerShape], dtype: Dtype, at: Iterable[int], batch: int) -> pd.DataFrame:
    """One row a length and layer kind, as transformers stores it. Columns: tokens, kind, bytes."""
    rows = [(tokens, kind, batch * held) for tokens in at for kind, held in kinds_bytes(shapes, dtype, tokens).items()]
    return pd.DataFrame(rows, columns=["tokens", "kind", "bytes"])
