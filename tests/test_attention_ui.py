"""The Attention page in every state and with hostile texts, run by Streamlit's own test runner on tiny models."""

import base64
import io
import json
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

import kvviz
from kvviz.analysis.attention import NEVER, OUT_OF_WINDOW, TOO_NEW, attendance
from kvviz.analysis.unattended import Rule, pooled, unattended
from kvviz.engine.knockout import take_away
from kvviz.errors import Refused
from kvviz.figures.report import Part, Strip, document
from kvviz.locale import N_
from kvviz.models.prompts import encode
from kvviz.summary import attention
from kvviz.ui.attention import inputs, recompute, save, takeaway
from kvviz.ui.attention import run as run_module
from kvviz.ui.attention.choices import Choices, as_python
from kvviz.ui.attention.never import default_queries
from kvviz.ui.attention.report import as_html
from kvviz.ui.desk import Desk
from kvviz.ui.house import ModelKey
from kvviz.units import size
from tests.test_pages import (
    BAD,
    Visit,
    component,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)
from tests.tiny import FAMILIES, tiny_gemma3, tiny_llama

TEXT = "the cat sat on the mat and the dog sat on the log, one two three four"
HOSTILE = '<script>alert(1)</script> <b>x</b> $x$ & "q" 貓 <bos>'


class Reader:
    """A visitor of the Attention page."""

    def __init__(self, visit: Visit) -> None:  # noqa: F811
        self.visit = visit
        self.desk, self.takeaway = Desk(), Desk()

    @property
    def at(self) -> AppTest:
        return self.visit.at

    def open(self, **query: str) -> AppTest:
        self.visit.open("attention", **query)
        return self.at

    def type(self, text: str) -> AppTest:
        self.at.text_area(key="attention_text").set_value(text)
        return self.at.run()

    def press(self, key: str) -> AppTest:
        return self.at.button(key=key).click().run()

    def settle(self) -> AppTest:
        for run in filter(None, [self.desk.run, self.takeaway.run]):
            run.job.join(20)
            assert not run.job.running
        return self.at.run()

    def measured(self, text: str = TEXT, **query: str) -> AppTest:
        """The page after a whole measuring run."""
        self.open(**query)
        self.type(text)
        self.press("measure")
        return self.settle()

    @property
    def summary(self):
        return self.desk.run.summary


@pytest.fixture
def reader(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:  # noqa: F811
    reader = Reader(visit)
    for module in (inputs, run_module):
        monkeypatch.setattr(module, "desk", lambda: reader.desk)
    for module in (takeaway, save):
        monkeypatch.setattr(module, "takeaway_desk", lambda: reader.takeaway)
    for module in (run_module, takeaway, recompute):
        monkeypatch.setattr(module, "shared_turns", lambda: visit.turns)
    yield reader
    visit.turns.go_on.set()
    for run in filter(None, [reader.desk.run, reader.takeaway.run]):
        run.job.cancel()


def figure(at: AppTest, key: str) -> go.Figure:
    """The figure that a chart was given."""
    (found,) = [one for one in at.get("plotly_chart") if one.proto.id.endswith(f"-{key}")]
    return go.Figure(json.loads(found.proto.spec or found.proto.figure.spec))


def numbers(array: object) -> np.ndarray:
    """A figure's numbers, as plotly sends them."""
    if not isinstance(array, dict):
        return np.asarray(array, dtype=float)
    flat = np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])
    return flat.reshape([int(side) for side in array["shape"].split(",")] if "shape" in array else -1).astype(float)


def shares(at: AppTest, key: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(component(at, key)["weights"]), dtype=np.uint8)


def texts(at: AppTest) -> str:
    return "\n".join(one.value for one in at.text)


# --- States


def test_before_the_first_run(reader: Reader) -> None:
    at = reader.open()
    sound(at)
    assert "Press Measure" in told(at, "caption")
    assert not at.button(key="measure").disabled and at.button(key="stop").disabled
    assert not at.get("plotly_chart") and not at.subheader


