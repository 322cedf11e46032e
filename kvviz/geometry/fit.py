"""How many users fit on a GPU or on several, beside the weights and a stated reserve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvviz.geometry.layers import LayerShape
from kvviz.geometry.memory import most_tokens

RESERVE = 0.1  # of the memory: activations, the CUDA context, fragments; vLLM keeps as much free by default

Split = Literal["heads", "layers"]
Count = Callable[[Sequence[LayerShape], int], int]  # (shapes, tokens) -> bytes of one sequence


@dataclass(frozen=True, slots=True)
class Fit:
    """What fits on `gpus` cards of `memory_bytes` each. Bytes are of one card, the fullest.

    `users` sequences of `tokens` each fit; `longest_tokens` is how long one user's text can be, and None where
    there is no end to it. `weights_bytes` is None where the number of parameters is not known: then the cache has
    the memory to itself.
    """

    gpus: int
    memory_bytes: int
    reserve_bytes: int
    weights_bytes: int | None
    room_bytes: int
    user_bytes: int
    tokens: int
    users: int
    longest_tokens: int | None


def fit(
    shapes: Sequence[LayerShape],
    count: Count,
    tokens: int,
    memory_bytes: int,
    *,
    weights_bytes: int | None,
    gpus: int = 1,
    reserve: float = RESERVE,
    split: Split = "heads",
) -> Fit:
    """Share weights and cache among `gpus` cards and see how many users there is room for.

    `split="heads"` (tensor parallel): every card has an equal part of the weights and of each layer's heads; a layer
    with fewer key/value heads than cards, or a latent, is on every card. `split="layers"` (pipeline): every card has
    whole layers, in order. Weights are taken to divide evenly.
    """
    reserved = int(memory_bytes * reserve)
    share = None if weights_bytes is None else -(-weights_bytes // gpus)
    room = memory_bytes - reserved - (share or 0)
    parts = _parts(shapes, gpus, split)

    def fullest(length: int) -> int:
        return max((count(part, length) for part in parts), default=0)

    used = fullest(tokens)
    users = max(room, 0) // used if used else 0
    longest = most_tokens(lambda length: fullest(length) <= room) if room > 0 else 0
    return Fit(gpus, memory_bytes, reserved, share, room, used, tokens, users, longest)


def _parts(shapes: Sequence[LayerShape], gpus: int, split: Split) -> list[list[LayerShape]]:
    if split == "layers":
        size = -(-len(shapes) // gpus)
        return [list(shapes[start : start + size]) for start in range(0, len(shapes), size)]
    return [[_shard(shape, gpus) for shape in shapes]]


def _shard(shape: LayerShape, gpus: int) -> LayerShape:
    state = shape.state
    if state:
        channels, recurrent = -(-state.conv_channels // gpus), -(-state.recurrent // gpus)
        state = state._replace(conv_channels=channels, recurrent=recurrent)
    return replace(shape, kv_heads=-(-shape.kv_heads // gpus), state=state)
