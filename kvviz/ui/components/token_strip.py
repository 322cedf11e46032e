"""The token strip: a text as the model sees it, one chip a token, selectable and cheap to update while it grows."""

import base64
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import streamlit as st

from kvviz.locale import Translate
from kvviz.palette import COLOURS
from kvviz.ui.components.styles import palette_css, source

KINDS = ("text", "bytes", "special")
ORIGINS = ("user", "template", "bos", "generated")

_HTML = """<div class="kvviz">
<div class="list" role="listbox" tabindex="0"></div>
<div class="foot"><span class="legend"></span><span class="note" aria-live="polite"></span></div>
</div>"""

_STRIP = st.components.v2.component(
    "kvviz.token_strip",
    html=_HTML,
    css=palette_css() + source("token_strip.css"),
    js=source("shared.js", "token_strip.js"),
)


class StripToken(Protocol):
    """What a chip shows; `kvviz.models.tokens.Token` is one."""

    position: int
    id: int
    label: str
    kind: str


def token_strip(
    tokens: Sequence[StripToken],
    *,
    key: str,
    t: Translate,
    origins: Sequence[str] | None = None,
    selected: int | None = None,
    fresh_from: int | None = None,
    weights: Sequence[float] | np.ndarray | None = None,
    weight_colour: str = "heavy",
    scale: Sequence[tuple[float, str]] = (),
    live: bool = False,
    height: int = 260,
    on_select: Callable[[], None] | None = None,
) -> int | None:
    """Show consecutive tokens and return the index of the selected one, None when none is.

    `origins` names each token's origin (one of `ORIGINS`; all "user" when left out), `fresh_from` the first
    index lit up as new, `weights` (0 to 1, NaN as 0) shade the chips in the palette's `weight_colour`. A
    `live` strip of more than `height` pixels follows its end until someone scrolls up. `selected` is where
    the selection starts; a choice made on the screen wins from then on and lies in `st.session_state[key]`.
    With `on_select`, called after such a choice, the caller keeps the selection: `selected` is what is marked,
    always. `scale` names shades in the legend: pairs of a weight and the text beside it.

    Raises ValueError for lists of different lengths, unknown kinds or origins.
    """
    chosen = selected if on_select else (st.session_state.get(key) or {}).get("selected", selected)
    chosen = chosen if chosen is not None and 0 <= chosen < len(tokens) else None
    data = _payload(tokens, origins) | {
        "selected": chosen,
        "fresh": fresh_from,
        "weights": None if weights is None else _shares(weights, len(tokens)),
        "tint": _known(weight_colour, tuple(COLOURS)).replace("_", "-"),
        "scale": [[round(float(weight) * 255), text] for weight, text in scale],
        "kept": on_select is not None,
        "live": live,
        "height": height,
        "words": _words(t, len(tokens)),
    }
    shown = _STRIP(key=key, data=data, default={"selected": chosen}, on_selected_change=on_select or (lambda: None))
    index = shown.selected
    return index if index is not None and 0 <= index < len(tokens) else None


def _payload(tokens: Sequence[StripToken], origins: Sequence[str] | None) -> dict[str, object]:
    origins = origins if origins is not None else ["user"] * len(tokens)
    if len(origins) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens but {len(origins)} origins")
    return {
        # a lone surrogate cannot travel as UTF-8; it is shown as its escape
        "labels": [token.label.encode("utf-8", "backslashreplace").decode() for token in tokens],
        "ids": [int(token.id) for token in tokens],
        "kinds": "".join(str(KINDS.index(_known(token.kind, KINDS))) for token in tokens),
        "origins": "".join(str(ORIGINS.index(_known(origin, ORIGINS))) for origin in origins),
        "start": int(tokens[0].position) if tokens else 0,
    }


def _known(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise ValueError(f"{name!r} is none of {', '.join(names)}")
    return name


def _shares(weights: Sequence[float] | np.ndarray, count: int) -> str:
    shares = np.nan_to_num(np.asarray(weights, dtype=np.float32), nan=0.0)
    if shares.shape != (count,):
        raise ValueError(f"{count} tokens but weights of shape {shares.shape}")
    return base64.b64encode(np.rint(shares.clip(0, 1) * 255).astype(np.uint8).tobytes()).decode()


def _words(t: Translate, count: int) -> dict[str, object]:
    return {
        "name": t("Tokens of the text: {count}").format(count=count),
        "token": t("Position {position}, id {id}: {label}"),
        "kinds": [t("text"), t("bytes of a split character"), t("special token")],
        "origins": [t("typed text"), t("chat template"), t("start token added"), t("written by the model")],
    }
