"""The fact probe: placements and shares by hand, answers against the plain model and the evaluator, on tiny models."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

import kvviz
from kvviz.analysis.facts import FACTS, Fact, by_depth, by_holding, by_policy, placements, wilson
from kvviz.engine.asking import Held
from kvviz.engine.head import logits
from kvviz.engine.reading import read
from kvviz.errors import Refused
from kvviz.factprobe.hiding import answer_id, hide, question_ids, usable
from kvviz.figures.facts import held_and_known, known_shares
from kvviz.models.loading import LanguageModel
from kvviz.policies import H2O, TOVA, Full, KNorm, Random, SinksWindow, SnapKV, Window
from tests.tiny import tiny_gemma3, tiny_gpt2, tiny_llama

ANIMAL = Fact("animal", "it was the {answer}.", "what was it?", "it was the", ("cat", "dog", "log", "mat", "seven"))
NUMBER = Fact("number", "we saw {answer}.", "how many?", "we saw", ("ten", "two", "six"))
TINY = (ANIMAL, NUMBER)
FILLER = "the cat sat on the mat. the dog sat on the log! one two three four five six. seven eight nine ten?"
POLICIES = [
    *(Window(budget=40), SinksWindow(budget=40), SinksWindow(budget=40, positions="original"), H2O(budget=40)),
    *(
        TOVA(budget=40),
        SnapKV(budget=40, window=8),
        KNorm(budget=40),
        Random(budget=40),
        H2O(budget=40, evicts="decode"),
    ),
]


def probe(lm: LanguageModel, *policies, **options) -> pd.DataFrame:
    settings = {"tokens": 150, "rounds": 2, "depths": (20, 80), "facts": TINY, "filler": FILLER}
    return kvviz.probe_facts(lm, policies, **(settings | options))


# --- Frames and figures by hand


def test_every_fact_comes_to_every_depth_once() -> None:
    rounds = placements(FACTS, (10, 50, 90), len(FACTS))
    seen = {(place.fact.name, place.depth) for places in rounds for place in places}
    assert len(rounds) == len(FACTS) and len(seen) == 3 * len(FACTS)
    assert all(len({place.fact.name for place in places}) == 3 for places in rounds)
    assert all(place.answer in place.fact.candidates for places in rounds for place in places)
    assert placements(FACTS, (10, 50), 3, seed=1) == placements(FACTS, (10, 50), 3, seed=1)
    assert placements(FACTS, (10, 50), 3, seed=1) != placements(FACTS, (10, 50), 3, seed=2)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0)]
)
def test_wilson_intervals_are_the_published_ones(right: int, count: int, low: float, high: float) -> None:
    assert wilson(right, count) == pytest.approx((low, high), abs=2e-4)


def answers() -> pd.DataFrame:
    rows = [
        ("Full()", 10, True, 0.9, 1.0, 0),
        ("Full()", 10, True, 0.7, 1.0, 0),
        ("Full()", 90, False, 0.1, 1.0, 0),
        ("W", 10, False, 0.1, 0.0, 30),
        ("W", 10, True, 0.3, 0.25, 30),
        ("W", 90, True, 0.5, 1.0, 30),
    ]
    columns = ["policy", "depth_percent", "right", "probability", "held_share", "evicted"]
    return pd.DataFrame(rows, columns=columns).assign(candidates=[4, 4, 2, 4, 4, 2], stored=9.0)


def test_shares_by_hand() -> None:
    full, pruned = by_policy(answers()).to_dict("records")
    assert (full["right"], full["placements"], full["evicted"]) == (2, 3, 0)
    assert full["chance"] == pytest.approx((0.25 + 0.25 + 0.5) / 3)
    assert pruned["probability"] == pytest.approx(0.3) and pruned["held_share"] == pytest.approx(1.25 / 3)
    assert pruned["right_share"] == pytest.approx(2 / 3) and pruned["low"] < 2 / 3 < pruned["high"]
    depths = by_depth(answers()).set_index(["policy", "depth_percent"])
    assert depths.loc[("W", 10), "right_share"] == 0.5 and depths.loc[("W", 10), "held_share"] == 0.125
    assert depths.loc[("Full()", 90), "placements"] == 1
    held = by_holding(answers()).set_index("held")
    assert held["right"].to_dict() == {"none": 0, "some": 1, "all": 3}
    assert held["placements"].to_dict() == {"none": 1, "some": 1, "all": 4}


def test_the_maps_show_every_policy_and_depth() -> None:
    names = {"Full()": "full <cache>", "W": "window"}
    held, known = held_and_known(by_depth(answers()), names).data
    assert np.asarray(held.z).tolist() == [[100, 100], [12.5, 100]]
    assert np.asarray(known.z).tolist() == [[100, 0], [50, 100]]
    assert np.asarray(known.text).tolist() == [["2/2", "0/1"], ["1/2", "1/1"]]
    figure = known_shares(by_policy(answers()), names, {"Full()": "full", "W": "window"})
    points = figure.data
    assert [point.x[0] for point in points] == pytest.approx([200 / 3, 200 / 3])
    low, high = wilson(2, 3)
    assert points[1].error_x.array[0] == pytest.approx(100 * (high - 2 / 3))
    assert points[1].error_x.arrayminus[0] == pytest.approx(100 * (2 / 3 - low))


# --- Texts


def test_only_candidates_of_one_token_are_used() -> None:
    known = usable(tiny_llama(), ANIMAL)
    assert known.candidates == ("cat", "dog", "log", "mat")  # " seven" is two tokens for this tokenizer
    assert usable(tiny_llama(), Fact("x", "a {answer}.", "b?", "a", ("seven", "cat"))) is None
    lm, tokenizer = tiny_llama(), tiny_llama().tokenizer
    assert tokenizer.decode([answer_id(lm, ANIMAL, "dog")]) == " dog"
    assert tokenizer.decode(question_ids(lm, ANIMAL)) == "\n\nQuestion: what was it?\nAnswer: it was the"


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3, tiny_gpt2])
def test_facts_are_where_they_are_said_to_be(make) -> None:
    lm = make()
    places = placements([usable(lm, fact) for fact in TINY], (20, 80), 1, seed=4)[0]
    hidden = hide(lm, places, FILLER, 160, skip=1)
    assert hidden.text.startswith("the dog sat") and len(hidden.ids) <= 160
    for place, span, answer in zip(places, hidden.spans, hidden.answers, strict=True):
        assert lm.tokenizer.decode([hidden.ids[answer]]).strip() == place.answer
        said = lm.tokenizer.decode([hidden.ids[position] for position in span])
        assert said.strip() == place.fact.statement.format(answer=place.answer)
        assert answer in span
        assert abs(span.start / len(hidden.ids) - place.depth / 100) < 0.2


def test_the_real_facts_are_close_to_their_depths(smollm2: LanguageModel) -> None:
    assert [usable(smollm2, fact) for fact in FACTS] == list(FACTS)
    for number, places in enumerate(placements(FACTS, (10, 30, 50, 70, 90), 3)):
        hidden = hide(smollm2, places, kvviz.texts.alice(), 512, number * 11)
        assert 450 < len(hidden.ids) <= 512
        for place, answer in zip(places, hidden.answers, strict=True):
            assert abs(answer / len(hidden.ids) - place.depth / 100) < 0.08
            assert smollm2.tokenizer.decode([hidden.ids[answer]]) == f" {place.answer}"


# --- Asking


def plain(lm: LanguageModel, ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        last = lm.model(input_ids=torch.tensor([ids], device=lm.device)).logits[0, -1]
    return last.float().log_softmax(dim=-1).cpu().numpy()


def test_the_full_cache_answers_as_the_plain_model() -> None:
    lm = tiny_llama()
    text, question = list(range(3, 203)), list(range(60, 75))
    said, evicted = Held(lm, text, Full()).ask(question)
    np.testing.assert_allclose(said, plain(lm, text + question), atol=1e-4)
    assert evicted == ()


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_policy_answers_as_when_it_reads_everything_in_one_go(policy) -> None:
    lm = tiny_llama()
    generator = np.random.default_rng(1)
    text, question = generator.integers(3, 300, 190).tolist(), generator.integers(3, 300, 12).tolist()
    held = Held(lm, text, policy)
    held.ask(question[::-1])  # another question leaves no trace
    said, evicted = held.ask(question)
    whole = read(lm, text + question, policy, prompt=len(text))
    expected = logits(lm.model, whole.hidden[-1:])[0].log_softmax(dim=-1).cpu().numpy()
    np.testing.assert_allclose(said, expected, atol=1e-3)
    gone = [sorted(zip(each.head, each.position, each.after, strict=True)) for each in whole.evicted]
    by_layer = {layer: [] for layer in held.managed}
    for each in evicted:
        by_layer[each.layer] += zip(each.head, each.position, each.after, strict=True)
    assert [sorted(rows) for rows in by_layer.values() if rows] == gone
    again, _ = held.ask(question)
    np.testing.assert_array_equal(said, again)


# --- The probe


def test_what_is_held_is_counted_to_the_last_step() -> None:
    lm = tiny_llama()
    frame = probe(lm, Window(budget=30), Window(budget=60), Window(budget=10_000))
    assert len(frame) == 2 * 2 * 4 and frame["policy"].iloc[0] == "Full()"
    question = {fact.name: len(question_ids(lm, fact)) for fact in TINY}
    for budget in (30, 60, 10_000):
        for row in frame[frame["policy"] == f"Window(budget={budget})"].itertuples():
            last = row.text_tokens + question[row.fact] - 1
            # before the last token comes, its `budget` predecessors are there
            assert row.held_share == float(row.position >= last - budget), row
            assert row.stored == min(budget, last) + (last + 1 > 0)
    idle = frame[frame["policy"] == "Window(budget=10000)"]
    full = frame[frame["policy"] == "Full()"]
    assert idle["evicted"].eq(0).all() and full["held_share"].eq(1).all()
    np.testing.assert_allclose(idle["probability"], full["probability"], atol=1e-5)
    assert frame["right"].equals(frame["said"] == frame["answer"])
    assert frame["probability"].between(0, 1).all() and set(frame["candidates"]) == {3, 4}


def test_probabilities_are_those_of_the_candidates_alone() -> None:
    lm = tiny_llama()
    row = probe(lm, rounds=1).iloc[0]
    fact = usable(lm, ANIMAL)
    hidden = hide(lm, placements([fact, NUMBER], (20, 80), 1)[0], FILLER, 150, skip=0)
    logs = plain(lm, [*hidden.ids, *question_ids(lm, fact)])
    weights = {word: math.exp(logs[answer_id(lm, fact, word)]) for word in fact.candidates}
    assert row["probability"] == pytest.approx(weights[row["answer"]] / sum(weights.values()), rel=1e-3)
    assert row["said"] == max(weights, key=weights.get)


def test_a_hybrid_model_counts_its_full_layers() -> None:
    frame = probe(tiny_gemma3(), Window(budget=30))
    assert set(frame["held_share"]) <= {0.0, 1.0} and frame["evicted"].max() > 0


def test_progress_rises_to_the_end_and_stops_the_work() -> None:
    shares: list[float] = []
    probe(tiny_llama(), Window(budget=30), progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0

    class Enough(Exception):
        pass

    def stop(share: float) -> None:
        if share > 0.3:
            raise Enough

    with pytest.raises(Enough):
        probe(tiny_llama(), Window(budget=30), progress=stop)


def test_refusals() -> None:
    with pytest.raises(Refused, match="2 of the facts have answers that are single tokens"):
        kvviz.probe_facts(tiny_llama(), [Window(budget=30)])
    with pytest.raises(Refused, match="no room for 2 facts"):
        probe(tiny_llama(), tokens=40)
    with pytest.raises(Refused, match="no rotary positions"):
        probe(tiny_gpt2(), SinksWindow(budget=30))


def test_the_default_model_knows_the_facts_and_a_small_window_does_not(smollm2: LanguageModel) -> None:
    frame = kvviz.probe_facts(smollm2, [Window(budget=24)], tokens=256, rounds=2)
    full, window = by_policy(frame).to_dict("records")
    assert full["low"] > full["chance"], "the full cache is above guessing beyond doubt"
    early = frame[(frame["policy"] != "Full()") & (frame["depth_percent"] <= 70)]
    assert early["held_share"].eq(0).all()
    assert window["right"] < full["right"] and window["probability"] < full["probability"]
