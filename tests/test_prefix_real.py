"""Invariant 8 on the trained models: every preset of the Prefix reuse page, in float32 and in bfloat16."""

from functools import partial

import pytest
import torch

import kvviz
from kvviz.engine.reuse import store_prefix
from kvviz.models.prompts import encode, encode_turns, turns_of
from kvviz.ui.prefix.presets import DESK_DAY, PAIRS

pairs = pytest.mark.parametrize("name", list(PAIRS))
TEMPLATE = ("template", "turns")  # Gemma 3 270M comes without a chat template


@pytest.fixture(scope="module")
def smollm2_bfloat16(smollm2):
    """SmolLM2 in the dtype its weights were trained in."""
    return kvviz.load("smollm2-135m", device="cpu", dtype="bfloat16")


@pytest.fixture(scope="module")
def gemma3_bfloat16(gemma3):
    """Gemma 3 in the dtype its weights were trained in."""
    return kvviz.load("gemma-3-270m", device="cpu", dtype="bfloat16")


def prompts(lm, name):
    make = (lambda text: encode_turns(lm, turns_of(text))) if PAIRS[name].chat else partial(encode, lm)
    return make(PAIRS[name].first), make(PAIRS[name].second)


def check(lm, name, tolerance):
    """Warm against a forward without any cache, the stored cache bit for bit, and never the last token reused."""
    first, second = prompts(lm, name)
    found = kvviz.compare_prefix(lm, first, second)
    assert found.reused == min(found.shared, len(second.ids) - 1)
    assert found.first.ids[: found.shared] == found.second.ids[: found.shared]
    assert found.agrees and found.logit_gap <= tolerance
    stored = store_prefix(lm, first.ids[: found.reused])
    before = [(layer.keys.clone(), layer.values.clone()) for layer in stored.cache.layers] if found.reused else []
    warm, _, _ = stored.serve(lm, second.ids)
    with torch.inference_mode():
        plain = lm.model(torch.tensor([second.ids]), use_cache=False, logits_to_keep=1).logits[0, -1].float()
    assert (warm.logits[0] - plain).abs().max() <= tolerance
    if lm.dtype == torch.float32:
        assert found.same_top and int(plain.argmax()) == found.facts.top
    for layer, (keys, values) in zip(stored.cache.layers, before, strict=bool(before)):
        assert torch.equal(layer.keys, keys) and torch.equal(layer.values, values)
    return found


@pairs
def test_smollm2_in_float32(smollm2, name):
    check(smollm2, name, 1e-4)


@pairs
def test_smollm2_in_bfloat16(smollm2_bfloat16, name):
    check(smollm2_bfloat16, name, 1.7)


@pairs
def test_gemma3_in_float32(gemma3, name):
    if name in TEMPLATE:
        with pytest.raises(kvviz.Refused, match="chat template"):
            prompts(gemma3, name)
    else:
        check(gemma3, name, 1e-4)


@pytest.mark.parametrize("name", [name for name in PAIRS if name not in TEMPLATE])
def test_gemma3_in_bfloat16(gemma3_bfloat16, name):
    check(gemma3_bfloat16, name, 1.5)


def test_gold_in_words_and_in_bytes(smollm2, gemma3):
    words = kvviz.compare_prefix(gemma3, *prompts(gemma3, "gold"))
    assert words.frame()["second"].tolist() == ["<bos>", "大家好", "我是", "小", "金"]
    assert (words.shared, words.reused, words.shared_characters) == (3, 3, 5)
    assert [token.label for token in words.difference] == ["大", "小"]
    gold = words.distances().query("position == 4").set_index("layer")
    assert gold.loc[0, ["key", "value"]].max() < 1e-5 < 0.05 < gold.loc[17, "value"]
    pieces = kvviz.compare_prefix(smollm2, *prompts(smollm2, "gold"))
    assert (len(pieces.first.ids), len(pieces.second.ids), pieces.shared, pieces.shared_characters) == (11, 12, 8, 5)


def test_what_a_template_shares_is_not_what_was_typed(smollm2):
    found = kvviz.compare_prefix(smollm2, "hi", "Bonjour", chat=True)
    assert found.shared == 24 and found.shared_characters == 0
    assert found.shared_origins == {"bos": 0, "template": 24, "user": 0}


def test_a_second_turn_extends_the_first(smollm2):
    found = kvviz.compare_prefix(smollm2, *prompts(smollm2, "turns"))
    assert found.shared == found.reused == len(found.first.ids)
    said = "".join(
        token.raw.decode()
        for token, origin in zip(found.second.tokens, found.second.origins, strict=True)
        if origin == "user"
    )
    assert said == "".join(turns_of(PAIRS["turns"].second))


def test_text_in_common_is_not_ids_in_common(smollm2):
    assert kvviz.compare_prefix(smollm2, *prompts(smollm2, "seam")).shared == 3
    space = kvviz.compare_prefix(smollm2, *prompts(smollm2, "space"))
    assert (space.shared_characters, space.shared) == (6, 1)


def test_a_cheat_changes_what_is_said(smollm2, gemma3):
    for lm in (smollm2, gemma3):
        found = kvviz.cheat_prefix(lm, *prompts(lm, "gold"), max_new_tokens=24)
        assert found.kl > 0.01 and found.text != found.text_cheated
        assert found.facts.top != found.facts.top_cheated


def test_a_prefix_longer_than_the_window(gemma3):
    text = "The lamp is in room three, and the clock is in room one. " * 40
    found = kvviz.compare_prefix(gemma3, text + "Where is the lamp?", text + "And where is the clock?")
    assert found.shared > 520 and found.logit_gap < 3e-4 and found.same_top
    assert found.reused_bytes < found.saved_bytes  # a window holds 511 tokens


def test_the_first_hour_at_the_support_desk(smollm2):
    cache = kvviz.PrefixCache(smollm2, 200 * 46_080)
    for text in DESK_DAY[:5]:
        cache.serve(text, verify=True)
    frame = cache.frame()
    assert frame["logit_gap"].max() < 3e-4
    assert frame["held_bytes"].max() <= 200 * 46_080
    assert frame["reused_tokens"].iloc[1] > 120 and frame["reason"].iloc[0] == "first"
    assert frame["computed_tokens"].iloc[2] == 1  # the first question again
