"""The attention of a whole text, measured layer by layer in one forward of the model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch import Tensor

from kvviz.engine.measures import measure, measure_blocks
from kvviz.engine.probe import ATTENTION, observe
from kvviz.engine.scores import AttentionCall, Block
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import ids_of
from kvviz.records import LayerMeasures

Turn = Callable[[], AbstractContextManager]
Progress = Callable[[int], None]

EAGER_TOKENS = 1024  # for families that compute attention themselves: layers x heads x T x T is held at once


def layer_measures(
    lm: LanguageModel, ids: Sequence[int], *, progress: Progress | None = None, turn: Turn = nullcontext
) -> list[LayerMeasures]:
    """Measures of every layer with attention, for the text `ids` in one piece, in the model's order.

    `progress` gets the number of layers done after each; what it raises ends the work. The forward gives its
    `turn()` up between layers, so that others' work goes on beside it. Raises Refused for no token, a text past the
    model's context, and, for families that compute attention themselves, more than `EAGER_TOKENS` tokens.
    """
    ids = ids_of(lm, ids)
    if lm.model.config._attn_implementation != ATTENTION:
        return _eager(lm, ids)
    done: list[LayerMeasures] = []
    tensor = torch.tensor(ids, device=lm.device)
    with ExitStack() as at_work:

        def hear(call: AttentionCall) -> None:
            done.append(measure(call, tensor.to(call.query.device)))
            if progress is not None:
                progress(len(done))
            at_work.close()
            at_work.enter_context(turn())

        at_work.enter_context(turn())
        forward(lm, tensor, hear)
    return done


def forward(lm: LanguageModel, ids: Tensor, observer: Callable[[AttentionCall], None]) -> None:
    """One pass over `ids` (T,) without a cache; `observer` hears every layer's attention."""
    with torch.inference_mode(), observe(observer):
        lm.model.base_model(input_ids=ids[None], use_cache=False)


class _Enough(Exception):
    """The layer that was asked for has been heard; the rest of the forward is not needed."""


def one_layer(lm: LanguageModel, ids: Sequence[int], layer: int, work: Callable[[AttentionCall], object]) -> object:
    """What `work` makes of the attention call of one layer; the forward ends there."""
    found = []

    def hear(call: AttentionCall) -> None:
        if call.layer == layer:
            found.append(work(call))
            raise _Enough

    try:
        forward(lm, torch.tensor(ids, device=lm.device), hear)
    except _Enough:
        return found[0]
    raise ValueError(f"layer {layer} has no attention")


@torch.inference_mode()
def _eager(lm: LanguageModel, ids: Sequence[int]) -> list[LayerMeasures]:
    tensor = torch.tensor(ids, device=lm.device)
    return [
        measure_blocks([Block(weights, None, _causal(weights), 0)], layer, weights.shape[0], tensor, None)
        for layer, weights in enumerate(eager_weights(lm, tensor))
    ]


def eager_weights(lm: LanguageModel, ids: Tensor) -> Iterator[Tensor]:
    """Every layer's attention (heads, T, T) as the model itself returns it."""
    if len(ids) > EAGER_TOKENS:
        raise Refused(
            "This model computes its attention itself, and all of it has to be held at once: "
            "at most {limit} tokens, not {count}. Shorten the text.",
            limit=EAGER_TOKENS,
            count=len(ids),
        )
    with torch.inference_mode():
        output = lm.model(input_ids=ids[None], use_cache=False, output_attentions=True)
    if not output.attentions:
        raise Refused("This model does not give its attention away, so it cannot be measured. Choose another model.")
    yield from (weights[0].float() for weights in output.attentions)


def _causal(weights: Tensor) -> Tensor:
    return torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()
