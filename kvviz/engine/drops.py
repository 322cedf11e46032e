"""Which slots of a block go, query by query, because there is no room for them."""

import numpy as np

from kvviz.policies import Ledger, Policy
from kvviz.records import Evicted

_INFINITE = np.float32(np.inf)
_HALF, _KEPT = np.int32(0x400), np.int32(~0x7FF)  # of a float32: half of the last bit that is kept, and all kept


class Drops:
    """Drops slots after each row of a block of `rows` queries, the last of `positions` (kv_heads, slots).

    gone (kv_heads, slots) is where it notes the row after which each slot went, NEVER before.
    """

    def __init__(
        self, policy: Policy, ledger: Ledger, positions: np.ndarray, rows: int, prompt: int, gone: np.ndarray
    ) -> None:
        self.policy, self.ledger, self.positions, self.prompt, self.gone = policy, ledger, positions, prompt, gone
        self.held, self._heads = positions.shape[1] - rows, np.arange(len(positions))
        self.start = int(positions[0, self.held])
        now = self.start + np.arange(rows)[:, None, None]
        # (rows, kv_heads, slots): infinite where a slot is protected or gone, else less than any score
        self._barred = np.where(policy.protected(positions, now), _INFINITE, -_INFINITE)
        self.dropped = 0  # so far, of each head
        self._notes: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []

    def after(self, row: int) -> np.ndarray | None:
        """Drop what there is no room for after `row`: slots int (kv_heads, dropped), None where all stay."""
        width, now = self.held + row + 1, self.start + row
        over = width - self.dropped - self.policy.room(now, self.prompt)
        if over <= 0:
            return None
        scores = _settled(self.ledger.scores(self.positions[:, :width], now))
        scores = np.fmax(scores, self._barred[row, :, :width])  # a score that is no number goes before one that is
        lowest = scores.argmin(axis=1)[:, None] if over == 1 else scores.argsort(axis=1, kind="stable")[:, :over]
        heads = self._heads[:, None]
        flat = heads * width + lowest  # picks faster than two indices
        worth = scores.take(flat)
        scores.put(flat, _INFINITE)
        self._notes.append((now, lowest, worth, np.minimum.reduce(scores, axis=1)))
        self.gone[heads, lowest] = row
        self._barred[row + 1 :, heads, lowest] = _INFINITE
        self.dropped += over
        return lowest

    def evicted(self) -> list[Evicted]:
        """All that went, as one record in the order of steps; no record where all stayed."""
        if not self._notes:
            return []
        slots = np.concatenate([lowest.T for _, lowest, _, _ in self._notes])  # (evictions, kv_heads)
        worth = np.concatenate([worth.T for _, _, worth, _ in self._notes])
        overs = [lowest.shape[1] for _, lowest, _, _ in self._notes]
        after = np.repeat([now for now, _, _, _ in self._notes], overs)
        cut = np.repeat([cut for _, _, _, cut in self._notes], overs, axis=0)
        heads = np.broadcast_to(self._heads, slots.shape)
        places = self.positions[heads, slots]
        after = np.repeat(after, len(self._heads))
        return [Evicted(-1, after, heads.ravel(), places.ravel(), worth.ravel(), cut.ravel())]


def _settled(scores: np.ndarray) -> np.ndarray:
    """Scores to 12 bits: what differs by less than 1 in 4,096 is equal and leaves the choice to age.

    Equal tokens get equal scores in theory and differ in their last bits in practice, depending on how many were
    computed together; such bits must not decide.
    """
    bits = scores.view(np.int32) + _HALF
    bits &= _KEPT
    return bits.view(np.float32)
