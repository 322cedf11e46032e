"""Line charts of a run at work, light enough to be drawn anew several times a second."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import streamlit as st

from kvviz.palette import COLOURS
from kvviz.ui.components.styles import palette_css, source


@dataclass(frozen=True)
class Line:
    """One series: its name for people, its meaning in the palette, points (x, y), and its width in pixels."""

    name: str
    meaning: str
    points: Iterable[tuple[float, float]]
    width: float = 2


@dataclass(frozen=True)
class LineChart:
    """A question (with **bold** parts), the names of the axes with their units, and the lines; both axes begin at 0."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]


_LINES = st.components.v2.component(
    "kvviz.live_lines",
    html='<div class="kvviz"></div>\n',
    css=palette_css() + source("live_lines.css"),
    js=source("shared.js", "live_lines.js"),
)


def live_lines(charts: Sequence[LineChart], *, key: str) -> None:
    """Draw `charts` side by side. Raises KeyError for an unknown meaning."""
    _LINES(key=key, data=[asdict(chart) | {"lines": [_sent(line) for line in chart.lines]} for chart in charts])


def _sent(line: Line) -> dict[str, object]:
    if line.meaning not in COLOURS:
        raise KeyError(line.meaning)
    points = [[round(float(x), 2), round(float(y), 4)] for x, y in line.points]
    return {"name": line.name, "look": line.meaning.replace("_", "-"), "width": line.width, "points": points}
