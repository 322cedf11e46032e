"""What two lists of ids have in common: the prefix, whole blocks of it, and equal tokens at other places."""

from bisect import bisect_left
from collections.abc import Sequence


def shared_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """Length of the longest common prefix: of ids, or of the characters of two texts."""
    shorter = min(len(first), len(second))
    return next((at for at in range(shorter) if first[at] != second[at]), shorter)


def reusable(shared: int, prompt_tokens: int) -> int:
    """Tokens of a prompt that need not be computed when `shared` of them are stored: at most all but the last.

    The last token has to be run in any case: its logits are what the next token is chosen from.
    """
    return max(0, min(shared, prompt_tokens - 1))


def in_blocks(shared: int, prompt_tokens: int, block_size: int) -> int:
    """Tokens an engine that caches whole blocks reuses: `reusable`, rounded down to a multiple of `block_size`."""
    return reusable(shared, prompt_tokens) // block_size * block_size


def equal_pairs(first: Sequence[int], second: Sequence[int], start: int) -> list[tuple[int, int]]:
    """(position in `first`, position in `second`) of equal ids, for the tokens of `second` from `start` on.

    Each of them is paired with the nearest equal token of `first`, the earlier of two at the same distance; tokens
    that `first` does not have are left out.
    """
    places: dict[int, list[int]] = {}
    for position, token in enumerate(first):
        places.setdefault(token, []).append(position)
    return [(_nearest(places[second[at]], at), at) for at in range(start, len(second)) if second[at] in places]


def _nearest(places: list[int], target: int) -> int:
    after = bisect_left(places, target)
    return min(places[max(0, after - 1) : after + 1], key=lambda place: (abs(place - target), place))
