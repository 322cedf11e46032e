"""From the measures of every layer to the frames a question asks for: sinks, heads, keys nobody looks at."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kvviz.records import LayerMeasures

NOISY_END = 8  # the last keys are seen by few queries, mostly their own
ATTENDED, NEVER, TOO_NEW, OUT_OF_WINDOW = range(4)


def mean_received(layer: LayerMeasures, diagonal: bool = True) -> np.ndarray:
    """Attention a key gets on average of the queries that may look at it, (heads, T); NaN where there is none.

    With the diagonal (a token looking at itself) as in Gu et al. 2024, arXiv 2410.10781; or of later queries only.
    """
    total = layer.received if diagonal else layer.received - layer.self_attention
    queries = layer.visible - (not diagonal)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(queries > 0, total / queries, np.nan).astype(np.float32)


def is_sink(received: np.ndarray, epsilon: float = 0.3) -> np.ndarray:
    """Which keys of mean received attention (..., T) are sinks, the last `NOISY_END` of a longer text left out."""
    with np.errstate(invalid="ignore"):
        found = received > epsilon
    if found.shape[-1] > NOISY_END:
        found[..., -NOISY_END:] = False
    return found


def sinks_frame(
    layers: Sequence[LayerMeasures], labels: Sequence[str], epsilon: float = 0.3, *, diagonal: bool = True
) -> pd.DataFrame:
    """One row a position that is a sink in at least one head, the last `NOISY_END` left out; highest rate first.

    A head makes a position a sink when its mean received attention is above `epsilon`. Columns: position, token,
    rate (share of layers x heads in which it is one), heads (their number), score (mean received, over all heads).
    """
    received = np.concatenate([mean_received(layer, diagonal) for layer in layers])
    count = max(0, len(labels) - NOISY_END) if len(labels) > NOISY_END else len(labels)
    with np.errstate(invalid="ignore"):
        is_sink = received[:, :count] > epsilon
    frame = pd.DataFrame(
        {
            "position": np.arange(count),
            "token": list(labels[:count]),
            "rate": is_sink.mean(axis=0),
            "heads": is_sink.sum(axis=0),
            "score": _mean(received[:, :count], axis=0),
        }
    )
    return frame[frame["heads"] > 0].sort_values(["rate", "score"], ascending=False, ignore_index=True)


def heads_frame(layers: Sequence[LayerMeasures], kv_heads: Sequence[int]) -> pd.DataFrame:
    """One row a layer and head; `kv_heads` says how many K/V heads each of `layers` has.

    Columns: layer, head, kv_head, first_token_mass (without the first query, which can look at nothing else),
    learned_sink_mass, self_mass, effective_tokens (mean of exp(entropy)), relative_entropy (mean of entropy over
    log of the keys a query may look at; 1 = uniform), distance_tokens, previous_token, duplicate_token, induction
    (share of all attention on the token before, on equal tokens, on what followed equal tokens; TransformerLens'
    head detector, by products).
    """
    return pd.concat([_heads(layer, count) for layer, count in zip(layers, kv_heads, strict=True)], ignore_index=True)


def _heads(layer: LayerMeasures, kv_heads: int) -> pd.DataFrame:
    heads, tokens = layer.received.shape
    later = slice(1, None) if tokens > 1 else slice(0, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = layer.entropy[:, later] / np.log(layer.choices[later])
    total = layer.received.sum(axis=1)
    return pd.DataFrame(
        {
            "layer": layer.layer,
            "head": np.arange(heads),
            "kv_head": np.arange(heads) // (heads // kv_heads),
            "first_token_mass": _mean(layer.first[:, later], axis=1),
            "learned_sink_mass": layer.sink.mean(axis=1),
            "self_mass": layer.self_attention.mean(axis=1),
            "effective_tokens": np.exp(layer.entropy).mean(axis=1),
            "relative_entropy": _mean(relative, axis=1),
            "distance_tokens": _mean(layer.distance, axis=1),
            "previous_token": layer.previous.sum(axis=1) / total,
            "duplicate_token": layer.duplicate.sum(axis=1) / total,
            "induction": layer.induction.sum(axis=1) / total,
        }
    )


def received_frame(layers: Sequence[LayerMeasures], labels: Sequence[str]) -> pd.DataFrame:
    """One row a layer, head and key.

    Columns: layer, head, position, token, received, mean_received, peak (1 = uniform), peak_probability,
    contribution (norm of what the value adds, missing where it is not known).
    """
    frames = []
    for layer in layers:
        heads, tokens = layer.received.shape
        norms = np.full((heads, tokens), np.nan, np.float32) if layer.contribution is None else layer.contribution
        frames.append(
            pd.DataFrame(
                {
                    "layer": layer.layer,
                    "head": np.repeat(np.arange(heads), tokens),
                    "position": np.tile(np.arange(tokens), heads),
                    "token": list(labels) * heads,
                    "received": layer.received.ravel(),
                    "mean_received": mean_received(layer).ravel(),
                    "peak": layer.peak.ravel(),
                    "peak_probability": layer.peak_probability.ravel(),
                    "contribution": norms.ravel(),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def attendance(
    layer: LayerMeasures, rule: str = "relative", threshold: float | None = None, too_new: int = 8
) -> np.ndarray:
    """What became of every key, (heads, T) of ATTENDED, NEVER, TOO_NEW, OUT_OF_WINDOW, by the queries seen so far.

    rule "relative": never attended where no later query gave more than `threshold` (1) times its uniform share;
    "absolute": more than `threshold` (0.01) of its attention. Keys with fewer than `too_new` later queries are too
    new to tell; keys the last query can no longer look at are out of the window, attended or not.
    Raises ValueError for another rule.
    """
    peaks = {"relative": (layer.peak, 1.0), "absolute": (layer.peak_probability, 0.01)}
    if rule not in peaks:
        raise ValueError(f"rule must be 'relative' or 'absolute', not {rule!r}")
    peak, default = peaks[rule]
    never = peak < (default if threshold is None else threshold)
    status = np.where(never, NEVER, ATTENDED).astype(np.uint8)
    tokens = peak.shape[1]
    status[:, np.arange(tokens) > tokens - 1 - too_new] = TOO_NEW
    status[:, ~layer.last_visible] = OUT_OF_WINDOW
    return status


def never_frame(
    layers: Sequence[LayerMeasures],
    labels: Sequence[str],
    rule: str = "relative",
    threshold: float | None = None,
    too_new: int = 8,
) -> pd.DataFrame:
    """One row a (layer, head, key) that was never attended (`attendance`). Columns: layer, head, position, token."""
    frames = []
    for layer in layers:
        heads, positions = np.nonzero(attendance(layer, rule, threshold, too_new) == NEVER)
        frames.append(pd.DataFrame({"layer": layer.layer, "head": heads, "position": positions}))
    frame = pd.concat(frames, ignore_index=True)
    frame["token"] = np.asarray(labels, dtype=object)[frame["position"]]
    return frame


def unattended_share_frame(
    layers: Sequence[LayerMeasures],
    kv_heads: Sequence[int],
    entry_bytes: Sequence[int],
    rule: str = "relative",
    threshold: float | None = None,
    too_new: int = 8,
) -> pd.DataFrame:
    """One row a layer: the share of its (head, key) entries never attended, and the cache bytes nobody looked at.

    A K/V entry counts as unattended when none of the query heads that share it attended to it. `entry_bytes` is
    the size of one K/V head's entry of one token in each layer. Columns: layer, share (of entries old enough and
    in the window), entries, unattended_entries (K/V), unattended_bytes.
    """
    rows = []
    for layer, count, size in zip(layers, kv_heads, entry_bytes, strict=True):
        status = attendance(layer, rule, threshold, too_new)
        judged = (status == NEVER) | (status == ATTENDED)
        shared = status.reshape(count, -1, status.shape[1])
        nobody = (shared == NEVER).all(axis=1).sum()
        share = (status == NEVER).sum() / judged.sum() if judged.any() else np.nan
        rows.append((layer.layer, share, int(judged[:: len(status) // count].sum()), int(nobody), int(nobody) * size))
    return pd.DataFrame(rows, columns=["layer", "share", "entries", "unattended_entries", "unattended_bytes"])


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean of the numbers that are known, NaN where none is."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, values, 0).sum(axis=axis) / known.sum(axis=axis)


def sink_share_frame(
    layers: Sequence[LayerMeasures], heads: pd.DataFrame, epsilon: float = 0.3, *, diagonal: bool = True
) -> pd.DataFrame:
    """One row a layer and head: how much of its attention goes to the keys that are sinks in that head.

    The queries before a sink count too; `heads` (`heads_frame`) lends its columns. Adds: sink_share (0 to 1),
    sinks (their number, the last `NOISY_END` keys left out).
    """
    shares, counts = [], []
    for layer in layers:
        found = is_sink(mean_received(layer, diagonal), epsilon)
        shares.append((layer.received * found).sum(axis=1) / layer.received.sum(axis=1))
        counts.append(found.sum(axis=1))
    return heads.assign(sink_share=np.concatenate(shares), sinks=np.concatenate(counts))
