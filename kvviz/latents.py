"""`kvviz.latent` and `kvviz.latent_of`: latent attention computed both ways, compared, timed and counted."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace

import pandas as pd
import torch

from kvviz.engine.latentmodel import Turn, layer_sizes, model_calls
from kvviz.engine.latentmodule import LatentModule
from kvviz.engine.latentruns import REPEATS, LatentRun, run
from kvviz.errors import Refused
from kvviz.geometry.latent import LatentSizes
from kvviz.geometry.latentcounts import latent_counts
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, ids_of

DTYPES = {"float64": torch.float64, "float32": torch.float32}
TOLERANCES = {"float64": 1e-10, "float32": 1e-4}  # what counts as rounding, as a share of the largest number
_MOST_WEIGHTS, _MOST_WORK, _MOST_TOKENS = 1 << 19, 1 << 26, 256  # of what is measured while a visitor waits


@dataclass(frozen=True, slots=True)
class LatentComparison:
    """One layer's attention by expanding the latents and by absorbing the up-projections.

    `decode` is the last token's step, `prefill` all tokens at once (None for a text of one token).
    """

    sizes: LatentSizes
    dtype: str
    decode: LatentRun
    prefill: LatentRun | None
    source: str  # what was measured: a model and its layer, or random weights

    @property
    def equal(self) -> bool:
        """Whether the two ways differ by rounding alone."""
        return all(run.difference <= TOLERANCES[self.dtype] * run.largest for run in self.runs)

    @property
    def runs(self) -> tuple[LatentRun, ...]:
        """Decode, and prefill where there is one."""
        return (self.decode,) if self.prefill is None else (self.decode, self.prefill)

    def frame(self) -> pd.DataFrame:
        """One row a phase: phase, the fields of `LatentRun`, the sizes, dtype and source."""
        phases = ("decode", "prefill")
        rows = [
            {"phase": phase, **asdict(one), **asdict(self.sizes), "dtype": self.dtype, "source": self.source}
            for phase, one in zip(phases, self.runs, strict=False)
        ]
        return pd.DataFrame(rows)

    def counts(self, lengths: Iterable[int] | None = None, *, groups: int = 1, dtype: str = "bfloat16") -> pd.DataFrame:
        """`kvviz.latent_counts` of these sizes."""
        return latent_counts(self.sizes, lengths, groups=groups, dtype=dtype)


def latent(
    sizes: LatentSizes,
    tokens: int = 256,
    *,
    dtype: str = "float64",
    query_rank: int | None = None,
    interleave: bool = True,
    seed: int = 0,
    repeats: int = REPEATS,
) -> LatentComparison:
    """Build transformers' DeepSeek-V3 attention of these sizes with random weights, and compare the two ways.

    The cache holds `tokens` latents of random hidden states. `query_rank` adds the low-rank projection of queries,
    `interleave` says which rotary numbers turn together. Raises Refused for other formats than float64 and float32.
    """
    module = LatentModule(sizes, _dtype(dtype), query_rank=query_rank, interleave=interleave, seed=seed)
    output = module.attention.o_proj
    decode, *prefill = (run(*module.attend(tokens, new), output, _dtype(dtype), repeats) for new in sorted({1, tokens}))
    return LatentComparison(sizes, dtype, decode, prefill[0] if prefill else None, "DeepseekV3Attention")


def latent_of(
    lm: LanguageModel,
    text: str | Prompt | Sequence[int],
    *,
    layer: int = 0,
    dtype: str = "float64",
    repeats: int = REPEATS,
    turn: Turn = nullcontext,
) -> LatentComparison:
    """Compare the two ways in a layer of a loaded model that caches latents, on what it caches of `text`.

    The model runs in its own number format; both ways are computed in `dtype` from what it cached, so they agree as
    `dtype` allows, and with the model's own output as its format allows. Raises Refused for models and layers without
    latents, texts of no token or more than 1,024, and other formats than float64 and float32.
    """
    layer_sizes(lm, layer)
    calls = model_calls(lm, ids_of(lm, text), layer, turn)
    found = []
    for call, own, output in calls:
        with turn():
            found.append(run(call, own, output, _dtype(dtype), repeats))
    decode, prefill = found if len(found) > 1 else (*found, None)
    return LatentComparison(layer_sizes(lm, layer), dtype, decode, prefill, f"{lm.title}, layer {layer}")


def small_enough(sizes: LatentSizes, tokens: int) -> tuple[LatentSizes, int]:
    """The same widths with as many heads and tokens as are computed in a moment."""
    each = sizes.rank * (sizes.nope + sizes.value)
    heads = max(1, min(sizes.heads, _MOST_WEIGHTS // each))
    return replace(sizes, heads=heads), max(1, min(tokens, _MOST_TOKENS, _MOST_WORK // (heads * each)))


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise Refused("The two ways are compared in float64 or float32, not in {name}. Choose one of them.", name=name)
    return DTYPES[name]
