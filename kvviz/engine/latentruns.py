"""Both ways run beside the model's own attention: how far apart they are, and how long they take."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kvviz.engine.latent import LatentCall, absorbed, expand, expanded, grouped

REPEATS = 5


@dataclass(frozen=True, slots=True)
class LatentRun:
    """`new` tokens attending to `tokens` cached ones (themselves included) in one layer.

    `difference` is the largest between the two ways over all heads' outputs, `own_difference` the largest between the
    layer's output by absorbing and the module's own, `largest` and `own_largest` the outputs' largest numbers. Seconds
    are medians; `cached_seconds` is attention over keys and values that were already there (MHA).
    """

    new: int
    tokens: int
    difference: float
    largest: float
    own_difference: float
    own_largest: float
    expanded_seconds: float
    absorbed_seconds: float
    cached_seconds: float


@torch.inference_mode()
def run(call: LatentCall, own: Tensor, output: nn.Linear, dtype: torch.dtype, repeats: int = REPEATS) -> LatentRun:
    """Compute `call` both ways in `dtype`; `own` (n, hidden) is the module's output, `output` its last projection."""
    exact = call.to(dtype)
    heads, other = expanded(exact), absorbed(exact)
    weight, bias = (None if one is None else one.to(dtype) for one in (output.weight, output.bias))
    ours = torch.nn.functional.linear(other.transpose(0, 1).flatten(1), weight, bias)
    key, value = expand(exact)
    works = [
        lambda: expanded(exact),
        lambda: absorbed(exact),
        lambda: grouped(exact.query, key, value, exact.scaling),
    ]
    return LatentRun(
        call.query.shape[1],
        call.latent.shape[0],
        _largest(heads - other),
        _largest(heads),
        _largest(ours - own.to(dtype)),
        _largest(own),
        *_seconds(works, repeats),
    )


def _largest(numbers: Tensor) -> float:
    return numbers.abs().max().item()


def _seconds(works: Sequence[Callable[[], Tensor]], repeats: int) -> list[float]:
    """Medians of `repeats` rounds after one to warm up; each round has all of them, so a busy spell meets all."""
    rounds = [[_once(work) for work in works] for _ in range(repeats + 1)]
    return [statistics.median(spent) for spent in zip(*rounds[1:], strict=True)]


def _once(work: Callable[[], Tensor]) -> float:
    began = time.perf_counter()
    work()[..., 0].sum().item()  # waits for a GPU
    return time.perf_counter() - began
