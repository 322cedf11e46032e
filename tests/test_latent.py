"""Latent attention: both ways equal each other and transformers' module, and counts equal what torch counts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import kvviz
from kvviz.engine.latent import LatentCall, absorbed, expand, expanded, grouped
from kvviz.engine.latentmodel import model_calls
from kvviz.engine.latentmodule import LatentModule
from kvviz.errors import Refused
from kvviz.geometry.latent import LatentSizes, latent_stages
from kvviz.geometry.latentcounts import (
    break_even_length,
    break_even_new,
    cost,
    equal_groups,
    latent_counts,
    spaced,
)
from kvviz.latents import TOLERANCES, latent, latent_of, small_enough
from tests.tiny import VOCABULARY, _build, config, tiny_deepseek, tiny_llama

V3 = LatentSizes(heads=128, rank=512, rotary=64, nope=128, value=128)
width = st.integers(1, 12)
some_sizes = st.builds(
    LatentSizes, heads=st.integers(1, 6), rank=st.integers(1, 20), rotary=st.integers(1, 6).map(lambda half: 2 * half),
    nope=width, value=width,
)  # fmt: skip
lengths = st.tuples(st.integers(1, 24), st.integers(1, 24)).map(lambda pair: (max(pair), min(pair)))
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@settings(max_examples=60, deadline=None)
@given(
    sizes=some_sizes, tokens_new=lengths, query_rank=st.none() | st.integers(1, 10), interleave=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)), seed=st.integers(0, 99),
)  # fmt: skip
def test_both_ways_equal_each_other_and_the_module(sizes, tokens_new, query_rank, interleave, dtype, seed) -> None:
    tokens, new = tokens_new
    module = LatentModule(sizes, DTYPES[dtype], query_rank=query_rank, interleave=interleave, seed=seed)
    call, own = module.attend(tokens, new)
    assert call.sizes == sizes
    assert call.latent.shape == (tokens, sizes.rank) and call.rotary.shape == (tokens, sizes.rotary)
    one, other = expanded(call), absorbed(call)
    close = {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype]}
    assert one.shape == (sizes.heads, new, sizes.value)
    torch.testing.assert_close(one, other, **close)
    for heads in (one, other):
        torch.testing.assert_close(module.attention.o_proj(heads.transpose(0, 1).flatten(1)), own, **close)


@torch.inference_mode()
def test_expanding_is_transformers_own() -> None:
    module = LatentModule(LatentSizes(3, 10, 4, 6, 5), torch.float64)
    call, _ = module.attend(9)
    key, value = module.attention.expand_kv(call.latent[None, None], call.rotary[None, None])
    ours = expand(call)
    assert torch.equal(ours[0], key[0]) and torch.equal(ours[1], value[0])


def test_what_must_not_be_equal_is_not() -> None:
    """An oracle that can fail: other latents, or another order of the two parts of a head's weight."""
    module = LatentModule(LatentSizes(3, 10, 4, 6, 6), torch.float64)
    call, _ = module.attend(9)
    swapped = call.up.view(3, 2, 6, 10).flip(1).reshape(call.up.shape)
    for changed in ({"latent": call.latent.roll(1, 0)}, {"up": swapped}, {"rotary": call.rotary.flip(0)}):
        fields = {name: getattr(call, name) for name in call.__dataclass_fields__} | changed
        assert (absorbed(LatentCall(**fields)) - expanded(call)).abs().max() > 1e-3


def test_no_key_and_no_value_is_made_while_absorbing() -> None:
    """The largest tensor of the absorbed step has no size that grows with heads x length x head width."""
    call, _ = LatentModule(LatentSizes(8, 16, 4, 32, 32), torch.float64).attend(64)
    largest = []
    for way in (absorbed, expanded):
        with Largest() as seen:
            way(call)
        largest.append(seen.numbers)
    assert largest[0] <= max(8 * 64, 8 * 64 * 16) and largest[1] >= 8 * 64 * 64


class Largest(torch.overrides.TorchFunctionMode):
    """Numbers of the largest tensor that any torch function gave."""

    numbers = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            self.numbers = max(self.numbers, result.numel())
        return result


def test_a_seed_repeats_and_the_shared_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    results = [latent(LatentSizes(2, 8, 4, 6, 6), 5, seed=seed, repeats=1) for seed in (3, 3, 4)]
    assert torch.equal(before, torch.random.get_rng_state())
    assert results[0].decode.own_largest == results[1].decode.own_largest != results[2].decode.own_largest


