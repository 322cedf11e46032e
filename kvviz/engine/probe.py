"""The attention function every model is loaded with: plain SDPA, and an open ear for whoever asks.

Importing this module registers `ATTENTION` with transformers' attention and mask interfaces. The function
computes what the model asks for; when an observer is active in the current context (a `ContextVar`, so the
observer of one thread is never another's) it is handed the query, key and value first. Nothing is patched
and nothing is left on the model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvviz.engine.scores import AttentionCall, block

ATTENTION = "kvviz"

_QUERY_BLOCK = 256  # rows of the score matrix held at once where SDPA cannot be used

Observer = Callable[[AttentionCall], None]
Editor = Callable[[AttentionCall], AttentionCall]
Worker = Callable[[AttentionCall], Tensor | None]

_observer: ContextVar[Observer | None] = ContextVar("kvviz_attention_observer", default=None)
_editor: ContextVar[Editor | None] = ContextVar("kvviz_attention_editor", default=None)
_worker: ContextVar[Worker | None] = ContextVar("kvviz_attention_worker", default=None)


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Hand every attention call of this context (this thread, this block) to `observer`."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


@contextmanager
def edit(editor: Editor) -> Iterator[None]:
    """Let `editor` change every attention call of this context before it is computed (and observed)."""
    token = _editor.set(editor)
    try:
        yield
    finally:
        _editor.reset(token)


@contextmanager
def work(worker: Worker) -> Iterator[None]:
    """Let `worker` compute the attention calls of this context: it gives what `attend` does, or None to leave it."""
    token = _worker.set(worker)
    try:
        yield
    finally:
        _worker.reset(token)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The model's attention, (batch, queries, heads, value_width), by SDPA or by its own arithmetic."""
    call = AttentionCall(module.layer_idx, module, query, key, value, attention_mask, options)
    if (editor := _editor.get()) is not None:
        call = editor(call)
    if (observer := _observer.get()) is not None:
        observer(call)
    if (worker := _worker.get()) is not None and (mixed := worker(call)) is not None:
        return mixed, None
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        return _attend_in_blocks(call), None
    return sdpa_attention_forward(module, call.query, call.key, call.value, call.mask, **call.options)


def _attend_in_blocks(call: AttentionCall) -> Tensor:
    """Attention with what SDPA has no argument for: soft-capped scores, learned sinks."""
    return torch.stack([_attend_one(call.sequence(index)) for index in range(call.query.shape[0])])


def _attend_one(call: AttentionCall) -> Tensor:
    """(queries, heads, value_width) of a call with one sequence."""
    values, queries = call.value[0], call.query.shape[2]
    mixed = []
    for start in range(0, queries, _QUERY_BLOCK):
        weights = block(call, start, min(start + _QUERY_BLOCK, queries)).probabilities.to(values.dtype)
        heads, rows, keys = weights.shape
        grouped = weights.reshape(values.shape[0], -1, keys)
        mixed.append(torch.matmul(grouped, values[:, :keys]).view(heads, rows, -1))
    return torch.cat(mixed, dim=1).transpose(0, 1).contiguous()


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
