"""One long text under one policy, with the share that is done told as it goes."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np

from kvviz.engine.reading import Turn, losses, read
from kvviz.models.loading import LanguageModel
from kvviz.policies import Full, Policy

_PIECE = 2048  # tokens fed at once


def can_pass_context(lm: LanguageModel) -> bool:
    """Whether the model has positions past the length it was trained for: rotary ones have, learned ones have not."""
    return hasattr(lm.model.base_model, "rotary_emb")


def text_losses(
    lm: LanguageModel,
    ids: Sequence[int],
    policy: Policy | Full,
    *,
    progress: Callable[[float], None] | None = None,
    turn: Turn = nullcontext,
) -> np.ndarray:
    """Loss of tokens 1 ... T - 1, float32 (T - 1,) in nats, as in `kvviz.evaluate`; ids may pass the trained length.

    `progress` gets the share that is done; what it raises ends the work.
    """
    layers = lm.config.num_hidden_layers

    def note(done: int) -> None:
        if progress is not None:
            progress(min(1.0, done / layers))

    reading = read(lm, ids, policy, piece=_PIECE, progress=note, turn=turn)
    with turn():
        return losses(lm, ids, [reading])[0][0]