def test_while_it_measures_and_after_stop(reader: Reader) -> None:
    reader.open()
    reader.type(TEXT)
    turns = reader.visit.turns
    turns.pause_in = turns.given + 2
    at = reader.press("measure")
    assert turns.pausing.wait(60)
    at.run()
    sound(at)
    (progress,) = at.get("progress")
    assert progress.proto.text == "Measured 1 of 3 layers"
    assert not at.button(key="stop").disabled and not at.get("plotly_chart")
    at = reader.press("stop")
    sound(at)
    assert [info.value for info in at.info] == ["Stopped after 2 layers; nothing is kept of them."]
    assert not at.subheader and at.button(key="stop").disabled
    at = reader.press("measure")
    at = reader.settle()
    assert at.subheader and not at.info


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "crash"])
def test_an_error_is_a_sentence_and_the_page_lives_on(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    def breaking(*args, **options):
        raise Refused("Out of {what}.", what="$x$") if refused else RuntimeError("/secret/path")

    reader.open()
    reader.type(TEXT)
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "attention", breaking)
        reader.press("measure")
        at = reader.settle()
    sound(at)
    expected = r"Out of \$x\$." if refused else "The run failed. The server's log says why."
    assert [error.value for error in at.error] == [expected] and "secret" not in told(at)
    reader.press("measure")
    at = reader.settle()
    assert not at.error and at.subheader


SECTIONS = ("attention_strip", "never_strip")
CHARTS = ("sink_map", "never_map", "never_share", "never_queries")


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma-3-270m"])
def test_every_section_is_there_when_it_is_done(reader: Reader, model: str) -> None:
    at = reader.measured(model=model)
    sound(at)
    for key in SECTIONS:
        assert component(at, key)["ids"] == list(reader.desk.run.wanted.ids)
    for key in CHARTS:
        assert figure(at, key).data
    assert at.button(key="take_away") and len(at.get("download_button")) == 4
    assert "by the queries seen so far" in texts(at)


def test_what_is_shown_belongs_to_the_earlier_text(reader: Reader) -> None:
    at = reader.measured()
    assert not at.warning
    at = reader.type("another text")
    sound(at)
    (warning,) = at.warning
    assert "belongs to the earlier ones" in warning.value and at.subheader
    at = reader.type(TEXT)
    assert not at.warning
    at = reader.type("")
    assert at.error and "belongs to the earlier ones" in at.warning[0].value


def test_a_click_takes_the_corrected_text_along(reader: Reader) -> None:
    reader.open()
    at = reader.type("")
    assert at.error and not at.button(key="measure").disabled
    at = reader.press("measure")
    sound(at)
    assert reader.desk.run is None and not at.subheader
    at.text_area(key="attention_text").set_value(TEXT)
    reader.press("measure")
    at = reader.settle()
    assert at.subheader and not at.error and not at.warning


def test_a_shorter_text_after_a_longer_one(reader: Reader) -> None:
    at = reader.measured(TEXT)
    at.button_group(key="strip_mode").set_value("query").run()
    last = len(reader.summary.ids) - 1
    at.number_input(key="strip_position").set_value(last).run()
    at.multiselect(key="take_away_positions").set_value([0, last]).run()
    reader.type("the cat")
    reader.press("measure")
    at = reader.settle()
    sound(at)
    assert at.number_input(key="strip_position").value == len(reader.summary.ids) - 1
    assert at.multiselect(key="take_away_positions").value == [0]


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_whatever_is_typed_gives_a_result_or_a_sentence(reader: Reader, text: str) -> None:
    reader.open()
    at = reader.type(text)
    sound(at)
    if at.error:
        (error,) = at.error
        assert error.value.count(".") in (1, 2) and len(error.value) < 250
        return
    reader.press("measure")
    at = reader.settle()
    sound(at)
    assert not at.error and reader.summary.ids == reader.desk.run.wanted.ids
    reader.press("take_away")
    at = reader.settle()
    sound(at)
    assert not at.error and reader.takeaway.run.result is not None
    if len(text) > 5:
        assert text not in told(at), "text of a visitor is never markdown"


# --- The strip


def test_the_strip_shades_what_was_received(reader: Reader) -> None:
    at = reader.measured()
    received = reader.summary.received()
    expected = {
        "all": received.groupby("position")["mean_received"].mean(),
        "head": received.query("layer == 1 and head == 0").set_index("position")["mean_received"],
        "peak": received.query("layer == 1 and head == 0").set_index("position")["peak_probability"],
    }
    for measure, weights in expected.items():
        at.selectbox(key="strip_measure").set_value(measure).run()
        sound(at)
        sent = (shares(at, "attention_strip") / 255) ** 2 * weights.max()
        np.testing.assert_allclose(sent, weights, atol=0.01 * weights.max())
        assert component(at, "attention_strip")["scale"][-1] == [255, f"{weights.max():.3g}"]
        best = weights.sort_values(ascending=False, kind="stable")
        assert f"{best.iloc[0]:.4f}   {best.index[0]}   " in texts(at)


