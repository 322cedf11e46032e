"""Logits under eviction, against dense runs with masks, late rotation and a cache cut by hand; and what is dropped."""

from functools import cache

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from kvviz.engine import keeper
from kvviz.engine.evicting import EvictingCache, EvictingLayer
from kvviz.engine.walk import Walk
from kvviz.errors import Refused
from kvviz.policies import H2O, NEVER, REGISTRY, KNorm, Policy, SinksWindow, Window
from tests import eviction_oracles as oracles
from tests.eviction_choices import WORTH, protected
from tests.eviction_late import rotated_late
from tests.eviction_oracles import Run, dense, gap, kept
from tests.small_policies import modes, small
from tests.tiny import FAMILIES

IDS = np.random.default_rng(0).integers(3, 300, 22).tolist()
SAME = (
    1e-4  # of the logits' standard deviation, about 20 in these models: float32 of three layers is told apart at 3e-5
)
OTHER = 0.1  # what must not be taken for the same

ROTARY = ["llama", "gpt_neox"]  # turned in full, in part
DENSE = [*ROTARY, "gpt2", "opt", "gemma3", "gpt_oss", "gemma2", "deepseek", "phi3"]
EVERY = [(name, evicts) for name in REGISTRY for evicts in modes(name)]
TURNED = [("llama", *each) for each in EVERY] + [("gpt_neox", name, modes(name)[0]) for name in REGISTRY]
POSITIONS = ["original", "relative", "naive"]


@cache
def fed(family: str, policy: Policy, piece: int) -> Run:
    """The text in pieces of so many tokens."""
    return oracles.run(FAMILIES[family](), policy, IDS, piece=piece)


def whole(family: str, policy: Policy) -> Run:
    return fed(family, policy, len(IDS))


def check_same(one: Run, other: Run) -> None:
    assert gap(one.logits, other.logits) < SAME
    for layer, gone in one.gone.items():
        np.testing.assert_array_equal(gone, other.gone[layer])


# --- a budget for the whole text ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3", "gpt_oss", "deepseek"])
def test_keep_all_is_the_plain_cache(family, name):
    lm = FAMILIES[family]()
    with torch.inference_mode():
        plain = lm.model(torch.tensor([IDS]), cache=DynamicCache(config=lm.config), use_cache=True).logits[0]
    for budget, piece in ((len(IDS), len(IDS)), (1.0, 7), (500, 7)):
        found = oracles.run(lm, small(name, budget, positions="original"), IDS, piece=piece)
        assert gap(found.logits, plain) < SAME and found.evicted == []
        assert found.stored[-1] == [len(IDS)] * len(found.cache.managed)


@pytest.mark.parametrize("positions", ["relative", "naive"])
@pytest.mark.parametrize("family", [*ROTARY, "gemma3", "gpt_oss", "phi3"])
def test_keep_all_at_other_positions_too(family, positions):
    lm = FAMILIES[family]()
    plain = dense(lm, IDS, {}).logits
    for name in ("h2o", "sinks_window"):
        assert gap(oracles.run(lm, small(name, len(IDS), positions=positions), IDS, piece=7).logits, plain) < SAME


@pytest.mark.parametrize("family", DENSE)
def test_the_dense_run_is_the_eager_model(family):
    """The oracle itself, with nothing hidden."""
    lm = FAMILIES[family]()
    implementation = lm.model.config._attn_implementation
    try:
        lm.model.set_attn_implementation("eager")
        with torch.inference_mode():
            eager = lm.model(torch.tensor([IDS]), use_cache=False).logits[0]
    finally:
        lm.model.set_attn_implementation(implementation)
    assert gap(dense(lm, IDS, {}).logits, eager) < SAME


# --- positions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("family", DENSE)
def test_original_positions_are_a_dense_run_with_masks(family, name):
    lm, found = FAMILIES[family](), whole(family, small(name, positions="original"))
    assert gap(found.logits, dense(lm, IDS, found.gone).logits) < SAME
    assert gap(found.logits, dense(lm, IDS, {}).logits) > OTHER, "nothing was hidden"


@pytest.mark.parametrize(("name", "evicts"), EVERY)
def test_original_positions_whenever_it_evicts(name, evicts):
    found = whole("llama", small(name, evicts=evicts, positions="original"))
    assert gap(found.logits, dense(FAMILIES["llama"](), IDS, found.gone).logits) < SAME


@pytest.mark.parametrize(("family", "name", "evicts"), TURNED)
def test_relative_positions_are_keys_rotated_late(family, name, evicts):
    found = whole(family, small(name, evicts=evicts, positions="relative"))
    assert gap(found.logits, rotated_late(FAMILIES[family](), IDS, found.gone)) < SAME
    moved = gap(found.logits, dense(FAMILIES[family](), IDS, found.gone).logits)
    assert moved < SAME if name == "window" else moved > OTHER  # in a window all distances stay


@pytest.mark.parametrize(("family", "name", "evicts"), TURNED)
def test_naive_positions_are_those_the_model_takes_by_itself(family, name, evicts):
    found = whole(family, small(name, evicts=evicts, positions="naive"))
    assert gap(found.logits, oracles.naive(FAMILIES[family](), IDS, found.gone)) < SAME
    assert gap(found.logits, dense(FAMILIES[family](), IDS, found.gone).logits) > OTHER


# --- how the text is fed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(("name", "evicts"), EVERY)
def test_it_does_not_matter_how_the_text_is_fed(name, evicts, positions, monkeypatch):
    policy = small(name, evicts=evicts, positions=positions)
    at_once = whole("llama", policy)
    check_same(at_once, fed("llama", policy, 7))
    check_same(at_once, fed("llama", policy, 1))
    monkeypatch.setattr(keeper, "_ROWS", 5)  # blocks within one call
    check_same(at_once, oracles.run(FAMILIES["llama"](), policy, IDS, piece=len(IDS)))


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("family", [each for each in DENSE if each != "llama"])
def test_nor_in_other_families(family, name):
    rotary = family in ("gpt_neox", "gemma3", "gpt_oss")
    policy = small(name, positions="relative" if rotary else "original")
    check_same(whole(family, policy), fed(family, policy, 1))


