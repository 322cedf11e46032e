"""A worked example seen in lectures, step by step from how it is often stated to what the model does: Gemma 2 27B."""

from collections.abc import Sequence

import pandas as pd

from kvviz.geometry.layers import LayerShape
from kvviz.geometry.memory import bytes_per_token, tokens_that_fit
from kvviz.geometry.whatif import with_heads, with_windows

_LAYERS, _WIDTH, _WINDOW, _ITEMSIZE = 46, 128, 4096, 2
_QUERY_HEADS, _KV_HEADS, _STATED_HEADS = 32, 16, 30
GB_80, GIB_80 = 80 * 10**9, 80 * 1024**3


def gemma2_27b() -> pd.DataFrame:
    """Four readings of "46 layers x heads x 128 x 2 bytes x 2", one a row, in bfloat16.

    Columns: case ("stated": 30 heads, "query_heads": 32, "kv_heads": the 16 it stores, "windows": and half of its
    layers slide), layers, heads, head_width, window_layers, window_tokens, bytes_per_token (while every layer grows),
    bytes_per_token_beyond_window, tokens_in_80_gb, tokens_in_80_gib.
    """
    stored = [
        LayerShape(index, "full", _KV_HEADS, _WIDTH, _WIDTH, query_heads=_QUERY_HEADS, head_widths=(_WIDTH, _WIDTH))
        for index in range(_LAYERS)
    ]
    stated = [LayerShape(index, "full", _STATED_HEADS, _WIDTH, _WIDTH) for index in range(_LAYERS)]
    cases = {
        "stated": stated,
        "query_heads": with_heads(stored, "mha"),
        "kv_heads": stored,
        "windows": with_windows(stored, "alternating", window=_WINDOW),
    }
    return pd.DataFrame([_row(case, shapes) for case, shapes in cases.items()]).astype({"window_tokens": "Int64"})


def _row(case: str, shapes: Sequence[LayerShape]) -> dict[str, object]:
    growing = [shape for shape in shapes if shape.window is None]
    return {
        "case": case,
        "layers": len(shapes),
        "heads": shapes[0].kv_heads,
        "head_width": shapes[0].key_width,
        "window_layers": len(shapes) - len(growing),
        "window_tokens": shapes[0].window,
        "bytes_per_token": bytes_per_token(shapes, _ITEMSIZE),
        "bytes_per_token_beyond_window": bytes_per_token(growing, _ITEMSIZE),
        "tokens_in_80_gb": tokens_that_fit(shapes, _ITEMSIZE, GB_80),
        "tokens_in_80_gib": tokens_that_fit(shapes, _ITEMSIZE, GIB_80),
    }