@pytest.mark.parametrize("heads", ["head", "mean"])
@pytest.mark.parametrize("mode", ["query", "key"])
def test_the_strip_shows_a_row_or_a_column(reader: Reader, mode: str, heads: str) -> None:
    at = reader.measured(model="gemma-3-270m")  # layers that slide over 8 tokens
    at.button_group(key="strip_mode").set_value(mode).run()
    at.button_group(key="strip_heads").set_value(heads).run()
    at.number_input(key="strip_position").set_value(12).run()
    sound(at)
    layer = at.select_slider(key="layer").value
    maps = reader.summary.maps(layer)
    matrix = maps[0] if heads == "head" else maps.mean(axis=0)
    weights = matrix[12] if mode == "query" else matrix[:, 12]
    known = np.nan_to_num(weights)
    sent = (shares(at, "attention_strip") / 255) ** 2 * known.max()
    np.testing.assert_allclose(sent, known, atol=0.01 * known.max())
    order = np.argsort(-known, kind="stable")[:5]
    lines = [f"{known[one]:.4f}   {one}   “{reader.summary.labels[one]}”" for one in order if known[one]]
    assert "\n".join(lines) in texts(at)
    assert component(at, "attention_strip")["selected"] == 12


def test_families_with_eager_attention_have_rows_and_columns(reader: Reader) -> None:
    reader.visit.house._loader = lambda *key, **options: FAMILIES["bloom"]()
    at = reader.measured()
    for mode in ("query", "key"):
        at.button_group(key="strip_mode").set_value(mode).run()
        sound(at)
    reader.press("take_away")
    at = reader.settle()
    sound(at)
    assert "no token can be taken away from it" in at.error[0].value


# --- Never attended


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma-3-270m"])
def test_numbers_of_what_nobody_looked_at_equal_the_api(reader: Reader, model: str) -> None:
    at = reader.measured(model=model)
    at.selectbox(key="never_rule").set_value("absolute").run()
    at.slider(key="never_absolute").set_value(0.15).run()
    at.slider(key="never_too_new").set_value(3).run()
    sound(at)
    rule, summary = ("absolute", 0.15, 3), reader.summary
    never = summary.never_attended(*rule)
    status = [attendance(layer, *rule) for layer in summary.layers]
    judged = sum((one < TOO_NEW).sum() for one in status)
    assert len(never) == sum((one == NEVER).sum() for one in status) > 0
    assert f"{len(never):,} of {judged:,} entries ({len(never) / judged:.1%}) were never attended" in texts(at)
    new, out = (sum((one == what).sum() for one in status) for what in (TOO_NEW, OUT_OF_WINDOW))
    assert f"Not counted: {new:,} entries too new to tell, {out:,} out of window." in texts(at)
    nobody = summary.unattended(*rule)["unattended_bytes"].sum()
    assert f"share them: {size(int(nobody))} of cache" in texts(at)
    drawn = numbers(figure(at, "never_map").data[0].z)
    for row, one in zip(drawn, status, strict=True):
        untold = (one[0] == TOO_NEW) | (one[0] == OUT_OF_WINDOW)
        np.testing.assert_allclose(row, np.where(untold, np.nan, (one == NEVER).mean(axis=0)), atol=1e-6)
    bars = numbers(figure(at, "never_share").data[0].y)
    np.testing.assert_allclose(bars, summary.unattended(*rule)["share"])


def test_three_queries_over_the_same_keys(reader: Reader) -> None:
    at = reader.measured()
    for index, position in enumerate((5, 9, 9)):
        at.number_input(key=f"never_query_{index}").set_value(position).run()
    sound(at)
    attended = reader.summary.map(1, 0)
    drawn = figure(at, "never_queries")
    for panel, position in enumerate((5, 9, 9)):
        row = np.full(len(reader.summary.ids), np.nan)
        line = 1.0 / (position + 1)
        for above, trace in zip((True, False), drawn.data[2 * panel : 2 * panel + 2], strict=True):
            values = numbers(trace.y)
            assert ((values >= line) == above).all()
            row[numbers(trace.x).astype(int)] = values
        np.testing.assert_allclose(row, attended[position], atol=1e-6)
        assert drawn.layout.shapes[panel].y0 == pytest.approx(line)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, (0, 0, 0)), (2, (0, 0, 1)), (101, (50, 75, 100)), (279, (178, 228, 278))]
)
def test_the_queries_shown_first(count: int, expected: tuple[int, int, int]) -> None:
    assert default_queries(count) == expected


