"""Runs of the Cache growth page beside each other: fair, apart from each other, and gone when nobody needs them."""

import json
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from kvviz.engine.stream import stream
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import encode
from kvviz.ui import jobs
from kvviz.ui.desk import Desk
from kvviz.ui.growth import run as run_module
from kvviz.ui.growth.run import GrowthRun, Wanted
from kvviz.ui.growth.save import as_json, as_python
from kvviz.ui.house import ModelKey
from kvviz.ui.turns import Turns
from tests.tiny import tiny_gemma3, tiny_llama
from tests.waiting import background, until

FIRST, SECOND = "the cat and the dog", "one two three four"
LONG = "one"  # goes on for 200 tokens


class GatedTurns(Turns):
    """Turns that last until every other run is in line again, as a slow forward would; they note who was served."""

    def __init__(self) -> None:
        super().__init__()
        self.served: list[object] = []
        self.runs: list[GrowthRun] = []
        self.during: Callable[[GrowthRun, int], None] = lambda run, count: None  # called inside every turn
        self._free, entered = threading.Event(), threading.Event()

        def hold() -> None:
            with super(GatedTurns, self).take("nobody", threading.Event()):
                entered.set()
                self._free.wait(20)

        background(hold)
        assert entered.wait(10)

    def open(self, *runs: GrowthRun) -> None:
        """Let `runs` start at the same moment, and wait for their ends."""
        self.runs = list(runs)
        until(lambda: all(map(self.place, runs)))
        self._free.set()
        for run in runs:
            run.job.join(20)
            assert not run.job.running

    @contextmanager
    def take(self, run: GrowthRun, stop: threading.Event) -> Iterator[None]:
        with super().take(run, stop):
            self.served.append(run)
            self.during(run, self.served.count(run))
            until(lambda: all(not other.job.running or self.place(other) for other in self.runs if other is not run))
            yield


def begin(turns: Turns, text: str, new: int = 12, lm: LanguageModel | None = None, **options: object) -> GrowthRun:
    lm = lm or tiny_llama()
    wanted = Wanted(ModelKey(lm.name, "cpu", "float32"), text, max_new_tokens=new, **options)
    return GrowthRun(wanted, lm, encode(lm, text), turns)


def finished(*args: object, **options: object) -> GrowthRun:
    run = begin(Turns(), *args, **options)
    run.job.join(20)
    assert not run.job.running and run.job.error is None
    return run


def ids(run: GrowthRun) -> list[int]:
    return [step.token_id for step in run.steps]


def alone(text: str, new: int = 12) -> list[int]:
    """The tokens of a run nobody else is beside of."""
    return [step.token_id for step in stream(tiny_llama(), text, new)]


def test_two_runs_take_turns_step_by_step_and_write_what_each_writes_alone() -> None:
    turns = GatedTurns()
    first, second = begin(turns, FIRST), begin(turns, SECOND)
    turns.open(first, second)
    assert turns.served == [first, second] * 12
    assert ids(first) == alone(FIRST) != ids(second) == alone(SECOND)


def test_three_runs_of_different_models_and_lengths() -> None:
    turns = GatedTurns()
    runs = [begin(turns, FIRST, 4), begin(turns, SECOND, 8, tiny_gemma3()), begin(turns, SECOND, 6)]
    turns.open(*runs)
    a, b, c = runs
    assert turns.served == [a, b, c] * 4 + [b, c] * 2 + [b] * 2
    assert ids(b) == [step.token_id for step in stream(tiny_gemma3(), SECOND, 8)]


