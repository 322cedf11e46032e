"""Where it ends: what a measured cache grows to, and how much of it fits into a given memory."""

from collections.abc import Mapping, Sequence

import pandas as pd

from kvviz.geometry.layers import LayerShape
from kvviz.geometry.memory import cache_bytes, tokens_that_fit
from kvviz.records import Step

LENGTHS = (8_192, 32_768, 131_072)


def measured_itemsize(step: Step, shapes: Sequence[LayerShape]) -> float | None:
    """Bytes per stored number, read off the step's tensors; None while nothing is stored."""
    kept = [(layer, shape) for layer, shape in zip(step.layers, shapes, strict=True) if shape.kv_heads]
    numbers = sum(layer.stored * shape.bytes_per_token(1) for layer, shape in kept)
    return sum(layer.bytes for layer, _ in kept) / numbers if numbers else None


def length_frame(shapes: Sequence[LayerShape], itemsize: int, lengths: Sequence[int] = LENGTHS) -> pd.DataFrame:
    """One row a length. Columns: tokens, cache_bytes (one user)."""
    return pd.DataFrame({"tokens": lengths, "cache_bytes": [cache_bytes(shapes, itemsize, n) for n in lengths]})


def capacity_frame(
    shapes: Sequence[LayerShape], itemsize: int, weights_bytes: int, memories: Mapping[str, int]
) -> pd.DataFrame:
    """One row a device: how many tokens of cache its memory takes, alone and beside the weights.

    Columns: device, memory_bytes, tokens_alone, tokens_beside_weights (missing = no end: every layer has a window).
    """
    return pd.DataFrame(
        {
            "device": list(memories),
            "memory_bytes": list(memories.values()),
            "tokens_alone": _column(shapes, itemsize, memories.values()),
            "tokens_beside_weights": _column(shapes, itemsize, (total - weights_bytes for total in memories.values())),
        }
    )


def _column(shapes: Sequence[LayerShape], itemsize: int, budgets: object) -> pd.api.extensions.ExtensionArray:
    return pd.array([tokens_that_fit(shapes, itemsize, budget) for budget in budgets], dtype="Int64")
