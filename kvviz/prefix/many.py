"""`kvviz.PrefixCache`: many prompts served one after another from a radix tree that holds real K and V."""

from contextlib import nullcontext
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor
from transformers import DynamicCache

from kvviz.analysis.blocks import BlockCache
from kvviz.analysis.radix import Counted, RadixTree, TreeEvent, tree_events_frame, tree_frame
from kvviz.analysis.served import Served, Statistics, served_frame, statistics
from kvviz.engine.attention import Turn
from kvviz.engine.cache import new_cache
from kvviz.engine.prefill import prefill, require_reuse
from kvviz.engine.treecache import serve
from kvviz.geometry.layers import layer_shapes
from kvviz.geometry.memory import bytes_per_token
from kvviz.models.loading import LanguageModel
from kvviz.models.tokens import tokens
from kvviz.prefix.pair import Text, as_prompt


@dataclass(frozen=True, eq=False, slots=True)
class Serving:
    """A served prompt: its ids, what it took and left (`record`), float32 logits (vocabulary,) of its last token, and
    its cache, which the caller may continue."""

    ids: tuple[int, ...]
    record: Served
    logits: Tensor
    cache: DynamicCache


class PrefixCache:
    """Prompts' K and V in a radix tree of at most `budget_bytes` (None: no limit), for one model.

    Every prompt is prefilled from the longest prefix that is stored, on copies, and stored itself; leaves that were
    not used for longest are evicted before the budget is passed. Sliding layers are stored with all their tokens, so
    a token takes `bytes_per_token` everywhere. Not for several threads at once. Raises Refused for models that keep
    more than K and V of single tokens, because their state cannot be cut at a prefix.
    """

    def __init__(self, lm: LanguageModel, budget_bytes: int | None = None) -> None:
        require_reuse(lm, tokens=True)
        self.lm = lm
        self.served: list[Served] = []
        self.bytes_per_token = bytes_per_token(layer_shapes(lm.config), lm.dtype.itemsize)
        self._tree = RadixTree(budget_bytes)
        self._seen = RadixTree()
        self._begun: set[int] = set()  # first ids that were stored at some time

    @property
    def budget_bytes(self) -> int | None:
        """The most that the tree may hold."""
        return self._tree.budget

    @property
    def held_bytes(self) -> int:
        """What it holds: numel x itemsize of all its tensors."""
        return self._tree.used

    @property
    def statistics(self) -> Statistics:
        """Hits, misses, tokens and bytes saved so far."""
        return statistics(self.served)

    @property
    def tree_events(self) -> list[TreeEvent]:
        """All that was stored, split and evicted, in order."""
        return self._tree.events

    def serve(
        self,
        prompt: Text,
        *,
        chat: bool = False,
        verify: bool = False,
        prefill_chunk: int | None = None,
        turn: Turn = nullcontext,
    ) -> Serving:
        """Prefill one prompt and store it; with `verify` once more from nothing, for the time and the logits.

        A prompt larger than the budget is served, from what is there, but not stored. What `turn()` raises ends the
        work and leaves the tree as it was. Raises Refused as `kvviz.compare_prefix` does.
        """
        ids = as_prompt(self.lm, prompt, chat=chat).ids
        done, cache, reused, rest = serve(self.lm, self._tree, ids, chunk=prefill_chunk, turn=turn)
        cold_seconds = gap = None
        if verify:
            cold = prefill(self.lm, new_cache(self.lm.config), ids, chunk=prefill_chunk, turn=turn)
            cold_seconds, gap = cold.seconds, float((cold.logits - done.logits).abs().max())
        request, (shared, _) = len(self.served), self._seen.match(ids)
        self._seen.insert(ids, request, lambda start: Counted(len(ids) - start, 0))
        with turn(), torch.inference_mode():
            stored, evicted = self._tree.insert(ids, request, rest.from_position)
        inside = self._tree.match(ids)[0] == len(ids)
        record = Served(
            request=request,
            prompt_tokens=len(ids),
            shared_tokens=shared,
            reused_tokens=reused,
            stored_tokens=stored,
            evicted_tokens=evicted,
            saved_bytes=reused * self.bytes_per_token,
            held_bytes=self._tree.used,
            stored=inside,
            reason="" if reused else self._reason(ids, shared, request, inside),
            seconds=done.seconds,
            cold_seconds=cold_seconds,
            logit_gap=gap,
        )
        self.served.append(record)
        if inside:
            self._begun.add(ids[0])
        return Serving(ids, record, done.logits[0], cache)

    def frame(self) -> pd.DataFrame:
        """One row a prompt, as `kvviz.analysis.served.served_frame` has it."""
        return served_frame(self.served)

    def events(self) -> pd.DataFrame:
        """One row an event. Columns: request, event, node, parent, start, tokens, bytes, last_use, text."""
        return self._with_text(tree_events_frame(self._tree.events))

    def tree(self) -> pd.DataFrame:
        """One row a node but the root (0). Columns: node, parent, start, tokens, bytes, last_use, leaf, text."""
        return self._with_text(tree_frame(self._tree))

    def _with_text(self, frame: pd.DataFrame) -> pd.DataFrame:
        texts = ["".join(token.label for token in tokens(self.lm.tokenizer, ids)) for ids in frame["ids"]]
        return frame.drop(columns="ids").assign(text=pd.Series(texts, dtype=object))

    def _reason(self, ids: tuple[int, ...], shared: int, request: int, inside: bool) -> str:
        if not inside:
            return "large"
        if not shared:
            return "nothing" if request else "first"
        if len(ids) == 1:
            return "last"
        return "evicted" if ids[0] in self._begun else "budget"


def block_cache(lm: LanguageModel, block_size: int, budget_bytes: int | None = None) -> BlockCache:
    """A `BlockCache` whose tokens are as large as those of `lm`."""
    return BlockCache(block_size, bytes_per_token(layer_shapes(lm.config), lm.dtype.itemsize), budget_bytes)
