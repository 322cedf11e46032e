"""How much memory a cache takes at any length, and how many tokens fit into a given memory."""

from collections.abc import Sequence

from kvviz.geometry.layers import LayerShape


def bytes_per_token(shapes: Sequence[LayerShape], itemsize: int) -> int:
    """Bytes one more token costs while every layer still grows."""
    return sum(shape.bytes_per_token(itemsize) for shape in shapes)


def cache_bytes(shapes: Sequence[LayerShape], itemsize: int, seen: int) -> int:
    """Bytes held after `seen` tokens, as transformers stores them between steps."""
    return sum(shape.stored(seen) * shape.bytes_per_token(itemsize) for shape in shapes)


def kinds_bytes(shapes: Sequence[LayerShape], itemsize: int, seen: int) -> dict[str, int]:
    """`cache_bytes` by layer kind, in the order the kinds first appear."""
    totals: dict[str, int] = {}
    for shape in shapes:
        totals[shape.kind] = totals.get(shape.kind, 0) + shape.stored(seen) * shape.bytes_per_token(itemsize)
    return totals


def tokens_that_fit(shapes: Sequence[LayerShape], itemsize: int, budget: int) -> int | None:
    """The largest number of tokens whose cache is at most `budget` bytes; None when there is no end to it.

    There is no end when every layer has a window (or none keeps K and V) and all windows full still fit.
    """
    if budget < 0:
        return 0
    growing = [shape for shape in shapes if shape.kv_heads and shape.window is None]
    longest_window = max((shape.window for shape in shapes if shape.window), default=0)
    if not growing and cache_bytes(shapes, itemsize, longest_window) <= budget:
        return None
    low, high = 0, longest_window + budget + 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cache_bytes(shapes, itemsize, middle) <= budget else (low, middle - 1)
    return low
