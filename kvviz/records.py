"""What a forward leaves behind: numbers and text, no tensors."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

POOL = 64  # cells a side of the small map kept of every head

# where the attention of a query goes; "learned" is a sink that is no token
BANDS = ("sink", "prompt", "written", "recent", "self", "learned")

# what a token is to the cache after a step
ROLES = ("later", "sink", "recent", "heavy", "evicted")
LEAVES = len(ROLES)  # of a step after which a token goes; afterwards it is evicted


class LayerState(NamedTuple):
    """What one layer of the cache holds after a step: tokens, bytes of its tensors, bytes behind them."""

    layer: int
    kind: str
    stored: int
    bytes: int
    allocated: int


class Evicted(NamedTuple):
    """Tokens that left a layer's cache, arrays of equal length: after the step at which position, of which KV head.

    score is what the policy thought of the token then, cut the lowest score of those that could have gone and
    stayed; NaN where the policy's rule does not look at the text.
    """

    layer: int
    after: np.ndarray
    head: np.ndarray
    position: np.ndarray
    score: np.ndarray
    cut: np.ndarray


@dataclass(frozen=True, slots=True)
class CallShape:
    """Shapes of one attention call: query (heads, queries, width), key and value (kv_heads, keys, width)."""

    layer: int
    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One forward of the model and the token chosen from it.

    The first step is the prefill: it is fed the whole prompt. Each later one is fed the token chosen before
    (without a cache: the whole text again). The last chosen token is never fed, so a run of P prompt tokens
    and N new ones has seen P + N - 1.
    """

    index: int
    phase: str  # "prefill", "decode", or "recompute" (a step without a cache)
    fed: tuple[int, ...]  # ids given to the model in this step
    token_id: int  # the token chosen from this step's logits
    text: str  # the text that became complete with it
    probability: float  # of the chosen token
    margin: float  # lead of the best logit over the second
    finish: str | None  # why the run ends here: "end" (end of sequence), "limit", "context"; None while it goes on
    seconds: float  # from feeding to the chosen token, waiting for a turn not counted
    seen: int  # tokens the cache has been fed
    stored: int  # tokens whose K and V the fullest layer still holds
    cache_bytes: int  # numel x itemsize of the cache's tensors
    peak_bytes: int  # the most they held in this step: a policy cuts after the attention, one layer at a time
    allocated_bytes: int  # storage behind them
    layers: tuple[LayerState, ...]
    key_norms: np.ndarray  # float32 (layers, len(fed)): mean over KV heads of |K|; NaN where nothing is held
    value_norms: np.ndarray  # the same for V
    calls: tuple[CallShape, ...]  # the first layer of each kind, as the attention function was called
    evicted: tuple[Evicted, ...] = ()  # what a policy dropped after this step, in the order of layers
    device_bytes: int | None = None  # what the CUDA allocator reports now, None elsewhere
    device_peak_bytes: int | None = None  # and at its highest in this step

    @property
    def computed(self) -> int:
        """Tokens the model computed in this step."""
        return len(self.fed)


@dataclass(frozen=True, eq=False, slots=True)
class LayerMeasures:
    """Measures of one layer; arrays are float32 (H, T) over keys or queries unless said otherwise.

    Over keys: received (sum over queries of A), self_attention (the diagonal of it), peak (largest A[q, k] of a
    later query times its choices: 1 = uniform), peak_probability (largest A of a later query), contribution (norm of
    what the value adds to the residual stream, None where the output projection is not known), visible (T,) int:
    queries that may look at the key, last_visible (T,) bool: the last query still may.
    Over queries: choices (T,) int: keys it may look at (q + 1, at most the window), entropy (nats), first (mass on
    token 0), distance (mean of q - k), sink (mass of a learned sink, zeros for a model without), previous, duplicate,
    induction (mass on the token before; on equal tokens; on what came after equal tokens).
    pooled (H, POOL, POOL): largest A of each cell of queries x keys.
    """

    layer: int
    received: np.ndarray
    self_attention: np.ndarray
    peak: np.ndarray
    peak_probability: np.ndarray
    contribution: np.ndarray | None
    visible: np.ndarray
    choices: np.ndarray
    last_visible: np.ndarray
    entropy: np.ndarray
    first: np.ndarray
    distance: np.ndarray
    sink: np.ndarray
    previous: np.ndarray
    duplicate: np.ndarray
    induction: np.ndarray
    pooled: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class MapView:
    """A rectangle of one map, queries x keys, for drawing; arrays are float32 (rows, columns) of cells.

    A cell covers `cell` (queries, keys) tokens and holds the largest value in it; NaN where none of its queries may
    look at any of its keys. probability: A; times_uniform: A times the keys its query may look at (1 = uniform);
    others: A without the `hidden` keys; contribution: A times the norm of what the key's value adds, None where that
    is not known. rank: 1 for the key its query looks at most, counted among all keys, None where cells are pooled.
    hidden_mass (queries,): share of each query's attention that goes to the hidden keys.
    """

    queries: range
    keys: range
    cell: tuple[int, int]
    probability: np.ndarray
    times_uniform: np.ndarray
    others: np.ndarray
    contribution: np.ndarray | None
    rank: np.ndarray | None
    hidden: tuple[int, ...]
    hidden_mass: np.ndarray

    @property
    def nbytes(self) -> int:
        """Size of the arrays."""
        arrays = (self.probability, self.times_uniform, self.others, self.contribution, self.rank, self.hidden_mass)
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True, eq=False, slots=True)
class OverTime:
    """What cached tokens receive from query to query, as means over heads.

    received (keys, queries) in cells of `cell` (keys, queries) tokens, each the largest in it, NaN where no query of
    the cell may look at any of its keys; bands (len(BANDS), queries), not pooled: the columns sum to 1.
    """

    queries: range
    keys: range
    cell: tuple[int, int]
    received: np.ndarray
    bands: np.ndarray

    @property
    def nbytes(self) -> int:
        """Size of the arrays."""
        return self.received.nbytes + self.bands.nbytes


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """What became of cached tokens: cells (tokens, steps) of `cell` such, uint8 indices into ROLES, or LEAVES.

    A pooled cell shows what most of its places are, those left out where the token was yet to come.
    """

    tokens: range
    steps: range
    cell: tuple[int, int]
    cells: np.ndarray
