"""The cache grid: layers by token positions, filled where a layer still holds a token's K and V, live on a canvas."""

from collections.abc import Mapping, Sequence

import numpy as np
import streamlit as st

from kvviz.locale import Translate
from kvviz.palette import COLOURS, kind_meaning
from kvviz.ui.components.cells import held_counts, held_mask, packed, panel, pool_size, pooled
from kvviz.ui.components.styles import palette_css, source
from kvviz.words import LAYER_KINDS

_HTML = """<div class="kvviz">
<div class="stage" role="img" tabindex="0"><canvas class="base"></canvas><canvas class="over"></canvas>
<div class="tip" hidden></div></div>
<div class="legend"></div><div class="caption"></div><div class="spoken" aria-live="polite"></div>
</div>"""

_GRID = st.components.v2.component(
    "kvviz.cache_grid",
    html=_HTML,
    css=palette_css() + source("cache_grid.css"),
    js=source("shared.js", "cache_grid_plan.js", "cache_grid_draw.js", "cache_grid.js"),
)


def cache_grid(
    key_norms: np.ndarray,
    value_norms: np.ndarray | None,
    held: np.ndarray | Sequence[int],
    *,
    key: str,
    t: Translate,
    kinds: Sequence[str],
    prefill: int,
    labels: Sequence[str] | None = None,
    capacity: int | None = None,
    selected: int | None = None,
    live: bool = False,
    spans: Sequence[tuple[float, float] | None] = (None, None),
    marks: np.ndarray | None = None,
    mark_names: Sequence[tuple[str, str]] = (),
    layers: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    whole: bool = False,
    words: Mapping[str, str] | None = None,
) -> None:
    """Draw what each layer holds of each token seen, shaded by the norms of its key and value vectors.

    `key_norms` and `value_norms` are float (layers, seen), NaN where unknown; without `value_norms` there is
    one panel. `held` is a bool mask (layers, seen), or per layer how many of the last tokens it stores.
    `kinds` names each row's layer kind, `prefill` the number of tokens fed at once at the start, `labels` the
    tokens, `capacity` how many columns to leave room for, `selected` a token position to point at.
    `spans` fixes the norms that the ends of each ramp stand for. `marks`, uint8 (layers, seen) or (seen,),
    holds 0 or 1 + an index into `mark_names`, pairs of (text, meaning in the palette). `layers` are the row
    numbers, 0-based; `titles` replace "Keys (K)" and "Values (V)". What is shaded may be something else than norms:
    `whole` numbers, called as `words` says (those of `_words`).

    Raises ValueError for shapes that do not fit each other and KeyError for an unknown meaning.
    """
    norms = [np.asarray(array) for array in (key_norms, value_norms) if array is not None]
    rows, seen = norms[0].shape
    mask = held_mask(held, seen)
    if len(kinds) != rows or mask.shape[0] != rows:
        raise ValueError(f"{rows} layers of norms, {len(kinds)} kinds, {mask.shape[0]} layers held")
    pool = pool_size(seen)
    panels = _panels(norms, mask, spans, pool, titles or (t("Keys (K)"), t("Values (V)")))
    data = {
        "panels": panels,
        "rows": rows,
        "seen": seen,
        "columns": -(-seen // pool),
        "pool": pool,
        "counts": packed(held_counts(mask, pool)) if pool > 1 else None,
        "stored": [int(count) for count in mask.sum(axis=1)],
        "prefill": min(prefill, seen),
        "capacity": max(capacity or 0, seen),
        "layers": list(layers) if layers is not None else list(range(rows)),
        "kinds": _kinds(kinds, t),
        "labels": None if labels is None else [_sendable(label) for label in labels],
        "selected": selected,
        "live": live,
        "marks": _marks(marks, mark_names, pool),
        "whole": whole,
        "words": _words(t, rows, seen, int(mask.sum())) | dict(words or {}),
    }
    _GRID(key=key, data=data)


def _panels(
    norms: Sequence[np.ndarray],
    mask: np.ndarray,
    spans: Sequence[tuple[float, float] | None],
    pool: int,
    titles: Sequence[str],
) -> list[dict[str, object]]:
    panels = []
    for name, array, span, title in zip(("k", "v"), norms, spans, titles, strict=False):
        cells, low, high, below, above = panel(array, mask, span)
        panels.append(
            {"name": name, "title": title, "cells": packed(pooled(cells, pool)), "low": low, "high": high}
            | {"below": below, "above": above}
        )
    return panels


def _kinds(kinds: Sequence[str], t: Translate) -> dict[str, object]:
    """The kinds once each, with their words and colours, and each row's index into them."""
    names = list(dict.fromkeys(kinds))
    return {
        "looks": [kind_meaning(name).replace("_", "-") for name in names],
        "words": [t(LAYER_KINDS.get(name, name)) for name in names],
        "rows": [names.index(kind) for kind in kinds],
    }


def _marks(marks: np.ndarray | None, names: Sequence[tuple[str, str]], pool: int) -> dict[str, object] | None:
    if marks is None:
        return None
    marks = np.atleast_2d(np.asarray(marks, dtype=np.uint8))
    if marks.size and marks.max() > len(names):
        raise ValueError(f"a mark of {marks.max()} but {len(names)} names")
    looks = [meaning.replace("_", "-") for _, meaning in names if COLOURS[meaning]]
    return {
        "cells": packed(pooled(marks, pool)),
        "rows": len(marks),
        "names": [text for text, _ in names],
        "looks": looks,
    }


def _sendable(label: str) -> str:
    """A lone surrogate cannot travel as UTF-8; it is shown as its escape."""
    return label.encode("utf-8", "backslashreplace").decode()


def _words(t: Translate, rows: int, seen: int, held: int) -> dict[str, str]:
    summary = t(
        "KV cache, {layers} layers by {seen} tokens: {held} of {all} places held. Arrow keys read single cells."
    )
    return {
        "summary": summary.format(layers=rows, seen=f"{seen:,}", held=f"{held:,}", all=f"{rows * seen:,}"),
        "caption": t("A column stands for {pool} tokens: the largest norm among those still held."),
        "axis": t("token position"),
        "layer": t("layer"),
        "prefill": t("prefill: {count}"),
        "decode": t("decode: {count}"),
        "norm": t("norm"),
        "hole": t("not held"),
        "unknown": t("held, norm not a number"),
        "held": t("held"),
        "row": t("Layer {layer}, {kind}"),
        "kind": t("{kind} × {count}"),
        "token": t("Position {position}: {label}"),
        "position": t("Position {position}"),
        "positions": t("Positions {first} to {last}"),
        "some": t("{held} of {count} held"),
        "value": t("{panel}: norm {value}"),
    }
