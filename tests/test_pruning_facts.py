"""Where pruning hurts: the fact probe's view in every state, on tiny models and facts."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from kvviz.analysis.facts import FACTS, Fact, by_depth, by_policy
from kvviz.factprobe.probe import probe_facts
from kvviz.locale import N_
from kvviz.policies import H2O, Random, Window
from kvviz.ui.house import ModelKey
from kvviz.ui.pruning import facts_work
from kvviz.ui.pruning.facts_inputs import DEPTHS, Wanted
from kvviz.ui.pruning.facts_save import as_html, as_python
from kvviz.ui.pruning.facts_words import verdict
from kvviz.ui.pruning.facts_work import Probed
from kvviz.ui.shell import Page
from tests.bench import Worker, at_work
from tests.test_attention_ui import figure, numbers
from tests.test_factprobe import FILLER, answers
from tests.test_pages import (
    Visit,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)
from tests.tiny import tiny_llama

TINY = tuple(
    Fact(f"fact {at}", f"{word} saw the {{answer}}.", f"{word} what?", f"{word} saw the", ("cat", "dog", "log", "mat"))
    for at, word in enumerate(("one", "two", "six", "ten", "on"))
)
LONG = " ".join([FILLER] * 6)
QUICK = {"facts_length": "256", "facts_rounds": "2", "facts_arms": "window,h2o"}


@pytest.fixture
def asker(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:  # noqa: F811
    with at_work(visit, monkeypatch, "pruning", "facts") as worker:
        yield worker


@pytest.fixture
def tiny_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_work, "probe_facts", partial(probe_facts, facts=TINY, filler=LONG))


def ask(asker: Worker, **query: str) -> Worker:
    asker.open(**(QUICK | query))
    asker.press()
    asker.settle()
    return asker


def test_before_the_first_run(asker: Worker) -> None:
    at = asker.open()
    sound(at)
    assert "Press Ask" in told(at, "caption") and "4 texts of about 512 tokens, 5 facts in each" in told(at, "caption")
    assert not at.get("plotly_chart") and at.button(key="facts_stop").disabled
    assert at.segmented_control(key="facts_rounds").options == ["10", "20", "45", "90"]
    assert FACTS[0].statement.format(answer="seven") in told(at, "text")


def test_the_screen_shows_what_the_api_gives(asker: Worker, tiny_facts: None) -> None:
    at = ask(asker).at
    sound(at)
    found = asker.result
    policies = [Window(budget=51), H2O(budget=51), Random(budget=51)]
    assert [str(policy) for _, policy in found.wanted.arms] == [str(policy) for policy in policies]
    expected = probe_facts(tiny_llama(), policies, tokens=256, rounds=2, facts=TINY, filler=LONG)
    assert found.answers.equals(expected)
    policies_frame = by_policy(expected)
    shown = at.table[0].value
    assert shown["policy"].tolist() == ["full cache", "window", "H2O", "random"]
    assert shown["right"].tolist() == [f"{row.right} / 10" for row in policies_frame.itertuples()]
    assert shown["heads that hold it"].tolist() == [f"{100 * value:.0f} %" for value in policies_frame["held_share"]]

    held, known = figure(at, "facts_map").data
    square = by_depth(expected).pivot(index="policy", columns="depth_percent", values="held_share")
    order = ["Full()", *map(str, policies)]
    np.testing.assert_allclose(numbers(held.z), 100 * square.loc[order, list(DEPTHS)].to_numpy(), atol=1e-3)
    assert not np.isnan(numbers(known.z)).any()
    assert list(figure(at, "facts_map").layout.xaxis.ticktext) == ["10 %", "30 %", "50 %", "70 %", "90 %"]
    assert len(figure(at, "facts_shares").data) == 4
    assert len(at.dataframe[0].value) == 40


def test_settings_that_change_and_come_back(asker: Worker, tiny_facts: None) -> None:
    at = ask(asker).at
    found = asker.result
    at.slider(key="facts_percent").set_value(50).run()
    assert "settings above have changed" in told(at, "warning") and at.get("plotly_chart")
    at.slider(key="facts_percent").set_value(20).run()
    assert not at.warning and asker.result is found


def test_while_it_works_and_after_stop(asker: Worker, tiny_facts: None) -> None:
    asker.open(**QUICK)
    asker.visit.turns.pause_in = asker.visit.turns.given + 6
    asker.press()
    assert asker.visit.turns.pausing.wait(20)
    at = asker.at.run()
    sound(at)
    assert not at.button(key="facts_stop").disabled and not at.get("plotly_chart")
    at.button(key="facts_stop").click().run()
    asker.settle()
    assert "Stopped" in told(at, "info")


def test_a_budget_above_the_text_evicts_nothing(asker: Worker, tiny_facts: None) -> None:
    at = ask(asker, facts_unit="tokens", facts_tokens="4000").at
    sound(at)
    assert "window: 0 tokens evicted: the text is shorter than the budget." in told(at, "info")
    assert set(at.table[0].value["heads that hold it"]) == {"100 %"}


def test_a_tokenizer_without_such_answers_is_refused(asker: Worker) -> None:
    at = ask(asker).at
    sound(at)
    assert "answers that are single tokens" in told(at, "error") and not at.get("plotly_chart")


def probed(frame=None) -> Probed:
    wanted = Wanted(ModelKey("smollm2-135m"), 512, 4, (("window", Window(budget=102)),))
    return Probed(wanted, tiny_llama(), answers().replace("W", "Window(budget=102)") if frame is None else frame)


def test_the_sentences_follow_the_numbers() -> None:
    known = answers().replace("W", "Window(budget=102)")
    unsure = verdict(N_, probed())[0]
    assert "2 of 3 answers right; guessing would give 33 %" in unsure and "no better than guessing" in unsure
    full = known["policy"] == "Full()"
    sure = known.assign(candidates=100).assign(right=known["right"] | full)
    words = verdict(N_, probed(sure))[0]
    assert "Where no head held the answer any more, the policies gave 0 of 1 right." in words
    assert "Where only some heads held it: 1 of 1." in words and "Where all heads held it: 1 of 1." in words


def test_what_is_taken_away() -> None:
    lines = as_python(probed())
    compile(lines, "notebook", "exec")
    assert "kvviz.policies.Window(budget=102)" in lines and "tokens=512, rounds=4" in lines
    told = {"round": 0, "fact": "<b>code</b>", "answer": "seven", "said": "two"}
    html = as_html(Page(N_, "light", None), probed(probed().answers.assign(**told)), "en")
    assert "&lt;b&gt;code" in html and "<b>code" not in html
    assert html.count("plotly-graph-div") >= 2 and "How sure is that?" in html
