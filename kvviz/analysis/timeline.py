"""The life of cached tokens as a picture: tokens by steps, in cells that a screen can show."""

import numpy as np

from kvviz.analysis.evictions import Evictions
from kvviz.records import LEAVES, ROLES, Timeline

MOST_CELLS = 256  # a side


def timeline(
    evictions: Evictions, layer: int, kv_head: int, tokens: range | None = None, most: int = MOST_CELLS
) -> Timeline:
    """What became of `tokens` (all) from the step that read the first of them to the last step."""
    tokens = range(evictions.tokens) if tokens is None else tokens
    steps = range(tokens.start, evictions.tokens)
    high, wide = (max(1, -(-len(side) // most)) for side in (tokens, steps))
    rows = [
        _commonest(evictions.roles(layer, kv_head, tokens[row : row + high])[:, steps.start :], wide)
        for row in range(0, len(tokens), high)
    ]
    cells = np.stack(rows) if rows else np.zeros((0, 0), dtype=np.uint8)
    gone = cells == ROLES.index("evicted")
    before = np.concatenate([np.zeros((len(cells), 1), dtype=bool), gone[:, :-1]], axis=1)
    return Timeline(tokens, steps, (high, wide), np.where(gone & ~before, LEAVES, cells).astype(np.uint8))


def _commonest(roles: np.ndarray, cell: int) -> np.ndarray:
    """(rows, steps) -> (ceil(steps / cell),): what most are, 0 where all are yet to come."""
    padded = np.pad(roles, ((0, 0), (0, -roles.shape[1] % cell)))
    counts = [(padded == role).reshape(len(roles), -1, cell).sum(axis=(0, 2)) for role in range(1, len(ROLES))]
    return np.where(np.any(counts, axis=0), np.argmax(counts, axis=0) + 1, 0).astype(np.uint8)
