"""Which slots of a block go, query by query, because there is no room for them."""

import numpy as np

from kvviz.policies import Ledger, Policy
from kvviz.records import Evicted

_INFINITE = np.float32(np.inf)


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
        self._barred = policy.protected(positions, now)  # (rows, kv_heads, slots): protected or gone
        self.dropped = 0  # so far, of each head
        self._notes: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []

    def after(self, row: int) -> np.ndarray | None:
        """Drop what there is no room for after `row`: slots int (kv_heads, dropped), None where all stay."""
        width, now = self.held + row + 1, self.start + row
        over = width - self.dropped - self.policy.room(now, self.prompt)
        if over <= 0:
            return None
        scores = _settled(self.ledger.scores(self.positions[:, :width], now))
        scores = np.where(self._barred[row, :, :width], _INFINITE, scores)
        lowest = scores.argmin(axis=1)[:, None] if over == 1 else scores.argsort(axis=1, kind="stable")[:, :over]
        at = self._heads[:, None], lowest
        worth = scores[at]
        scores[at] = _INFINITE
        self._notes.append((now, lowest, worth, np.minimum.reduce(scores, axis=1)))
        self.gone[at] = row
        self._barred[row + 1 :, at[0], at[1]] = True
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
    return ((scores.view(np.int32) + 0x400) & ~0x7FF).view(np.float32)