@settings(max_examples=40, deadline=None)
@given(sizes=some_sizes, tokens_new=lengths)
def test_multiply_adds_are_those_torch_counts(sizes: LatentSizes, tokens_new: tuple[int, int]) -> None:
    tokens, new = tokens_new
    call, _ = LatentModule(sizes, torch.float64).attend(tokens, new)
    key, value = expand(call)
    ways = {
        "expanded": lambda: expanded(call),
        "absorbed": lambda: absorbed(call),
        "mha": lambda: grouped(call.query, key, value, call.scaling),
        "gqa": lambda: grouped(call.query, key[:1], value[:1], call.scaling),
    }
    for way, work in ways.items():
        with FlopCounterMode(display=False) as counter:
            work()
        assert counter.get_total_flops() == 2 * cost(way, sizes, tokens, 1, new).multiply_adds, way
    assert cost("mha", sizes, tokens).kept == (key.shape[2], value.shape[2]) * sizes.heads
    assert cost("expanded", sizes, tokens).made == key.numel() + value.numel()


def test_grouped_heads_equal_torch_attention() -> None:
    random = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(size, generator=random) for size in ((6, 1, 8), (2, 9, 8), (2, 9, 5)))
    theirs = torch.nn.functional.scaled_dot_product_attention(
        query[None], key[None], value[None], scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(grouped(query, key, value, 0.3), theirs[0])


def test_bytes_are_those_of_the_cache() -> None:
    call, _ = LatentModule(LatentSizes(4, 24, 8, 6, 10), torch.float32).attend(17)
    held = sum(tensor.numel() * tensor.element_size() for tensor in (call.latent, call.rotary))
    frame = latent_counts(call.sizes, [17], dtype="float32").set_index("way")
    assert frame.loc["absorbed", "cached_bytes"] == frame.loc["expanded", "cached_bytes"] == held
    assert frame.loc["expanded", "made_bytes"] == sum(one.numel() * 4 for one in expand(call))
    assert frame.loc["gqa", "bytes_per_token"] == (6 + 8 + 10) * 4
    assert frame.loc["mha", "cached_bytes"] == frame.loc["expanded", "made_bytes"]


def test_deepseek_v3() -> None:
    """1,152 bytes a token and layer against 81,920; the plan says the same of all 61 layers."""
    frame = latent_counts(V3, [4096], groups=8).set_index("way")
    assert frame.loc["absorbed", "bytes_per_token"] == 1_152
    assert frame.loc["mha", "bytes_per_token"] == 2 * 128 * (192 + 128) == 81_920
    assert frame.loc["absorbed", "bytes_per_token"] * 61 == kvviz.plan("deepseek-v3", check=False).bytes_per_token
    assert frame.loc["absorbed", "multiply_adds"] == 128 * (512 * 256 + 4096 * (2 * 512 + 64))
    assert frame.loc["expanded", "multiply_adds"] == 128 * 4096 * (512 * 256 + 320)
    assert break_even_length(V3) == 2
    assert equal_groups(V3) == pytest.approx(1.8)


def adds(way: str, sizes: LatentSizes, tokens: int, new: int) -> int:
    return cost(way, sizes, tokens, new=new).multiply_adds


@settings(max_examples=150, deadline=None)
@given(sizes=some_sizes, new=st.integers(1, 8))
def test_the_break_even_length_is_the_first_that_gains(sizes: LatentSizes, new: int) -> None:
    gains = [at for at in range(new, 400) if adds("absorbed", sizes, at, new) < adds("expanded", sizes, at, new)]
    found = break_even_length(sizes, new)
    assert (found if found is not None and found < 400 else None) == (gains[0] if gains else None)
    assert not gains or gains == list(range(gains[0], 400))


@settings(max_examples=150, deadline=None)
@given(sizes=some_sizes, tokens=st.integers(1, 60))
def test_the_break_even_of_new_tokens(sizes: LatentSizes, tokens: int) -> None:
    news = range(1, tokens + 1)
    gains = [new for new in news if adds("absorbed", sizes, tokens, new) < adds("expanded", sizes, tokens, new)]
    assert break_even_new(sizes, tokens) == len(gains) and gains == list(news)[: len(gains)]


def test_stages_add_up_and_name_the_shapes_of_the_tensors() -> None:
    sizes = LatentSizes(3, 10, 4, 6, 5)
    frame = latent_stages(sizes, 9, 2)
    for way, rows in frame.groupby("way"):
        assert rows["multiply_adds"].sum() == cost(way, sizes, 9, new=2).multiply_adds
        assert rows["shape"].iloc[-1] == "3 × 2 × 5"
    call, _ = LatentModule(sizes, torch.float64).attend(9, 2)
    value = expand(call)[1]
    assert frame["shape"].iloc[1] == " × ".join(map(str, value.shape))


def test_curves_reach_the_end() -> None:
    assert spaced(1) == [1] and spaced(1000)[0] == 1 and spaced(1000)[-1] == 1000
    frame = latent_counts(V3)
    assert set(frame["way"]) == {"mha", "gqa", "expanded", "absorbed"} and frame["tokens"].max() == 131_072


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_loaded_model(layer: int, dtype: str) -> None:
    found = latent_of(tiny_deepseek(), "the cat sat on the mat", layer=layer, dtype=dtype, repeats=1)
    assert found.sizes == LatentSizes(4, 16, 8, 16, 16) and found.equal
    assert found.prefill.new == found.prefill.tokens == found.decode.tokens - 1 and found.decode.new == 1
    for run in found.runs:
        assert run.own_difference <= 1e-5 * run.own_largest
    assert list(found.frame()["phase"]) == ["decode", "prefill"]


def test_the_loaded_models_output_is_that_of_a_plain_forward() -> None:
    """What counts as the model's own: the attention module's output in a forward nobody listens to."""
    lm, ids = tiny_deepseek(), [5, 9, 77, 120, 8]
    module, outputs = lm.model.model.layers[1].self_attn, []
    hook = module.register_forward_hook(lambda _module, _arguments, output: outputs.append(output[0][0]))
    try:
        with torch.inference_mode():
            lm.model(torch.tensor([ids]), use_cache=False)
    finally:
        hook.remove()
    (decode, own, output), (_, before, _) = model_calls(lm, ids, 1)
    torch.testing.assert_close(torch.cat((before, own)), outputs[0], rtol=1e-5, atol=1e-5)
    ours = output(absorbed(decode).transpose(0, 1).flatten(1))
    torch.testing.assert_close(ours, outputs[0][-1:], rtol=1e-4, atol=1e-4)


def test_one_token_has_a_decode_step_alone() -> None:
    assert latent_of(tiny_deepseek(), [7], repeats=1).prefill is None
    assert latent(LatentSizes(2, 8, 4, 6, 6), 1, repeats=1).prefill is None


SMALLER = {"num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16}
SMALLER |= {"v_head_dim": 12, "q_lora_rank": 24, "head_dim": 8}
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32}
EXPERTS |= {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("DeepseekV2Config", EXPERTS | {"q_lora_rank": None}), ("MiniCPM3Config", {}), ("Glm4MoeLiteConfig", EXPERTS)],
)
def test_other_families(kind: str, changes: dict[str, object]) -> None:
    lm = _build(config(kind, **(SMALLER | changes)))
    found = latent_of(lm, list(range(5, 15)), layer=1, repeats=1)
    assert found.equal and found.sizes == LatentSizes(4, 16, 8, 16, 12)
    assert all(run.own_difference <= 1e-5 * run.own_largest for run in found.runs)


