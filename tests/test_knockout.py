"""Taking a token away, against eager attention with a mask that hides it."""

import numpy as np
import pytest
import torch

from kvviz.engine.knockout import take_away
from kvviz.engine.probe import ATTENTION
from kvviz.errors import Refused
from tests.tiny import FAMILIES

IDS = torch.randint(10, 250, (30,), generator=torch.Generator().manual_seed(5)).tolist()


@pytest.mark.parametrize("positions", [[0], [3, 17]])
def test_losses_are_those_of_a_masked_dense_run(positions):
    lm = FAMILIES["llama"]()
    found = take_away(lm, IDS, positions)
    allowed = torch.ones(30, 30, dtype=torch.bool).tril()
    for position in positions:
        allowed[position + 1 :, position] = False
    additive = torch.zeros(30, 30).masked_fill(~allowed, torch.finfo(torch.float32).min)[None, None]
    try:
        lm.model.set_attn_implementation("eager")
        with torch.inference_mode():
            whole = lm.model(torch.tensor([IDS]), use_cache=False).logits[0]
            masked = lm.model(torch.tensor([IDS]), attention_mask=additive, use_cache=False).logits[0]
    finally:
        lm.model.set_attn_implementation(ATTENTION)
    for nll, logits in ((found.nll, whole), (found.nll_without, masked)):
        expected = -logits.log_softmax(-1)[torch.arange(29), torch.tensor(IDS[1:])]
        np.testing.assert_allclose(nll, expected.numpy(), atol=1e-4)
    assert [token for token, _ in found.top_without] == masked[-1].topk(5).indices.tolist()
    assert np.abs(found.nll - found.nll_without)[positions[0] :].max() > 0.01


def test_nothing_changes_before_the_token():
    found = take_away(FAMILIES["gemma3"](), IDS, [12])
    np.testing.assert_allclose(found.nll[:12], found.nll_without[:12], atol=1e-5)


def test_a_token_out_of_the_window_changes_nothing_directly():
    lm = FAMILIES["mistral"]()  # every layer sees 8 tokens, three layers reach 22 back
    found = take_away(lm, IDS, [0])
    np.testing.assert_allclose(found.nll[23:], found.nll_without[23:], atol=1e-5)
    assert np.abs(found.nll - found.nll_without)[:22].max() > 1e-3


@pytest.mark.parametrize("positions", [[], [-1], [30]])
def test_a_token_that_is_not_there_is_refused(positions):
    with pytest.raises(Refused, match="between 0 and 29"):
        take_away(FAMILIES["llama"](), IDS, positions)


def test_models_that_compute_attention_themselves_are_refused():
    with pytest.raises(Refused, match="itself"):
        take_away(FAMILIES["bloom"](), IDS, [0])


def test_queries_before_a_position_may_still_look():
    lm = FAMILIES["llama"]()
    found = take_away(lm, IDS, [3], since=15)
    np.testing.assert_allclose(found.nll[:15], found.nll_without[:15], atol=1e-5)
    at_once = take_away(lm, IDS, [3]).nll_without
    assert np.abs(found.nll - found.nll_without)[15:].max() > 0.01 < np.abs(found.nll_without - at_once).max()
