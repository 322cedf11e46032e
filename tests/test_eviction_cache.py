"""The evicting cache as memory: what it holds and frees, what it leaves alone, and texts that are hardly there."""

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from kvviz.engine.cache import layer_tensors
from kvviz.engine.evicting import EvictingCache
from kvviz.evaluation import evaluate
from kvviz.policies import H2O, NEVER, REGISTRY, KNorm, SinksWindow, Window
from tests.eviction_oracles import dense, gap, managed, run
from tests.small_policies import modes, small
from tests.tiny import FAMILIES

IDS = np.random.default_rng(1).integers(3, 300, 40).tolist()
FULL_ATTENTION = {"llama": [0, 1, 2], "gemma3": [5], "gpt_oss": [1, 3], "gemma2": [1, 3], "qwen3_next": [3]}


def allocated(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


# --- what is held -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "evicts"), [(name, evicts) for name in REGISTRY for evicts in modes(name)])
def test_after_every_step(name, evicts):
    """Never more than the budget, in order, the newest among them, nothing that was gone before; bytes are freed."""
    lm, policy, prompt, before = FAMILIES["llama"](), small(name, evicts=evicts, positions="original"), 15, {}
    cache = EvictingCache(lm, policy, len(IDS), prompt)
    with torch.inference_mode(), cache.at_work():
        for now, token in enumerate(IDS):
            lm.model(torch.tensor([[token]]), position_ids=torch.tensor([[now]]), cache=cache, use_cache=True)
            whole = evicts != "both" and now < prompt - 1
            room = now + 1 if whole else 9 + (now - prompt + 1) * (evicts == "prefill")
            for index, layer in zip(cache.managed, managed(cache), strict=True):
                assert layer.keys.shape[2] == layer.values.shape[2] == layer.positions.shape[1] == min(now + 1, room)
                assert layer.seen == layer.get_seq_length() == now + 1
                assert (np.diff(layer.positions, axis=1) > 0).all() and (layer.positions[:, -1] == now).all()
                for head, positions in enumerate(layer.positions.tolist()):
                    assert {*positions} - {now} <= before.get((index, head), set())
                    before[index, head] = {*positions}
                for tensor in (layer.keys, layer.values):
                    assert allocated(tensor) == tensor.nbytes, "a view keeps the memory of what has gone"
    assert cache.stored() == room


@pytest.mark.parametrize("name", REGISTRY)
def test_what_is_held_are_the_keys_of_those_positions(name):
    lm = FAMILIES["llama"]()
    found = run(lm, small(name, positions="original"), IDS, piece=7)
    plain = dense(lm, IDS, found.gone)
    for index, layer in zip(found.cache.managed, managed(found.cache), strict=True):
        for head, positions in enumerate(layer.positions):
            assert (found.gone[index][head, positions] == NEVER).all()
            expected = plain.keys[index][head, positions]
            np.testing.assert_allclose(layer.keys[0, head].numpy(), expected, atol=1e-4 * expected.std())


def test_bytes_and_peak():
    lm = FAMILIES["llama"]()  # three layers, K and V, two heads of twelve floats: 576 bytes a token
    found = run(lm, Window(budget=9), IDS, piece=1)
    assert sum(allocated(each) for layer in managed(found.cache) for each in (layer.keys, layer.values)) == 9 * 576
    assert found.cache.take_peak() == 9 * 576 + 192, "a layer drops a token before the next one takes it"
    assert found.cache.take_peak() == 0
    read = run(lm, KNorm(budget=9, evicts="decode"), IDS, piece=len(IDS)).cache
    assert read.peak_bytes == 40 * 192 + 2 * 9 * 192, "layer after layer is filled and cut"


def test_lengths_of_all_tokens_are_reported():
    lm = FAMILIES["llama"]()
    found = run(lm, Window(budget=5), IDS, piece=7)
    keys, values = managed(found.cache)[1].take_lengths()
    expected = np.linalg.norm(dense(lm, IDS, found.gone).keys[1], axis=-1).mean(axis=0)
    assert keys.shape == values.shape == (40,)
    np.testing.assert_allclose(keys, expected, rtol=1e-4)


# --- what is left alone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FULL_ATTENTION)
def test_only_full_attention_layers_evict(family):
    lm = FAMILIES[family]()
    found = run(lm, small("h2o"), IDS, piece=len(IDS))
    assert found.cache.managed == FULL_ATTENTION[family] == list(found.gone)
    plain = DynamicCache(config=lm.config)
    with torch.inference_mode():
        lm.model(torch.tensor([IDS]), cache=plain, use_cache=True)
    for index, (layer, usual) in enumerate(zip(found.cache.layers, plain.layers, strict=True)):
        if index in found.cache.managed:
            assert layer.keys.shape[2] == 9
        else:
            assert type(layer) is type(usual)
            if getattr(usual, "keys", None) is not None:
                assert layer.keys.shape == usual.keys.shape
    first = found.cache.managed[0]
    for layer, usual in zip(found.cache.layers[:first], plain.layers[:first], strict=True):
        held, expected = (
            list(layer_tensors(layer)),
            list(layer_tensors(usual)),
        )  # before anything is evicted the very same
        assert len(held) == len(expected) > 0 and all(map(torch.equal, held, expected))


def test_layers_with_a_state_are_left_alone_too():
    lm = FAMILIES["qwen3_next"]()
    for name in REGISTRY:
        found = run(lm, small(name, positions="original"), IDS, piece=len(IDS))
        assert gap(found.logits, dense(lm, IDS, found.gone).logits) < 1e-4


# --- texts that are hardly there ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 8, 9, 10])
@pytest.mark.parametrize("name", REGISTRY)
def test_short_texts(name, length):
    lm, ids = FAMILIES["llama"](), IDS[:length]
    for evicts in modes(name):
        policy = small(name, evicts=evicts)
        whole, single = run(lm, policy, ids, piece=length, prompt=length), run(lm, policy, ids, piece=1, prompt=length)
        assert torch.isfinite(whole.logits).all() and gap(whole.logits, single.logits) < 1e-4
        assert gap(whole.logits, dense(lm, ids, {}).logits) < 1e-4, "the tenth token goes after the last query"
        for layer, gone in whole.gone.items():
            assert ((gone != NEVER).sum(axis=1) == max(0, length - 9)).all()
            np.testing.assert_array_equal(gone, single.gone[layer])
        assert whole.stored[-1] == [min(length, 9)] * 3


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("name", REGISTRY)
def test_one_token_repeated(name, family):
    """Attention may be the same everywhere: ties go by age, and rounding must not decide."""
    lm, ids = FAMILIES[family](), [65] * 30
    at_once = run(lm, small(name, positions="original"), ids, piece=30)
    single = run(lm, small(name, positions="original"), ids, piece=1)
    assert torch.isfinite(at_once.logits).all() and gap(at_once.logits, single.logits) < 1e-4
    for layer, gone in at_once.gone.items():
        np.testing.assert_array_equal(gone, single.gone[layer])


def test_ties_go_by_age():
    """Equal tokens have keys of equal length in the first layer, wherever they stand."""
    found = run(FAMILIES["llama"](), KNorm(budget=5), [65] * 20, piece=20)
    assert found.gone[0].tolist() == [[*range(5, 20), *[NEVER] * 5]] * 2


@pytest.mark.parametrize("name", REGISTRY)
def test_the_smallest_budget(name):
    least = REGISTRY[name].sinks + 1
    found = run(FAMILIES["llama"](), small(name, least), IDS, piece=7)
    assert found.stored[-1] == [least if name != "snapkv" else least + 20] * 3  # SnapKV keeps what is decoded
    assert torch.isfinite(found.logits).all()


@pytest.mark.parametrize("prompt", [1, 39, 40])
def test_prompts_of_one_token_and_of_all(prompt):
    lm = FAMILIES["llama"]()
    for name in REGISTRY:
        for evicts in modes(name):
            policy = small(name, evicts=evicts, positions="original")
            found = run(lm, policy, IDS, piece=40, prompt=prompt)
            assert gap(found.logits, run(lm, policy, IDS, piece=13, prompt=prompt).logits) < 1e-4
            assert gap(found.logits, dense(lm, IDS, found.gone).logits) < 1e-4


def test_a_seed_repeats_and_another_does_not():
    def gone(seed):
        return run(FAMILIES["llama"](), small("random", seed=seed), IDS, piece=40).gone[1].tolist()

    assert gone(0) == gone(0) != gone(1)


def test_peers_do_not_meet():
    """Two caches at work in turn: each keeps its own books."""
    lm, halves = FAMILIES["llama"](), []
    caches = [EvictingCache(lm, policy, 40, 20) for policy in (H2O(budget=9), SinksWindow(budget=9))]
    with torch.inference_mode():
        for start in (0, 20):
            for cache in caches:
                with cache.at_work():
                    part, at = torch.tensor([IDS[start : start + 20]]), torch.arange(start, start + 20)[None]
                    halves.append(lm.model(part, position_ids=at, cache=cache, use_cache=True).logits[0])
    for number, policy in enumerate((H2O(budget=9), SinksWindow(budget=9))):
        alone = run(lm, policy, IDS, piece=20).logits
        assert torch.equal(torch.cat(halves[number::2]), alone)


def test_one_token_is_not_the_whole_text():
    """1 and 1.0 are equal as numbers."""
    frame = evaluate(FAMILIES["llama"](), IDS, [Window(budget=1), Window(budget=1.0), Window(budget=1)])
    assert frame["policy"].unique().tolist() == ["Full()", "Window(budget=1)", "Window(budget=1.0)"]
