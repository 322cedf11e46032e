"""One piece of a text through the model, at explicit positions, into a cache: what every run is made of."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel


class Feeder:
    """Feeds ids to a model; knows what its forward accepts."""

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        accepted = inspect.signature(lm.model.forward).parameters
        self._keeps_logits = "logits_to_keep" in accepted
        self._takes_positions = "position_ids" in accepted

    def logits(self, ids: Sequence[int], start: int, cache: DynamicCache | None, keep: int = 1) -> Tensor:
        """Logits (keep, vocabulary) of the last `keep` of `ids`, which stand at positions `start` and on.

        Raises Refused when the device runs out of memory.
        """
        options: dict[str, object] = {"logits_to_keep": keep} if self._keeps_logits else {}
        return self._run(self._lm.model, ids, start, cache, options).logits[0, -keep:]

    def hidden(self, ids: Sequence[int], start: int, cache: DynamicCache | None) -> Tensor:
        """The body's last hidden states (len(ids), width), from which the head makes logits."""
        return self._run(self._lm.model.base_model, ids, start, cache, {}).last_hidden_state[0]

    def _run(self, model: nn.Module, ids: Sequence[int], start: int, cache: DynamicCache | None, options: dict) -> Any:
        device = self._lm.device
        if self._takes_positions:  # never left to the cache: its length is not the text's once something is evicted
            options["position_ids"] = torch.arange(start, start + len(ids), device=device)[None]
        if cache is not None:
            options["cache"] = cache
        try:
            return model(torch.tensor([list(ids)], device=device), use_cache=cache is not None, **options)
        except torch.OutOfMemoryError as error:
            raise Refused(
                "The device ran out of memory at {count} tokens. Use a shorter text or a smaller model.",
                count=start + len(ids),
            ) from error
