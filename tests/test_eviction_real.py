"""Every policy on SmolLM2: fed whole against fed token by token, against a dense run with masks, and rotated late."""

from pathlib import Path

import pytest
import torch

from kvviz.policies import REGISTRY
from tests.eviction_late import rotated_late
from tests.eviction_oracles import Run, dense, run
from tests.small_policies import small

TEXT = Path(__file__).with_name("english.txt").read_text(encoding="utf-8")
TOKENS, BUDGET, PROMPT = 120, 24, 72


@pytest.fixture(scope="module")
def ids(smollm2) -> list[int]:
    return smollm2.tokenizer(TEXT)["input_ids"][:TOKENS]


@pytest.fixture(scope="module")
def plain(smollm2, ids) -> torch.Tensor:
    """Logits of the full text, nothing hidden."""
    return dense(smollm2, ids, {}).logits


def nll(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
    return -logits[:-1].float().log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


def far(one: torch.Tensor, other: torch.Tensor, ids: list[int]) -> float:
    """Largest difference of a token's loss, nats."""
    return float((nll(one, ids) - nll(other, ids)).abs().max())


def check_dropped(found: Run) -> None:
    assert len(found.gone) == 30
    assert all(
        len(each.positions[0]) == BUDGET or found.cache.policy.evicts == "prefill" for each in found.cache.layers
    )


@pytest.mark.parametrize("name", REGISTRY)
def test_whole_and_token_by_token_and_masked(smollm2, ids, plain, name):
    policy = small(name, BUDGET, positions="original")
    whole = run(smollm2, policy, ids, piece=TOKENS, prompt=PROMPT)
    single = run(smollm2, policy, ids, piece=1, prompt=PROMPT)
    check_dropped(whole)
    assert far(whole.logits, single.logits, ids) <= 1e-3
    assert all((gone == single.gone[layer]).all() for layer, gone in whole.gone.items())
    assert far(whole.logits, dense(smollm2, ids, whole.gone).logits, ids) <= 1e-3
    assert far(whole.logits, plain, ids) > 0.1


@pytest.mark.parametrize("name", ["sinks_window", "h2o"])
def test_renumbered(smollm2, ids, name):
    ids = ids[:80]  # each turned key is a small product of its own
    found = run(smollm2, small(name, BUDGET, positions="relative"), ids, piece=len(ids))
    check_dropped(found)
    assert far(found.logits, rotated_late(smollm2, ids, found.gone), ids) <= 1e-3
    assert far(found.logits, dense(smollm2, ids, found.gone).logits, ids) > 0.01
