"""K and V of a token, once written: unchanged by later steps, and a single changed bit is noticed."""

import torch

from kvviz.engine.cache import new_cache
from kvviz.engine.stream import stream
from kvviz.engine.witness import witness
from tests.tiny import FAMILIES

IDS = [44, 120, 61, 203, 99, 17]


def filled(family, new=5):
    lm = FAMILIES[family]()
    cache = new_cache(lm.config)
    steps = stream(lm, IDS, new, cache=cache)
    first = next(steps)
    seen_then = witness(cache, 2, first.seen)
    seen = [first, *steps][-1].seen
    return cache, seen_then, seen


def test_later_steps_leave_the_bits_alone():
    cache, copy, seen = filled("llama")
    verdicts = copy.compare(cache, seen)
    assert seen == len(IDS) + 4
    assert [tuple(verdict) for verdict in verdicts] == [(layer, True, True, True) for layer in range(3)]


def test_one_flipped_bit_is_noticed():
    cache, copy, seen = filled("llama")
    cache.layers[1].values.view(torch.int32)[0, 0, 2, 3] ^= 1
    verdicts = copy.compare(cache, seen)
    assert [(verdict.key_equal, verdict.value_equal) for verdict in verdicts] == [
        (True, True),
        (True, False),
        (True, True),
    ]


def test_a_token_that_left_the_window_is_reported_as_gone():
    cache, copy, seen = filled("gemma3", new=12)
    verdicts = copy.compare(cache, seen)
    assert [verdict.held for verdict in verdicts] == [kind == "full" for kind in ["sliding"] * 5 + ["full"]]
    assert verdicts[0].key_equal is None and verdicts[5].key_equal is True