def test_a_long_prompt_lets_others_in_between_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pieces:
        prefill_chunk = 8

    monkeypatch.setattr(run_module, "settings", Pieces)
    turns, text = GatedTurns(), FIRST * 4
    long, short = begin(turns, text, 3), begin(turns, SECOND, 6)
    pieces = -(-len(long.prompt.ids) // 8)
    assert pieces > 2
    turns.open(long, short)
    assert turns.served[: 2 * pieces] == [long, short] * pieces
    assert ids(long) == alone(text, 3)


def test_a_stop_ends_one_within_a_step_and_leaves_the_other_alone() -> None:
    turns = GatedTurns()
    first, second = begin(turns, FIRST), begin(turns, SECOND)
    turns.during = lambda run, count: first.job.stop.set() if run is first and count == 5 else None
    turns.open(first, second)
    assert len(first.steps) == 5, "the step at work is kept, no other is begun"
    assert first.job.stopped and first.job.error is None and ids(first) == alone(FIRST)[:5]
    assert not second.job.stopped and ids(second) == alone(SECOND)


def test_an_error_in_one_leaves_the_other_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(lm, prompt, *args, **options):
        for step in stream(lm, prompt, *args, **options):
            yield step
            if prompt.text == FIRST and step.index == 2:
                raise ZeroDivisionError

    monkeypatch.setattr(run_module, "stream", breaking)
    turns = GatedTurns()
    first, second = begin(turns, FIRST), begin(turns, SECOND)
    turns.open(first, second)
    assert isinstance(first.job.error, ZeroDivisionError) and ids(first) == alone(FIRST)[:3]
    assert second.job.error is None and ids(second) == alone(SECOND)


def test_an_error_inside_a_forward_gives_the_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first_ids = encode(tiny_llama(), FIRST).ids
    forward = type(tiny_llama().model).forward

    def breaking(self, input_ids, **options):
        if input_ids.tolist() == [list(first_ids)]:
            raise torch.OutOfMemoryError("no room")
        return forward(self, input_ids, **options)

    monkeypatch.setattr(type(tiny_llama().model), "forward", breaking)
    turns = GatedTurns()
    first, second = begin(turns, FIRST), begin(turns, SECOND)
    turns.open(first, second)
    assert "ran out of memory" in str(first.job.error) and not first.steps
    assert second.job.error is None and ids(second) == alone(SECOND)


def test_how_many_are_ahead() -> None:
    turns = GatedTurns()
    runs = [begin(turns, FIRST, 1)]
    until(lambda: turns.place(runs[0]) == 1)
    runs.append(begin(turns, SECOND, 1))
    until(lambda: turns.place(runs[1]))
    assert [run.ahead for run in runs] == [1, 2]
    turns.open(*runs)
    assert [run.ahead for run in runs] == [0, 0]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    turns = Turns()
    monkeypatch.setattr(run_module, "shared_turns", lambda: turns)
    return Desk()


def sit(desk: Desk, text: str, new: int = 12) -> GrowthRun:
    lm = tiny_llama()
    wanted = Wanted(ModelKey(lm.name), text, max_new_tokens=new)
    return desk.begin(lambda: GrowthRun(wanted, lm, encode(lm, text), run_module.shared_turns()))


def test_a_new_run_at_a_desk_stops_the_former(desk: Desk) -> None:
    former = sit(desk, LONG, 200)
    until(lambda: former.steps)
    run = sit(desk, SECOND)
    assert not former.job.running and former.job.stopped
    run.job.join(20)
    assert desk.run is run is not former
    assert ids(run) == alone(SECOND) and not run.job.stopped


def test_a_new_run_begins_even_when_the_former_waits_in_line(desk: Desk) -> None:
    with run_module.shared_turns().take("another visitor", threading.Event()):
        former = sit(desk, FIRST)
        run = sit(desk, SECOND)
        assert not former.job.running and not former.steps
        until(lambda: run.ahead == 1)
    run.job.join(20)
    assert ids(run) == alone(SECOND)


def test_a_closed_tab_ends_the_work_and_frees_the_cache(desk: Desk) -> None:
    run = sit(desk, LONG, 200)
    until(lambda steps=run.steps: len(steps) > 2)
    job, steps, cache = run.job, run.steps, weakref.ref(run.cache)
    del run
    desk.leave()
    job.join(5)
    assert not job.running and desk.run is None
    assert len(steps) < 200, "it went on to its end"
    assert cache() is None


@pytest.mark.parametrize("how", ["to its end", "stopped", "failed"])
def test_an_ended_run_and_its_cache_go_with_the_visitor(desk: Desk, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(*args, **options):
        yield from stream(*args, **options)
        raise ZeroDivisionError

    if how == "failed":
        monkeypatch.setattr(run_module, "stream", breaking)
        monkeypatch.setattr(jobs.log, "exception", lambda message: None)  # pytest keeps what is logged
    run = sit(desk, LONG, 200 if how == "stopped" else 4)
    until(lambda steps=run.steps: steps)
    if how == "stopped":
        run.job.cancel()
    run.job.join(20)
    assert run.job.stopped is (how == "stopped") and (run.job.error is not None) is (how == "failed")
    cache = weakref.ref(run.cache)
    del run
    desk.leave()
    assert cache() is None


def test_leaving_an_empty_desk_twice_is_fine(desk: Desk) -> None:
    desk.leave()
    desk.leave()
    assert desk.run is None


def test_the_same_again_without_cache() -> None:
    run = finished(FIRST, compare=True)
    assert ids(run) == [step.token_id for step in run.recomputed] == alone(FIRST)
    assert {step.phase for step in run.recomputed} == {"recompute"}
    count = len(run.prompt.ids)
    assert [step.computed for step in run.recomputed] == [count + n for n in range(12)]
    assert run.finished_decoding
    assert not finished(FIRST).recomputed


def test_a_stop_while_it_runs_without_cache_keeps_both_parts() -> None:
    turns = GatedTurns()
    run = begin(turns, FIRST, compare=True)
    turns.during = lambda run, count: run.job.stop.set() if count == 12 + 4 else None
    turns.open(run)
    assert ids(run) == alone(FIRST) and len(run.recomputed) == 4 and run.job.stopped


def test_sampling_is_repeated_by_its_seed() -> None:
    runs = [finished(FIRST, temperature=2.0, top_p=0.9, seed=seed) for seed in (1, 1, 2)]
    assert ids(runs[0]) == ids(runs[1]) != ids(runs[2])


def test_witnesses_are_the_first_token_the_prompts_last_and_the_first_new_one() -> None:
    run = finished(FIRST)
    last = len(run.prompt.ids) - 1
    assert [(one.position, one.seen) for one in run.witnesses] == [
        (0, last + 1),
        (last, last + 1),
        (last + 1, last + 2),
    ]
    for one in run.witnesses:
        verdicts = one.compare(run.cache, run.steps[-1].seen)
        assert len(verdicts) == 3
        assert all(verdict.held and verdict.key_equal and verdict.value_equal for verdict in verdicts)


def test_a_changed_cache_is_noticed() -> None:
    run = finished(FIRST)
    with torch.inference_mode():
        run.cache.layers[1].keys[0, 0, 0, 0] += 1
    verdicts = run.witnesses[0].compare(run.cache, run.steps[-1].seen)
    assert [verdict.key_equal for verdict in verdicts] == [True, False, True]
    assert [verdict.value_equal for verdict in verdicts] == [True, True, True]


def test_one_prompt_token_has_one_witness_of_it() -> None:
    run = finished("a", 3)
    assert [one.position for one in run.witnesses] == [0, 1]


HOSTILE = ["<script>alert('x')</script>", "$x$ *b* `c`", "a\0b", "'\"\\\n\t", "貓👩‍👧é", "  ", "<eos>", "{n} %s"]


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_are_kept_exactly(text: str) -> None:
    run = finished(text, 6)
    shown = run.text()
    prompt, new = len(run.prompt.ids), len(run.steps)
    assert shown.origins == ["user"] * prompt + ["generated"] * new
    assert [token.position for token in shown.tokens] == list(range(prompt + new))
    assert b"".join(token.raw for token in shown.tokens[:prompt]).decode() == text
    assert [token.id for token in shown.tokens] == [*run.prompt.ids, *ids(run)]
    assert len(run.text(upto=0).tokens) == prompt + 1


@pytest.mark.parametrize("options", [{}, {"compare": True}, {"temperature": 1.5, "top_p": 0.8, "seed": 3}], ids=str)
@pytest.mark.parametrize("text", [FIRST, *HOSTILE])
def test_the_python_lines_repeat_the_run(text: str, options: dict[str, object]) -> None:
    run = finished(text, 6, **options)
    names: dict[str, object] = {}
    exec(as_python(run.wanted), names)
    assert names["prompt"] == text
    assert [step.token_id for step in names["steps"]] == ids(run)
    assert [step.token_id for step in names.get("again", [])] == [step.token_id for step in run.recomputed]


def test_the_python_lines_ask_for_the_chat_template_and_nothing_superfluous() -> None:
    wanted = Wanted(ModelKey("smollm2-135m", "cpu", "bfloat16"), "Hi", chat=True, max_new_tokens=5, seed=9)
    code = as_python(wanted)
    assert "kvviz.load('smollm2-135m', device='cpu', dtype='bfloat16')" in code
    assert "max_new_tokens=5, chat=True)" in code
    assert "seed" not in code and "use_cache" not in code


@pytest.mark.parametrize("text", [FIRST, *HOSTILE])
def test_the_json_holds_the_whole_run(text: str) -> None:
    run = finished(text, 6, compare=True)
    written = as_json(run)
    document = json.loads(written.encode("utf-8"))
    assert document["settings"]["text"] == text
    assert document["settings"]["model"] == {"name": run.lm.name, "device": "cpu", "dtype": "float32"}
    assert document["model"]["dtype"] == "torch.float32"
    assert [token["id"] for token in document["prompt"]] == list(run.prompt.ids)
    assert [step["token_id"] for step in document["steps"]] == ids(run)
    assert [step["token_id"] for step in document["without_cache"]] == ids(run)
    per_token = 3 * 2 * 2 * 12 * 4  # layers x (K and V) x KV heads x head_dim x bytes
    assert [step["cache_bytes"] for step in document["steps"]] == [step.seen * per_token for step in run.steps]
    totals = dict.fromkeys(range(len(run.steps)), 0)
    for layer in document["layers"]:
        totals[layer["step"]] += layer["bytes"]
    assert list(totals.values()) == [step.cache_bytes for step in run.steps]


def test_a_run_stopped_before_its_first_step_can_be_saved() -> None:
    turns = GatedTurns()
    run = begin(turns, FIRST)
    run.job.cancel()
    document = json.loads(as_json(run))
    assert document["steps"] == [] and document["layers"] == [] and document["prompt"]
