"""Multi-head latent attention: its sizes, and the products of its two ways with their shapes and multiply-adds.

Letters: T tokens in the cache (the newest included), n new tokens (1 in a decode step), H heads, r rank of the latent,
d_N and d_R widths of a query's parts without and with rotary positions, d_V width of a value.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

import pandas as pd

from kvviz.errors import Refused
from kvviz.locale import N_

_MOST = 1 << 20  # of any one size


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """Sizes of one layer: `heads` (H), `rank` (r), `rotary` (d_R), `nope` (d_N), `value` (d_V).

    Raises Refused for sizes below 1, an odd `rotary` and sizes that no model has.
    """

    heads: int
    rank: int
    rotary: int
    nope: int
    value: int

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name))
        if self.rotary % 2:
            raise Refused(
                "The rotary width is {rotary}, but rotary positions turn pairs of numbers. Choose an even width.",
                rotary=self.rotary,
            )

    @property
    def key(self) -> int:
        """Width of a head's key: d_N + d_R."""
        return self.nope + self.rotary

    @property
    def latent_width(self) -> int:
        """Numbers kept of a token: r + d_R."""
        return self.rank + self.rotary

    @property
    def head_width(self) -> int:
        """Numbers of a token's key and value in one head: d_N + d_R + d_V."""
        return self.key + self.value


_NONE = {
    "heads": N_("There are no heads to compute. Choose at least 1."),
    "rank": N_("A latent of rank 0 keeps nothing to make keys and values of. Choose a rank of at least 1."),
    "rotary": N_(
        "Without a rotary key nothing tells where a token stands: what is absorbed into the query cannot depend on "
        "positions. Choose a rotary width of at least 2."
    ),
    "nope": N_("Without a key part free of positions nothing can be absorbed. Choose a head width of at least 1."),
    "value": N_("Values of width 0 say nothing. Choose a head width of at least 1."),
}


def _check(name: str, size: object) -> None:
    if isinstance(size, bool) or not isinstance(size, int):
        raise Refused("The size {name} must be a whole number, not {size}. Correct it.", name=name, size=repr(size))
    if size < 1:
        raise Refused(_NONE[name])
    if size > _MOST:
        raise Refused("The size {name} is {size}, which no model has. Choose a smaller one.", name=name, size=size)


class Stage(NamedTuple):
    """One product; the columns of `latent_stages`."""

    way: str
    result: str
    product: str
    letters: str
    shape: str
    cost: str
    multiply_adds: int


def latent_stages(sizes: LatentSizes, tokens: int, new: int = 1) -> pd.DataFrame:
    """The products of both ways from the cached latents to each head's output, in order, one a row.

    Columns: way ("expanded" or "absorbed"), result (what is made), product, letters and shape (of the result),
    cost (multiply-adds in letters), multiply_adds. Softmax and the projections of the new tokens are not products of
    the cache and are left out. Every query is counted against all `tokens` keys, as a dense product computes it.
    """
    check_lengths(tokens, new)
    return pd.DataFrame([row._asdict() for row in stages(sizes, tokens, new)])


def stages(s: LatentSizes, t: int, n: int) -> Iterable[Stage]:
    """What `latent_stages` has in its rows, unchecked."""
    h, r, dn, dr, dv = s.heads, s.rank, s.nope, s.rotary, s.value

    def row(way: str, result: str, product: str, letters: str, shape: tuple, cost: str, adds: int) -> Stage:
        return Stage(way, result, product, letters, " × ".join(f"{size:,}" for size in shape), cost, adds)

    yield row("expanded", "K", "c W_UK", "H × T × d_N", (h, t, dn), "T r H d_N", t * r * h * dn)
    yield row("expanded", "V", "c W_UV", "H × T × d_V", (h, t, dv), "T r H d_V", t * r * h * dv)
    cost, adds = "n H T (d_N + d_R)", n * h * t * (dn + dr)
    yield row("expanded", "S", "q_N Kᵀ + q_R k_Rᵀ", "H × n × T", (h, n, t), cost, adds)
    yield row("expanded", "o", "softmax(S) V", "H × n × d_V", (h, n, dv), "n H T d_V", n * h * t * dv)
    yield row("absorbed", "q̃", "q_N W_UKᵀ", "H × n × r", (h, n, r), "n H d_N r", n * h * dn * r)
    cost, adds = "n H T (r + d_R)", n * h * t * (r + dr)
    yield row("absorbed", "S", "q̃ cᵀ + q_R k_Rᵀ", "H × n × T", (h, n, t), cost, adds)
    yield row("absorbed", "u", "softmax(S) c", "H × n × r", (h, n, r), "n H T r", n * h * t * r)
    yield row("absorbed", "o", "u W_UV", "H × n × d_V", (h, n, dv), "n H r d_V", n * h * r * dv)


def check_lengths(tokens: int, new: int) -> None:
    """Raise Refused unless `new` tokens can be the last of `tokens`."""
    if not 1 <= new <= tokens:
        raise Refused(
            "{new} new tokens cannot be among {tokens} in the cache. Choose at least 1 and at most all of them.",
            new=new,
            tokens=tokens,
        )
