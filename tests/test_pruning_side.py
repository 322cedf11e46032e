"""Policies side by side, in every state, on tiny models: what is shown is what the API gives."""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
import pytest

import kvviz
from kvviz.errors import Refused
from kvviz.evaluation import compare_policies
from kvviz.locale import N_
from kvviz.policies import H2O, Random, SinksWindow, SnapKV, Window
from kvviz.ui.pruning import side_work
from kvviz.ui.pruning.example import PROSE
from kvviz.ui.pruning.side_loss import WINDOW
from kvviz.ui.pruning.side_save import as_html, as_python
from kvviz.ui.pruning.side_texts import cards
from kvviz.ui.shell import Page
from tests.bench import Worker, at_work
from tests.test_attention_ui import figure, numbers
from tests.test_pages import (
    Visit,
    component,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)
from tests.tiny import tiny_llama

TEXT = "the cat sat on the mat and the dog sat on the log, one two three four five six seven, ten nine eight, mat log"
HOSTILE = '<script>alert(1)</script> <b>x</b> $x$ & "q" 貓 <bos> ' + TEXT
ARMS = "window,sinks_window,sinks_window_original,h2o,snapkv"


@pytest.fixture
def side(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:  # noqa: F811
    with at_work(visit, monkeypatch, "pruning", "side") as worker:
        yield worker


def compared(side: Worker, text: str = TEXT, **query: str) -> Worker:
    side.open(**{"side_arms": ARMS, "side_new": "5", **query})
    side.type(text)
    side.press()
    side.settle()
    return side


def policies(tokens: int) -> list:
    budget = round(0.2 * tokens)
    arms = [Window(budget=budget), SinksWindow(budget=budget), SinksWindow(budget=budget, positions="original")]
    return [*arms, H2O(budget=budget), SnapKV(budget=budget), Random(budget=budget)]


def test_before_the_first_run(side: Worker) -> None:
    at = side.open()
    sound(at)
    assert "Press Compare" in told(at, "caption")
    assert not at.button(key="side_run").disabled and at.button(key="side_stop").disabled
    assert not at.get("plotly_chart") and not at.get("table")
    assert at.pills[0].value == ["window", "sinks_window", "h2o", "snapkv"]
    assert "random" not in at.pills[0].options


def test_the_example_is_the_text_that_the_figures_in_the_docs_are_measured_on() -> None:
    from tests.test_eviction_real import TEXT as english

    assert english == PROSE


def test_the_screen_shows_what_the_api_gives(side: Worker) -> None:
    at = compared(side).at
    sound(at)
    lm, ids = tiny_llama(), side.result.wanted.ids
    run = compare_policies(lm, ids, policies(len(ids)))
    assert [str(policy) for policy in run.policies[1:]] == [str(policy) for _, policy in side.result.wanted.arms]

    shown, expected = at.table[0].value, run.perplexities()
    assert shown["policy"].tolist() == [
        *("full cache", "window", "sinks + window, cache-relative", "sinks + window, original positions"),
        *("H2O", "SnapKV", "random"),
    ]
    assert shown["perplexity"].tolist() == [f"{value:,.2f}" for value in expected["perplexity"]]
    assert shown["after it"].tolist() == ["–", *(f"{value:,.2f}" for value in expected["after"][1:])]
    assert shown["mean KL after it (nats)"].tolist()[1:] == [f"{value:.4f}" for value in expected["kl"][1:]]
    assert shown["tokens stored"].tolist() == [f"{value:,}" for value in expected["stored"]]

    lines = figure(at, "side_loss").data
    assert len(lines) == 6
    change = run.losses[4].nll - run.losses[0].nll
    np.testing.assert_allclose(numbers(lines[3].y)[0], change[:WINDOW].mean(), atol=1e-5)
    assert numbers(lines[3].x).tolist() == list(range(WINDOW, len(ids)))
    assert not any(np.isnan(numbers(line.y)).any() for line in lines)
    assert "SnapKV cuts once" in told(at, "caption")
    assert "SnapKV: with" in told(at, "caption"), "32 voters fill so small a budget"


def test_the_running_mean_and_the_zoom_are_views_of_the_same_run(side: Worker) -> None:
    at = compared(side).at
    found = side.result
    at.slider(key="side_window").set_value(1).run()
    at.toggle(key="side_zoom").set_value(True).run()
    lines = figure(at, "side_loss").data
    assert side.result is found and not at.warning
    np.testing.assert_allclose(numbers(lines[0].y), found.losses["window"].nll - found.full.nll, atol=1e-5)
    assert figure(at, "side_loss").layout.yaxis.range is not None


def test_texts_part_where_their_ids_do(side: Worker) -> None:
    at = compared(side).at
    lm, ids = tiny_llama(), side.result.wanted.ids
    shown = component(at, "side_texts")["cards"]
    assert shown[0]["title"] == "full cache" and len(shown) == 7
    written = {}
    for policy in [None, *policies(len(ids))]:
        steps = list(kvviz.stream(lm, ids, 5, policy=policy))
        written[str(policy)] = [step.token_id for step in steps], [step.text for step in steps]
    full = written["None"][0]
    parted = 0
    for card, (mine, pieces) in zip(shown, written.values(), strict=True):
        assert card["same"] + card["rest"] == "".join(pieces)
        differs = [one != other for one, other in zip_longest(full, mine)]
        cut = differs.index(True) if any(differs) else len(mine)
        assert card["same"] == "".join(pieces[:cut])
        parted += any(differs)
        assert ("differs from new token" in card["note"]) == any(differs)
    assert parted, "at least one policy changed the text"


def test_attention_lost_and_agreement(side: Worker) -> None:
    at = compared(side).at
    found = side.result
    table = at.table[1].value
    shares = [float(share.rstrip("%")) for share in table["attention lost"]]
    assert shares == sorted(shares) and len(shares) == 6
    first = found.evictions["window"].first
    mean = float(found.lost["window"][:, first + 1 :].mean())
    assert table.set_index("policy")["attention lost"]["window"] == f"{mean:.2%}"
    matrix = numbers(figure(at, "side_agreement").data[0].z)
    assert matrix.shape == (6, 6) and (np.diag(matrix) == 1).all()
    np.testing.assert_allclose(matrix, matrix.T)
    assert "Random draws anew at every step" in told(at, "caption")


def test_without_writing_there_is_no_text(side: Worker) -> None:
    at = compared(side, side_new="0").at
    sound(at)
    assert not at.get("bidi_component") or not side.result.written
    assert "What does the model write next?" not in told(at, "subheader")


def test_while_it_works_after_stop_and_when_settings_change(side: Worker) -> None:
    side.open(side_arms="window", side_new="3")
    side.type(TEXT)
    side.visit.turns.pause_in = side.visit.turns.given + 3
    side.press()
    assert side.visit.turns.pausing.wait(20)
    at = side.at.run()
    sound(at)
    assert not at.button(key="side_stop").disabled and not at.get("plotly_chart")
    at.button(key="side_stop").click().run()
    side.settle()
    assert "Stopped" in told(at, "info")
    side.press()
    side.settle()
    assert at.get("plotly_chart") and not at.warning
    at.slider(key="side_percent").set_value(50).run()
    assert "settings above have changed" in told(at, "warning") and at.get("plotly_chart")
    at.slider(key="side_percent").set_value(20).run()
    assert not at.warning


def test_a_text_no_longer_than_the_budget_is_told_as_such(side: Worker) -> None:
    at = compared(side, side_unit="tokens", side_tokens="200").at
    sound(at)
    assert "0 tokens evicted: the text" in told(at, "info")
    assert at.table[0].value["after it"].tolist() == ["–"] * 7
    assert "gone?" not in told(at, "subheader") and "same tokens?" not in told(at, "subheader")
    assert set(at.table[0].value["perplexity"]) == {at.table[0].value["perplexity"][0]}


def test_snapkv_alone_may_have_nothing_to_drop(side: Worker) -> None:
    at = compared(side, side_percent="60").at
    sound(at)
    assert "SnapKV: 0 tokens evicted, because its prompt" in told(at, "info")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"side_unit": "tokens", "side_tokens": "0"}, "budget must be at least 1 token"),
        (
            {"side_unit": "tokens", "side_tokens": "3"},
            "sinks + window, cache-relative: A budget of 3 tokens has no room for 4 first tokens",
        ),
    ],
)
def test_impossible_budgets_are_refused(side: Worker, query: dict[str, str], sentence: str) -> None:
    at = compared(side, **query).at
    sound(at)
    assert sentence in told(at, "error") and not at.get("plotly_chart")


