"""Prefix reuse on tiny models, against runs of transformers alone: no cache, or its own."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache

import kvviz
from kvviz.engine.cache import layer_tensors
from kvviz.engine.copying import copy_cache
from kvviz.engine.reuse import store_prefix
from kvviz.geometry.layers import layer_shapes
from kvviz.geometry.memory import cache_bytes
from kvviz.models.prompts import encode_turns, turns_of
from tests.tiny import FAMILIES, config, save

IDS = torch.randint(10, 250, (60,), generator=torch.Generator().manual_seed(11)).tolist()
families = pytest.mark.parametrize("family", list(FAMILIES))
# before, at and after the window of 8 of the sliding families
divergences = pytest.mark.parametrize("at", [1, 6, 7, 8, 9, 15, 30])


def pair(at, length=36):
    """Two prompts that part at `at` and have the same tokens after it."""
    first, second = list(IDS[:length]), list(IDS[: length + 3])
    first[at], second[at] = 5, 6
    return first, second


def plain(lm, ids):
    """Logits (tokens, vocabulary) of one forward without any cache."""
    with torch.inference_mode():
        return lm.model(torch.tensor([ids]), use_cache=False).logits[0].float()


def plain_cache(lm, ids):
    """transformers' own cache after `ids`, and the logits."""
    cache = DynamicCache(config=lm.model.config)
    with torch.inference_mode():
        logits = lm.model(torch.tensor([ids]), cache=cache, position_ids=torch.arange(len(ids))[None]).logits[0]
    return cache, logits.float()


def gap(one, two):
    """Largest difference, where the tiny hybrid's own noise (0.001 from piece to piece) is the widest allowed."""
    return float((one - two).abs().max())


def allowed(family):
    return 2e-3 if family == "qwen3_next" else 1e-4


def bits(cache):
    return [tensor.clone() for layer in cache.layers for tensor in layer_tensors(layer)]


@families
@divergences
def test_warm_logits_are_those_of_a_run_without_cache(family, at):
    lm = FAMILIES[family]()
    first, second = pair(at)
    stored = store_prefix(lm, first[:at])
    warm, _, _ = stored.serve(lm, second, keep=len(second) - at)
    assert gap(warm.logits, plain(lm, second)[at:]) < allowed(family)


@families
def test_a_stored_prefix_serves_ten_times_and_stays_the_same(family):
    lm = FAMILIES[family]()
    stored = store_prefix(lm, IDS[:20])
    before, expected = bits(stored.cache), plain(lm, IDS[:25])[-1]
    for _ in range(10):
        warm, cache, _ = stored.serve(lm, IDS[:25])
        assert gap(warm.logits[0], expected) < allowed(family)
        assert cache.get_seq_length(_attention_layer(lm)) == 25
    assert all(torch.equal(*both) for both in zip(bits(stored.cache), before, strict=True))


def _attention_layer(lm):
    return next(shape.layer for shape in layer_shapes(lm.config) if shape.kv_heads)


@families
def test_the_comparison_says_what_it_did(family):
    lm = FAMILIES[family]()
    first, second = pair(20)
    found = kvviz.compare_prefix(lm, first, second)
    assert (found.shared, found.reused, found.computed) == (20, 20, 19)
    assert found.logit_gap < allowed(family) and found.same_top
    assert found.facts.top == int(plain(lm, second)[-1].argmax())
    formula = cache_bytes(layer_shapes(lm.config), lm.dtype.itemsize, 20)
    held = sum(x.numel() * x.element_size() for x in bits(store_prefix(lm, first[:20]).cache))
    assert found.reused_bytes == held and (held == formula or family == "qwen3_next")
    assert found.saved_bytes == 20 * found.bytes_per_token
    assert found.saved_bytes >= formula or family == "qwen3_next"  # its state belongs to no token
    assert found.cold_seconds > 0 and found.warm_seconds > found.facts.copy_seconds > 0
    near = found.distances().query("position < 20")
    assert near[["key", "value"]].to_numpy().max() < 1e-4
    past = found.distances().query("20 <= position < 30")  # three layers with a window of 8 see no further than 14
    assert past.groupby("position")["value"].max().min() > 1e-3


@pytest.mark.parametrize(
    ("first", "second", "shared", "reused"),
    [(IDS[:9], IDS[:9], 9, 8), (IDS[:9], IDS[:5], 5, 4), (IDS[:5], IDS[:9], 5, 5), ([3], [3], 1, 0), ([3], [4], 0, 0)],
)
def test_at_most_all_but_the_last_token_is_reused(first, second, shared, reused):
    found = kvviz.compare_prefix(FAMILIES["gemma3"](), first, second)
    assert (found.shared, found.reused) == (shared, reused)
    assert found.logit_gap < 1e-4


