"""One block of queries, walked where the token with nearly all of the attention is thrown away."""

import numpy as np
import pytest
import torch

from kvviz.engine.walk import Walk
from kvviz.policies import H2O, NEVER, Ledger

HEADS, GROUP, HELD, ROWS = 2, 3, 5, 6


class Worst(Ledger):
    """The token that was looked at most goes first."""

    def see(self, weights: np.ndarray, own: int, choices: np.ndarray) -> None:
        self.seen = weights[:, :, -1].mean(axis=1)

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        return -self.seen[:, : positions.shape[1]]


@pytest.mark.parametrize("lead", [2.0, 60.0, 300.0])  # within float32's exponentials, at their edge, far beyond
@pytest.mark.parametrize("learned", [False, True])
def test_the_rest_shares_what_a_token_leaves(lead, learned):
    slots = HELD + ROWS
    scores = np.random.default_rng(3).normal(size=(HEADS, GROUP, ROWS, slots)).astype(np.float32)
    scores[:, :, :, 1] += lead
    sink = np.linspace(-1, 1, HEADS * GROUP, dtype=np.float32) if learned else None
    positions = np.broadcast_to(np.arange(slots), (HEADS, slots))
    walk = Walk(H2O(budget=HELD + 2, recent_share=0.3), Worst(None, 0, HEADS), positions, ROWS, prompt=1)
    given = walk.run(
        torch.from_numpy(scores.reshape(HEADS * GROUP, ROWS, slots).copy()),
        None if sink is None else torch.tensor(sink),
    ).numpy()
    assert (walk._gone[:, 1] == 2).all(), "the first to go, when the first is one too many"
    expected = np.zeros(given.shape)
    for head, group, row in np.ndindex(HEADS, GROUP, ROWS):
        there = [slot for slot in range(HELD + row + 1) if walk._gone[head, slot] >= row]
        numbers = scores[head, group, row, there].astype(np.float64)
        all_of_them = numbers if sink is None else np.append(numbers, sink.reshape(HEADS, GROUP)[head, group])
        top = all_of_them.max()
        expected[head, group, row, there] = np.exp(numbers - top) / np.exp(all_of_them - top).sum()
    np.testing.assert_allclose(given, expected, atol=1e-6)
    assert (walk._gone != NEVER).sum() == HEADS * (ROWS - 2)
