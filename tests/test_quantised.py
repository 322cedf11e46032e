"""The quantised cache against numbers quantised by hand, bytes by formula, and the full cache it stands for."""

import numpy as np
import pytest
import torch

import kvviz
from kvviz.engine.cache import layer_tensors
from kvviz.engine.quantised import quantised_cache
from kvviz.engine.reading import read
from kvviz.errors import Refused
from kvviz.evaluation import compare_policies
from kvviz.policies import Full, Quantised
from tests.tiny import FAMILIES

IDS = np.random.default_rng(2).integers(3, 300, 40).tolist()
FORMS = ("fp8", "int8", "int4")
LAYERS, HEADS, WIDTH = 3, 2, 12  # of the small Llama


def held(form, pieces=(40,), **settings):
    """A cache that has read the text, and the K and V that went in, by layer."""
    lm = FAMILIES["llama"]()
    cache, came = quantised_cache(lm, Quantised(form=form, **settings)), {}
    for layer in cache.layers:
        layer.update = _listening(layer, came.setdefault(len(came), []))
    start = 0
    with torch.inference_mode():
        for size in pieces:
            places = torch.arange(start, start + size)[None]
            lm.model(torch.tensor([IDS[start : start + size]]), position_ids=places, cache=cache, use_cache=True)
            start += size
    joined = {index: [torch.cat(each, dim=2) for each in zip(*pairs, strict=True)] for index, pairs in came.items()}
    return cache, joined


def _listening(layer, into):
    update = layer.update

    def listen(keys, values, *args, **kwargs):
        into.append((keys.clone(), values.clone()))
        return update(keys, values, *args, **kwargs)

    return listen


def by_hand(vector: np.ndarray, bits: int, group: int) -> np.ndarray:
    """One token's channels, group by group in plain arithmetic."""
    out = []
    for start in range(0, len(vector), group):
        part = [float(each) for each in vector[start : start + group]]
        zero = float(np.float16(min(part)))
        scale = float(np.float16(max((max(part) - zero) / (2**bits - 1), 2**-14)))
        out += [zero + scale * min(max(round((each - zero) / scale), 0), 2**bits - 1) for each in part]
    return np.array(out)


@pytest.mark.parametrize(("form", "bits"), [("int8", 8), ("int4", 4)])
def test_whole_numbers_are_those_by_hand(form, bits):
    cache, came = held(form, group=4)
    for index, layer in enumerate(cache.layers):
        for state, true in zip((layer._quantized_keys, layer._quantized_values), came[index], strict=True):
            given = layer._dequantize(state)[0].numpy()
            for head, position in ((0, 0), (1, 17), (0, 39)):
                vector = true[0, head, position].numpy()
                expected = by_hand(vector, bits, 4)
                step = np.ptp(vector) / (2**bits - 1)
                off = np.abs(given[head, position] - expected)
                assert (off > 1e-3 * step).mean() <= 1 / 12, "a number between two steps may fall on either side"
                assert np.abs(given[head, position] - vector).max() <= 0.52 * step + 1e-3 * np.abs(vector).max()


def test_fp8_takes_its_scale_from_the_first_piece():
    cache, came = held("fp8", pieces=(8, 32))
    for index, layer in enumerate(cache.layers):
        for (numbers, scale), true in zip((layer._quantized_keys, layer._quantized_values), came[index], strict=True):
            largest = float(true[:, :, :8].abs().max())
            assert float(scale) == pytest.approx(largest / 448)
            given = numbers.float().numpy() * largest / 448
            inside = true.abs().numpy() <= largest
            gap = np.abs(given - true.numpy())[inside]
            assert (gap <= np.maximum(true.abs().numpy()[inside] / 16, largest / 448 / 512) * 1.001).all()


@pytest.mark.parametrize(
    ("form", "each"), [("fp8", WIDTH), ("int8", WIDTH + 3 * 4), ("int4", WIDTH // 2 + 3 * 4)]
)  # three groups of four channels, a scale and a zero point of two bytes
def test_bytes(form, each):
    cache, _ = held(form, group=4)
    scales = 2 * LAYERS * 4 * (form == "fp8")  # one float32 for K and one for V
    expected = 40 * LAYERS * HEADS * 2 * each + scales
    assert sum(tensor.numel() * tensor.element_size() for layer in cache.layers for tensor in layer_tensors(layer)) == (
        expected
    )
    lm, policy = FAMILIES["llama"](), Quantised(form=form, group=4)
    row = compare_policies(lm, IDS, [policy]).perplexities().iloc[1]
    assert row["cache_bytes"] == row["peak_bytes"] == expected and row["evicted"] == 0 and row["stored"] == 39
    steps = list(kvviz.stream(lm, IDS[:30], 11, policy=policy))
    assert steps[-1].cache_bytes == expected and steps[-1].stored == steps[-1].seen == 40
    assert np.isfinite(steps[-1].key_norms).all() and np.isfinite(steps[0].value_norms).all()


def test_whole_numbers_are_the_same_however_the_text_is_fed():
    lm = FAMILIES["llama"]()
    for form in ("int8", "int4"):
        at_once, by_one = (read(lm, IDS, Quantised(form=form, group=4), piece=piece).hidden for piece in (40, 1))
        lost = (at_once - read(lm, IDS, Full()).hidden).abs().mean()
        apart = (at_once - by_one).abs()  # a last bit may decide between two steps, seldom
        assert float(apart.median()) < 1e-4 and float(apart.mean()) < lost / 20


def test_fp8_reads_its_first_piece_in_full():
    lm = FAMILIES["llama"]()
    full = read(lm, IDS, Full()).hidden
    given = read(lm, IDS, Quantised(first=10)).hidden
    assert float((given - full)[:10].abs().max()) < 1e-4 < float((given - full)[10:].abs().max())
    again = read(lm, IDS, Quantised(first=10), piece=11).hidden  # later pieces do not matter
    assert float((given - again).abs().max()) < 1e-4


def test_fewer_bits_lose_more():
    lm = FAMILIES["llama"]()
    frame = kvviz.evaluate(lm, IDS, [Quantised(form="int8"), Quantised(form="int4")])
    full, eight, four = (frame[frame["policy"] == name]["kl"].mean() for name in frame["policy"].unique())
    assert full == 0 < eight < four / 10


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss", "qwen3_next"])
def test_other_layers_are_refused(family):
    with pytest.raises(Refused, match="full attention alone"):
        kvviz.evaluate(FAMILIES[family](), IDS, [Quantised()])
    with pytest.raises(Refused, match="full attention alone"):
        kvviz.stream(FAMILIES[family](), IDS, policy=Quantised())


@pytest.mark.parametrize("family", ["gpt2", "deepseek", "gpt_neox"])
def test_other_families_read(family):
    for form in FORMS:
        frame = kvviz.evaluate(FAMILIES[family](), IDS, [Quantised(form=form, first=5)])
        assert np.isfinite(frame["nll"]).all() and frame["kl"].max() > 0


def test_settings():
    assert str(Quantised()) == "Quantised(form='fp8')" and str(Quantised(form="int4", group=16)) == (
        "Quantised(form='int4', group=16)"
    )
    with pytest.raises(Refused, match="form must be one of fp8, int8, int4"):
        Quantised(form="int3")
    with pytest.raises(Refused, match="group must be at least 2"):
        Quantised(group=0)
    with pytest.raises(Refused, match="cache of its own"):
        kvviz.stream(FAMILIES["llama"](), IDS, policy=Quantised(), use_cache=False)
