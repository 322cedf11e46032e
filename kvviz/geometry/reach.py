"""How far back a layer sees, and how far what it sees has travelled through the layers below."""

from collections.abc import Sequence

import pandas as pd

from kvviz.geometry.layers import LayerShape


def reach(shapes: Sequence[LayerShape], tokens: int) -> pd.DataFrame:
    """One row a layer: layer, kind, sees_tokens, reaches_tokens; both count the token itself, at most `tokens`.

    A window of W lets a query see itself and W - 1 tokens before it. What those hold was itself mixed from W - 1
    tokens before them one layer below, so n sliding layers reach n (W - 1) + 1 tokens. A full layer, or a recurrent
    state, sees everything; a chunk never looks past its start. sees_tokens is missing where a layer reads another
    layer's K and V, whose window is not known here.
    """
    rows, reached = [], 1
    for shape in shapes:
        sees = _sees(shape, tokens)
        if shape.kind == "sliding" and sees is not None:
            reached = min(tokens, reached + sees - 1)
        elif sees is not None:
            reached = max(reached, sees)
        rows.append({"layer": shape.layer, "kind": shape.kind, "sees_tokens": sees, "reaches_tokens": reached})
    return pd.DataFrame(rows).astype({"sees_tokens": "Int64"})


def _sees(shape: LayerShape, tokens: int) -> int | None:
    if shape.kind == "shared":
        return None
    return tokens if shape.window is None else min(tokens, shape.window + shape.sinks)
