"""What vLLM reserves for one sequence: whole blocks, equal pages, groups of layers that share one pool.

The rules are those of `v1/core/kv_cache_utils.py` and `kv_cache_interface.py` in vLLM 0.32. States are counted in
float32 as transformers keeps them; vLLM keeps some models' in 16 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.geometry.dtypes import Dtype
from kvviz.geometry.layers import LayerShape
from kvviz.geometry.states import State

BLOCK = 16  # tokens, vLLM's default
IN_FLIGHT = 2048  # tokens, the default of max_num_batched_tokens


@dataclass(frozen=True, slots=True)
class Held:
    """One layer's part: `blocks` pages of `page_bytes`, each with room for `block_tokens` tokens (0: a state)."""

    layer: int
    blocks: int
    block_tokens: int
    page_bytes: int

    @property
    def bytes(self) -> int:
        return self.blocks * self.page_bytes


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one sequence takes: `held` by its layers (two entries where a layer keeps K and V and a state), and
    `padding_bytes` for layers added to make groups of `group_layers` equal. Bytes are whole pages."""

    held: tuple[Held, ...]
    group_layers: int
    padding_bytes: int

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(held.bytes for held in self.held) + self.padding_bytes

    def layer_bytes(self, layer: int) -> int:
        """Bytes of one layer."""
        return sum(held.bytes for held in self.held if held.layer == layer)


@dataclass(frozen=True, slots=True)
class _Spec:
    """Layers with equal specs share groups."""

    kind: str
    window: int | None
    token_bytes: int
    state_bytes: int


def reserve(
    shapes: Sequence[LayerShape],
    itemsize: int | Dtype,
    tokens: int,
    block: int = BLOCK,
    in_flight: int = IN_FLIGHT,
) -> Reservation:
    """The reservation for a sequence of `tokens`. `in_flight` is how many tokens one step may compute."""
    specs = [(shape.layer, spec) for shape in shapes for spec in _specs(shape, itemsize)]
    if not specs or not tokens:
        return Reservation((), 0, 0)
    block = _block(specs, block)
    page = max(spec.state_bytes or block * spec.token_bytes for _, spec in specs)
    held = tuple(_held(layer, spec, page, block, tokens, in_flight) for layer, spec in specs)
    counts: dict[_Spec, int] = {}
    blocks: dict[_Spec, int] = {}
    for (_, spec), part in zip(specs, held, strict=True):
        counts[spec] = counts.get(spec, 0) + 1
        blocks[spec] = part.blocks
    size = _group_size(list(counts.values()))
    padding = sum(-count % size * blocks[spec] * page for spec, count in counts.items())
    return Reservation(held, size, padding)


def _specs(shape: LayerShape, itemsize: int | Dtype) -> list[_Spec]:
    found = []
    if shape.kv_heads:
        window = shape.window and shape.window + shape.sinks
        found.append(_Spec(shape.kind, window, shape.bytes_per_token(itemsize), 0))
    if shape.state and shape.state != State():
        found.append(_Spec("linear", None, 0, _state_bytes(shape.state, itemsize)))
    return found


def _state_bytes(state: State, itemsize: int | Dtype) -> int:
    """vLLM keeps one column of the convolution less than transformers."""
    item = itemsize.state_itemsize if isinstance(itemsize, Dtype) else itemsize
    return state.conv_channels * max(state.conv_kernel - 1, 0) * item + state.recurrent * 4


def _block(specs: Sequence[tuple[int, _Spec]], block: int) -> int:
    """Tokens of a block: with states in the model, as many as make a page of K and V at least as large as a state."""
    state = max(spec.state_bytes for _, spec in specs)
    token = max(spec.token_bytes for _, spec in specs)
    return block if not (state and token) else max(block, -(-state // (token * block)) * block)


def _held(layer: int, spec: _Spec, page: int, block: int, tokens: int, in_flight: int) -> Held:
    if spec.state_bytes:
        return Held(layer, 1, 0, page)
    # pages are equal: a layer that needs less a token has blocks of more tokens, or a page with room to spare
    own = block * spec.token_bytes
    room = block * (page // own) if page % own == 0 else block
    if spec.window is None:
        blocks = -(-tokens // room)
    elif spec.kind == "chunked":
        blocks = -(-min(spec.window + in_flight, tokens) // room)
    else:
        # one more, because the window may begin in the middle of a block
        blocks = -(-min(spec.window - 1 + in_flight, tokens) // room) + 1
    return Held(layer, blocks, room, page)


def _group_size(counts: list[int]) -> int:
    """Layers a group: as many as the rarest kind has, or the commonest if that is less than half as many again."""
    least, most = min(counts), max(counts)
    return most if most < 1.5 * least else least