def test_the_frame_has_both_prompts_side_by_side():
    lm = FAMILIES["llama"]()
    found = kvviz.compare_prefix(lm, "the cat and", "the cat sat on the mat")
    frame = found.frame()
    assert len(frame) == len(found.second.ids) > len(found.first.ids)
    assert frame["shared"].sum() == found.shared and frame["reused"].sum() == found.reused
    rows = [int(each) for each in frame["first_id"].dropna()], [int(each) for each in frame["second_id"]]
    assert rows == (list(found.first.ids), list(found.second.ids))
    assert frame["first"].isna().sum() == len(found.second.ids) - len(found.first.ids)
    assert [token.id for token in found.difference] == [found.first.ids[found.shared], found.second.ids[found.shared]]
    assert found.shared_characters == len("the cat ")
    assert found.blocks((1, 16))["reused_tokens"].tolist() == [found.reused, 0]


def test_the_end_of_a_prompt_is_no_token():
    found = kvviz.compare_prefix(FAMILIES["llama"](), IDS[:4], IDS[:6])
    assert found.difference[0] is None and found.difference[1].id == IDS[4]


@pytest.mark.parametrize("family", ["llama", "deepseek"])
def test_distances_are_those_of_transformers_own_caches(family):
    lm = FAMILIES[family]()
    first, second = pair(4, 20)
    found = kvviz.compare_prefix(lm, first, second)
    one, two = plain_cache(lm, first)[0], plain_cache(lm, second)[0]
    frame = found.distances().set_index(["layer", "position"])
    assert len(frame) == 3 * 20
    for layer, position in ((0, 4), (1, 9), (2, 19)):
        for name, column in (("keys", "key"), ("values", "value")):
            a, b = (getattr(cache.layers[layer], name)[0, :, position].flatten().numpy() for cache in (one, two))
            expected = np.linalg.norm(a - b) / (np.linalg.norm(a) + np.linalg.norm(b)) * 2
            assert frame.loc[(layer, position), column] == pytest.approx(expected, abs=1e-4)


def test_equal_tokens_elsewhere_have_equal_values_in_the_first_layer_alone():
    found = kvviz.compare_prefix(FAMILIES["llama"](), [5, 40, 41, 42], [6, 9, 41, 40])
    frame = found.equal_tokens()
    assert frame[["first_position", "second_position"]].drop_duplicates().values.tolist() == [[2, 2], [1, 3]]
    assert frame.query("layer == 0")["value"].max() < 1e-6  # before any attention
    assert frame.query("layer == 0 and second_position == 2")["key"].max() < 1e-6  # turned the same way
    assert frame.query("layer == 0 and second_position == 3")["key"].min() > 0.1  # turned to another place
    assert frame.query("layer > 0")["value"].min() > 1e-3


def test_a_recurrent_layer_has_no_distance_and_no_single_tokens():
    lm = FAMILIES["qwen3_next"]()
    assert set(kvviz.compare_prefix(lm, *pair(5)).distances()["layer"]) == {3}
    with pytest.raises(kvviz.Refused, match="running state"):
        kvviz.cheat_prefix(lm, *pair(5))
    with pytest.raises(kvviz.Refused, match="running state"):
        kvviz.PrefixCache(lm)


def test_a_model_that_looks_at_chunks_is_refused_for_that_reason(tmp_path):
    kinds = {"layer_types": ["chunked_attention"] * 2 + ["full_attention"], "attention_chunk_size": 8}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 64}
    folder = save(config("Llama4TextConfig", **kinds, **experts), tmp_path)
    lm = kvviz.load(str(folder), device="cpu", dtype="float32")
    with pytest.raises(kvviz.Refused, match="chunks of the text"):
        kvviz.PrefixCache(lm)
    with pytest.raises(kvviz.Refused, match="chunks of the text"):
        kvviz.cheat_prefix(lm, *pair(5))


def test_a_model_that_is_all_state_reuses_it(tmp_path):
    settings_of_mamba = config("MambaConfig", state_size=8, tie_word_embeddings=False)
    lm = kvviz.load(str(save(settings_of_mamba, tmp_path)), device="cpu", dtype="float32")
    first, second = pair(9)
    found = kvviz.compare_prefix(lm, first, second)
    assert found.reused == 9 and found.reused_bytes > 0 and found.logit_gap < 2e-3
    assert found.distances().empty


def test_a_copy_shares_nothing():
    lm = FAMILIES["qwen3_next"]()
    stored = store_prefix(lm, IDS[:10])
    pointers = {tensor.data_ptr() for layer in stored.cache.layers for tensor in layer_tensors(layer)}
    twin = copy_cache(stored.cache)
    assert pointers.isdisjoint(tensor.data_ptr() for layer in twin.layers for tensor in layer_tensors(layer))
    assert all(torch.equal(*both) for both in zip(bits(stored.cache), bits(twin), strict=True))


