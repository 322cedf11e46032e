"""Reuse that is wrong, measured: K and V of a token that stood after other words, put into another prompt."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from torch import Tensor

from kvviz.engine.attention import Turn
from kvviz.engine.copying import Recorder, TappedCache
from kvviz.engine.prefill import greedy_text, keeps_tokens, looks_at_chunks, prefill, require_reuse
from kvviz.engine.reuse import check_pairs, record
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel

_TOP = 5


@dataclass(frozen=True, eq=False, slots=True)
class Cheat:
    """The second prompt as it is, and with K and V at `pairs` (from, to) taken from the first.

    kl: KL divergence, in nats, of the cheated next-token distribution from the true one, sum p log(p / q). top,
    top_cheated: the likeliest next tokens, pairs of (id, probability). ids and text: the greedy continuation.
    """

    pairs: tuple[tuple[int, int], ...]
    kl: float
    top: tuple[tuple[int, float], ...]
    top_cheated: tuple[tuple[int, float], ...]
    ids: tuple[int, ...]
    ids_cheated: tuple[int, ...]
    text: str
    text_cheated: str


class _Replacer:
    """A tap that puts other K and V at some positions of every layer."""

    def __init__(self, taken: dict[int, tuple[Tensor, Tensor]], pairs: Sequence[tuple[int, int]]) -> None:
        self._taken = taken
        self._pairs = pairs

    def __call__(self, layer: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        here = [(one, two - start) for one, two in self._pairs if 0 <= two - start < keys.shape[-2]]
        if not here:
            return keys, values
        left, right = (list(places) for places in zip(*here, strict=True))
        keys, values = keys.clone(), values.clone()
        keys[0, :, right] = self._taken[layer][0][:, left]
        values[0, :, right] = self._taken[layer][1][:, left]
        return keys, values


def cheat(
    lm: LanguageModel,
    first: Sequence[int],
    second: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    *,
    max_new_tokens: int = 24,
    chunk: int | None = None,
    turn: Turn = nullcontext,
) -> Cheat:
    """Run `second` with K and V at the second place of each pair taken, in all layers, from `first` at the first.

    As a cache would that looks for tokens and not for prefixes: the keys keep the rotary position they were made
    with. The replaced token's own query is that of the second prompt. Raises Refused for no pair, for places outside
    the prompts, and for models that keep more than K and V of single tokens.
    """
    require_reuse(lm)
    if looks_at_chunks(lm):
        raise Refused(
            "Some layers of this model look at chunks of the text, and single tokens are not taken from another prompt "
            "there. Choose another model."
        )
    if not keeps_tokens(lm):
        raise Refused(
            "Some layers of this model keep one running state instead of K and V of each token, so single tokens "
            "cannot be taken from another prompt. Choose another model."
        )
    if not pairs:
        raise Refused("There is no token to take from the first prompt. Choose at least one.")
    if max_new_tokens < 1:
        raise Refused("The number of new tokens must be at least 1, not {value}.", value=max_new_tokens)
    check_pairs(pairs, len(first), len(second))
    recorder = Recorder()
    record(lm, first, recorder, chunk=chunk, turn=turn)
    outcomes = []
    for tap in (Recorder(), _Replacer(recorder.layers(), pairs)):
        cache = TappedCache(lm.config, tap)
        logits = prefill(lm, cache, second, chunk=chunk, turn=turn).logits[0]
        outcomes.append((logits, *greedy_text(lm, cache, logits, len(second), max_new_tokens, turn=turn)))
    (true, ids, text), (other, ids_cheated, text_cheated) = outcomes
    return Cheat(tuple(pairs), _kl(true, other), _top(true), _top(other), ids, ids_cheated, text, text_cheated)


def _kl(true: Tensor, other: Tensor) -> float:
    true, other = (logits.double().log_softmax(-1) for logits in (true, other))
    return float((true.exp() * (true - other)).sum().clamp(min=0))  # rounding can leave it just below zero


def _top(logits: Tensor) -> tuple[tuple[int, float], ...]:
    best = logits.softmax(-1).topk(_TOP)
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
