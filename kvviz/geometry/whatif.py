"""The same model with another attention: other numbers of key/value heads, a latent, windows, sinks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from kvviz.errors import Refused
from kvviz.geometry.layers import LayerShape

Heads = Literal["mha", "gqa", "mqa", "mla"]
Pattern = Literal["none", "every", "alternating", "five_in_six"]


def with_heads(
    shapes: Sequence[LayerShape], heads: Heads, *, groups: int = 8, rank: int = 512, rotary: int = 64
) -> list[LayerShape]:
    """The same query heads with other key/value heads: one each ("mha"), one for all ("mqa"), `groups` ("gqa"), or
    one latent of `rank` numbers and a rotary key of `rotary` ("mla").

    Raises Refused where `groups` does not divide the number of query heads, and for sizes below 1.
    """
    if heads not in ("mha", "gqa", "mqa", "mla"):
        raise Refused("There is no attention called {name}. Choose mha, gqa, mqa or mla.", name=heads)
    if min(groups, rank) < 1 or rotary < 0:
        raise Refused("Groups and rank must be at least 1. Give larger numbers.")
    return [_with_heads(shape, heads, groups, rank, rotary) if shape.kv_heads else shape for shape in shapes]


def _with_heads(shape: LayerShape, heads: Heads, groups: int, rank: int, rotary: int) -> LayerShape:
    key, value = shape.head_widths
    if heads == "mla":
        return replace(shape, kv_heads=1, key_width=rank, value_width=rotary, index_width=0, copies=1)
    kv_heads = {"mha": shape.query_heads, "gqa": groups, "mqa": 1}[heads]
    if shape.query_heads % kv_heads:
        raise Refused(
            "{heads} query heads cannot be shared out evenly among {groups} groups. "
            "Choose a number that divides {heads}.",
            heads=shape.query_heads,
            groups=groups,
        )
    return replace(shape, kv_heads=kv_heads, key_width=key, value_width=value, index_width=0, copies=1)


def with_windows(
    shapes: Sequence[LayerShape], pattern: Pattern, *, window: int = 4096, sinks: int = 0
) -> list[LayerShape]:
    """The same layers with a sliding window on none, every one, every second or five in six of those that keep K and V.

    The others see everything. `sinks` first tokens stay beside the window. Raises Refused for windows below 1.
    """
    if pattern not in ("none", "every", "alternating", "five_in_six"):
        raise Refused(
            "There is no pattern called {name}. Choose none, every, alternating or five_in_six.", name=pattern
        )
    if window < 1 or sinks < 0:
        raise Refused("A window holds at least 1 token, and sinks are 0 or more. Give larger numbers.")
    changed, place = [], 0
    for shape in shapes:
        if not shape.kv_heads:
            changed.append(shape)
            continue
        slides = {"none": False, "every": True, "alternating": place % 2 == 0, "five_in_six": place % 6 != 5}[pattern]
        place += 1
        full = replace(shape, kind="full", window=None, sinks=0)
        changed.append(replace(full, kind="sliding", window=window, sinks=sinks) if slides else full)
    return changed