# --- what is dropped ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "evicts"), [each for each in EVERY if each[0] in WORTH])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_what_goes_is_worth_least(family, name, evicts):
    policy = small(name, evicts=evicts, positions="original")
    found = oracles.run(FAMILIES[family](), policy, IDS, piece=len(IDS))
    plain = dense(FAMILIES[family](), IDS, found.gone)
    assert found.evicted
    for each in found.evicted:
        weights, keys = plain.weights[each.layer], plain.keys[each.layer]
        group = len(weights) // len(keys)
        for after, head, position, score, cut in zip(*each[1:], strict=True):
            left = [at for at in range(after + 1) if found.gone[each.layer][head, at] >= after]
            own = weights[head * group : (head + 1) * group]
            worth = dict(zip(left, WORTH[name](own, weights, keys[head], policy, left, after), strict=True))
            free = [at for at in left if at not in protected(policy, after)]
            stay = [worth[at] for at in free if found.gone[each.layer][head, at] > after]
            lowest = min(stay, default=np.inf)
            assert position in free
            assert worth[position] <= lowest + abs(lowest if stay else 0) / 4096 + 1e-6
            if not np.isnan(score):  # fixed rules do not score
                assert score == pytest.approx(worth[position], rel=1e-3, abs=1e-6)
                assert cut == pytest.approx(lowest, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", REGISTRY)
def test_as_many_go_as_must(name):
    for evicts in modes(name):
        for gone in whole("llama", small(name, evicts=evicts)).gone.values():
            for head in range(len(gone)):
                held = [len(kept(gone, head, now)) for now in range(22)]  # the prompt has 11
                early = [min(each, 9) if evicts == "both" else each for each in range(1, 11)]
                late = {"both": [9] * 11, "decode": [9] * 11, "prefill": list(range(10, 21))}[evicts]
                assert held == [*early, 9, *late]


def test_fixed_rules_keep_what_they_say():
    for name, first in (("window", 0), ("sinks_window", 4)):
        for gone in whole("llama", small(name)).gone.values():
            for now in range(len(IDS)):
                expected = [*range(min(first, now + 1)), *range(max(first, now + 1 - (9 - first)), now + 1)]
                assert all(kept(gone, head, now) == expected for head in range(len(gone)))


@pytest.mark.parametrize(
    ("name", "apart"),
    [("window", False), ("sinks_window", False), ("tova", False), ("h2o", True), ("knorm", True), ("random", True)],
)
def test_heads_that_choose_for_themselves(name, apart):
    assert any((gone[0] != gone[1]).any() for gone in whole("llama", small(name)).gone.values()) == apart


def test_random_spares_the_first_tokens_and_layers_draw_apart():
    gone = whole("llama", small("random")).gone
    assert all((each[:, :4] == NEVER).all() for each in gone.values())
    assert (gone[0] != gone[1]).any()


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "policy", "said"),
    [
        ("mistral", Window(budget=9), "no full-attention layer"),
        ("bloom", Window(budget=9), "computes its attention itself"),
        ("gpt2", SinksWindow(budget=9), "no rotary positions"),
        ("opt", H2O(budget=9, positions="naive"), "no rotary positions"),
        ("deepseek", SinksWindow(budget=9), "caches latents"),
        ("llama", SinksWindow(budget=0.1), "no room for 4 first tokens"),
    ],
)
def test_what_cannot_be_done_is_refused(family, policy, said):
    with pytest.raises(Refused, match=said):
        EvictingCache(FAMILIES[family](), policy, len(IDS), 13)


# --- planted faults: the oracles see them -------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gpt2"])
def test_dropped_position_ids_are_seen(family, monkeypatch):
    lm, policy = FAMILIES[family](), Window(budget=9)
    monkeypatch.setattr(EvictingLayer, "get_seq_length", lambda self: self.positions.shape[1])
    given = oracles.run(lm, policy, IDS, piece=1)
    assert gap(given.logits, dense(lm, IDS, given.gone).logits) < SAME
    left = oracles.run(lm, policy, IDS, piece=1, places=False)
    assert gap(left.logits, dense(lm, IDS, left.gone).logits) > OTHER


@pytest.mark.parametrize("policy", [Window(budget=9), KNorm(budget=9)], ids=str)
@pytest.mark.parametrize("piece", [1, 22])
def test_eviction_before_attention_is_seen(policy, piece, monkeypatch):
    softmax = Walk._softmax

    def early(self, *args):
        after, self._gone = self._gone, np.where(self._gone == NEVER, NEVER, self._gone - 1)
        found = softmax(self, *args)
        self._gone = after
        return found

    monkeypatch.setattr(Walk, "_softmax", early)
    found = oracles.run(FAMILIES["llama"](), policy, IDS, piece=piece)
    assert gap(found.logits, dense(FAMILIES["llama"](), IDS, found.gone).logits) > OTHER


@pytest.mark.parametrize("policy", [SinksWindow(budget=9), H2O(budget=9, positions="relative")], ids=str)
def test_unsorted_slots_are_seen(policy, monkeypatch):
    left = Walk.left
    monkeypatch.setattr(Walk, "left", lambda self: left(self)[:, ::-1].copy())
    found = oracles.run(FAMILIES["llama"](), policy, IDS, piece=1)
    assert gap(found.logits, rotated_late(FAMILIES["llama"](), IDS, found.gone)) > OTHER
