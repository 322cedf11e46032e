"""How far a comparison is, counted in the turns its forwards take."""

from collections.abc import Iterator
from contextlib import contextmanager

from kvviz.ui.task import Progress, Turn


def counted(turn: Turn, note: Progress, expected: int) -> Turn:
    """`turn`, telling `note` the share of the `expected` ones that were taken; never quite all."""
    taken = 0

    @contextmanager
    def take() -> Iterator[None]:
        nonlocal taken
        note(min(0.99, taken / max(1, expected)))
        with turn():
            yield
        taken += 1

    return take


def pieces(tokens: int, chunk: int) -> int:
    """Forwards that a prefill of so many tokens takes."""
    return -(-tokens // chunk)
