"""Plans against published figures, against other engines' own counts, and against the real modelling code."""

import json
import re
from pathlib import Path

import pytest
import transformers

import kvviz
from kvviz.errors import Refused
from kvviz.geometry.checked import compare
from kvviz.geometry.dtypes import DTYPES
from kvviz.geometry.plan import Plan
from kvviz.geometry.vllm import reserve
from kvviz.geometry.worked import gemma2_27b
from kvviz.models.presets import presets

MIB, GIB = 1024**2, 1024**3


def formula(name: object, tokens: int = 8192, **options: object) -> Plan:
    """The plan without running the modelling code."""
    return kvviz.plan(name, tokens, check=False, **options)


# bytes a token while every layer grows, bytes a token of the layers without a window, and MiB that a query may look
# at after 8,192 and 131,072 tokens: worked out from the published configurations, apart from this code
PUBLISHED = {
    "gpt2": (36_864, 36_864, 288.0, 4_608.0),
    "smollm2-135m": (23_040, 23_040, 180.0, 2_880.0),
    "llama-2-7b": (524_288, 524_288, 4_096.0, 65_536.0),
    "phi-3-mini-4k": (393_216, 0, 767.6, 767.6),
    "falcon-7b": (8_192, 8_192, 64.0, 1_024.0),
    "llama-3-8b": (131_072, 131_072, 1_024.0, 16_384.0),
    "llama-3-70b": (327_680, 327_680, 2_560.0, 40_960.0),
    "llama-3.1-405b": (516_096, 516_096, 4_032.0, 64_512.0),
    "mistral-7b-v0.1": (131_072, 0, 512.0, 512.0),
    "mixtral-8x7b": (131_072, 131_072, 1_024.0, 16_384.0),
    "qwen2.5-0.5b": (12_288, 12_288, 96.0, 1_536.0),
    "qwen2.5-7b": (57_344, 57_344, 448.0, 7_168.0),
    "qwen2.5-72b": (327_680, 327_680, 2_560.0, 40_960.0),
    "qwen3-0.6b": (114_688, 114_688, 896.0, 14_336.0),
    "qwen3-8b": (147_456, 147_456, 1_152.0, 18_432.0),
    "qwen3-32b": (262_144, 262_144, 2_048.0, 32_768.0),
    "qwen3-30b-a3b": (98_304, 98_304, 768.0, 12_288.0),
    "qwen3-235b-a22b": (192_512, 192_512, 1_504.0, 24_064.0),
    "gemma-2-27b": (376_832, 188_416, 2_208.0, 24_288.0),
    "gemma-3-270m": (18_432, 3_072, 31.5, 391.5),
    "gemma-3-1b": (26_624, 4_096, 43.0, 523.0),
    "gemma-3-27b": (507_904, 81_920, 1_056.0, 10_656.0),
    "gemma-3n-e4b": (40_960, 8_192, 80.0, 1_040.0),
    "gpt-oss-20b": (49_152, 24_576, 195.0, 3_075.0),
    "gpt-oss-120b": (73_728, 36_864, 292.5, 4_612.5),
    "llama-4-scout": (196_608, 49_152, 1_536.0, 7_296.0),
    "deepseek-v2-lite": (31_104, 31_104, 243.0, 3_888.0),
    "deepseek-v3": (70_272, 70_272, 549.0, 8_784.0),
    "kimi-k2": (70_272, 70_272, 549.0, 8_784.0),
    "qwen3-next-80b-a3b": (24_576, 24_576, 266.2, 3_146.2),
    "jamba-v0.1": (16_384, 16_384, 143.8, 2_063.8),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures(name: str) -> None:
    each, beyond, short, long = PUBLISHED[name]
    plan = formula(name)
    assert (plan.bytes_per_token, plan.bytes_per_token_beyond_windows) == (each, beyond)
    assert plan.least_bytes / MIB == pytest.approx(short, abs=0.051)
    assert plan.at(tokens=131_072).least_bytes / MIB == pytest.approx(long, abs=0.051)


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_confirmed_by_the_modelling_code(name: str) -> None:
    plan = kvviz.plan(name)
    assert str(plan.checked).startswith("equal: "), plan.checked
    assert plan.source and plan.parameters and plan.notes == ()


# parameters as the makers' model cards or weight files give them
PARAMETERS = {
    "gpt2": 124_439_808,
    "smollm2-135m": 134_515_008,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b-v0.1": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "phi-3-mini-4k": 3_821_079_552,
    "gemma-2-27b": 27_227_128_320,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_weight_files(name: str) -> None:
    plan = kvviz.plan(name)
    assert plan.parameters == PARAMETERS[name]
    assert plan.weights_bytes == 2 * PARAMETERS[name]
    assert plan.at(weights_dtype="float32").weights_bytes == 4 * PARAMETERS[name]


def test_llama_cpp_allocates_what_is_planned() -> None:
    assert formula("smollm2-135m", 8192, dtype="float16").total_bytes == 180 * MIB
    gemma = formula("gemma-3-270m", 8192, dtype="float16")  # its log: 24 MiB for the three layers that do not slide
    assert gemma.kinds()["full"] == 24 * MIB
    sliding = [shape for shape in gemma.shapes if shape.kind == "sliding"]
    assert sum(shape.bytes_per_token(2) for shape in sliding) * 1024 == 15 * MIB  # and 1,024 cells for fifteen that do


def test_transformers_holds_one_token_less_than_a_window() -> None:
    plan = formula("mistral-7b-v0.1", 10_000)
    assert (plan.layers.tokens == 4095).all()
    assert plan.total_bytes == 32 * 4095 * 4096 and plan.least_bytes == 32 * 4096 * 4096
    assert plan.at(tokens=100).total_bytes == plan.at(tokens=100).least_bytes == 32 * 100 * 4096


def test_a_frame_of_layers_adds_up_and_says_how() -> None:
    for name in ("gemma-3-27b", "jamba-v0.1", "deepseek-v3.2", "falcon-40b"):
        plan = formula(name, 5000, batch=3)
        layers = plan.layers
        assert list(layers.layer) == list(range(len(plan.shapes)))
        assert layers.bytes.sum() == plan.total_bytes == 3 * plan.at(batch=1).total_bytes
        assert layers.least_bytes.sum() == plan.least_bytes
        assert layers.vllm_bytes.sum() + 3 * plan.reservation.padding_bytes == plan.vllm_bytes
        for formulas, numbers in (
            ("formula", "bytes"),
            ("least_formula", "least_bytes"),
            ("vllm_formula", "vllm_bytes"),
        ):
            assert [evaluated(text) for text in layers[formulas]] == list(layers[numbers])


def evaluated(text: str) -> int:
    """What a formula as written comes to."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text).replace(" B", "").replace("×", "*").replace("−", "-")
    return eval(re.sub(r"⌈(.+?) / (\d+)⌉", r"-(-(\1) // \2)", plain), {"min": min})


def test_vllm_reserves_whole_blocks_and_pads_groups() -> None:
    gemma = formula("gemma-3-27b", 32_768).reservation  # 10 full and 52 sliding layers: groups of 10, 8 padded
    page = 16 * 8192
    sliding = -(-(1023 + 2048) // 16) + 1
    assert gemma.group_layers == 10
    assert gemma.bytes == (10 * 2048 + 60 * sliding) * page
    assert formula("gpt-oss-20b").reservation.padding_bytes == 0  # 12 and 12


def test_vllm_raises_blocks_to_the_size_of_a_state() -> None:
    held = formula("qwen3.5-27b", 8192).reservation.held
    assert {part.block_tokens for part in held} == {0, 784}  # 784 is what vLLM's log says for this model


def test_the_worked_example() -> None:
    rows = gemma2_27b().set_index("case")
    assert list(rows.bytes_per_token) == [706_560, 753_664, 376_832, 376_832]
    assert rows.tokens_in_80_gib["query_heads"] == 113_975 == 80 * GIB // 753_664
    assert rows.tokens_in_80_gb["stated"] == 80 * 10**9 // 706_560
    assert rows.bytes_per_token_beyond_window["windows"] == 188_416
    assert rows.tokens_in_80_gib["windows"] == (80 * GIB - 23 * 4095 * 8192) // 188_416
    model = formula("gemma-2-27b")  # the example's numbers are the model's
    assert model.bytes_per_token == 376_832 and model.what_if("mha").bytes_per_token == 753_664


def test_what_if() -> None:
    llama = formula("llama-3-8b", 131_072)
    assert llama.what_if("mha").bytes_per_token == 4 * llama.bytes_per_token
    assert llama.what_if("mqa").bytes_per_token == llama.bytes_per_token // 8
    assert llama.what_if("gqa", groups=8) is llama  # nothing changed, the verdict stays
    assert llama.what_if("mla", rank=512, rotary=64).bytes_per_token == 32 * 576 * 2
    expanded = formula("deepseek-v3").what_if("mha").bytes_per_token  # what transformers before 5.15 cached
    assert expanded == 61 * 128 * (192 + 128) * 2 == 4_997_120
    five = llama.what_if(windows="five_in_six", window=1024, sinks=4)
    assert [shape.kind for shape in five.shapes].count("full") == 5
    assert five.total_bytes == 4096 * (5 * 131_072 + 27 * (1023 + 4))
    assert llama.what_if(windows="alternating").total_bytes == 4096 * 16 * (131_072 + 4095)
    assert llama.what_if(windows="every").what_if(windows="none").total_bytes == llama.total_bytes
    assert five.checked.status == "formula only"


def test_number_formats_with_their_scales() -> None:
    llama = formula("llama-3-8b", 1000)
    numbers = 1000 * 65_536
    assert llama.at(dtype="float32").total_bytes == 4 * numbers
    assert llama.at(dtype="fp8").total_bytes == numbers + 32 * 8
    assert llama.at(dtype="int8").total_bytes == numbers * 34 // 32  # a block of q8_0 has 34 bytes, of q4_0 18
    assert llama.at(dtype="int4").total_bytes == numbers * 18 // 32
    assert llama.at(dtype="mxfp4").total_bytes == numbers * 17 // 32
    assert all(dtype.scales or dtype.bits >= 16 for dtype in DTYPES.values())
    assert formula("gpt2", dtype="q4_0").dtype is DTYPES["int4"]


def test_a_vector_that_does_not_fill_its_blocks_takes_whole_ones() -> None:
    plan = formula({"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 80}, 1, dtype="int8")
    assert plan.total_bytes == 2 * 3 * 34


def test_users_on_gpus() -> None:
    plan = kvviz.plan("llama-3-8b", 32_768)
    one = plan.fit("H100")
    room = 80 * GIB - int(8 * GIB) - 2 * plan.parameters
    assert one.room_bytes == room and one.user_bytes == 4 * GIB and one.users == room // (4 * GIB) == 14
    assert one.longest_tokens == room // 131_072
    assert plan.fit("T4").users == 0
    two = plan.fit("H100", 2)
    assert two.user_bytes == 2 * GIB and two.users == (72 * GIB - plan.parameters) // (2 * GIB)
    sixteen = plan.fit("H100", 16)  # eight KV heads: each is on two cards
    assert sixteen.user_bytes == plan.fit("H100", 8).user_bytes == 4 * GIB // 8
    latent = kvviz.plan("deepseek-v3", 32_768)  # a latent cannot be divided by heads
    assert latent.fit("H200", 16).user_bytes == latent.total_bytes
    assert latent.fit("H200", 16, split="layers").user_bytes == 4 * 1152 * 32_768
    table = plan.fits()
    assert list(table.users) == [plan.fit(name).users for name in table.gpu]
    assert formula("mistral-7b-v0.1").fit("H100").longest_tokens is None  # windows alone: no end
    assert plan.fit(one.memory_bytes, by="vllm").users <= one.users


LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}


def test_every_way_to_name_a_model(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**{**LLAMA, "num_key_value_heads": 2})
    config.save_pretrained(tmp_path)
    for what in (config, config.to_dict(), config.to_json_string(use_diff=False), str(tmp_path), tmp_path):
        assert formula(what).bytes_per_token == 2 * 2 * 32 * 2
    assert formula(tmp_path / "config.json").bytes_per_token == 256
    assert formula("  LLAMA-3-8B ").title == "Llama 3 8B"


def test_the_language_part_of_a_model_that_sees() -> None:
    text = {"num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
            "hidden_size": 64, "intermediate_size": 64, "sliding_window": 8, "vocab_size": 300}  # fmt: skip
    plan = kvviz.plan({"model_type": "gemma3", "text_config": text})
    assert plan.bytes_per_token == 6 * 2 * 16 * 2
    assert any("read images" in note.sentence() for note in plan.notes)
    assert plan.checked.status == "equal"


def test_an_unknown_model_type_is_read_from_its_fields() -> None:
    fields = {"model_type": "brand_new", "n_layer": 3, "n_head": 8, "n_embd": 64, "multi_query": True}
    plan = kvviz.plan(json.dumps(fields))
    assert plan.bytes_per_token == 3 * 2 * 8 * 2 and plan.weights_bytes is None
    assert plan.checked.status == "formula only" and "brand_new" in plan.checked.sentence()
    assert plan.fit("H100").users > 0
    latent = {
        "model_type": "x",
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
    }
    assert formula(latent).bytes_per_token == 2 * 40 * 2


def test_what_defaults_stand_in_for_is_said() -> None:
    plan = formula({"model_type": "llama"})
    assert "num_hidden_layers" in plan.notes[0].sentence()
    assert formula(LLAMA).notes == ()


def test_a_wrong_formula_is_found() -> None:
    plan = kvviz.plan("smollm2-135m")
    wrong = compare(plan.what_if("mqa").shapes, plan.checked.tokens, plan.checked.measured_bytes)
    assert wrong.status == "differs" and "30 of 30" in wrong.sentence()
    short = compare(plan.shapes, plan.checked.tokens, plan.checked.measured_bytes[:-1])
    assert short.status == "differs" and short.facts["layer"] == 29


def test_code_that_cannot_run_without_weights_says_why() -> None:
    plan = kvviz.plan({"model_type": "jetmoe"})
    assert plan.checked.status == "formula only" and "(" in plan.checked.sentence()


def test_checking_leaves_torch_as_it_was() -> None:
    import torch

    kvviz.plan({**LLAMA, "dtype": "bfloat16", "intermediate_size": 77})
    assert torch.get_default_dtype() is torch.float32 and torch.zeros(1).device.type == "cpu"


BAD = {
    "not JSON": "{ this is no json",
    "a list": "[1, 2]",
    "something else": '{"hello": 1}',
    "empty": "",
    "nobody": "no such model, surely",
    "a number": 7,
    "negative": {**LLAMA, "num_hidden_layers": -3},
    "huge": {**LLAMA, "hidden_size": 10**12},
    "too many layers": {**LLAMA, "num_hidden_layers": 10**8},
    "no number": {**LLAMA, "num_attention_heads": "four"},
    "truth": {**LLAMA, "num_attention_heads": True},
    "heads that do not divide": {**LLAMA, "num_key_value_heads": 3},
    "width that does not divide": {"num_hidden_layers": 1, "num_attention_heads": 3, "hidden_size": 64},
    "layers and their types": {**LLAMA, "layer_types": ["full_attention"]},
    "no heads": {"num_hidden_layers": 2},
    "encoder": {"model_type": "bert", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64},
    "encoder-decoder": {"model_type": "t5"},
    "too long": "{" + " " * 10_000_000 + "}",
    "deep": '{"a":' * 100_000,
    "zero byte": "a\0b",
    "no formula": {"model_type": "deepseek_v4"},
    "no attention heads": {"model_type": "rwkv"},
}


@pytest.mark.parametrize("what", BAD.values(), ids=BAD)
def test_bad_input_is_a_sentence(what: object) -> None:
    with pytest.raises(Refused) as refusal:
        kvviz.plan(what, check=False)
    assert str(refusal.value).rstrip().endswith((".", "`")) and len(str(refusal.value)) < 1500


@pytest.mark.parametrize(
    "options",
    [
        {"tokens": -1},
        {"tokens": 10**12},
        {"tokens": 1.5},
        {"batch": 0},
        {"dtype": "int3"},
        {"weights_dtype": "bits"},
        {"block": 0},
        {"in_flight": 0},
    ],
    ids=str,
)
def test_impossible_numbers_are_a_sentence(options: dict) -> None:
    with pytest.raises(Refused):
        kvviz.plan("gpt2", check=False, **options)


def test_impossible_wishes_are_a_sentence() -> None:
    plan = formula("llama-3-8b")
    for wish in (
        lambda: plan.what_if("gqa", groups=5),
        lambda: plan.what_if("gqa", groups=0),
        lambda: plan.what_if("xqa"),
        lambda: plan.what_if(windows="every", window=0),
        lambda: plan.what_if(windows="some"),
        lambda: plan.fit("abacus"),
        lambda: plan.fit(""),
        lambda: plan.fit(5),
        lambda: plan.fit("H100", 0),
        lambda: plan.fit("H100", reserve=1.0),
        lambda: plan.fit("H100", by="guess"),
        lambda: plan.fit("H100", split="even"),
    ):
        with pytest.raises(Refused):
            wish()


def test_nothing_is_fetched_unless_a_hub_id_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for what in ("gemma-3-270m", "smollm2-135m", LLAMA, json.dumps(LLAMA)):
        kvviz.plan(what)


def test_curves() -> None:
    plan = formula("gemma-3-1b", 1000)
    curve = plan.curve()
    assert {512, 131_072} <= set(curve.tokens) and curve.tokens.is_monotonic_increasing
    assert curve.total_bytes.iloc[-1] == plan.at(tokens=131_072).total_bytes
    assert (curve.least_bytes >= curve.total_bytes).all() and (curve.vllm_bytes >= curve.least_bytes).all()
    kinds = plan.kinds_curve([0, 1, 2000]).groupby("tokens").bytes.sum()
    assert list(kinds) == [plan.at(tokens=n).total_bytes for n in (0, 1, 2000)]
    assert reserve(plan.shapes, 2, 0).bytes == 0


def test_a_hub_id_fetches_its_config_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    asked = []

    def download(name: str, file: str, **_: object) -> str:
        asked.append((name, file))
        return str(tmp_path / file)

    monkeypatch.setattr("kvviz.models.hub.hf_hub_download", download)
    plan = formula("someone/a-model")
    assert asked == [("someone/a-model", "config.json")] and plan.bytes_per_token == 2 * 2 * 64 * 2
    assert plan.source == "https://huggingface.co/someone/a-model"


def test_a_hub_out_of_reach_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr("kvviz.models.hub.hf_hub_download", fail)
    with pytest.raises(Refused, match="cannot be reached"):
        formula("someone/a-model")
