"""The two charts while the model decodes, light enough to be drawn again several times a second."""

from collections.abc import Sequence

from kvviz.locale import Translate
from kvviz.palette import kind_meaning
from kvviz.records import Step
from kvviz.ui.components.live_lines import Line, LineChart, live_lines
from kvviz.words import LAYER_KINDS, PHASES

_MIB = 1024**2
_POINTS = 200  # of a line; the newest step is always one


def live_figures(t: Translate, steps: Sequence[Step], titles: Sequence[str]) -> None:
    """Bytes held of each layer kind, and milliseconds a token, against tokens seen."""
    every = -(-len(steps) // _POINTS)
    steps = [*steps[: -every or None : every], steps[-1]] if every > 1 else steps
    seen = t("tokens seen")
    charts = [
        LineChart(titles[0], seen, t("cache (MiB)"), _bytes(t, steps)),
        LineChart(titles[1], seen, t("milliseconds per token"), _times(t, steps)),
    ]
    live_lines(charts, key="live_charts")


def _bytes(t: Translate, steps: Sequence[Step]) -> list[Line]:
    kinds = dict.fromkeys(layer.kind for layer in steps[0].layers)
    return [Line(t(LAYER_KINDS.get(kind, kind)), kind_meaning(kind), _held(steps, kind)) for kind in kinds]


def _held(steps: Sequence[Step], kind: str) -> list[tuple[int, float]]:
    return [(step.seen, sum(layer.bytes for layer in step.layers if layer.kind == kind) / _MIB) for step in steps]


def _times(t: Translate, steps: Sequence[Step]) -> list[Line]:
    first, *rest = steps
    each = first.seconds * 1000 / len(first.fed)
    prefill = [(0, each), (len(first.fed), each)]
    decode = [(step.seen, step.seconds * 1000) for step in rest]
    return [Line(t(PHASES["prefill"]), "prefill", prefill, 6), Line(t(PHASES["decode"]), "decode", decode)]
