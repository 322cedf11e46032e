"""Memory of well-known accelerators, as their makers state it."""

from dataclasses import dataclass

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