REFUSED = {
    "no heads": lambda: LatentSizes(0, 8, 4, 6, 6),
    "rank 0": lambda: LatentSizes(2, 0, 4, 6, 6),
    "no rotary": lambda: LatentSizes(2, 8, 0, 6, 6),
    "odd rotary": lambda: LatentSizes(2, 8, 5, 6, 6),
    "negative": lambda: LatentSizes(2, 8, 4, -1, 6),
    "no value": lambda: LatentSizes(2, 8, 4, 6, 0),
    "not whole": lambda: LatentSizes(2, 8.5, 4, 6, 6),
    "huge": lambda: LatentSizes(2, 10**8, 4, 6, 6),
    "no tokens": lambda: latent(V3, 0),
    "more new than cached": lambda: latent_stages(V3, 4, 5),
    "groups that do not divide": lambda: latent_counts(V3, [4], groups=3),
    "a format for counts": lambda: latent_counts(V3, [4], dtype="float3"),
    "a format for measuring": lambda: latent(LatentSizes(2, 8, 4, 6, 6), 4, dtype="bfloat16"),
    "a model without latents": lambda: latent_of(tiny_llama(), "the cat"),
    "a layer that is not there": lambda: latent_of(tiny_deepseek(), "the cat", layer=3),
    "too many tokens": lambda: latent_of(tiny_deepseek(), [7] * 257),
    "an id that is not there": lambda: latent_of(tiny_deepseek(), [VOCABULARY]),
    "no text": lambda: latent_of(tiny_deepseek(), ""),
}


@pytest.mark.parametrize("ask", REFUSED.values(), ids=REFUSED)
def test_refused_in_a_sentence(ask) -> None:
    with pytest.raises(Refused) as refusal:
        ask()
    assert str(refusal.value).endswith(".") and "{" not in str(refusal.value)


def test_what_is_measured_while_somebody_waits_is_small() -> None:
    sizes, tokens = small_enough(V3, 100_000)
    assert sizes == LatentSizes(4, 512, 64, 128, 128) and tokens == 128
    small = LatentSizes(8, 64, 16, 32, 32)
    assert small_enough(small, 200) == (small, 200)
