"""The work of the view of two prompts: comparing them, and reusing what must not be reused."""

from typing import Any

from kvviz.models.loading import LanguageModel
from kvviz.prefix.pair import PrefixReuse, compare_prefix
from kvviz.prefix.wrong import CheatResult, cheat_prefix
from kvviz.ui.prefix.parting import Parting
from kvviz.ui.prefix.progress import counted, pieces
from kvviz.ui.settings import settings
from kvviz.ui.task import Progress, Turn, Work

NEW_TOKENS = 24  # of the texts that the cheat is judged by


def comparing(lm: LanguageModel, parting: Parting) -> Work:
    """`kvviz.compare_prefix` as a task's work."""
    chunk = settings().prefill_chunk
    first, second = len(parting.first.ids), len(parting.second.ids)
    lengths = (parting.reused, first, parting.computed, second)
    expected = 2 + sum(pieces(length, chunk) for length in lengths)  # and the copy, and the distances

    def work(note: Progress, turn: Turn) -> PrefixReuse:
        taken = counted(turn, note, expected)
        return compare_prefix(lm, parting.first, parting.second, prefill_chunk=chunk, turn=taken)

    return work


def cheating(lm: LanguageModel, parting: Parting, pairs: list[tuple[int, int]]) -> Work:
    """`kvviz.cheat_prefix` as a task's work."""
    chunk = settings().prefill_chunk
    each = pieces(len(parting.second.ids), chunk) + NEW_TOKENS - 1
    expected = pieces(len(parting.first.ids), chunk) + 2 * each
    prompts: tuple[Any, Any] = (parting.first, parting.second)

    def work(note: Progress, turn: Turn) -> CheatResult:
        taken = counted(turn, note, expected)
        return cheat_prefix(lm, *prompts, pairs, max_new_tokens=NEW_TOKENS, prefill_chunk=chunk, turn=taken)

    return work
