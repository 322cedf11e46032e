"""The maps of the Attention page on the screen: what its controls choose is what the API gives."""

import numpy as np
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from kvviz.analysis.contribution import shares_of
from kvviz.records import BANDS
from tests.test_attention_ui import Reader, figure, numbers, quick, reader, served_before, visit  # noqa: F401
from tests.test_pages import sound, told

LONG = "the cat sat on the mat and the dog sat on the log, one two three four five six seven eight nine ten " * 2


def choose(at: AppTest, key: str, option: str) -> AppTest:
    (group,) = [one for one in at.get("button_group") if one.key == key]
    return group.set_value(option).run()


def values(at: AppTest, key: str) -> np.ndarray:
    """Probabilities of the last heatmap of a chart."""
    traces = [trace for trace in raw(at, key)["data"] if trace["type"] == "heatmap"]
    facts = numbers(traces[-1]["customdata"])
    return facts[..., 0] if facts.ndim == 3 else facts


def raw(at: AppTest, key: str) -> dict:
    return go.Figure.to_dict(figure(at, key))


@pytest.mark.parametrize(("option", "mix"), [("head", None), ("mean", np.mean), ("max", np.max)])
def test_the_map_is_that_of_the_chosen_heads(reader: Reader, option: str, mix) -> None:  # noqa: F811
    reader.measured()
    at = choose(reader.at, "map_heads", option)
    sound(at)
    layer, head = at.select_slider(key="layer").value, at.slider(key="head").value
    maps = reader.summary.maps(layer)
    expected = maps[head] if mix is None else mix(maps, axis=0)
    np.testing.assert_allclose(values(at, "attention_map"), expected, atol=1e-6)


def test_ranges_zoom(reader: Reader) -> None:  # noqa: F811
    at = reader.measured(LONG)
    count = len(reader.summary.ids)
    at.slider(key=f"map_queries_{count}").set_value((30, 44)).run()
    at.slider(key=f"map_keys_{count}").set_value((5, 20)).run()
    sound(at)
    layer, head = at.select_slider(key="layer").value, at.slider(key="head").value
    expected = reader.summary.map(layer, head)[30:45, 5:21]
    np.testing.assert_allclose(values(at, "attention_map"), expected, atol=1e-6)


def test_hidden_sinks_and_their_mass_are_told(reader: Reader) -> None:  # noqa: F811
    reader.measured()
    reader.at.slider(key="epsilon").set_value(0.05).run()
    at = choose(reader.at, "map_colour", "hidden")
    sound(at)
    layer, head = at.select_slider(key="layer").value, at.slider(key="head").value
    A = np.nan_to_num(reader.summary.map(layer, head))
    received = A.sum(0) / (len(A) - np.arange(len(A)))
    sinks = [key for key in range(len(A) - 8) if received[key] > 0.05]
    assert sinks
    mass = A[:, sinks].sum(1)
    captions = told(at, "caption")
    assert f"{mass.mean():.1%} of the attention" in captions
    assert f"from {mass.min():.1%} to {mass.max():.1%}" in captions


def test_the_sink_s_shares_and_the_bands_are_those_of_the_api(reader: Reader) -> None:  # noqa: F811
    at = reader.measured()
    layer, head = at.select_slider(key="layer").value, at.slider(key="head").value
    measures = reader.summary.of_layer(layer)
    top = int((measures.received[head] / measures.visible)[:-8].argmax())
    shares = shares_of(measures, head, top)
    sentence = next(one.value for one in at.markdown if "of all attention of this head" in one.value)
    for told_there in (f"position {top} ", f"**{shares.weight:.1%}**", f"**{shares.contribution:.1%}**"):
        assert told_there in sentence

    for option, of in (("layer", layer), ("all", None)):
        at = choose(at, "time_layers", option)
        at = at.slider(key="recent").set_value(4).run()
        sound(at)
        means = reader.summary.over_time(of, recent=4).bands.mean(axis=1)
        line = next(one.value for one in at.text if one.value.startswith("On average"))
        assert f"the token itself {means[BANDS.index('self')]:.1%}" in line
        assert f"recent tokens {means[BANDS.index('recent')]:.1%}" in line


def test_a_model_whose_projection_cannot_be_read_says_so(reader: Reader) -> None:  # noqa: F811
    reader.measured()
    for layer in reader.summary.layers:
        object.__setattr__(layer, "contribution", None)
    at = reader.at.run()
    sound(at)
    assert "what a value adds is not known" in told(at, "caption")
