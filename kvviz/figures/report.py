"""Figures, tables and shaded texts in one HTML file that opens without a network."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import FONT
from kvviz.palette import BACKGROUND, PANEL, TEXT, Theme, colour

_CSS = """
body {{ margin: 0 auto; max-width: 1180px; padding: 24px; background: {background}; color: {text};
  font: 17px/1.5 {font}; }}
h1 {{ font-size: 1.7em; }} h2 {{ font-size: 1.3em; margin-top: 2em; }}
table {{ border-collapse: collapse; font-size: 0.85em; }}
th, td {{ padding: 3px 12px; text-align: right; border-bottom: 1px solid {panel}; white-space: pre; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px; }}
dt {{ font-weight: 600; }} dd {{ margin: 0; }}
.strip span {{ padding: 2px 3px; margin: 1px; border-radius: 3px; display: inline-block; unicode-bidi: isolate; }}
summary {{ cursor: pointer; }}
"""


@dataclass(frozen=True, eq=False, slots=True)
class Strip:
    """Tokens shaded by `weights` (0 to 1, NaN as 0) in the palette's colour of `meaning`."""

    labels: Sequence[str]
    weights: np.ndarray
    meaning: str = "heavy"


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """One section: a heading, and what stands under it in this order; plain text is a paragraph."""

    heading: str
    contents: Sequence[go.Figure | pd.DataFrame | Strip | str]
    folded: bool = False


def document(
    title: str, facts: Iterable[tuple[str, str]], parts: Sequence[Part], lang: str = "en", theme: Theme = "light"
) -> str:
    """The whole file; every text in it is escaped, plotly's script is inside once."""
    look = {"background": BACKGROUND[theme], "panel": PANEL[theme], "text": TEXT[theme], "font": FONT}
    scripted = False
    body = []
    for part in parts:
        written = []
        for content in part.contents:
            written.append(_written(content, theme, with_script=not scripted))
            scripted = scripted or isinstance(content, go.Figure)
        inside = "\n".join(written)
        heading = html.escape(part.heading)
        body.append(
            f"<details><summary><h2 style='display:inline'>{heading}</h2></summary>\n{inside}</details>"
            if part.folded
            else f"<section><h2>{heading}</h2>\n{inside}</section>"
        )
    known = "\n".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(fact)}</dd>" for name, fact in facts)
    return "\n".join(
        (
            f'<!doctype html>\n<html lang="{html.escape(lang)}"><head><meta charset="utf-8">',
            f"<title>{html.escape(title)}</title>\n<style>{_CSS.format(**look)}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>\n<dl>{known}</dl>",
            *body,
            "</body></html>\n",
        )
    )


def _written(content: go.Figure | pd.DataFrame | Strip | str, theme: Theme, with_script: bool) -> str:
    if isinstance(content, go.Figure):
        return content.to_html(full_html=False, include_plotlyjs=with_script, config={"displaylogo": False})
    if isinstance(content, pd.DataFrame):
        return content.to_html(index=False, escape=True, border=0, float_format=lambda number: f"{number:.4g}")
    if isinstance(content, Strip):
        return _strip(content, theme)
    return f"<p>{html.escape(content)}</p>"


def _strip(strip: Strip, theme: Theme) -> str:
    ink = colour(strip.meaning, theme)
    shares = np.nan_to_num(np.asarray(strip.weights, dtype=float)).clip(0, 1) * 55
    chips = (
        f'<span title="{index}" style="background:color-mix(in srgb, {ink} {share:.0f}%, transparent)">'
        f"{html.escape(label)}</span>"
        for index, (label, share) in enumerate(zip(strip.labels, shares, strict=True))
    )
    return f'<div class="strip">{"".join(chips)}</div>'
