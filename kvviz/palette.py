"""One palette by meaning, the same on every page: K is always blue, V always orange, a decode step always green.

Within a group every two colours differ for people without red, green or blue cones, and each stands out at
3:1 or more from the page behind it (tested). Predicted against measured is a line style, never a colour.
"""

from typing import Literal

Theme = Literal["light", "dark"]

# Streamlit's own pages: behind everything, behind panels, and the text on both
BACKGROUND: dict[Theme, str] = {"light": "#ffffff", "dark": "#171614"}
PANEL: dict[Theme, str] = {"light": "#f8f8f7", "dark": "#2d2b27"}
TEXT: dict[Theme, str] = {"light": "#2f2d2b", "dark": "#edebe8"}

# meaning -> (light, dark)
COLOURS: dict[str, tuple[str, str]] = {
    "k": ("#2a5db8", "#6ba6f5"),
    "v": ("#b4510f", "#f0913f"),
    "prefill": ("#4a3f63", "#8f7fb0"),
    "decode": ("#18957c", "#8ff0d0"),
    "sink": ("#c2410c", "#e0603c"),
    "recent": ("#4f8fc4", "#93bdf0"),
    "heavy": ("#7b2cbf", "#9b6bf2"),
    "evicted": ("#3d4450", "#eceef2"),
    "shared": ("#18957c", "#8ff0e4"),
    "reused": ("#5b2a86", "#9672c8"),
    "computed": ("#b4610a", "#f0a03c"),
    "full": ("#2743a6", "#5b8def"),
    "sliding": ("#c06a00", "#f59a3c"),
    "chunked": ("#8e3058", "#cf4f86"),
    "linear": ("#18957c", "#9af0de"),
    "shared_layer": ("#22272f", "#b4bac6"),
    "template": ("#23282f", "#b4bac6"),
    "user": ("#2450b4", "#5b8df5"),
    "special": ("#8f2467", "#d060a8"),
    "generated": ("#18957c", "#8ff0d0"),
}

# meanings that meet in one picture
GROUPS: tuple[tuple[str, ...], ...] = (
    ("k", "v", "prefill", "decode"),
    ("sink", "recent", "heavy", "evicted"),
    ("shared", "reused", "computed"),
    ("full", "sliding", "chunked", "linear", "shared_layer"),
    ("template", "user", "special", "generated"),
)

# from small to large; light themes darken with size, dark themes lighten
RAMPS: dict[str, dict[Theme, tuple[str, ...]]] = {
    "k": {
        "light": ("#d3e0f6", "#a3c0ec", "#6f9bdd", "#3f74c8", "#234f9f", "#12316b"),
        "dark": ("#1d2f4f", "#2a4a80", "#3a69b3", "#5a90e0", "#93bff8", "#dcebff"),
    },
    "v": {
        "light": ("#f8dec6", "#f1ba8b", "#e3924f", "#c96a22", "#97450f", "#5e2808"),
        "dark": ("#43291a", "#6b3f1f", "#9c5a24", "#d17c30", "#f5ab63", "#ffe3c4"),
    },
    "neutral": {
        "light": ("#d9dce3", "#b4bac6", "#8c94a3", "#656d7c", "#434a57", "#262b34"),
        "dark": ("#2b303a", "#434a57", "#656d7c", "#8c94a3", "#b9c0cc", "#eceef2"),
    },
}

_KINDS = {"shared": "shared_layer"}


def colour(meaning: str, theme: Theme) -> str:
    """The colour of a meaning as `#rrggbb`; KeyError for a meaning that is not in `COLOURS`."""
    light, dark = COLOURS[meaning]
    return dark if theme == "dark" else light


def kind_meaning(kind: str) -> str:
    """The name in `COLOURS` of a layer kind ("full", ...); unknown kinds look like layers without K and V."""
    meaning = _KINDS.get(kind, kind)
    return meaning if meaning in GROUPS[3] else "shared_layer"
