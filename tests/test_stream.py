"""The streaming engine against transformers' own generation, caches and formulas, on tiny random models."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from kvviz.engine.cache import layer_tensors, new_cache
from kvviz.engine.stream import stream
from kvviz.errors import Refused
from kvviz.geometry.layers import layer_shapes
from kvviz.geometry.memory import cache_bytes
from tests.tiny import FAMILIES

TEXT = "the cat and the dog sat on the mat"
families = pytest.mark.parametrize("family", list(FAMILIES))


def prompt_ids(lm, count=14):
    """`count` ids of ordinary tokens, repeated text so that nothing depends on the tokenizer."""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(10, min(250, lm.config.vocab_size), (count,), generator=generator).tolist()


def plain_run(lm, ids, new):
    """Greedy decoding with transformers' own cache: chosen ids and each step's float32 logits."""
    cache, fed, seen, chosen, logits = DynamicCache(config=lm.model.config), ids, 0, [], []
    for _ in range(new):
        positions = torch.arange(seen, seen + len(fed))[None]
        with torch.inference_mode():
            output = lm.model(torch.tensor([fed]), cache=cache, use_cache=True, position_ids=positions)
        seen += len(fed)
        logits.append(output.logits[0, -1].float())
        fed = [int(logits[-1].argmax())]
        chosen.append(fed[0])
    return chosen, logits, cache


@families
def test_greedy_tokens_are_those_of_generate(family):
    lm = FAMILIES[family]()
    ids = prompt_ids(lm)
    with torch.inference_mode():
        expected = lm.model.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False, eos_token_id=None)
    steps = list(stream(lm, ids, 20))
    ended = steps[-1].finish == "end"
    assert len(steps) == 20 or ended
    assert [step.token_id for step in steps] == expected[0, len(ids) :].tolist()[: len(steps)]


@families
def test_logits_are_those_of_a_plain_cache(family):
    lm = FAMILIES[family]()
    ids = prompt_ids(lm)
    steps = list(stream(lm, ids, 12))
    chosen, logits, _ = plain_run(lm, ids, len(steps))
    for step, token, row in zip(steps, chosen, logits, strict=True):
        best = row.topk(2).values
        assert step.token_id == token
        assert step.probability == pytest.approx(row.softmax(-1)[token].item(), abs=1e-5)
        assert step.margin == pytest.approx((best[0] - best[1]).item(), abs=1e-5)


@families
def test_bytes_are_those_of_the_tensors_and_of_the_formula(family):
    lm = FAMILIES[family]()
    ids, cache = prompt_ids(lm, 6), new_cache(lm.config)
    shapes = layer_shapes(lm.config)
    for step in stream(lm, ids, 16, cache=cache):
        read = sum(x.numel() * x.element_size() for layer in cache.layers for x in layer_tensors(layer))
        assert step.cache_bytes == read == sum(layer.bytes for layer in step.layers)
        assert read == cache_bytes(shapes, lm.dtype.itemsize, step.seen) > 0
        assert [layer.stored for layer in step.layers] == [shape.stored(step.seen) for shape in shapes]
        assert step.allocated_bytes >= step.cache_bytes


@families
def test_contents_are_bit_for_bit_those_of_a_plain_cache(family):
    lm = FAMILIES[family]()
    ids, cache = prompt_ids(lm), new_cache(lm.config)
    steps = list(stream(lm, ids, 10, cache=cache))
    _, _, plain = plain_run(lm, ids, len(steps))
    for ours, theirs in zip(cache.layers, plain.layers, strict=True):
        for mine, other in zip(layer_tensors(ours), layer_tensors(theirs), strict=True):
            assert torch.equal(mine, other)


@families
def test_without_a_cache_the_text_is_the_same(family):
    lm = FAMILIES[family]()
    ids = prompt_ids(lm)
    cached = list(stream(lm, ids, 12))
    anew = list(stream(lm, ids, 12, use_cache=False))
    assert [step.token_id for step in cached] == [step.token_id for step in anew]
    assert [step.computed for step in cached] == [len(ids)] + [1] * (len(cached) - 1)
    assert [step.computed for step in anew] == [len(ids) + index for index in range(len(anew))]
    assert all(step.cache_bytes == step.seen == 0 and step.phase == "recompute" for step in anew)


@families
def test_a_prompt_fed_in_pieces_gives_the_same_run(family):
    lm = FAMILIES[family]()
    ids = prompt_ids(lm, 40)
    turns = []

    @contextmanager
    def turn():
        turns.append(1)
        yield

    whole = list(stream(lm, ids, 8))
    pieces = list(stream(lm, ids, 8, prefill_chunk=7, turn=turn))
    assert [step.token_id for step in whole] == [step.token_id for step in pieces]
    assert [step.probability for step in pieces] == pytest.approx([step.probability for step in whole], abs=1e-5)
    can_cut = {shape.kind for shape in layer_shapes(lm.config)} <= {"full", "sliding"}
    assert len(turns) == (6 if can_cut else 1) + len(pieces) - 1


@pytest.mark.parametrize("count", [5, 6, 7, 8, 9, 10, 17])
def test_a_sliding_layer_stores_one_less_than_its_window(count):
    lm = FAMILIES["gemma3"]()
    window = lm.config.sliding_window
    first = next(stream(lm, prompt_ids(lm, count), 1))
    stored = {layer.kind: layer.stored for layer in first.layers}
    assert stored == {"sliding": min(count, window - 1), "full": count}
    assert first.seen == first.stored == count
    oldest = first.key_norms[[layer.kind for layer in first.layers].index("sliding"), : count - stored["sliding"]]
    assert np.isnan(oldest).all() and np.isfinite(first.key_norms[:, count - stored["sliding"] :]).all()


def test_norms_are_those_of_the_cache():
    lm = FAMILIES["llama"]()
    cache = new_cache(lm.config)
    steps = list(stream(lm, prompt_ids(lm), 5, cache=cache))
    for name, field in (("keys", "key_norms"), ("values", "value_norms")):
        seen = np.concatenate([getattr(step, field) for step in steps], axis=1)
        for layer, row in zip(cache.layers, seen, strict=True):
            expected = getattr(layer, name)[0].numpy().astype(np.float64)
            assert row == pytest.approx(np.sqrt((expected**2).sum(-1)).mean(0), rel=1e-5)


def test_shapes_are_those_of_the_call():
    lm = FAMILIES["llama"]()
    steps = list(stream(lm, prompt_ids(lm, 9), 3))
    heads, kv, width = lm.config.num_attention_heads, lm.config.num_key_value_heads, lm.config.head_dim
    assert [(call.query, call.key, call.value) for step in steps for call in step.calls] == [
        ((heads, 9, width), (kv, 9, width), (kv, 9, width)),
        ((heads, 1, width), (kv, 10, width), (kv, 10, width)),
        ((heads, 1, width), (kv, 11, width), (kv, 11, width)),
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_one_and_two_tokens(count):
    lm = FAMILIES["llama"]()
    steps = list(stream(lm, prompt_ids(lm, count), 3))
    assert [step.seen for step in steps] == [count, count + 1, count + 2]


def test_the_run_ends_at_the_models_context():
    lm = FAMILIES["llama"]()
    steps = list(stream(lm, prompt_ids(lm, lm.context - 2), 10))
    assert [step.finish for step in steps] == [None, None, "context"]
    assert steps[-1].seen == lm.context


def test_a_prompt_as_long_as_the_context_gives_one_token():
    lm = FAMILIES["llama"]()
    (step,) = stream(lm, prompt_ids(lm, lm.context), 10)
    assert step.finish == "context" and step.seen == lm.context


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"prompt": []}, "at least one"),
        ({"prompt": [11] * 5000}, "5,?000"),
        ({"prompt": [11, 300]}, "no token 300: its ids go from 0 to 299"),
        ({"prompt": [-1]}, "no token -1"),
        ({"max_new_tokens": 0}, "at least 1"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "Top-p"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(options, word):
    with pytest.raises(Refused, match=word):
        stream(FAMILIES["llama"](), **{"prompt": [11, 12], **options})


def test_the_end_of_sequence_ends_the_run(monkeypatch):
    lm = FAMILIES["llama"]()
    ids = prompt_ids(lm)
    tokens = [step.token_id for step in stream(lm, ids, 8)]
    end = next(token for token in tokens[2:] if token not in tokens[:2])
    monkeypatch.setattr(lm.model.generation_config, "eos_token_id", [end])
    steps = list(stream(lm, ids, 8))
    assert [step.token_id for step in steps] == tokens[: tokens.index(end) + 1]
    assert [step.finish for step in steps] == [None] * (len(steps) - 1) + ["end"]


def test_the_text_of_the_steps_is_the_text_of_the_tokens():
    lm = FAMILIES["llama"]()
    steps = list(stream(lm, "猫 and 👍🏽", 40, temperature=5.0, seed=3))
    ids = [step.token_id for step in steps]
    assert "".join(step.text for step in steps) == lm.tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_a_seed_repeats_a_run_and_another_changes_it():
    lm = FAMILIES["llama"]()

    def run(seed):
        return [step.token_id for step in stream(lm, TEXT, 12, temperature=3.0, seed=seed)]

    assert run(1) == run(1) == run(np.int64(1))
    assert run(1) != run(2)


def test_two_runs_in_threads_give_what_each_gives_alone():
    lm = FAMILIES["llama"]()
    prompts = [prompt_ids(lm, 5), prompt_ids(lm, 23)]
    alone = [[(s.token_id, s.cache_bytes, s.calls) for s in stream(lm, ids, 15)] for ids in prompts]
    together = [None, None]
    start = threading.Barrier(2)

    def work(index):
        start.wait()
        together[index] = [(s.token_id, s.cache_bytes, s.calls) for s in stream(lm, prompts[index], 15)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert together == alone


def test_what_a_turn_raises_ends_the_run():
    lm, count = FAMILIES["llama"](), 0

    @contextmanager
    def turn():
        nonlocal count
        count += 1
        if count == 3:
            raise InterruptedError
        yield

    steps = []
    with pytest.raises(InterruptedError):
        for step in stream(lm, TEXT, 10, turn=turn):
            steps.append(step)
    assert len(steps) == 2
