"""Arrays of a cache turned into the bytes that the cache grid draws: held or not, and how large."""

import base64
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_COLUMNS = 1200  # a screen has no more; beyond, neighbouring tokens share a column

HOLE, UNKNOWN, SMALLEST, LARGEST = 0, 1, 2, 255  # a byte: not held, held without a finite norm, then the range


class Panel(NamedTuple):
    """One panel's cells, uint8 (layers, columns), and the norms that the smallest and largest byte stand for."""

    cells: np.ndarray
    low: float
    high: float
    below: bool  # some norms lie under `low` and are drawn as it
    above: bool


def held_mask(held: np.ndarray | Sequence[int], seen: int) -> np.ndarray:
    """Held or not as bool (layers, seen): from such a mask, or from the number of last tokens each layer holds."""
    held = np.asarray(held)
    if held.ndim == 2:
        if held.shape[1] != seen:
            raise ValueError(f"mask of {held.shape[1]} tokens but {seen} seen")
        return held.astype(bool)
    return np.arange(seen)[None, :] >= seen - held[:, None]


def panel(norms: np.ndarray, held: np.ndarray, span: tuple[float, float] | None = None) -> Panel:
    """Norms, float (layers, tokens), as bytes over `span`, or over the smallest and largest held norm."""
    norms = np.asarray(norms, dtype=np.float32)
    if norms.shape != held.shape:
        raise ValueError(f"norms of shape {norms.shape} but {held.shape} layers and tokens")
    known = held & np.isfinite(norms)
    values = norms[known]
    if span is not None:
        low, high = map(float, span)
    else:
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    scale = (LARGEST - SMALLEST) / (high - low) if high > low else 0.0
    cells = np.where(held, UNKNOWN, HOLE).astype(np.uint8)
    cells[known] = np.rint((values.clip(low, high) - low) * scale + SMALLEST).astype(np.uint8)
    return Panel(cells, low, high, bool((values < low).any()), bool((values > high).any()))


def pool_size(seen: int, most: int = MOST_COLUMNS) -> int:
    """Tokens that share a column so that at most `most` columns are drawn."""
    return max(1, -(-seen // most))


def pooled(cells: np.ndarray, pool: int) -> np.ndarray:
    """Largest byte of every `pool` neighbouring tokens, (layers, ceil(tokens / pool)); holes lose to all others."""
    return _grouped(cells, pool).max(axis=-1) if cells.size else cells


def held_counts(held: np.ndarray, pool: int) -> np.ndarray:
    """Held tokens behind each pooled column, uint8 (255 and more as 255)."""
    return _grouped(held.astype(np.uint16), pool).sum(axis=-1).clip(0, 255).astype(np.uint8)


def _grouped(array: np.ndarray, pool: int) -> np.ndarray:
    layers, tokens = array.shape
    padded = np.pad(array, ((0, 0), (0, -tokens % pool)))
    return padded.reshape(layers, -1, pool)


def packed(array: np.ndarray) -> str:
    """uint8 array as base64, row by row."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=np.uint8).tobytes()).decode()
