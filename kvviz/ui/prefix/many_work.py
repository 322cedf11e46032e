"""The work of the view of many prompts: through the tree with real K and V, then through blocks as books."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from kvviz.analysis.served import Statistics
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt
from kvviz.prefix.many import PrefixCache, block_cache
from kvviz.ui.settings import settings
from kvviz.ui.task import Progress, Turn, Work

SIZES = (1, 16, 32, 256)


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """What a cache of blocks did; `refusal` instead where the budget holds no block."""

    size: int
    served: pd.DataFrame | None = None
    events: pd.DataFrame | None = None
    statistics: Statistics | None = None
    refusal: Refused | None = None


@dataclass(frozen=True, eq=False, slots=True)
class ManyResult:
    """What is left of a run when its K and V are let go: frames as `kvviz.PrefixCache` gives them."""

    served: pd.DataFrame
    events: pd.DataFrame
    tree: pd.DataFrame
    statistics: Statistics
    held_bytes: int
    budget_bytes: int | None
    bytes_per_token: int
    blocks: tuple[Blocks, ...]


def serving(lm: LanguageModel, prompts: Sequence[Prompt], budget: int | None, verify: bool) -> Work:
    """All prompts through both kinds of cache, as a task's work."""

    def work(note: Progress, turn: Turn) -> ManyResult:
        cache = PrefixCache(lm, budget)
        for done, prompt in enumerate(prompts):
            note(done / len(prompts))
            cache.serve(prompt, verify=verify, prefill_chunk=settings().prefill_chunk, turn=turn)
        blocks = tuple(_in_blocks(lm, prompts, size, budget) for size in SIZES)
        facts = (cache.held_bytes, budget, cache.bytes_per_token, blocks)
        return ManyResult(cache.frame(), cache.events(), cache.tree(), cache.statistics, *facts)

    return work


def _in_blocks(lm: LanguageModel, prompts: Sequence[Prompt], size: int, budget: int | None) -> Blocks:
    try:
        cache = block_cache(lm, size, budget)
    except Refused as refusal:
        return Blocks(size, refusal=refusal)
    for prompt in prompts:
        cache.serve(prompt.ids)
    return Blocks(size, cache.frame(), cache.events_frame(), cache.statistics)