@pytest.mark.parametrize("family", ["llama", "deepseek", "phi3", "gpt2"])
def test_a_cheat_is_a_cache_with_other_entries(family):
    lm = FAMILIES[family]()
    first, second = pair(4, 20)
    second = second[:20]
    found = kvviz.cheat_prefix(lm, first, second, [(17, 18), (3, 5)], max_new_tokens=6)
    taken, _ = plain_cache(lm, first)
    cache, logits = DynamicCache(config=lm.model.config), None
    for at, token in enumerate(second):  # one by one: what comes after a replaced entry is computed from it
        with torch.inference_mode():
            logits = lm.model(torch.tensor([[token]]), cache=cache, position_ids=torch.tensor([[at]])).logits[0, -1]
            for left, right in ((17, 18), (3, 5)):
                for layer, other in zip(cache.layers, taken.layers, strict=True):
                    if right == at:
                        layer.keys[:, :, at] = other.keys[:, :, left]
                        layer.values[:, :, at] = other.values[:, :, left]
    true = plain(lm, second)[-1].log_softmax(-1)
    cheated = logits.float().log_softmax(-1)
    assert found.kl == pytest.approx(float((true.exp() * (true - cheated)).sum()), rel=0.02, abs=1e-5)
    best = true.exp().topk(5)
    table = found.top().query("run == 'true'")
    assert table["token_id"].tolist() == best.indices.tolist()
    np.testing.assert_allclose(table["probability"], best.values, atol=1e-5)
    assert found.facts.top_cheated[0][0] == int(cheated.argmax())
    assert found.kl > 1e-4


@pytest.mark.parametrize("family", ["llama", "gemma3", "deepseek", "gpt_oss"])
def test_taking_what_is_the_same_anyway_changes_nothing(family):
    lm = FAMILIES[family]()
    found = kvviz.cheat_prefix(lm, IDS[:30], IDS[:30], [(at, at) for at in range(30)], max_new_tokens=8)
    assert found.kl < 1e-6 and found.text == found.text_cheated
    expected = [step.token_id for step in kvviz.stream(lm, IDS[:30], 8)]
    assert list(found.facts.ids) == expected == list(found.facts.ids_cheated)


def test_the_usual_cheat_takes_equal_tokens_at_the_same_place():
    lm = FAMILIES["llama"]()
    assert kvviz.cheat_prefix(lm, [5, 40, 41], [6, 9, 41], max_new_tokens=1).pairs == ((2, 2),)
    assert kvviz.cheat_prefix(lm, [5, 40, 41], [6, 41, 9], max_new_tokens=1).pairs == ((2, 1),)


@pytest.mark.parametrize(
    ("pairs", "says"), [(None, "no token to take"), ([], "no token to take"), ([(3, 0)], "3 and 0"), ([(0, -1)], "-1")]
)
def test_a_cheat_without_a_token_is_refused(pairs, says):
    with pytest.raises(kvviz.Refused, match=says):
        kvviz.cheat_prefix(FAMILIES["llama"](), [5, 6, 7], [8, 9], pairs)


@pytest.mark.parametrize("empty", [("", "the cat"), ("the cat", "")])
def test_an_empty_prompt_is_refused(empty):
    with pytest.raises(kvviz.Refused, match="empty"):
        kvviz.compare_prefix(FAMILIES["llama"](), *empty)


def test_a_prompt_past_the_context_is_refused():
    with pytest.raises(kvviz.Refused, match="at most 256"):
        kvviz.compare_prefix(FAMILIES["llama"](), [5] * 257, [5])


def test_every_forward_takes_a_turn():
    taken, lock = [], threading.Lock()

    @contextmanager
    def turn():
        with lock:
            taken.append(1)
            yield

    lm = FAMILIES["llama"]()
    kvviz.compare_prefix(lm, *pair(20), prefill_chunk=10, turn=turn)
    # the prefix 2, the first prompt 4, a copy, the rest 2, the second prompt 4, the distances
    assert len(taken) == 14
    assert kvviz.compare_prefix(lm, *pair(20), prefill_chunk=7).logit_gap < 1e-4


tree_families = pytest.mark.parametrize("family", [name for name in FAMILIES if name != "qwen3_next"])


def tensors_of(cache):
    return [part for node in cache._tree.nodes() for both in node.payload.layers.values() for part in both]