def test_pooled_keys_keep_the_mean_of_what_can_be_told() -> None:
    found = unattended(attention(tiny_gemma3(), list(range(10, 60))).layers, Rule("absolute", 0.2, 5))
    small, cell = pooled(found, 20)
    assert cell == 3 and small.share.shape[1] == 17
    for column in range(17):
        part = found.share[:, column * 3 : column * 3 + 3]
        for row, values in zip(small.share[:, column], part, strict=True):
            known = values[np.isfinite(values)]
            assert row == pytest.approx(known.mean()) if known.size else np.isnan(row)
    assert found.counts["never"] == len(
        attention(tiny_gemma3(), list(range(10, 60))).never_attended("absolute", 0.2, 5)
    )


def test_a_latent_counts_once() -> None:
    summary = attention(FAMILIES["deepseek"](), list(range(10, 60)))
    frame = summary.unattended("absolute", 1.1)
    assert frame["entries"].tolist() == [42] * 3 and frame["unattended_entries"].tolist() == [42] * 3
    assert frame["unattended_bytes"].tolist() == [42 * (16 + 8) * 4] * 3


# --- Taking a token away


def test_taking_tokens_away_gives_what_the_api_gives(reader: Reader) -> None:
    at = reader.measured()
    at.multiselect(key="take_away_positions").set_value([7, 2]).run()
    reader.press("take_away")
    at = reader.settle()
    sound(at)
    since = min(32, len(reader.summary.ids) // 2)
    assert at.number_input(key="take_away_since").value == since
    expected = take_away(tiny_llama(), reader.summary.ids, [2, 7], since=since)
    change = expected.nll_without - expected.nll
    bars = [trace for trace in figure(at, "loss_change").data if trace.type == "bar"]
    drawn = np.zeros(len(reader.summary.ids))
    for bar in bars:
        drawn[numbers(bar.x).astype(int)] = numbers(bar.y)
    np.testing.assert_allclose(drawn[1:], change, atol=1e-5)
    found = re.search(r"by ([+-][\d.]+) nats on average; perplexity ([\d.,]+) → ([\d.,]+) over (\d+)", texts(at))
    mean, before, after, count = (float(number.replace(",", "")) for number in found.groups())
    assert mean == pytest.approx(change[since:].mean(), abs=1e-4) and count == len(change) - since
    assert before == pytest.approx(np.exp(expected.nll[since:].mean()), abs=0.01)
    assert after == pytest.approx(np.exp(expected.nll_without[since:].mean()), abs=0.01)
    table = next(one.value for one in at.dataframe if "rank" in one.value.columns)
    for column, pairs in (("with it", expected.top), ("without it", expected.top_without)):
        np.testing.assert_allclose(table[f"probability {column}"], [p for _, p in pairs], atol=1e-6)
    at.multiselect(key="take_away_positions").set_value([2]).run()
    assert "belongs to another choice" in at.warning[0].value


def test_the_strongest_sink_is_offered_first(reader: Reader) -> None:
    at = reader.measured()
    found = reader.summary.sinks()
    assert at.multiselect(key="take_away_positions").value == [0 if found.empty else found["position"].iloc[0]]
    at.multiselect(key="take_away_positions").set_value([]).run()
    assert at.button(key="take_away").disabled


def test_taking_away_can_be_stopped_and_goes_with_its_text(reader: Reader) -> None:
    reader.measured()
    turns = reader.visit.turns
    turns.pausing.clear()
    turns.pause_in = turns.given + 2
    at = reader.press("take_away")
    assert turns.pausing.wait(60)
    at.run()
    sound(at)
    (progress,) = at.get("progress")
    assert progress.proto.text == "Pass 1 of 2: the text as it is" and not at.button(key="take_away_stop").disabled
    at = reader.press("take_away_stop")
    turns.go_on.set()
    at = reader.settle()
    sound(at)
    run = reader.takeaway.run
    assert run.job.stopped
    reader.type("another text of some words")
    reader.press("measure")
    at = reader.settle()
    sound(at)
    assert "Hides them from all later tokens" in told(at, "caption") and not run.of(reader.summary)


# --- Taking it home


def chosen(**changes: object) -> Choices:
    settings = {"layer": 1, "head": 2, "epsilon": 0.2, "diagonal": False, "rule": Rule("absolute", 0.05, 4)}
    return Choices(**({**settings, "queries": [3, 5, 8]} | changes))


@pytest.mark.parametrize("name", ["received", "heads", "sinks", "never", "unattended"])
def test_files_hold_the_frames(name: str) -> None:
    lm = tiny_llama()
    summary = attention(lm, encode(lm, HOSTILE).ids)
    expected = {
        "received": summary.received,
        "heads": summary.heads,
        "sinks": lambda: summary.sinks(0.2, diagonal=False),
        "never": lambda: summary.never_attended("absolute", 0.05, 4),
        "unattended": lambda: summary.unattended("absolute", 0.05, 4),
    }[name]()
    frame = save.frame(summary, name, chosen())
    read = pd.read_parquet(io.BytesIO(frame.to_parquet(index=False)))
    pd.testing.assert_frame_equal(read, expected, check_dtype=False)
    read = pd.read_csv(io.StringIO(frame.to_csv(index=False)), keep_default_na="token" not in frame)
    assert list(read.columns) == list(expected.columns) and len(read) == len(expected)
    if "token" in read:
        assert read["token"].tolist() == expected["token"].tolist()


def test_the_map_is_that_of_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = attention(tiny_llama(), list(range(10, 40)))
    file = np.load(io.BytesIO(save.as_npz(summary, 1, 2)))
    np.testing.assert_array_equal(file["attention"], summary.map(1, 2))
    assert file["ids"].tolist() == list(summary.ids) and file["tokens"].tolist() == summary.labels


@pytest.mark.parametrize("text", [TEXT, HOSTILE, "a'b\"c\\n\n{x}"])
def test_the_python_lines_repeat_the_analysis(text: str) -> None:
    lm = tiny_llama()
    summary = attention(lm, encode(lm, text).ids)
    lines = as_python(ModelKey(lm.name, "cpu", "float32"), summary, chosen(), take_away(lm, summary.ids, [0], since=4))
    names: dict[str, object] = {}
    exec(lines, names)
    assert names["kvviz"] is kvviz and names["summary"].ids == summary.ids
    for name in ("received", "heads", "sinks", "never", "unattended"):
        pd.testing.assert_frame_equal(names[name], save.frame(summary, name, chosen()))
    np.testing.assert_array_equal(names["attention"], summary.map(1, 2))
    assert (names["without"].positions, names["without"].since) == ((0,), 4)


def test_the_report_is_one_file_without_obeyed_markup() -> None:
    lm = tiny_llama()
    summary = attention(lm, encode(lm, HOSTILE + " " + TEXT).ids)
    taken = take_away(lm, summary.ids, [0])
    page = as_html(N_, "light", "en", summary, chosen(), taken)
    for token in ("<bos>", "<b>", "<script>alert"):
        assert token not in page
    assert "&lt;bos&gt;" in page
    assert page.count("<!doctype html>") == 1 and not re.search(
        r"(src|href)=", re.sub(r"(?s)<script.*?</script>", "", page)
    )
    assert len(re.findall(r'class="plotly-graph-div"', page)) >= 7
    assert page.count("* plotly.js v") == 1, "plotly's script is there once"
    for fact in (lm.revision, "float32", f"{len(summary.ids)} tokens"):
        assert fact in page


def test_a_report_escapes_every_kind_of_content() -> None:
    evil = "<img src=x onerror=alert(1)>"
    bars = go.Figure(go.Bar(x=[0], y=[1], text=["</script>" + evil]))
    strip = Strip([evil], np.array([np.nan]))
    page = document(evil, [(evil, evil)], [Part(evil, [bars, pd.DataFrame({evil: [evil]}), strip, evil])])
    assert evil not in page and "</script>\\u003cimg" not in page and "</script><img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") == 9


def test_the_lines_on_the_screen_follow_the_settings(reader: Reader) -> None:
    at = reader.measured()
    at.slider(key="epsilon").set_value(0.5).run()
    at.selectbox(key="never_rule").set_value("absolute").run()
    (code,) = at.code
    assert "summary.sinks(epsilon=0.5, diagonal=True)" in code.value
    assert "rule='absolute', threshold=0.01, too_new=8" in code.value
    assert f"text = {TEXT!r}" in code.value
