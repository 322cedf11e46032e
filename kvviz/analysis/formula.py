"""What the formula says a cache holds, beside which measured points are drawn; and the formula spelled out."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kvviz.geometry.layers import LayerShape
from kvviz.geometry.memory import kinds_bytes

_POINTS = 200  # enough for a line with a corner in it


def predicted_frame(shapes: Sequence[LayerShape], itemsize: int, upto: int) -> pd.DataFrame:
    """One row a length (0 to `upto` tokens) and layer kind. Columns: seen_tokens, kind, bytes."""
    corners = [shape.window - 1 for shape in shapes if shape.window and shape.window - 1 <= upto]
    lengths = np.unique(np.concatenate([np.linspace(0, upto, min(upto + 1, _POINTS)).astype(int), corners]).astype(int))
    rows = [(n, kind, held) for n in lengths for kind, held in kinds_bytes(shapes, itemsize, int(n)).items()]
    return pd.DataFrame(rows, columns=["seen_tokens", "kind", "bytes"])


def arithmetic_frame(shapes: Sequence[LayerShape], itemsize: int) -> pd.DataFrame:
    """The bytes of one more token, one row a group of like layers.

    Columns: kind, window, layers, kv_heads, key_width, value_width, itemsize, bytes_per_token (of the group).
    """
    groups: dict[tuple, int] = {}
    for shape in shapes:
        if shape.kv_heads:
            like = (shape.kind, shape.window, shape.kv_heads, shape.key_width, shape.value_width)
            groups[like] = groups.get(like, 0) + 1
    rows = [
        (kind, window, layers, heads, key, value, itemsize, layers * heads * (key + value) * itemsize)
        for (kind, window, heads, key, value), layers in groups.items()
    ]
    columns = ["kind", "window", "layers", "kv_heads", "key_width", "value_width", "itemsize", "bytes_per_token"]
    return pd.DataFrame(rows, columns=columns).astype({"window": "Int64"})
