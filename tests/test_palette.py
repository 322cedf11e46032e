"""The palette under simulated colour blindness, its contrast, and the plotly look made of it."""

from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import pytest

from kvviz.figures.theme import apply, template, token_ticks
from kvviz.palette import BACKGROUND, COLOURS, GROUPS, PANEL, RAMPS, TEXT, colour, kind_meaning

THEMES = ("light", "dark")

# Machado, Oliveira, Fernandes 2009, severity 1, in linear RGB
VISIONS = {
    "trichromat": np.eye(3),
    "protanope": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranope": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanope": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# Ottosson 2020, OKLab; black to white is a distance of 1
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
OPPONENTS = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def linear(text: str) -> np.ndarray:
    channels = np.array([int(text[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    light, dark = sorted((float(linear(text) @ [0.2126, 0.7152, 0.0722]) for text in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def seen(text: str, vision: str = "trichromat") -> np.ndarray:
    """OKLab of a colour as a person with `vision` sees it."""
    return OPPONENTS @ np.cbrt(np.clip(CONES @ (np.array(VISIONS[vision]) @ linear(text)), 0, None))


def test_the_oracle_knows_known_values() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert seen("#ffffff") == pytest.approx([1, 0, 0], abs=1e-3)
    # the textbook pair: a red and an olive that a deuteranope can hardly tell apart
    assert np.linalg.norm(seen("#a03020") - seen("#606000")) > 0.15
    assert np.linalg.norm(seen("#a03020", "deuteranope") - seen("#606000", "deuteranope")) < 0.08


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_meanings_of_one_picture_are_told_apart(theme: str, vision: str) -> None:
    for group in GROUPS:
        for one, other in combinations(group, 2):
            apart = np.linalg.norm(seen(colour(one, theme), vision) - seen(colour(other, theme), vision))
            assert apart >= 0.1, f"{one} and {other} in {theme} for a {vision}: {apart:.3f}"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("meaning", COLOURS)
def test_marks_stand_out_from_the_page(theme: str, meaning: str) -> None:
    for behind in (BACKGROUND[theme], PANEL[theme]):
        assert contrast(colour(meaning, theme), behind) >= 3


def test_every_meaning_belongs_to_a_picture() -> None:
    assert {meaning for group in GROUPS for meaning in group} == set(COLOURS)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", RAMPS)
def test_ramps_go_one_way_and_start_off_the_page(theme: str, name: str) -> None:
    lightness = np.array([seen(stop)[0] for stop in RAMPS[name][theme]])
    steps = np.diff(lightness) * (1 if theme == "dark" else -1)
    assert (steps > 0.05).all()
    assert np.linalg.norm(seen(RAMPS[name][theme][0]) - seen(BACKGROUND[theme])) > 0.08


@pytest.mark.parametrize("kind", ["full", "sliding", "chunked", "linear", "shared", "conv1d", "k"])
def test_every_layer_kind_has_a_colour(kind: str) -> None:
    known = {"full", "sliding", "chunked", "linear"}
    assert kind_meaning(kind) == (kind if kind in known else "shared_layer")


@pytest.mark.parametrize("theme", THEMES)
def test_figure_text_is_readable(theme: str) -> None:
    layout = template(theme).layout
    for font in (layout.font, layout.xaxis.tickfont, layout.yaxis.tickfont, layout.legend.font, layout.title.font):
        assert font.size >= 15
        assert contrast(font.color, BACKGROUND[theme]) >= 4.5
    assert contrast(layout.hoverlabel.font.color, layout.hoverlabel.bgcolor) >= 4.5
    assert contrast(TEXT[theme], PANEL[theme]) >= 4.5
    assert "Noto Sans CJK TC" in layout.font.family


def test_applying_a_theme_keeps_the_figure_and_its_transparency() -> None:
    figure = go.Figure(go.Scatter(x=[0, 1], y=[2, 3]), layout={"title": "kept"})
    applied = apply(figure, "dark")
    assert applied is figure
    assert figure.layout.title.text == "kept"
    assert figure.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_token_ticks_are_numeric_escaped_and_thinned() -> None:
    labels = ["<s>", "1E1", "1E1", "a&b", '"']
    ticks = token_ticks(labels, start=7)
    assert ticks["type"] == "linear"
    assert ticks["tickvals"] == [7, 8, 9, 10, 11]
    assert ticks["ticktext"] == ["&lt;s&gt;", "1E1", "1E1", "a&amp;b", '"']
    thinned = token_ticks([str(index) for index in range(1000)], most=40)
    assert len(thinned["tickvals"]) <= 40
    assert thinned["ticktext"] == [str(value) for value in thinned["tickvals"]]
    assert token_ticks([])["tickvals"] == []
