"""The Latent attention page in its states and with bad input, and its figures."""

import io
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import kvviz
from kvviz.figures.latent import WAY_NAMES, latent_curves, latent_steps
from kvviz.geometry.latent import LatentSizes, latent_stages
from kvviz.geometry.latentcounts import cost
from kvviz.locale import N_
from kvviz.ui.latent import save, words
from kvviz.ui.latent.inputs import Asked
from kvviz.ui.latent.measure import Measured
from kvviz.ui.shell import Page
from kvviz.ui.task import Bench
from tests import test_pages
from tests.test_pages import (
    Visit,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)
from tests.tiny import tiny_deepseek

V3 = LatentSizes(128, 512, 64, 128, 128)
SMALL = LatentSizes(8, 64, 16, 32, 32)


@pytest.fixture
def bench(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:  # noqa: F811
    bench = Bench()
    monkeypatch.setattr("kvviz.ui.task.bench", lambda view: bench)
    monkeypatch.setattr("kvviz.ui.task.shared_turns", lambda: visit.turns)
    monkeypatch.setitem(test_pages.MODELS, "smollm2-135m", tiny_deepseek)
    yield bench
    if bench.run is not None:
        bench.run.job.cancel()


def pick(at: AppTest, key: str, option: str) -> AppTest:
    (group,) = [one for one in at.get("button_group") if one.proto.id.endswith(f"-{key}")]
    return group.set_value(option).run()


def tables(at: AppTest) -> list[pd.DataFrame]:
    return [table.value for table in at.table]


def test_the_small_example_is_there_on_arrival(visit: Visit) -> None:  # noqa: F811
    at = visit.open("latent")
    sound(at)
    measured, counts = tables(at)
    gap = float(measured["largest difference of the two ways"].iloc[0])
    assert 0 <= gap < 1e-10 and f"Both ways give the same numbers: the largest difference is **{gap:.1e}**" in told(at)
    assert (measured["largest difference from transformers' output"].astype(float) < 1e-10).all()
    frame = kvviz.latent_counts(SMALL, [256], groups=2)
    assert list(counts["multiply-adds a step"]) == [f"{each:,}" for each in frame["multiply_adds"]]
    assert list(counts["bytes kept a token"]) == ["1,280", "320", "160", "160"]
    assert "8 of the" not in told(at, "caption")
    assert len(at.get("plotly_chart")) == 4


def test_float32(visit: Visit) -> None:  # noqa: F811
    at = pick(visit.open("latent"), "latent_measured", "float32")
    sound(at)
    gaps = tables(at)[0]["largest difference of the two ways"].astype(float)
    assert gaps.between(1e-9, 1e-4).all() and "(float32)" in told(at)


def test_deepseek_v3_is_counted_whole_and_measured_in_part(visit: Visit) -> None:  # noqa: F811
    at = visit.open("latent", latent_source="v3")
    sound(at)
    assert "4 of the 128 heads and 128 of the 4,096 tokens" in told(at, "caption")
    assert "Expanding takes 68,887,248,896 multiply-adds, absorbing 587,202,560 (117 : 1)" in told(at)
    assert (
        "keep 1,152 bytes a token. MHA with the same heads keeps 81,920, 71.1 times as many; absorbing takes 3.5 times"
        in told(at)
    )
    assert "from **2** tokens on" in told(at) and "up to **163** new ones among the 4,096" in told(at)
    assert "would need 1.80 groups" in told(at)


def test_sliders_change_counts_and_shapes(visit: Visit) -> None:  # noqa: F811
    at = visit.open("latent")
    at.slider(key="small_rank").set_value(128).run()
    at.slider(key="small_heads").set_value(6).run()
    at.select_slider(key="small_tokens").set_value(64).run()
    sound(at)
    sizes = LatentSizes(6, 128, 16, 32, 32)
    assert tables(at)[1]["multiply-adds a step"].iloc[3] == f"{cost('absorbed', sizes, 64).multiply_adds:,}"
    assert "= 64 × 128" in told(at)
    assert at.selectbox(key="latent_groups_6").options == ["1", "2", "3", "6"]


@pytest.mark.parametrize(
    ("key", "said"),
    [("small_rank", "A latent of rank 0 keeps nothing"), ("small_rotary", "Without a rotary key nothing tells where")],
)
def test_refused_in_a_sentence_and_back_again(visit: Visit, key: str, said: str) -> None:  # noqa: F811
    at = visit.open("latent")
    at.slider(key=key).set_value(0).run()
    sound(at)
    assert len(at.error) == 1 and at.error[0].value.startswith(said) and not at.table
    at.slider(key=key).set_value(16).run()
    assert not at.error and at.table


def test_one_token(visit: Visit) -> None:  # noqa: F811
    at = visit.open("latent")
    at.select_slider(key="small_tokens").set_value(1).run()
    sound(at)
    assert len(tables(at)[0]) == 1


def test_a_loaded_model_without_latents(visit: Visit) -> None:  # noqa: F811
    at = visit.open("latent", latent_source="loaded")
    sound(at)
    assert "caches keys and values, not latents" in at.error[0].value and not at.table


def test_while_the_model_is_loading(visit: Visit) -> None:  # noqa: F811
    visit.may_load.clear()
    at = visit.open("latent", loaded=False, latent_source="loaded")
    sound(at)
    assert "No model is loaded yet" in told(at, "info")
    visit.may_load.set()


def test_the_loaded_model(visit: Visit, bench: Bench) -> None:  # noqa: F811
    at = visit.open("latent", latent_source="loaded")
    sound(at)
    assert len(at.table) == 1 and "Press the button" in told(at, "caption")  # counts need no run
    at.selectbox(key="latent_layer").set_value(2).run()
    at.text_area(key="latent_text").set_value("the cat sat on <b>the</b> mat").run()
    at.button(key="latent_run").click().run()
    bench.run.job.join(60)
    at.run()
    sound(at)
    found = kvviz.latent_of(tiny_deepseek(), "the cat sat on <b>the</b> mat", layer=2)
    measured = tables(at)[0]
    assert float(measured["largest difference of the two ways"].iloc[0]) < 1e-10
    own = float(measured["largest difference from transformers' output"].iloc[0])
    assert own == pytest.approx(found.decode.own_difference, rel=0.2)
    assert f"its own cache of {found.decode.tokens} tokens" in told(at, "caption")
    assert "kvviz.latent_of(lm, 'the cat sat on <b>the</b> mat', layer=2, dtype='float64')" in at.code[-1].value
    at.selectbox(key="latent_layer").set_value(0).run()
    assert "belongs to the earlier ones" in told(at, "warning")


def test_a_text_that_cannot_be_read(visit: Visit, bench: Bench) -> None:  # noqa: F811
    at = visit.open("latent", latent_source="loaded")
    for text in ("", "the cat sat on the mat " * 400):
        at.text_area(key="latent_text").set_value(text).run()
        sound(at)
        assert len(at.error) == 1, text[:20]


def test_what_is_saved(visit: Visit) -> None:  # noqa: F811
    found = kvviz.latent(SMALL, 32, repeats=1)
    asked = Asked("small", SMALL, 32, 2, "bfloat16", "float64")
    done, page = Measured(asked, found), Page(N_, "light", None)
    text = save.as_html(page, asked, done)
    assert f"{cost('absorbed', SMALL, 32).multiply_adds:,}" in text and words.short(found.decode.difference) in text
    assert text.count("plotly-graph-div") >= 4 and "**" not in text.split("<h2>")[1]
    names: dict[str, object] = {}
    exec(save.as_python(asked, done) + "\nfound = found.decode", names)
    assert names["found"].difference == found.decode.difference
    csv = pd.read_csv(io.StringIO(found.frame().to_csv(index=False)))
    assert list(csv["phase"]) == ["decode", "prefill"] and csv["new"].tolist() == [1, 32]


def test_a_difference_beyond_rounding_is_not_called_equal() -> None:
    found = kvviz.latent(SMALL, 8, repeats=1)
    broken = replace(found, prefill=replace(found.prefill, difference=0.01))
    assert not broken.equal and words.verdict(N_, broken).startswith("The two ways differ by **1.0e-02**")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("way", ["expanded", "absorbed"])
def test_steps_have_a_bar_a_product(theme: str, way: str) -> None:
    stages = latent_stages(V3, 4096)
    figure = latent_steps(stages, way, theme=theme)
    assert sum(figure.data[0].x) == cost(way, V3, 4096).multiply_adds
    labels = figure.layout.yaxis.ticktext
    assert len(labels) == 4 and "<sub>" in labels[0] and "_" not in "".join(labels)
    assert figure.layout.xaxis.range[1] == latent_steps(stages, "expanded").layout.xaxis.range[1]


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("column", ["cached_bytes", "multiply_adds"])
def test_curves_show_the_counts(column: str, log: bool) -> None:
    frame = kvviz.latent_counts(V3, groups=8)
    asked = []
    figure = latent_curves(frame, column, at=4096, log=log, t=lambda text: asked.append(text) or text)
    assert [line.name for line in figure.data] == list(WAY_NAMES.values())
    for way, line in zip(WAY_NAMES, figure.data, strict=True):
        assert list(line.y) == frame[frame["way"] == way][column].tolist()
    assert len({(line.line.color, line.line.dash) for line in figure.data}) == 4
    assert figure.layout.shapes[0].x0 == 4096 and figure.layout.xaxis.type == ("log" if log else "linear")
    assert set(WAY_NAMES.values()) <= set(asked)


def test_fewer_bytes_than_mqa_are_said_in_words() -> None:
    few = Asked("small", LatentSizes(4, 16, 8, 16, 16), 64, 1, "bfloat16", "float64")
    assert words.costs(N_, few)[2].startswith("**Bytes.** Not even MQA")


def test_the_break_even_length_in_words() -> None:
    sizes = LatentSizes(4, 8, 2, 1, 1)  # a rank far above what is made of it
    costs = [[cost(way, sizes, at).multiply_adds for way in ("absorbed", "expanded")] for at in range(1, 40)]
    first = next(at for at, (absorbed, expanded) in enumerate(costs, 1) if absorbed < expanded)
    told = words.costs(N_, Asked("small", sizes, 64, 1, "bfloat16", "float64"))[1]
    assert first > 2 and f"from **{first}** tokens on" in told
