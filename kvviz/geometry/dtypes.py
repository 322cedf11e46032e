"""Number formats of caches and weights down to four bits, with what their scales cost."""

from dataclasses import dataclass

from kvviz.errors import Refused
from kvviz.locale import N_

_STATE_ITEMSIZE = 2  # a quantised cache keeps its recurrent states in 16 bits


@dataclass(frozen=True, slots=True)
class Dtype:
    """A number format: `bits` a number, `scale_bytes` for every `block` numbers, `layer_bytes` a layer (K and V).

    `scales` names the overhead, marked for translation; empty where there is none.
    """

    name: str
    bits: int
    block: int = 1
    scale_bytes: int = 0
    layer_bytes: int = 0
    scales: str = ""

    @property
    def itemsize(self) -> float:
        """Bytes of one number with its share of a block's scale: 2 for bfloat16, 0.5625 for int4."""
        return self.bits / 8 + self.scale_bytes / self.block

    @property
    def state_itemsize(self) -> int:
        """Bytes of one number of a convolution's state, which is not quantised."""
        return max(self.bits // 8, _STATE_ITEMSIZE)

    def vector(self, width: int) -> int:
        """Bytes of `width` numbers; a block of numbers with one scale never spans two vectors."""
        return -(-width // self.block) * (self.block * self.bits // 8 + self.scale_bytes)

    def total(self, numbers: int) -> int:
        """Bytes of `numbers` weights."""
        return -(-numbers // self.block) * (self.block * self.bits // 8 + self.scale_bytes)


_PER_LAYER = N_("one float32 scale for the keys and one for the values of each layer (vLLM's fp8)")

DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("float32", 32),
        Dtype("bfloat16", 16),
        Dtype("float16", 16),
        Dtype("fp8", 8, layer_bytes=8, scales=_PER_LAYER),
        Dtype("int8", 8, block=32, scale_bytes=2, scales=N_("a float16 scale for every 32 numbers (q8_0)")),
        Dtype("int4", 4, block=32, scale_bytes=2, scales=N_("a float16 scale for every 32 numbers (q4_0)")),
        Dtype("mxfp4", 4, block=32, scale_bytes=1, scales=N_("an 8-bit exponent for every 32 numbers")),
        Dtype("nvfp4", 4, block=16, scale_bytes=1, scales=N_("an 8-bit scale for every 16 numbers")),
    )
}

_ALIASES = {
    "fp32": "float32", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16", "f16": "float16",
    "f32": "float32", "float8": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8", "q8_0": "int8", "q4_0": "int4",
}  # fmt: skip


def dtype_of(name: object) -> Dtype:
    """The format called `name` (also torch's dtypes and common short names). Raises Refused for one not known."""
    if isinstance(name, Dtype):
        return name
    plain = str(name).removeprefix("torch.").lower()
    if found := DTYPES.get(_ALIASES.get(plain, plain)):
        return found
    raise Refused(
        "There is no number format called {name}. Choose one of: {known}.", name=name, known=", ".join(DTYPES)
    )


def vector_bytes(numbers: int | Dtype, width: int) -> int:
    """Bytes of `width` numbers, given bytes a number or a format."""
    return numbers.vector(width) if isinstance(numbers, Dtype) else numbers * width
