"""The cache grid shaded by how many KV heads of a layer still hold a token: heads choose for themselves."""

from collections.abc import Sequence

import numpy as np

from kvviz.locale import Translate
from kvviz.ui.components.cache_grid import cache_grid


def heads_grid(
    holding: np.ndarray,
    heads: int,
    *,
    key: str,
    t: Translate,
    kinds: Sequence[str],
    prefill: int,
    labels: Sequence[str],
    capacity: int,
    selected: int | None = None,
    live: bool = False,
) -> None:
    """Draw `holding`, int (layers, seen): 0 is a hole, `heads` the darkest. The rest as for `cache_grid`."""
    held = t(
        "KV cache under a policy, {layers} layers by {seen} tokens: {held} of {all} places held by at least one head. "
        "Arrow keys read single cells."
    )
    counts = {"layers": holding.shape[0], "seen": holding.shape[1], "held": int((holding > 0).sum())}
    told = {name: f"{count:,}" for name, count in (counts | {"all": holding.size}).items()}
    cache_grid(
        holding,
        None,
        holding > 0,
        key=key,
        t=t,
        kinds=kinds,
        prefill=prefill,
        labels=labels,
        capacity=capacity,
        selected=selected,
        live=live,
        spans=[(0, heads)],
        titles=[t("Tokens in the cache")],
        whole=True,
        words={
            "summary": held.format(**told),
            "caption": t("A column stands for {pool} tokens: the most heads that hold one of them."),
            "norm": t("KV heads that hold it"),
            "hole": t("evicted, or out of a window"),
            "value": t("by {value} of {heads} KV heads").replace("{heads}", str(heads)),
        },
    )
