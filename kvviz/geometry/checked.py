"""Whether the modelling code agrees with the formula: equal, differs and where, or not to be run and why."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kvviz.geometry.layers import LayerShape
from kvviz.geometry.memory import layer_bytes
from kvviz.geometry.states import State
from kvviz.locale import N_, Translate
from kvviz.units import size

Status = Literal["equal", "differs", "formula only"]
_ITEMSIZE = 2  # observations are of bfloat16 models

NOT_BUILT = N_("From the formula alone: no model like this has been built.")
NOT_ASKED = N_("From the formula alone: the check was not asked for.")
UNKNOWN = N_(
    "From the formula alone: transformers does not know models of type {kind}, "
    "so its fields were read as they are usually meant."
)
_FAILED = N_("From the formula alone: the modelling code cannot run without weights ({reason}).")
_EQUAL = N_("transformers' own code, run without weights on {tokens} tokens, holds exactly these bytes in every layer.")
_DIFFERS = N_(
    "transformers' own code, run without weights on {tokens} tokens, holds {measured} in layer {layer} where the "
    "formula gives {predicted}; {count} of {layers} layers differ."
)


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict. `measured_bytes` are a layer's after `tokens` tokens in bfloat16, empty for "formula only"."""

    status: Status
    message: str
    facts: dict[str, object] = field(default_factory=dict)
    tokens: int = 0
    measured_bytes: tuple[int, ...] = ()

    def sentence(self, t: Translate = N_) -> str:
        """The verdict in words."""
        return t(self.message).format(**self.facts)

    def __str__(self) -> str:
        return f"{self.status}: {self.sentence()}"


def formula_only(message: str, **facts: object) -> Checked:
    """A verdict for what was not run."""
    return Checked("formula only", message, facts)


def with_measured_states(shapes: Sequence[LayerShape], measured: Sequence[int]) -> list[LayerShape]:
    """The same layers, where those whose state no formula gives have the size that was read off the code."""
    if len(measured) != len(shapes):
        return list(shapes)
    return [
        replace(shape, state=State(recurrent=held // 4)) if shape.state is None and not shape.kv_heads else shape
        for shape, held in zip(shapes, measured, strict=True)
    ]


def failed(reason: str) -> Checked:
    """A verdict for code that could not be run, with the reason in its own words."""
    return formula_only(_FAILED, reason=reason)


def compare(shapes: Sequence[LayerShape], tokens: int, measured: Sequence[int]) -> Checked:
    """Compare the formula, layer by layer, with the bytes `measured` after `tokens` tokens in bfloat16."""
    predicted = [layer_bytes(shape, _ITEMSIZE, tokens) for shape in shapes]
    held = [*measured, *[0] * (len(predicted) - len(measured))]
    wrong = [index for index, given in enumerate(predicted) if given != held[index]]
    if not wrong and len(held) == len(predicted):
        return Checked("equal", _EQUAL, {"tokens": f"{tokens:,}"}, tokens, tuple(measured))
    first = wrong[0] if wrong else len(predicted) - 1
    facts = {
        "tokens": f"{tokens:,}",
        "measured": size(held[first]),
        "predicted": size(predicted[first]),
        "layer": first,
        "count": len(wrong),
        "layers": len(predicted),
    }
    return Checked("differs", _DIFFERS, facts, tokens, tuple(measured))
