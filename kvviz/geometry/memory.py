"""How much memory a cache takes at any length, and how many tokens fit into a given memory."""

from collections.abc import Callable, Sequence

from kvviz.geometry.dtypes import Dtype
from kvviz.geometry.layers import LayerShape

ENDLESS = 1 << 40  # tokens; what still fits at this length has no end


def bytes_per_token(shapes: Sequence[LayerShape], itemsize: int | Dtype) -> int:
    """Bytes one more token costs while every layer still grows."""
    return sum(shape.bytes_per_token(itemsize) for shape in shapes)


def layer_bytes(shape: LayerShape, itemsize: int | Dtype, seen: int) -> int:
    """Bytes one layer holds after `seen` tokens, as transformers stores it between steps."""
    return shape.copies * shape.stored(seen) * shape.bytes_per_token(itemsize) + _fixed(shape, itemsize, seen)


def least_layer_bytes(shape: LayerShape, itemsize: int | Dtype, seen: int) -> int:
    """Bytes of what the query of the last of `seen` tokens may look at in one layer."""
    return shape.visible(seen) * shape.bytes_per_token(itemsize) + _fixed(shape, itemsize, seen)


def cache_bytes(shapes: Sequence[LayerShape], itemsize: int | Dtype, seen: int) -> int:
    """Bytes held after `seen` tokens, as transformers stores them between steps; states included."""
    return sum(layer_bytes(shape, itemsize, seen) for shape in shapes)


def least_bytes(shapes: Sequence[LayerShape], itemsize: int | Dtype, seen: int) -> int:
    """Bytes of all that the query of the last of `seen` tokens may look at; no engine can do with less."""
    return sum(least_layer_bytes(shape, itemsize, seen) for shape in shapes)


def kinds_bytes(shapes: Sequence[LayerShape], itemsize: int | Dtype, seen: int) -> dict[str, int]:
    """`cache_bytes` by layer kind, in the order the kinds first appear."""
    totals: dict[str, int] = {}
    for shape in shapes:
        totals[shape.kind] = totals.get(shape.kind, 0) + layer_bytes(shape, itemsize, seen)
    return totals


def tokens_that_fit(shapes: Sequence[LayerShape], itemsize: int | Dtype, budget: int) -> int | None:
    """The largest number of tokens whose cache is at most `budget` bytes; None when there is no end to it.

    There is no end when every layer has a window (or none keeps K and V) and all windows full still fit.
    """
    return most_tokens(lambda tokens: cache_bytes(shapes, itemsize, tokens) <= budget)


def most_tokens(fits: Callable[[int], bool]) -> int | None:
    """The largest number of tokens for which `fits` holds (it must not hold again later); None without an end."""
    if fits(ENDLESS):
        return None
    low, high = 0, ENDLESS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fixed(shape: LayerShape, itemsize: int | Dtype, seen: int) -> int:
    return shape.fixed_bytes(itemsize) if seen else 0
