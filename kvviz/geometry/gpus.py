"""Memory of well-known accelerators, as their makers state it."""

from dataclasses import dataclass

from kvviz.errors import Refused
from kvviz.units import size

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card and its memory in bytes. A driver keeps some of it for itself, so a little less is usable."""

    name: str
    memory_bytes: int


# Makers write GB for the powers of 1024 their memory chips come in, except where the figure in GB is decimal.
GPUS = (
    Gpu("NVIDIA T4 16 GB", 16 * _GIB),
    Gpu("NVIDIA RTX 4090 24 GB", 24 * _GIB),
    Gpu("NVIDIA RTX 5090 32 GB", 32 * _GIB),
    Gpu("NVIDIA A100 40 GB", 40 * _GIB),
    Gpu("NVIDIA H100 80 GB", 80 * _GIB),
    Gpu("NVIDIA H200 141 GB", 141 * 10**9),
    Gpu("AMD MI300X 192 GB", 192 * 10**9),
)

_LEAST, _MOST = 1024**2, 1024**5


def gpu_of(card: Gpu | str | int) -> Gpu:
    """The card called `card` (a part of its name is enough), or one with that many bytes. Raises Refused otherwise."""
    if isinstance(card, Gpu):
        return card
    if isinstance(card, str):
        if found := [gpu for gpu in GPUS if card.strip().lower() in gpu.name.lower()] if card.strip() else []:
            return found[0]
        raise Refused(
            "There is no GPU called {name} in the list. Give its memory in bytes, or one of: {known}.",
            name=card or "''",
            known=", ".join(gpu.name for gpu in GPUS),
        )
    if isinstance(card, bool) or not isinstance(card, int) or not _LEAST <= card <= _MOST:
        raise Refused("The memory of a GPU is a number of bytes from 1 MiB to 1 PiB, not {value}.", value=card)
    return Gpu(size(card), card)