@pytest.mark.parametrize("text", ["a", "ab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", HOSTILE])
def test_awkward_texts(side: Worker, text: str) -> None:
    at = compared(side, text, side_arms="window,h2o", side_unit="tokens", side_tokens="5").at
    sound(at)
    if text == "a":
        assert "not defined" in told(at, "info") and not at.get("plotly_chart")
    else:
        assert not np.isnan(numbers(figure(at, "side_loss").data[0].y)).any()
    assert "<script>" not in told(at)


def test_a_failure_is_a_sentence(side: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused("The device ran out of memory at {count} tokens. Use a shorter text or a smaller model.", count=9)

    monkeypatch.setattr(side_work, "compare_policies", refuse)
    at = compared(side).at
    sound(at)
    assert "ran out of memory at 9 tokens" in told(at, "error")


def test_saved_files_and_python(side: Worker) -> None:
    at = compared(side, HOSTILE).at
    assert {"side_csv_losses", "side_csv_policies", "side_csv_lost", "side_csv_agreement", "side_html"} <= {
        button.key for button in at.get("download_button")
    }
    found = side.result
    written = as_html(Page(N_, "light", None), found, "en")
    assert "<script>alert" not in written and "What does the model write next?" in written
    titles = [card.title for card in cards(N_, found)]
    assert all(title in written for title in titles)
    lines = as_python(found).replace(f"kvviz.load({found.wanted.model.name!r}, device='auto', dtype='auto')", "tiny")
    space: dict = {"tiny": tiny_llama(), "print": lambda *_: None}
    exec(lines, space)  # the lines run, and give the same
    assert space["run"].perplexities().equals(found.evaluation.perplexities())
    for arm, shares in zip(found.lost, space["lost"], strict=True):
        np.testing.assert_array_equal(found.lost[arm], shares)
