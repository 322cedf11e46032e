"""Measures of attention against the eager attention of transformers, and against attention worked out by hand."""

import numpy as np
import pytest
import torch

from kvviz.analysis.attention import ATTENDED, NEVER, OUT_OF_WINDOW, TOO_NEW, attendance, mean_received, sinks_frame
from kvviz.engine.measures import measure_blocks
from kvviz.engine.probe import ATTENTION
from kvviz.engine.scores import Block
from kvviz.records import POOL
from kvviz.summary import attention
from tests.tiny import FAMILIES

TOKENS = 90


def ids_of(lm, count=TOKENS):
    half = torch.randint(10, 60, (count // 2,), generator=torch.Generator().manual_seed(3)).tolist()
    return (half + half + [77])[:count]  # repeated, so that induction and duplicate patterns exist


def eager(lm, ids):
    """layers x (heads, T, T) as the model itself returns it, for its layers with attention."""
    ours = lm.model.config._attn_implementation
    try:
        if ours == ATTENTION:
            lm.model.set_attn_implementation("eager")
        with torch.inference_mode():
            output = lm.model(torch.tensor([ids]), use_cache=False, output_attentions=True)
    finally:
        if ours == ATTENTION:
            lm.model.set_attn_implementation(ATTENTION)
    return [weights[0].double().numpy() for weights in output.attentions]


def window_of(lm, layer):
    from kvviz.geometry.layers import layer_shapes

    return layer_shapes(lm.config)[layer].window


def allowed_pairs(tokens, window):
    query, key = np.arange(tokens)[:, None], np.arange(tokens)
    return (key <= query) & ((key > query - window) if window else True)


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("count", [1, 2, TOKENS])
def test_measures_equal_those_of_eager_attention(family, count):
    lm = FAMILIES[family]()
    ids = ids_of(lm, count)
    summary, oracle = attention(lm, ids), eager(lm, ids)
    assert len(summary.layers) == len(oracle)
    tokens = np.array(ids)
    close = {"atol": 1e-5 * max(1, count / 10), "rtol": 1e-4}
    for layer, A in zip(summary.layers, oracle, strict=True):
        allowed = allowed_pairs(count, window_of(lm, layer.layer))
        later = A * ~np.eye(count, dtype=bool)
        choices = allowed.sum(1)
        np.testing.assert_allclose(layer.received, A.sum(1), **close)
        np.testing.assert_allclose(layer.self_attention, np.diagonal(A, axis1=1, axis2=2), **close)
        np.testing.assert_allclose(layer.peak_probability, later.max(1), **close)
        np.testing.assert_allclose(layer.peak, (later * choices[:, None]).max(1), atol=1e-3, rtol=1e-4)
        np.testing.assert_array_equal(layer.visible, allowed.sum(0))
        np.testing.assert_array_equal(layer.choices, choices)
        np.testing.assert_array_equal(layer.last_visible, allowed[-1])
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(A > 0, A * np.log(A), 0).sum(-1)
        np.testing.assert_allclose(layer.entropy, entropy, atol=1e-4)
        np.testing.assert_allclose(layer.first, A[:, :, 0], **close)
        np.testing.assert_allclose(layer.sink, 1 - A.sum(-1), atol=1e-5)
        query, key = np.arange(count)[:, None], np.arange(count)
        np.testing.assert_allclose(layer.distance, (A * (query - key)).sum(-1) / A.sum(-1), atol=1e-3)
        np.testing.assert_allclose(layer.previous, (A * (key == query - 1)).sum(-1), **close)
        same = (tokens[:, None] == tokens) & (key < query)
        np.testing.assert_allclose(layer.duplicate, (A * same).sum(-1), **close)
        before = np.concatenate([[-1], tokens[:-1]])
        np.testing.assert_allclose(
            layer.induction, (A * ((tokens[:, None] == before) & (key < query))).sum(-1), **close
        )


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss", "deepseek", "qwen3_next"])
def test_maps_rows_and_columns_equal_eager_attention(family):
    lm = FAMILIES[family]()
    ids = ids_of(lm)
    summary, oracle = attention(lm, ids), eager(lm, ids)
    for layer, A in zip(summary.layers, oracle, strict=True):
        hidden = ~allowed_pairs(TOKENS, window_of(lm, layer.layer))
        expected = np.where(hidden, np.nan, A)
        maps = summary.maps(layer.layer)
        np.testing.assert_allclose(maps, expected, atol=1e-5)
        np.testing.assert_array_equal(summary.map(layer.layer, 1), maps[1])
        np.testing.assert_allclose(summary.queries(layer.layer, [5, 89]), expected[:, [5, 89]], atol=1e-5)
        np.testing.assert_allclose(summary.keys(layer.layer, [0, 40]), expected[:, :, [0, 40]], atol=1e-5)


def test_small_maps_are_the_largest_of_each_cell():
    lm = FAMILIES["llama"]()
    ids = ids_of(lm)
    (layer, *_), (A, *_) = attention(lm, ids).layers, eager(lm, ids)
    cell = -(-TOKENS // POOL)
    for row in range(-(-TOKENS // cell)):
        for column in range(row + 1):
            rows, columns = slice(row * cell, (row + 1) * cell), slice(column * cell, (column + 1) * cell)
            np.testing.assert_allclose(layer.pooled[:, row, column], A[:, rows, columns].max((1, 2)), atol=1e-5)


def test_hybrid_models_keep_their_layer_numbers():
    summary = attention(FAMILIES["qwen3_next"](), ids_of(None, 20))
    assert [layer.layer for layer in summary.layers] == [3]
    assert set(summary.heads()["layer"]) == {3}


def test_contribution_is_what_the_value_adds():
    lm = FAMILIES["llama"]()
    ids = ids_of(lm, 20)
    (layer, *_) = attention(lm, ids).layers
    attn, heard = lm.model.model.layers[0].self_attn, []
    handle = attn.v_proj.register_forward_hook(lambda module, args, output: heard.append(output[0]))
    with torch.inference_mode():
        lm.model(torch.tensor([ids]), use_cache=False)
    handle.remove()
    width = lm.config.head_dim
    values = heard[0].view(20, lm.config.num_key_value_heads, width)
    for head in range(lm.config.num_attention_heads):
        projection = attn.o_proj.weight.detach()[:, head * width : (head + 1) * width]
        added = values[:, head // 2].numpy() @ projection.numpy().T
        np.testing.assert_allclose(layer.contribution[head], np.linalg.norm(added, axis=-1), rtol=1e-4)


def by_hand(weights, window=None):
    """Measures of given attention (heads, T, T)."""
    weights = torch.tensor(np.array(weights), dtype=torch.float32)
    tokens = weights.shape[1]
    allowed = torch.tensor(allowed_pairs(tokens, window))
    return measure_blocks([Block(weights, None, allowed, 0)], 0, len(weights), torch.arange(tokens), None)


def test_uniform_attention():
    tokens = 40
    layer = by_hand([np.tril(np.ones((tokens, tokens))) / np.arange(1, tokens + 1)[:, None]])
    np.testing.assert_allclose(layer.entropy[0], np.log(np.arange(1, tokens + 1)), atol=1e-5)
    harmonic = [np.mean([1 / (q + 1) for q in range(k, tokens)]) for k in range(tokens)]
    np.testing.assert_allclose(mean_received(layer)[0], harmonic, rtol=1e-5)
    np.testing.assert_allclose(layer.peak[0, :-1], 1, rtol=1e-5)
    assert sinks_frame([layer], ["x"] * tokens).empty


def test_identity_attention_attends_to_no_other_key():
    layer = by_hand([np.eye(40)])
    status = attendance(layer)
    assert (status[0, :32] == NEVER).all() and (status[0, 32:] == TOO_NEW).all()
    np.testing.assert_allclose(mean_received(layer, diagonal=False)[0, :-1], 0)


def test_all_mass_on_the_first_key():
    weights = np.zeros((2, 40, 40))
    weights[:, :, 0] = 1
    layer = by_hand(weights)
    sinks = sinks_frame([layer], ["x"] * 40)
    assert sinks[["position", "rate", "heads"]].values.tolist() == [[0, 1.0, 2]]
    assert attendance(layer)[0, 0] == ATTENDED and (attendance(layer)[0, 1:32] == NEVER).all()


def test_what_left_the_window_is_not_called_unattended():
    tokens, window = 40, 16
    pairs = allowed_pairs(tokens, window)
    layer = by_hand([pairs / pairs.sum(1, keepdims=True)], window)
    status = attendance(layer, threshold=0.5)
    assert (status[0, : tokens - window] == OUT_OF_WINDOW).all()
    assert (status[0, tokens - window : tokens - 8] == ATTENDED).all()


def test_the_absolute_rule_and_its_threshold():
    weights = np.tril(np.ones((40, 40))) / np.arange(1, 41)[:, None]
    layer = by_hand([weights])
    assert (attendance(layer, "absolute", 0.03)[0, :31] == ATTENDED).all()
    assert (attendance(layer, "absolute", 0.6)[0, 1:32] == NEVER).all()
    with pytest.raises(ValueError, match="relative"):
        attendance(layer, "other")


def test_what_an_observer_raises_ends_the_work():
    done = []

    def progress(layers):
        done.append(layers)
        if layers == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        attention(FAMILIES["llama"](), ids_of(None, 20), progress=progress)
    assert done == [1, 2]


def test_positions_outside_the_text_are_refused():
    summary = attention(FAMILIES["llama"](), ids_of(None, 20))
    for work in (
        lambda: summary.keys(0, [-1]),
        lambda: summary.queries(0, [20]),
        lambda: summary.view(0, 0, keys=range(3, 30)),
        lambda: summary.over_time(0, range(2, 99)),
    ):
        with pytest.raises(IndexError, match="not in a text of 20 tokens"):
            work()
