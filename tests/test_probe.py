"""The attention function every model is loaded with, against transformers' eager attention."""

import pytest
import torch

from kvviz.engine.probe import ATTENTION, observe
from tests.tiny import FAMILIES


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("count", [1, 2, 40])
def test_logits_equal_eager_attention(family, count):
    lm = FAMILIES[family]()
    if lm.model.config._attn_implementation != ATTENTION:
        pytest.skip("this family computes attention itself")
    ids = torch.randint(10, 250, (1, count), generator=torch.Generator().manual_seed(count))
    with torch.inference_mode():
        ours = lm.model(ids, use_cache=False).logits
        try:
            lm.model.set_attn_implementation("eager")
            eager = lm.model(ids, use_cache=False).logits
        finally:
            lm.model.set_attn_implementation(ATTENTION)
    assert (ours - eager).abs().max() <= 1e-5 * max(1.0, eager.abs().max().item())


def test_an_observer_hears_each_layer_once_and_only_inside_its_block():
    lm, heard = FAMILIES["llama"](), []
    ids = torch.tensor([[11, 12, 13]])
    with torch.inference_mode():
        with observe(lambda call: heard.append((call.layer, tuple(call.query.shape)))):
            lm.model(ids, use_cache=False)
        lm.model(ids, use_cache=False)
    heads, width = lm.config.num_attention_heads, lm.config.head_dim
    assert heard == [(layer, (1, heads, 3, width)) for layer in range(lm.config.num_hidden_layers)]


def test_observers_do_not_change_the_result():
    lm = FAMILIES["gpt_oss"]()
    ids = torch.tensor([[11, 12, 13, 14]])
    with torch.inference_mode():
        plain = lm.model(ids, use_cache=False).logits
        with observe(lambda call: None):
            assert torch.equal(plain, lm.model(ids, use_cache=False).logits)


def test_a_batch_is_computed_sequence_by_sequence():
    lm = FAMILIES["gpt_oss"]()
    ids = torch.tensor([[11, 12, 13, 14, 15], [99, 44, 12, 200, 31]])
    with torch.inference_mode():
        both = lm.model(ids, use_cache=False).logits
        alone = [lm.model(row[None], use_cache=False).logits[0] for row in ids]
    assert torch.allclose(both, torch.stack(alone), atol=1e-4)
