"""Streaming generation with an open view of the cache: one typed record a forward."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import DynamicCache

from kvviz.engine.cache import layer_states, new_cache
from kvviz.engine.evicting import EvictingCache
from kvviz.engine.forward import Feeder
from kvviz.engine.norms import newest_norms
from kvviz.engine.probe import observe
from kvviz.engine.reading import cache_for
from kvviz.engine.sampling import Choice, Sampler
from kvviz.engine.scores import AttentionCall
from kvviz.errors import Refused
from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, ids_of
from kvviz.models.tokens import TextStream
from kvviz.policies import Full, Policy
from kvviz.records import CallShape, Step

Turn = Callable[[], AbstractContextManager]

_EMPTY = np.zeros((0, 0), dtype=np.float32)


def stream(
    lm: LanguageModel,
    prompt: str | Prompt | Sequence[int],
    max_new_tokens: int = 64,
    *,
    chat: bool = False,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    use_cache: bool = True,
    cache: DynamicCache | None = None,
    prefill_chunk: int | None = None,
    policy: Policy | Full | None = None,
    turn: Turn = nullcontext,
) -> Iterator[Step]:
    """Generate from `prompt` (text, an encoded `Prompt`, or ids) and yield one `Step` a forward.

    The first step is the prefill, then one a token, until end of sequence, `max_new_tokens` or the model's
    context. One sequence, no padding, explicit positions. `cache` lets the caller keep the cache (an empty
    one from `new_cache`); `use_cache=False` computes the whole text again at every step. `prefill_chunk`
    feeds the prompt in pieces of that many tokens, and each forward runs inside `turn()`, which may raise to
    end the run: this is how several runs share a device.

    `policy` evicts tokens for good: while the prompt is read, exactly as if it were fed token by token, or at its end,
    where the policy says so, and after every step. A budget given as a share refers to prompt and new tokens together.
    With cache-relative positions a run may go on past the model's context. `Quantised` stores all tokens in fewer bits.

    Raises Refused for an empty prompt, a text past the model's context, ids it has not, settings out of range, or a
    policy that this model cannot have.
    """
    ids = list(ids_of(lm, prompt, chat=chat, past_context=getattr(policy, "positions", None) == "relative"))
    if max_new_tokens < 1:
        raise Refused("The number of new tokens must be at least 1, not {value}.", value=max_new_tokens)
    if prefill_chunk is not None and prefill_chunk < 1:
        raise Refused("A piece of the prompt must have at least 1 token, not {value}.", value=prefill_chunk)
    sampler = Sampler(temperature, top_p, seed)
    if policy is None or type(policy) is Full:
        cache = (cache if cache is not None else new_cache(lm.config)) if use_cache else None
    elif not use_cache or cache is not None:
        raise Refused("A policy needs a cache of its own: leave out the cache that was given, or the policy.")
    else:
        with turn():
            cache = cache_for(lm, policy, len(ids) + max_new_tokens - 1, len(ids))
    run = _Run(lm, ids, max_new_tokens, cache, sampler, prefill_chunk, turn)
    return run.steps()


def end_ids(lm: LanguageModel) -> frozenset[int]:
    """Ids after which the model has nothing more to say."""
    ends = getattr(lm.model.generation_config, "eos_token_id", None)
    ends = [ends] if isinstance(ends, int) else list(ends or [])
    return frozenset(ends + [lm.tokenizer.eos_token_id] * (lm.tokenizer.eos_token_id is not None))


@dataclass
class _Run:
    """The state of one run between its steps."""

    lm: LanguageModel
    ids: list[int]
    max_new_tokens: int
    cache: DynamicCache | None
    sampler: Sampler
    prefill_chunk: int | None
    turn: Turn
    shapes: list[LayerShape] = field(init=False)
    calls: dict[int, CallShape] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes = layer_shapes(self.lm.config)
        self._kinds = [shape.kind for shape in self.shapes]
        self._first_of_kind = {kind: self._kinds.index(kind) for kind in self._kinds}.values()
        self._feeder = Feeder(self.lm)
        self._evicting = isinstance(self.cache, EvictingCache)

    def steps(self) -> Iterator[Step]:
        ends, text = end_ids(self.lm), TextStream(self.lm.tokenizer)
        text_ids, fed, seen = list(self.ids), self.ids, 0
        for index in range(self.max_new_tokens):
            seconds, choice, device = self._forward(fed, seen if self.cache is not None else 0)
            seen = seen + len(fed) if self.cache is not None else 0
            text_ids.append(choice.token_id)
            finish = self._finish(index, choice.token_id in ends, len(text_ids))
            piece = text.push(choice.token_id) + (text.rest() if finish else "")
            yield self._record(index, tuple(fed), choice, piece, finish, seconds, seen, device)
            if finish:
                return
            fed = [choice.token_id] if self.cache is not None else list(text_ids)

    def _finish(self, index: int, ended: bool, length: int) -> str | None:
        if ended:
            return "end"
        if index + 1 == self.max_new_tokens:
            return "limit"
        context = self.lm.context
        if self._evicting and self.cache.policy.positions == "relative":
            return None
        return "context" if context is not None and length > context else None

    def _forward(self, fed: Sequence[int], start: int) -> tuple[float, Choice, tuple[int, int] | None]:
        """Feed `fed` from position `start`, in pieces; seconds of work, the choice, CUDA's bytes now and at peak."""
        pieces, seconds, logits = self._pieces(len(fed)), 0.0, None
        _reset_peak(self.lm.device)
        for first, last in pieces:
            with self.turn(), torch.inference_mode(), observe(self._hear), self._at_work():
                begin = time.perf_counter()
                logits = self._feeder.logits(fed[first:last], start + first, self.cache)[0]
                if last == len(fed):
                    choice = self.sampler.choose(logits)
                seconds += time.perf_counter() - begin
        return seconds, choice, _device_bytes(self.lm.device)

    def _pieces(self, count: int) -> list[tuple[int, int]]:
        # a recurrent state is only safe to continue one token at a time, so such models take the prompt whole
        whole = self.cache is None or any(kind not in ("full", "sliding") for kind in self._kinds)
        size = count if whole or not self.prefill_chunk else self.prefill_chunk
        return [(first, min(first + size, count)) for first in range(0, count, size)]

    def _at_work(self) -> AbstractContextManager:
        return self.cache.at_work() if self._evicting else nullcontext()

    def _hear(self, call: AttentionCall) -> None:
        if call.layer in self._first_of_kind:
            shapes = (tuple(tensor.shape[1:]) for tensor in (call.query, call.key, call.value))
            self.calls[call.layer] = CallShape(call.layer, *shapes)

    def _record(
        self,
        index: int,
        fed: tuple[int, ...],
        choice: Choice,
        text: str,
        finish: str | None,
        seconds: float,
        seen: int,
        device: tuple[int, int] | None,
    ) -> Step:
        cached = self.cache is not None
        layers = layer_states(self.cache, self._kinds) if cached else ()
        with torch.inference_mode():
            keys, values = newest_norms(self.cache, len(fed)) if cached else (_EMPTY, _EMPTY)
        return Step(
            index=index,
            phase=("decode" if index else "prefill") if cached else "recompute",
            fed=fed,
            token_id=choice.token_id,
            text=text,
            probability=choice.probability,
            margin=choice.margin,
            finish=finish,
            seconds=seconds,
            seen=seen,
            stored=max((layer.stored for layer in layers), default=0),
            cache_bytes=(held := sum(layer.bytes for layer in layers)),
            peak_bytes=self.cache.take_peak() if self._evicting else held,
            allocated_bytes=sum(layer.allocated for layer in layers),
            layers=layers,
            key_norms=keys,
            value_norms=values,
            evicted=tuple(self.cache.take_evicted()) if self._evicting else (),
            calls=tuple(self.calls.values()),
            device_bytes=device and device[0],
            device_peak_bytes=device and device[1],
        )


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _device_bytes(device: torch.device) -> tuple[int, int] | None:
    """Bytes the CUDA allocator has handed out, now and at the highest since the last reset."""
    if device.type != "cuda":
        return None
    return torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
