"""Attention mass lost, against transformers' eager attention and a loop over every query and key."""

import numpy as np
import pytest
import torch

from kvviz.engine import lost as lost_module
from kvviz.engine.lost import Gone, lost_attention
from kvviz.engine.probe import ATTENTION
from kvviz.evaluation import compare_policies
from kvviz.policies import H2O, NEVER, Random, SinksWindow, SnapKV, Window
from tests.tiny import FAMILIES, tiny_gpt_oss, tiny_llama

TOKENS = 40
IDS = [3 + 7 * index % 290 for index in range(TOKENS)]


def eager(lm) -> list[np.ndarray]:
    """Each layer's attention (heads, T, T), from transformers' own implementation."""
    try:
        lm.model.set_attn_implementation("eager")
        with torch.inference_mode():
            attentions = lm.model(torch.tensor([IDS]), output_attentions=True, use_cache=False).attentions
        return [weights[0].float().numpy() for weights in attentions]
    finally:
        lm.model.set_attn_implementation(ATTENTION)


def by_loop(weights: np.ndarray, after: np.ndarray) -> list[float]:
    """The definition, read aloud: a key is lost to a query that comes later than the step after which it went."""
    heads, queries, _ = weights.shape
    group = heads // len(after)
    return [
        sum(
            weights[head, query, key]
            for head in range(heads)
            for key in range(query)
            if after[head // group, key] < query
        )
        / heads
        for query in range(queries)
    ]


@pytest.mark.parametrize("family", ["llama", "gemma3", "gemma2", "deepseek", "gpt_oss", "gpt_neox"])
def test_it_is_the_eager_attention_on_what_was_dropped(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_module, "_ROWS", 16)  # several blocks, the last one shorter
    lm = FAMILIES[family]()
    arms = [H2O(budget=10), Random(budget=6), SnapKV(budget=8, window=4)]
    run = compare_policies(lm, IDS, arms)
    gone = [Gone(each.layers, each.gone) for each in run.evictions[1:]]
    found, weights = lost_attention(lm, IDS, gone), eager(lm)
    assert len(weights) == lm.config.num_hidden_layers
    for shares, each in zip(found, gone, strict=True):
        assert shares.shape == (len(each.layers), TOKENS) and shares.dtype == np.float32
        expected = [by_loop(weights[layer], after) for layer, after in zip(each.layers, each.after, strict=True)]
        np.testing.assert_allclose(shares, expected, atol=1e-5)
        assert shares[:, -1].min() > 0, "something was dropped, and softmax gives everything a little"


def test_a_query_sees_what_goes_after_its_own_step() -> None:
    lm = tiny_llama()
    after = np.full((3, 2, TOKENS), NEVER, dtype=np.int32)
    after[:, :, 5] = 20
    (shares,) = lost_attention(lm, IDS, [Gone((0, 1, 2), after)])
    assert not shares[:, :21].any() and (shares[:, 21:] > 0).all()
    weights = eager(lm)
    np.testing.assert_allclose(shares[:, 21:], [each[:, 21:, 5].mean(axis=0) for each in weights], atol=1e-6)


def test_nothing_dropped_is_nothing_lost_and_layers_may_differ() -> None:
    lm = tiny_llama()
    nothing = Gone((0, 1, 2), np.full((3, 2, TOKENS), NEVER, dtype=np.int32))
    everything = np.full((1, 2, TOKENS), -1, dtype=np.int32)
    kept, all_lost = lost_attention(lm, IDS, [nothing, Gone((1,), everything)])
    assert not kept.any()
    np.testing.assert_allclose(all_lost, np.ones((1, TOKENS)), atol=1e-5)


def test_a_learned_sink_is_no_token() -> None:
    lm = tiny_gpt_oss()
    full_layers = compare_policies(lm, IDS, [Window(budget=8)]).evictions[1].layers
    everything = np.full((len(full_layers), 2, TOKENS), -1, dtype=np.int32)
    (shares,) = lost_attention(lm, IDS, [Gone(full_layers, everything)])
    assert (shares < 1).all(), "the rest went to the sink"


def test_a_window_loses_what_lies_before_it() -> None:
    lm = tiny_llama()
    run = compare_policies(lm, IDS, [Window(budget=8), SinksWindow(sinks=2, budget=8, positions="original")])
    window, sinks = lost_attention(lm, IDS, [Gone(each.layers, each.gone) for each in run.evictions[1:]])
    for layer, weights in enumerate(eager(lm)):
        # 8 stay after each step, and the query itself: 8 keys before it
        expected = [weights[:, query, : max(0, query - 8)].sum(axis=-1).mean() for query in range(TOKENS)]
        np.testing.assert_allclose(window[layer], expected, atol=1e-5)
        expected = [weights[:, query, 2 : max(2, query - 6)].sum(axis=-1).mean() for query in range(TOKENS)]
        np.testing.assert_allclose(sinks[layer], expected, atol=1e-5)


def test_progress_and_turns() -> None:
    seen, turns = [], []

    class Turn:
        def __enter__(self) -> None:
            turns.append("in")

        def __exit__(self, *_: object) -> None:
            turns.append("out")

    gone = Gone((0,), np.full((1, 2, TOKENS), 5, dtype=np.int32))
    lost_attention(tiny_llama(), IDS, [gone], progress=seen.append, turn=Turn)
    assert seen == [1, 2, 3]
    assert turns == ["in", "out"] * 4
