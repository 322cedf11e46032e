"""Measures of both trained models against their own eager attention, and the sink of ordinary English."""

from pathlib import Path

import numpy as np
import torch

from kvviz.engine.probe import ATTENTION
from kvviz.geometry.layers import layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import encode
from kvviz.summary import attention

ENGLISH = (Path(__file__).parent / "english.txt").read_text(encoding="utf-8")


def eager(lm: LanguageModel, ids: tuple[int, ...]) -> list[np.ndarray]:
    """Attention of every layer, (heads, T, T), as transformers returns it."""
    try:
        lm.model.set_attn_implementation("eager")
        with torch.inference_mode():
            output = lm.model(torch.tensor([ids]), use_cache=False, output_attentions=True)
    finally:
        lm.model.set_attn_implementation(ATTENTION)
    return [weights[0].numpy() for weights in output.attentions]


def test_smollm2_measures_equal_those_of_eager_attention(smollm2: LanguageModel) -> None:
    _equal(smollm2)


def test_gemma3_measures_equal_those_of_eager_attention(gemma3: LanguageModel) -> None:
    _equal(gemma3)


def _equal(lm: LanguageModel) -> None:
    ids = encode(lm, ENGLISH).ids[:200]
    summary, oracle = attention(lm, ids), eager(lm, ids)
    assert len(summary.layers) == len(oracle) == lm.config.num_hidden_layers
    pairs = np.tril(np.ones((200, 200), dtype=bool))
    for layer, weights in zip(summary.layers, oracle, strict=True):
        later = weights * ~np.eye(200, dtype=bool)
        queries = np.arange(200, 0, -1)
        np.testing.assert_allclose(layer.received / queries, weights.sum(1) / queries, atol=1e-5)
        np.testing.assert_allclose(layer.peak_probability, later.max(1), atol=1e-5)
        np.testing.assert_allclose(layer.first, weights[:, :, 0], atol=1e-5)
        np.testing.assert_allclose(layer.self_attention, np.diagonal(weights, axis1=1, axis2=2), atol=1e-5)
        assert (layer.choices == pairs.sum(1)).all()
    for number in (0, len(oracle) - 1):
        maps = summary.maps(number)
        np.testing.assert_allclose(maps, np.where(pairs, oracle[number], np.nan), atol=1e-5)


def test_rows_behind_a_window_equal_eager_attention(gemma3: LanguageModel) -> None:
    """200 tokens lie within Gemma's window of 512; 600 do not."""
    ids = encode(gemma3, ENGLISH).ids[:600]
    summary, oracle = attention(gemma3, ids), eager(gemma3, ids)
    shapes = layer_shapes(gemma3.config)
    sliding = next(shape.layer for shape in shapes if shape.window)
    full = next(shape.layer for shape in shapes if not shape.window)
    for number in (sliding, full):
        row = summary.queries(number, [599])[:, 0]
        hidden = np.arange(600) <= 599 - 512 if number == sliding else np.zeros(600, dtype=bool)
        assert (np.isnan(row) == hidden).all()
        np.testing.assert_allclose(np.nan_to_num(row), oracle[number][:, 599], atol=1e-5)
        assert summary.layers[number].last_visible.sum() == 600 - hidden.sum()


def test_the_first_token_of_english_is_a_sink(smollm2: LanguageModel) -> None:
    """Measured: position 0 in 131 of 270 heads (epsilon 0.3, with the diagonal), position 3 in 3, no other in any."""
    ids = encode(smollm2, ENGLISH).ids
    assert len(ids) > 1024, "the text has become too short"
    sinks = attention(smollm2, ids[:1024]).sinks(epsilon=0.3)
    first, others = sinks.iloc[0], sinks.iloc[1:]
    assert first["position"] == 0
    assert 0.45 < first["rate"] < 0.52
    assert first["heads"] == round(first["rate"] * 270)
    assert (others["rate"] < 0.03).all()
