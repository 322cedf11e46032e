"""A plan: one model's cache for a number of sequences, lengths, formats, users and cards, all from its layers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from kvviz.errors import Refused
from kvviz.geometry import checked as verdicts
from kvviz.geometry import memory, tables, vllm, whatif
from kvviz.geometry.checked import Checked
from kvviz.geometry.dtypes import Dtype, dtype_of
from kvviz.geometry.fit import RESERVE, Fit, Split, fit
from kvviz.geometry.gpus import GPUS, Gpu, gpu_of
from kvviz.geometry.layers import LayerShape
from kvviz.geometry.limits import MOST_GPUS, MOST_TOKENS, MOST_USERS, whole
from kvviz.locale import N_, Translate

Count = Literal["transformers", "least", "vllm"]


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on a plan; `sentence(t)` in the reader's language."""

    message: str
    facts: dict[str, object]

    def sentence(self, t: Translate = N_) -> str:
        """The remark in words."""
        return t(self.message).format(**self.facts)


@dataclass(frozen=True, eq=False)
class Plan:
    """The cache of one model for `batch` sequences of `tokens` tokens each. Made by `plan`; nothing is loaded.

    Three totals, of all sequences: `least_bytes` (what attention looks at in a step, so a window of W is W tokens),
    `total_bytes` (as transformers stores it between steps: W - 1) and `vllm_bytes` (as vLLM reserves it, in blocks).
    """

    title: str
    source: str
    tokens: int
    batch: int
    dtype: Dtype
    weights_dtype: Dtype
    shapes: tuple[LayerShape, ...]
    parameters: int | None
    context: int | None
    checked: Checked
    notes: tuple[Note, ...] = ()
    block: int = vllm.BLOCK
    in_flight: int = vllm.IN_FLIGHT

    @property
    def bytes_per_token(self) -> int:
        """What one more token of one sequence costs while every layer still grows."""
        return memory.bytes_per_token(self.shapes, self.dtype)

    @property
    def bytes_per_token_beyond_windows(self) -> int:
        """The same once every window is full."""
        return memory.bytes_per_token([shape for shape in self.shapes if shape.window is None], self.dtype)

    @property
    def total_bytes(self) -> int:
        """As transformers stores it between two steps."""
        return self.batch * memory.cache_bytes(self.shapes, self.dtype, self.tokens)

    @property
    def least_bytes(self) -> int:
        """What the last token's queries look at, themselves included."""
        return self.batch * memory.least_bytes(self.shapes, self.dtype, self.tokens)

    @property
    def vllm_bytes(self) -> int:
        """As vLLM reserves it, padding included (`reservation` has the parts of one sequence)."""
        return self.batch * self.reservation.bytes

    @property
    def reservation(self) -> vllm.Reservation:
        """vLLM's blocks and padding for one sequence."""
        return vllm.reserve(self.shapes, self.dtype, self.tokens, self.block, self.in_flight)

    @property
    def weights_bytes(self) -> int | None:
        """Parameters in `weights_dtype`; None where the model could not be built."""
        return None if self.parameters is None else self.weights_dtype.total(self.parameters)

    @property
    def layers(self) -> pd.DataFrame:
        """One row a layer with its formulas; see `kvviz.geometry.tables.layer_table` for the columns."""
        return tables.layer_table(self.shapes, self.dtype, self.tokens, self.batch, self.block, self.in_flight)

    def frame(self) -> pd.DataFrame:
        """One row. Columns: model, tokens, users, dtype, bytes_per_token, least_bytes, total_bytes, vllm_bytes,
        parameters, weights_dtype, weights_bytes, checked, source."""
        row = {
            "model": self.title,
            "tokens": self.tokens,
            "users": self.batch,
            "dtype": self.dtype.name,
            **{name: getattr(self, name) for name in ("bytes_per_token", "least_bytes", "total_bytes", "vllm_bytes")},
            "parameters": self.parameters,
            "weights_dtype": self.weights_dtype.name,
            "weights_bytes": self.weights_bytes,
            "checked": self.checked.status,
            "source": self.source,
        }
        return pd.DataFrame([row]).astype({"parameters": "Int64", "weights_bytes": "Int64"})

    def kinds(self) -> dict[str, int]:
        """`total_bytes` by layer kind."""
        held = memory.kinds_bytes(self.shapes, self.dtype, self.tokens)
        return {kind: self.batch * count for kind, count in held.items()}

    def curve(self, lengths: Sequence[int] | None = None) -> pd.DataFrame:
        """Bytes against length. Columns: tokens, least_bytes, total_bytes, vllm_bytes."""
        return tables.curve(self.shapes, self.dtype, self._at(lengths), self.batch, self.block, self.in_flight)

    def kinds_curve(self, lengths: Sequence[int] | None = None) -> pd.DataFrame:
        """`total_bytes` against length, by layer kind. Columns: tokens, kind, bytes."""
        return tables.kinds_curve(self.shapes, self.dtype, self._at(lengths), self.batch)

    def _at(self, lengths: Sequence[int] | None) -> Sequence[int]:
        longest = max(self.tokens, min(self.context or 0, MOST_TOKENS), 131_072)
        return tables.lengths(self.shapes, longest) if lengths is None else lengths

    def at(
        self,
        *,
        tokens: int | None = None,
        batch: int | None = None,
        dtype: str | Dtype | None = None,
        weights_dtype: str | Dtype | None = None,
    ) -> "Plan":
        """The same model for another length, number of sequences or number format; takes no time."""
        return replace(
            self,
            tokens=whole("tokens", self.tokens if tokens is None else tokens, 0, MOST_TOKENS),
            batch=whole("batch", self.batch if batch is None else batch, 1, MOST_USERS),
            dtype=self.dtype if dtype is None else dtype_of(dtype),
            weights_dtype=self.weights_dtype if weights_dtype is None else dtype_of(weights_dtype),
        )

    def what_if(
        self,
        heads: whatif.Heads | None = None,
        windows: whatif.Pattern | None = None,
        *,
        groups: int = 8,
        rank: int = 512,
        rotary: int = 64,
        window: int = 4096,
        sinks: int = 0,
    ) -> "Plan":
        """The plan of a model that differs in its attention alone (the weights are taken to stay the same).

        `heads`: "mha", "gqa" with `groups`, "mqa" or "mla" with `rank` and `rotary`; `windows`: "none", "every",
        "alternating" or "five_in_six" with `window` and `sinks`. None leaves a thing as it is. Raises Refused for
        sizes that do not work.
        """
        shapes: Sequence[LayerShape] = self.shapes
        if heads is not None:
            shapes = whatif.with_heads(shapes, heads, groups=groups, rank=rank, rotary=rotary)
        if windows is not None:
            shapes = whatif.with_windows(shapes, windows, window=window, sinks=sinks)
        if tuple(shapes) == self.shapes:
            return self
        return replace(self, shapes=tuple(shapes), checked=verdicts.formula_only(verdicts.NOT_BUILT))

    def fit(
        self,
        gpu: Gpu | str | int,
        gpus: int = 1,
        *,
        reserve: float = RESERVE,
        split: Split = "heads",
        by: Count = "transformers",
    ) -> Fit:
        """How many sequences of `tokens` fit on `gpus` cards beside the weights and `reserve` (a share of each card).

        `gpu`: a `Gpu`, (part of) the name of one in `kvviz.geometry.gpus.GPUS`, or bytes. `by` says whose bytes count.
        `split` is described at `kvviz.geometry.fit.fit`. Raises Refused for an unknown card and impossible numbers.
        """
        whole("gpus", gpus, 1, MOST_GPUS)
        if not 0 <= reserve < 1:
            raise Refused("The reserve is a share of the memory from 0 to below 1, not {reserve}.", reserve=reserve)
        if by not in ("transformers", "least", "vllm"):
            raise Refused("Bytes are counted as by transformers, least or vllm, not {by}.", by=by)
        if split not in ("heads", "layers"):
            raise Refused("A model is split by heads or layers, not by {split}.", split=split)
        card = gpu_of(gpu)
        return fit(
            self.shapes,
            self._count(by),
            self.tokens,
            card.memory_bytes,
            weights_bytes=self.weights_bytes,
            gpus=gpus,
            reserve=reserve,
            split=split,
        )

    def _count(self, by: Count) -> Any:
        if by == "vllm":
            return lambda shapes, n: vllm.reserve(shapes, self.dtype, n, self.block, self.in_flight).bytes
        count = memory.least_bytes if by == "least" else memory.cache_bytes
        return lambda shapes, n: count(shapes, self.dtype, n)

    def fits(self, gpus: int = 1, **options: Any) -> pd.DataFrame:
        """`fit` for every known card, one row each; `options` as there.

        Columns: gpu, gpus, memory_bytes, reserve_bytes, weights_bytes, room_bytes, user_bytes (of one card), tokens,
        users, longest_tokens (missing: no end to it).
        """
        columns = "gpus memory_bytes reserve_bytes weights_bytes room_bytes user_bytes tokens users longest_tokens"
        rows = []
        for card in GPUS:
            found = self.fit(card, gpus, **options)
            rows.append({"gpu": card.name} | {name: getattr(found, name) for name in columns.split()})
        return pd.DataFrame(rows).astype({"weights_bytes": "Int64", "longest_tokens": "Int64"})
