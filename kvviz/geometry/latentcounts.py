"""What latent attention keeps and computes beside MHA and GQA: bytes and multiply-adds against length, break-evens."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kvviz.errors import Refused
from kvviz.geometry.dtypes import Dtype, dtype_of, vector_bytes
from kvviz.geometry.latent import LatentSizes, check_lengths, stages

WAYS = ("mha", "gqa", "expanded", "absorbed")
LONGEST = 131_072  # tokens; where a curve ends unless told otherwise
_POINTS = 60

# letters as in `kvviz.geometry.latent`; g: groups of GQA; numbers a token and layer, multiply-adds of n new tokens
FORMULAS = {
    "mha": ("H (d_N + d_R + d_V)", "n H T (d_N + d_R + d_V)"),
    "gqa": ("g (d_N + d_R + d_V)", "n H T (d_N + d_R + d_V)"),
    "expanded": ("r + d_R", "T r H (d_N + d_V) + n H T (d_N + d_R + d_V)"),
    "absorbed": ("r + d_R", "n H r (d_N + d_V) + n H T (2 r + d_R)"),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """One layer and one sequence: numbers kept of a token, numbers of K and V made anew in a step, multiply-adds."""

    way: str
    kept: tuple[int, ...]  # widths of the vectors that are kept, each with scales of its own in small formats
    made: int
    multiply_adds: int


def cost(way: str, sizes: LatentSizes, tokens: int, groups: int = 1, new: int = 1) -> Cost:
    """What `way` costs with `tokens` in the cache, the `new` ones included.

    "mha" and "gqa" have the same query heads and head widths and keep K and V themselves; "expanded" and "absorbed"
    keep the latent. Products are those between the projections of the new tokens and the output projection.
    Raises Refused where `groups` does not divide the heads, and for impossible lengths.
    """
    check_lengths(tokens, new)
    if way in ("mha", "gqa"):
        shared = sizes.heads if way == "mha" else _groups(sizes, groups)
        products = new * sizes.heads * tokens * sizes.head_width
        return Cost(way, (sizes.key, sizes.value) * shared, 0, products)
    made = tokens * sizes.heads * sizes.head_width if way == "expanded" else 0
    products = sum(stage.multiply_adds for stage in stages(sizes, tokens, new) if stage.way == way)
    return Cost(way, (sizes.rank, sizes.rotary), made, products)


def _groups(sizes: LatentSizes, groups: int) -> int:
    if groups < 1 or sizes.heads % groups:
        raise Refused(
            "{heads} query heads cannot be shared out evenly among {groups} groups. "
            "Choose a number that divides {heads}.",
            heads=sizes.heads,
            groups=groups,
        )
    return groups


def latent_counts(
    sizes: LatentSizes,
    lengths: Iterable[int] | None = None,
    *,
    groups: int = 1,
    dtype: str | Dtype = "bfloat16",
    new: int = 1,
) -> pd.DataFrame:
    """One layer, one sequence: one row a length and way ("mha", "gqa", "expanded", "absorbed").

    Columns: way, tokens, bytes_per_token, cached_bytes, made_bytes (K and V that the step makes and drops),
    multiply_adds (of a step with `new` tokens, 1 = decode). Lengths up to 131,072 unless given. Raises Refused as
    `cost` does, and for unknown formats.
    """
    number, rows = dtype_of(dtype), []
    for tokens in spaced(LONGEST) if lengths is None else lengths:
        for way in WAYS:
            each = cost(way, sizes, tokens, groups, new)
            one = sum(vector_bytes(number, width) for width in each.kept)
            made = int(each.made * number.itemsize)
            rows.append((way, tokens, one, one * tokens, made, each.multiply_adds))
    columns = ["way", "tokens", "bytes_per_token", "cached_bytes", "made_bytes", "multiply_adds"]
    return pd.DataFrame(rows, columns=columns)


def spaced(longest: int) -> list[int]:
    """Lengths evenly spaced on a logarithmic axis, from 1 to `longest`."""
    return np.unique(np.geomspace(1, max(longest, 1), _POINTS).round().astype(int)).tolist()


def break_even_length(sizes: LatentSizes, new: int = 1) -> int | None:
    """The shortest text at whose end `new` tokens cost fewer multiply-adds absorbed than expanded; None: at no length.

    n r (d_N + d_V) + n T (2 r + d_R) < T r (d_N + d_V) + n T (d_N + d_R + d_V), solved for T.
    """
    up = sizes.rank * (sizes.nope + sizes.value)
    gained = up - new * (2 * sizes.rank - sizes.nope - sizes.value)  # by absorbing, a cached token and head
    return max(new, new * up // gained + 1) if gained > 0 else None


def break_even_new(sizes: LatentSizes, tokens: int) -> int:
    """The most tokens, as the newest of `tokens`, that cost fewer multiply-adds absorbed than expanded; 0: none."""
    up = sizes.rank * (sizes.nope + sizes.value)
    each = up + tokens * (2 * sizes.rank - sizes.nope - sizes.value)  # what one more new token adds to the difference
    if each <= 0:
        return tokens
    return min(tokens, -(-tokens * up // each) - 1)


def equal_groups(sizes: LatentSizes) -> float:
    """The number of groups with which GQA of the same head widths would keep as many numbers a token."""
    return sizes.latent_width / sizes.head_width
