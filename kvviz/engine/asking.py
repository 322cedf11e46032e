"""A text held in a cache under a policy, and questions put to copies of it that know nothing of each other."""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from kvviz.engine.evicting import EvictingCache
from kvviz.engine.forward import Feeder
from kvviz.engine.reading import Turn, cache_for
from kvviz.models.loading import LanguageModel
from kvviz.policies import Full, Policy
from kvviz.records import Evicted

_PIECE = 256  # tokens of the text fed in one turn


class Held:
    """The text is read when this is made; policies that evict at the end of a prompt do so at the text's end.

    `progress` gets the share of the text that is read; what it raises ends the work. `turn` as in `kvviz.stream`.
    Raises Refused for a policy that this model cannot have.
    """

    def __init__(
        self,
        lm: LanguageModel,
        ids: Sequence[int],
        policy: Policy | Full,
        *,
        progress: Callable[[float], None] | None = None,
        turn: Turn = nullcontext,
    ) -> None:
        self.tokens, self._turn, self._feeder = len(ids), turn, Feeder(lm)
        with turn():
            self._cache = cache_for(lm, policy, len(ids), len(ids))
        # a recurrent state is only safe to continue one token at a time
        self._one_by_one = any(self._cache.is_linear)
        piece = len(ids) if self._one_by_one else _PIECE
        for start in range(0, len(ids), piece):
            part = ids[start : start + piece]
            with turn(), torch.inference_mode(), _at_work(self._cache):
                self._feeder.hidden(part, start, self._cache)
            if progress is not None:
                progress((start + len(part)) / len(ids))
        self._evicted = _taken(self._cache)

    @property
    def managed(self) -> tuple[int, ...]:
        """Layers on which the policy acts; none for the full cache."""
        return tuple(self._cache.managed) if isinstance(self._cache, EvictingCache) else ()

    @property
    def kv_heads(self) -> int:
        """KV heads of the layers on which the policy acts; 0 for the full cache."""
        return self._cache.layers[self.managed[0]].positions.shape[0] if self.managed else 0

    def ask(self, ids: Sequence[int]) -> tuple[np.ndarray, tuple[Evicted, ...]]:
        """What the model says after text and question: log-probabilities of the next token, float32 (vocabulary,).

        With it all that was evicted by then, in text and question. Whatever is asked, the text stays as it was.
        """
        with self._turn(), torch.inference_mode():
            cache = copy.deepcopy(self._cache)
            with _at_work(cache):
                logits = self._fed(ids, cache)
            return logits.float().log_softmax(dim=-1).cpu().numpy(), (*self._evicted, *_taken(cache))

    def _fed(self, ids: Sequence[int], cache: DynamicCache) -> Tensor:
        step = 1 if self._one_by_one else len(ids)
        for start in range(0, len(ids), step):
            logits = self._feeder.logits(ids[start : start + step], self.tokens + start, cache)[0]
        return logits


def _at_work(cache: DynamicCache) -> AbstractContextManager:
    return cache.at_work() if isinstance(cache, EvictingCache) else nullcontext()


def _taken(cache: DynamicCache) -> tuple[Evicted, ...]:
    return tuple(cache.take_evicted()) if isinstance(cache, EvictingCache) else ()
