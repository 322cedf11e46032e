"""A run's steps as tidy frames, with the unit in the column's name."""

from collections.abc import Sequence

import pandas as pd

from kvviz.records import Step


def steps_frame(steps: Sequence[Step]) -> pd.DataFrame:
    """One row a step, that is one forward of the model and the token chosen from it.

    Columns: step, phase, fed_tokens, token_id, text, probability, margin_logits, finish, milliseconds,
    seen_tokens, stored_tokens, cache_bytes, peak_bytes, allocated_bytes, and device_bytes, device_peak_bytes (CUDA
    only).
    """
    return pd.DataFrame(
        {
            "step": [step.index for step in steps],
            "phase": [step.phase for step in steps],
            "fed_tokens": [len(step.fed) for step in steps],
            "token_id": [step.token_id for step in steps],
            "text": [step.text for step in steps],
            "probability": [step.probability for step in steps],
            "margin_logits": [step.margin for step in steps],
            "finish": [step.finish for step in steps],
            "milliseconds": [step.seconds * 1000 for step in steps],
            "seen_tokens": [step.seen for step in steps],
            "stored_tokens": [step.stored for step in steps],
            "cache_bytes": [step.cache_bytes for step in steps],
            "peak_bytes": [step.peak_bytes for step in steps],
            "allocated_bytes": [step.allocated_bytes for step in steps],
            "device_bytes": pd.array([step.device_bytes for step in steps], dtype="Int64"),
            "device_peak_bytes": pd.array([step.device_peak_bytes for step in steps], dtype="Int64"),
        }
    )


def layers_frame(steps: Sequence[Step]) -> pd.DataFrame:
    """One row a step and layer. Columns: step, seen_tokens, layer, kind, stored_tokens, bytes, allocated_bytes."""
    rows = [(step.index, step.seen, *layer) for step in steps for layer in step.layers]
    return pd.DataFrame(
        rows, columns=["step", "seen_tokens", "layer", "kind", "stored_tokens", "bytes", "allocated_bytes"]
    )


def kinds_frame(steps: Sequence[Step]) -> pd.DataFrame:
    """One row a step and layer kind. Columns: step, seen_tokens, kind, layers, stored_tokens, bytes."""
    rows = []
    for step in steps:
        totals: dict[str, list[int]] = {}
        for layer in step.layers:
            total = totals.setdefault(layer.kind, [0, 0, 0])
            total[0] += 1
            total[1] = max(total[1], layer.stored)
            total[2] += layer.bytes
        rows += [(step.index, step.seen, kind, *total) for kind, total in totals.items()]
    return pd.DataFrame(rows, columns=["step", "seen_tokens", "kind", "layers", "stored_tokens", "bytes"])


def speed(steps: Sequence[Step]) -> dict[str, float | None]:
    """prefill_seconds, milliseconds_per_token (median decode step) and tokens_per_second (over all decode steps)."""
    decode = [step.seconds for step in steps[1:]]
    return {
        "prefill_seconds": steps[0].seconds if steps else None,
        "milliseconds_per_token": float(pd.Series(decode).median() * 1000) if decode else None,
        "tokens_per_second": len(decode) / sum(decode) if decode and sum(decode) else None,
    }