@tree_families
def test_a_tree_serves_what_a_run_without_cache_says(family):
    lm = FAMILIES[family]()
    cache = kvviz.PrefixCache(lm)
    prompts = [IDS[:30], [*IDS[:20], 5, 6, 7], IDS[:12], IDS[:30], IDS[:45], [9], [*IDS[:20], 5, 8], IDS[:9] + [3] * 4]
    reused = [0, 20, 11, 29, 30, 0, 21, 9]
    for ids, expected in zip(prompts, reused, strict=True):
        served = cache.serve(ids)
        assert served.record.reused_tokens == expected
        assert gap(served.logits, plain(lm, ids)[-1]) < 1e-4
    distinct = {tuple(ids[:n]) for ids in prompts for n in range(1, len(ids) + 1)}
    assert cache.held_bytes == len(distinct) * cache.bytes_per_token
    assert cache.held_bytes == sum(x.untyped_storage().nbytes() for x in tensors_of(cache))
    frame = cache.frame()
    assert frame["saved_bytes"].sum() == sum(reused) * cache.bytes_per_token == cache.statistics.bytes_saved
    assert frame["hit_rate"].iloc[-1] == pytest.approx(sum(reused) / sum(map(len, prompts)))
    assert cache.tree()["tokens"].sum() == len(distinct)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(10, 12), min_size=1, max_size=16), min_size=1, max_size=8),
    st.integers(1, 40),
    st.sampled_from(["llama", "gemma3", "deepseek"]),
)
def test_a_tree_under_any_budget_never_serves_a_wrong_token(prompts, tokens, family):
    lm = FAMILIES[family]()
    budget = kvviz.PrefixCache(lm).bytes_per_token * tokens
    cache = kvviz.PrefixCache(lm, budget)
    for ids in prompts:
        served = cache.serve(ids)
        assert gap(served.logits, plain(lm, ids)[-1]) < 1e-4
        held = sum(x.untyped_storage().nbytes() for x in tensors_of(cache))
        assert held == cache.held_bytes == served.record.held_bytes <= budget
        assert served.record.stored == (len(ids) <= tokens or served.record.shared_tokens == len(ids) <= tokens)
    counts = cache.events().groupby("event")["tokens"].sum()
    stored, evicted = (counts.get(name, 0) for name in ("stored", "evicted"))
    assert (stored - evicted) * cache.bytes_per_token == cache.held_bytes
    assert (stored, evicted) == (cache.frame()["stored_tokens"].sum(), cache.frame()["evicted_tokens"].sum())


def test_a_budget_smaller_than_a_prompt_serves_it_cold_and_says_so():
    lm = FAMILIES["llama"]()
    cache = kvviz.PrefixCache(lm, 10 * 576)
    records = [cache.serve(ids, verify=True).record for ids in (IDS[:11], IDS[:11], IDS[:10], IDS[:11])]
    assert [record.reason for record in records] == ["large", "large", "budget", ""]
    assert [record.stored for record in records] == [False, False, True, False]
    assert [record.reused_tokens for record in records] == [0, 0, 0, 10]
    assert all(record.logit_gap < 1e-4 and record.cold_seconds > 0 for record in records)


def test_a_stopped_prompt_leaves_the_tree_as_it_was():
    cache = kvviz.PrefixCache(FAMILIES["llama"]())
    cache.serve(IDS[:20])

    class Stopped(Exception):
        pass

    @contextmanager
    def turn():
        raise Stopped
        yield

    before = cache.tree()
    with pytest.raises(Stopped):
        cache.serve([*IDS[:15], 5], turn=turn)
    assert cache.tree().equals(before) and len(cache.served) == 1


def test_a_served_cache_goes_on():
    lm = FAMILIES["gemma3"]()
    cache = kvviz.PrefixCache(lm)
    cache.serve(IDS[:30])
    served = cache.serve([*IDS[:20], 5, 6])
    before = cache.tree()
    text = list(kvviz.stream(lm, [int(served.logits.argmax())], 1, cache=None))
    assert text and cache.tree().equals(before)
    with torch.inference_mode():
        again = lm.model(torch.tensor([[7]]), cache=served.cache, position_ids=torch.tensor([[22]])).logits[0, -1]
    assert gap(again, plain(lm, [*IDS[:20], 5, 6, 7])[-1]) < 1e-4
    assert gap(cache.serve(IDS[:30]).logits, plain(lm, IDS[:30])[-1]) < 1e-4


def test_a_block_cache_takes_its_sizes_from_the_model():
    lm = FAMILIES["llama"]()
    cache = kvviz.block_cache(lm, 16, 4 * 16 * 576)
    assert cache.capacity == 4
    assert [cache.serve(ids).saved_bytes for ids in (IDS[:40], IDS[:40])] == [0, 32 * 576]


def test_turns_of_a_conversation():
    assert turns_of("a\n---\nb\nc\n--- \nd---\n") == ["a", "b\nc", "d---\n"]
    with pytest.raises(kvviz.Refused, match="end with the user's turn"):
        encode_turns(FAMILIES["llama"](), ["a", "b"])
