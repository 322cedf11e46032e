"""Turning rotary queries and keys to other positions, with the model's own frequencies and way of pairing.

What a layer does to a key is not guessed from its class: a few tokens are run at two places, and a layer whose keys
do not turn as they should (nor stay, as in layers without positions) is refused.
"""

import inspect
import sys
from functools import cached_property

import torch
from torch import Tensor, nn

from kvviz.engine.probe import observe
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel

_AWAY = 7  # places by which the trial tokens are moved
_PLACES = 512  # of a table at first
_MOVING = ("dynamic", "longrope")  # frequencies that change with the length of the text


class Rotation:
    """Turns vectors of one model by whole places, by layer. Raises Refused for models where that cannot be done."""

    def __init__(self, lm: LanguageModel) -> None:
        self._lm, self._body = lm, lm.model.base_model
        self._body = getattr(self._body, "language_model", self._body)
        self._rotary: nn.Module | None = getattr(self._body, "rotary_emb", None)
        self._tables: dict[object, tuple[Tensor, Tensor]] = {}
        self._width = 0
        if self._rotary is None:
            raise Refused(
                "{name} has no rotary positions, so what is kept cannot be renumbered. Choose original positions.",
                name=lm.title,
            )
        self._check_kind()
        with torch.inference_mode():
            self._turning = self._try()

    def __deepcopy__(self, memo: dict) -> "Rotation":
        """Copies of a cache share it: it belongs to the model and knows nothing of a text."""
        return self

    def turn(self, vectors: Tensor, by: Tensor, layer: int) -> Tensor:
        """`vectors` (heads, tokens, width) moved by `by` places, int (heads or 1, tokens); in float32."""
        vectors = vectors.float()
        if not self._turning[layer] or not by.numel():
            return vectors
        far = by.abs()
        cos, sin = self._table(layer, int(far.max()))
        return self._apply(vectors, cos[far], sin[far] * by.sign()[..., None])

    def _apply(self, vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The model's own function; heads take the place of the batch, since each may turn differently."""
        width = self._width or cos.shape[-1]
        part = vectors[:, None, :, :width]
        _, turned = self._function(part[:, :0], part, cos, sin)
        return torch.cat([turned[:, 0], vectors[..., width:]], dim=-1)

    @cached_property
    def _function(self):
        module = sys.modules[type(self._body).__module__]
        return getattr(module, "apply_rotary_pos_emb", None)

    def _table(self, layer: int, far: int) -> tuple[Tensor, Tensor]:
        """cos and sin of 0, 1, ... `far` places or more, without the scaling that is already in what is turned."""
        kind = self._layer_kind(layer)
        known = self._tables.get(kind)
        if known is None or known[0].shape[0] <= far:
            count = max(far + 1, _PLACES if known is None else 2 * known[0].shape[0])
            places = torch.arange(count, device=self._lm.device)
            like = torch.zeros(1, device=self._lm.device)
            options = () if kind is None else (kind,)
            cos, sin = (table[0] for table in self._rotary(like, places[None], *options))
            scaling = cos[0, 0]  # cos 0 is 1
            self._tables[kind] = known = (cos / scaling, sin / scaling)
        return known

    @cached_property
    def _by_kind(self) -> bool:
        return "layer_type" in inspect.signature(self._rotary.forward).parameters

    def _layer_kind(self, layer: int) -> str | None:
        return self._lm.config.layer_types[layer] if self._by_kind else None

    def _check_kind(self) -> None:
        kinds = getattr(self._rotary, "rope_type", "default")
        for kind in kinds.values() if isinstance(kinds, dict) else [kinds]:
            if kind in _MOVING:
                raise Refused(
                    "{name} scales its rotary positions with the length of the text ({kind}), so keys cannot be "
                    "renumbered. Choose original positions.",
                    name=self._lm.title,
                    kind=kind,
                )

    def _try(self) -> dict[int, bool]:
        """For every layer with attention whether its keys turn (True) or have no position (False)."""
        before, after = self._keys(0), self._keys(_AWAY)
        by = torch.full((1, before[min(before)].shape[1]), -_AWAY, device=self._lm.device)
        turning: dict[int, bool] = {}
        for layer, keys in before.items():
            if _close(after[layer], keys):
                turning[layer] = False
                continue
            turning[layer] = True
            if not self._turns(after[layer], keys, by, layer, turning):
                raise Refused(
                    "The keys of {name} cannot be turned to other positions (layer {layer}). "
                    "Choose original positions.",
                    name=self._lm.title,
                    layer=layer,
                )
        return turning

    def _turns(self, after: Tensor, before: Tensor, by: Tensor, layer: int, turning: dict[int, bool]) -> bool:
        if self._function is None:
            return False
        self._turning = turning
        cos = self._table(layer, _AWAY)[0]
        for width in (self._width,) if self._width else (cos.shape[-1], 2 * cos.shape[-1]):  # gpt-oss keeps half of cos
            self._width = width
            try:
                if _close(self.turn(after, by, layer), before):
                    return True
            except RuntimeError:  # the shapes do not fit: another way of pairing
                continue
        return False

    def _keys(self, start: int) -> dict[int, Tensor]:
        """Every layer's keys (heads, tokens, width) of a few tokens that stand at `start` and behind."""
        ids = torch.arange(3, 9, device=self._lm.device)[None]
        found: dict[int, Tensor] = {}
        with observe(lambda call: found.setdefault(call.layer, call.key[0].clone())):
            places = torch.arange(start, start + ids.shape[1], device=self._lm.device)[None]
            self._lm.model.base_model(input_ids=ids, position_ids=places, use_cache=False)
        return found


def _close(one: Tensor, other: Tensor) -> bool:
    """Equal to what the dtype can tell apart, over a few layers of arithmetic."""
    gap = (one.float() - other.float()).norm() / other.float().norm().clamp(min=1e-9)
    return bool(gap < (1e-3 if one.dtype == torch.float32 else 0.1))
