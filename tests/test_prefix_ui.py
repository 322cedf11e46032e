"""The Prefix reuse page in every state and with hostile texts, run by Streamlit's own test runner on tiny models."""

import io
import re
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import kvviz
from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.models.prompts import encode
from kvviz.ui.house import ModelKey
from kvviz.ui.prefix import many_save, many_work, pair_inputs, pair_save, pair_work
from kvviz.ui.prefix.many_inputs import MOST_PROMPTS, ManyWanted, encoded, lines_of
from kvviz.ui.prefix.parting import Parting
from kvviz.ui.prefix.presets import PAIRS
from kvviz.ui.prefix.words import reasons
from kvviz.ui.task import Bench
from kvviz.units import size
from tests.test_attention_ui import figure, numbers, texts
from tests.test_pages import (
    Visit,
    component,
    number,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)
from tests.tiny import FAMILIES, tiny_llama

FIRST, SECOND = "the cat sat on the mat", "the cat ran on the mat"
HOSTILE = '<script>alert(1)</script> <b>x</b> $x$ :red[no] "q" 貓 <bos>'


class Sharer:
    """A visitor of the Prefix reuse page."""

    def __init__(self, visit: Visit) -> None:  # noqa: F811
        self.visit = visit
        self.benches = {name: Bench() for name in ("prefix_pair", "prefix_cheat", "prefix_many")}

    @property
    def at(self) -> AppTest:
        return self.visit.at

    def open(self, **query: str) -> AppTest:
        self.visit.open("prefix", **query)
        return self.at

    def type(self, first: str, second: str) -> AppTest:
        self.at.text_area(key="prefix_first").set_value(first)
        self.at.text_area(key="prefix_second").set_value(second)
        return self.at.run()

    def pick(self, key: str, option: str) -> AppTest:
        (group,) = [one for one in self.at.get("button_group") if one.proto.id.endswith(f"-{key}")]
        return group.set_value(option).run()

    def press(self, key: str) -> AppTest:
        return self.at.button(key=key).click().run()

    def settle(self) -> AppTest:
        for bench in self.benches.values():
            if bench.run is not None:
                bench.run.job.join(60)
                assert not bench.run.job.running
        return self.at.run()

    def compared(self, first: str = FIRST, second: str = SECOND, **query: str) -> AppTest:
        """The view of two prompts after a comparison."""
        self.open(**query)
        self.type(first, second)
        self.press("prefix_pair_run")
        return self.settle()

    def served(self, text: str, budget: int = 100, **query: str) -> AppTest:
        """The view of many prompts after a run over the lines of `text`."""
        self.open(view="many", **query)
        self.pick("prefix_source", "typed")
        self.at.text_area(key="prefix_typed").set_value(text).run()
        self.at.slider(key="prefix_budget").set_value(budget).run()
        self.press("prefix_many_run")
        return self.settle()


@pytest.fixture
def sharer(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sharer]:  # noqa: F811
    sharer = Sharer(visit)
    monkeypatch.setattr("kvviz.ui.task.bench", lambda view: sharer.benches[view])
    monkeypatch.setattr("kvviz.ui.task.shared_turns", lambda: visit.turns)
    yield sharer
    visit.turns.go_on.set()
    for bench in sharer.benches.values():
        if bench.run is not None:
            bench.run.job.cancel()


def parting(first: str = FIRST, second: str = SECOND) -> Parting:
    lm = tiny_llama()
    return Parting(encode(lm, first), encode(lm, second))


def common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Ids in common, the long way."""
    count = 0
    while count < min(len(first), len(second)) and first[count] == second[count]:
        count += 1
    return count


# --- Two prompts


def test_on_arrival_ids_are_compared_and_nothing_has_run(sharer: Sharer) -> None:
    at = sharer.open()
    sound(at)
    pair, lm = PAIRS["gold"], tiny_llama()
    one, two = (encode(lm, text).ids for text in (pair.first, pair.second))
    rows = component(at, "prefix_strips")["rows"]
    assert [row["ids"] for row in rows] == [list(one), list(two)]
    shared = common(one, two)
    assert number(at, "Shared tokens") == f"{shared} of {len(two)}" and number(at, "Shared characters") == "5 of 7"
    assert "Press Compare" in told(at, "caption") and not at.get("plotly_chart")


def test_after_compare_all_numbers_are_those_of_the_api(sharer: Sharer) -> None:
    at = sharer.compared()
    sound(at)
    reuse = kvviz.compare_prefix(tiny_llama(), FIRST, SECOND)
    count = len(reuse.second.ids)
    assert number(at, "Reused tokens") == f"{reuse.reused} of {count}"
    assert number(at, "Computed tokens") == f"{reuse.computed} of {count}"
    each = 3 * 2 * 2 * 12 * 4  # layers x (K and V) x KV heads x width x bytes
    assert number(at, "K and V not computed") == number(at, "Copied from the cache") == size(reuse.reused * each)
    assert float(number(at, "Logits agree to")) < 1e-4
    for label in ("Prefill, cold", "Prefill, warm"):
        assert re.fullmatch(r"[\d,.]+ ms", number(at, label))
    keys = next(trace for trace in figure(at, "prefix_map").data if trace.type == "heatmap")
    wanted = reuse.distances().pivot(index="layer", columns="position", values="key").to_numpy()
    np.testing.assert_allclose(numbers(keys.z), wanted, atol=1e-5)
    assert numbers(keys.z)[:, : reuse.shared].max() < 1e-5 < numbers(keys.z)[:, reuse.shared].min()


def test_the_same_token_in_both_is_explained_with_its_numbers(sharer: Sharer) -> None:
    at = sharer.compared()
    reuse = kvviz.compare_prefix(tiny_llama(), FIRST, SECOND)
    one, two = reuse.pairs[sharer.at.session_state["prefix_pair_shown"]]
    keys, values = figure(at, "prefix_pair_distances").data
    rows = reuse.equal_tokens().query(f"first_position == {one} and second_position == {two}")
    np.testing.assert_allclose(numbers(keys.y), rows["key"], atol=1e-5)
    np.testing.assert_allclose(numbers(values.y), rows["value"], atol=1e-5)
    assert f"In layer 2 K differs by {rows['key'].iloc[-1]:.2f}" in texts(at)


def test_the_cheat_waits_for_its_button_and_says_the_damage(sharer: Sharer) -> None:
    at = sharer.compared()
    assert "KL divergence" not in texts(at)
    at = sharer.press("prefix_cheat_run")
    at = sharer.settle()
    sound(at)
    wrong = kvviz.cheat_prefix(tiny_llama(), FIRST, SECOND, max_new_tokens=pair_work.NEW_TOKENS)
    assert f"KL divergence of the next token's distribution: {wrong.kl:.4g} nats." in texts(at)
    table = next(one.value for one in at.dataframe if "cheated" in one.value)
    assert table["true"].tolist() == wrong.top().query("run == 'true'")["token"].tolist()
    assert {wrong.text, wrong.text_cheated} <= {one.value for one in at.code}
    at.multiselect(key="prefix_cheat_pairs").set_value([0]).run()
    assert "belongs to the earlier ones" in told(at, "warning")
    at = sharer.type(SECOND, FIRST)
    sharer.press("prefix_pair_run")
    at = sharer.settle()
    assert "KL divergence" not in texts(at)  # those were other prompts


def test_what_is_shown_belongs_to_the_earlier_texts_and_comes_back_at_once(sharer: Sharer) -> None:
    sharer.compared()
    at = sharer.type("the dog", "the dog sat")
    sound(at)
    assert "belongs to the earlier ones" in told(at, "warning")
    sharer.press("prefix_pair_run")
    at = sharer.settle()
    assert not at.warning
    work = sharer.benches["prefix_pair"].run
    at = sharer.type(FIRST, SECOND)
    assert not at.warning and sharer.benches["prefix_pair"].run is work and at.get("plotly_chart")


def test_while_it_works_and_after_stop(sharer: Sharer) -> None:
    sharer.open()
    sharer.type(FIRST, SECOND)
    turns = sharer.visit.turns
    turns.pause_in = turns.given + 2
    sharer.press("prefix_pair_run")
    assert turns.pausing.wait(60)
    at = sharer.at.run()
    sound(at)
    assert len(at.get("progress")) == 1 and not at.get("plotly_chart")
    at = sharer.press("prefix_pair_stop")
    sound(at)
    assert "Stopped" in told(at, "info") and at.button(key="prefix_pair_stop").disabled


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "crash"])
def test_an_error_is_a_sentence(sharer: Sharer, monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    def breaking(*args: object, **options: object) -> None:
        raise Refused("Out of {what}.", what="$x$") if refused else RuntimeError("/secret/path")

    with monkeypatch.context() as patch:
        patch.setattr(pair_work, "compare_prefix", breaking)
        at = sharer.compared()
    sound(at)
    expected = r"Out of \$x\$." if refused else "The run failed. The server's log says why."
    assert [error.value for error in at.error] == [expected] and "secret" not in told(at)
    sharer.press("prefix_pair_run")
    assert not sharer.settle().error


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [("", "the", "The prompt is empty"), ("the", "", "The prompt is empty"), ("x" * 300, "the", "at most 256")],
)
def test_bad_prompts_are_refused_and_a_correction_runs_at_once(
    sharer: Sharer, first: str, second: str, wanted: str
) -> None:
    at = sharer.compared(first, second)
    sound(at)
    assert wanted in told(at, "error") and not at.get("plotly_chart") and sharer.benches["prefix_pair"].run is None
    sharer.at.text_area(key="prefix_first").set_value(FIRST)
    sharer.at.text_area(key="prefix_second").set_value(SECOND)
    sharer.press("prefix_pair_run")
    assert sharer.settle().get("plotly_chart")


@pytest.mark.parametrize("name", [name for name in PAIRS if not PAIRS[name].chat])
def test_every_example_runs(sharer: Sharer, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lm = tiny_llama()
    if len(encode(lm, PAIRS[name].first).ids) > lm.context:
        pytest.skip("longer than the tiny model's context; the browser test runs it on a trained one")
    sharer.open()
    at = sharer.pick("prefix_example", name)
    assert at.text_area(key="prefix_first").value == PAIRS[name].first
    sharer.press("prefix_pair_run")
    at = sharer.settle()
    sound(at)
    reuse = kvviz.compare_prefix(lm, PAIRS[name].first, PAIRS[name].second)
    assert number(at, "Reused tokens") == f"{reuse.reused} of {len(reuse.second.ids)}"
    assert component(at, "prefix_strips")["columns"].count(0) == reuse.reused


def test_a_chat_without_template_is_refused(sharer: Sharer) -> None:
    sharer.open()
    at = sharer.pick("prefix_example", "template")
    sound(at)
    assert at.toggle(key="prefix_chat").value is True
    assert "chat template" in told(at, "error")


def test_hostile_texts_are_shown_and_not_obeyed(sharer: Sharer) -> None:
    at = sharer.compared(HOSTILE, HOSTILE.replace("貓", "犬"))
    sound(at)
    sharer.press("prefix_cheat_run")
    at = sharer.settle()
    sound(at)
    assert "".join(component(at, "prefix_strips")["rows"][0]["labels"]).startswith("<script>alert(1)</script>·<b>x")
    assert "<script>" not in told(at)  # nothing of it in markdown
    result = sharer.benches["prefix_pair"].run.result
    html = pair_save.as_html(N_, "light", "en", tiny_llama(), result)
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)" in html


# --- What words and files say


def test_reasons_name_both_tokens_and_what_is_hidden() -> None:
    told_of = reasons(N_, parting())[0]
    both = parting()
    one, two = both.difference
    assert f"“{one.label}” (id {one.id})" in told_of and f"“{two.label}” (id {two.id})" in told_of
    assert f"position {both.shared}" in told_of


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (FIRST, FIRST, ["same ids", "last token of a prompt"]),
        (FIRST + " two", FIRST, ["ends inside the first", "last token of a prompt"]),
        (FIRST, FIRST + " two", ["goes on with"]),
        ("x", "the", ["very first ids differ"]),
    ],
)
def test_reasons_of_every_case(first: str, second: str, wanted: list[str]) -> None:
    told_of = reasons(N_, parting(first, second))
    assert len(told_of) == len(wanted)
    assert all(part in line for part, line in zip(wanted, told_of, strict=True))


def test_letters_that_are_equal_inside_other_tokens_are_counted() -> None:
    both = parting("the sat", "the san")  # "·sat" is one token, "·san" is not
    assert both.characters == 6
    covered = len("".join(token.raw.decode() for token in both.second.tokens[: both.shared]))
    assert both.cut_characters == 6 - covered > 0
    assert f"{6 - covered} more characters are equal" in " ".join(reasons(N_, both))


def test_the_python_lines_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = pair_inputs.PairWanted(ModelKey("tiny"), FIRST, SECOND)
    wrong = kvviz.cheat_prefix(tiny_llama(), FIRST, SECOND)
    monkeypatch.setattr(kvviz, "load", lambda *args, **options: tiny_llama(), raising=False)
    names: dict[str, object] = {}
    exec(pair_save.as_python(wanted, wrong), names)
    assert names["reuse"].reused == common(names["reuse"].first.ids, names["reuse"].second.ids)
    assert names["wrong"].kl == pytest.approx(wrong.kl)
    chat = pair_save.as_python(pair_inputs.PairWanted(ModelKey("tiny"), "a", "a\n---\nb\n---\nc", True), None)
    assert "second = kvviz.encode_turns(lm, ['a', 'b', 'c'])" in chat


def test_the_report_holds_both_prompts_and_all_figures() -> None:
    reuse = kvviz.compare_prefix(tiny_llama(), FIRST, SECOND)
    wrong = kvviz.cheat_prefix(tiny_llama(), FIRST, SECOND)
    html = pair_save.as_html(N_, "light", "en", tiny_llama(), reuse, wrong)
    assert FIRST in html and SECOND in html and html.count('class="plotly-graph-div"') == 2
    assert f"{wrong.kl:.4g} nats" in html
    plain = pair_save.as_html(N_, "dark", "zh-TW", None, kvviz.compare_prefix(tiny_llama(), "the", "x"))
    assert plain.count('class="plotly-graph-div"') == 1


def test_a_model_that_is_all_state_says_that_there_is_no_map() -> None:
    reuse = kvviz.compare_prefix(FAMILIES["qwen3_next"](), FIRST, SECOND)
    assert set(reuse.distances()["layer"]) == {3}  # the layers with a state have none
    html = pair_save.as_html(N_, "light", "en", None, reuse)
    assert "In layer 3 K differs" in html and "In layer 0" not in html


# --- Many prompts

LINES = ["the cat sat on the mat", "the cat sat on the log", "one two three", "the cat sat on the mat"]


def test_many_prompts_are_those_of_the_api(sharer: Sharer) -> None:
    at = sharer.served("\n".join(LINES))
    sound(at)
    cache = kvviz.PrefixCache(tiny_llama())
    for line in LINES:
        cache.serve(line)
    facts = cache.statistics
    assert number(at, "Hit rate (by tokens)") == f"{facts.hit_rate:.1%}"
    assert number(at, "Tokens not computed") == f"{facts.tokens_saved:,}"
    table = next(one.value for one in at.dataframe if "cache" in one.value).set_index("cache")
    assert table.loc["tree", "tokens not computed"] == facts.tokens_saved
    assert table.loc["blocks of 1", "tokens not computed"] == facts.tokens_saved
    assert table.loc["blocks of 256", "prompts with a hit"] == 0
    longest = int(cache.frame()["shared_tokens"].max())
    assert f"blocks of 256: hit rate 0. The longest prefix that two prompts share has {longest} tokens" in texts(at)
    bars = figure(at, "prefix_tree").data
    assert sum(numbers(bar.x).sum() for bar in bars) == cache.tree()["tokens"].sum()
    assert "Prompt 2 found nothing." in texts(at)
    assert "Nothing: everything fits into the budget." in told(at, "caption")


def test_a_small_budget_evicts_and_says_what_and_when(sharer: Sharer) -> None:
    at = sharer.served("\n".join(LINES), budget=35)
    sound(at)
    result = sharer.benches["prefix_many"].run.result
    gone = result.events[result.events["event"] == "evicted"]
    assert len(gone) and result.served["held_bytes"].max() <= result.budget_bytes
    table = next(one.value for one in at.dataframe if "during prompt" in one.value)
    assert table["during prompt"].tolist() == gone["request"].tolist()
    assert numbers(figure(at, "prefix_held").data[1].y)[0] == pytest.approx(result.budget_bytes / 1024**2)


def test_a_budget_below_every_prompt_serves_cold_and_says_so(sharer: Sharer) -> None:
    at = sharer.served("\n".join(LINES), budget=1)
    sound(at)
    assert "4 prompts are larger than the budget by themselves" in told(at, "caption")
    assert "It is larger than the budget, so it was served cold and not stored." in texts(at)
    assert "Nothing is stored" in told(at, "caption")
    assert "blocks of 256: The budget is smaller than one block of 256 tokens." in texts(at)


@pytest.mark.parametrize(("text", "wanted"), [(" \n\n", "no prompt"), ("a\n" * 201, "at most 200"), ("x" * 300, "256")])
def test_bad_lists_are_refused(sharer: Sharer, text: str, wanted: str) -> None:
    at = sharer.served(text)
    sound(at)
    assert wanted in told(at, "error") and sharer.benches["prefix_many"].run is None


def test_the_desk_day_is_too_long_for_a_tiny_context(sharer: Sharer) -> None:
    at = sharer.open(view="many")
    sound(at)
    assert "made for at most 256" in told(at, "error") and "Press Run" in told(at, "caption")


def test_cold_runs_beside_the_warm_ones_agree(sharer: Sharer) -> None:
    at = sharer.served("\n".join(LINES), prefix_verify="true")
    sound(at)
    gap = float(re.search(r"the largest difference of a logit is ([\d.e-]+);", told(at, "caption"))[1])
    assert gap < 1e-4


def test_stopping_many_prompts(sharer: Sharer) -> None:
    turns = sharer.visit.turns
    sharer.open(view="many")
    sharer.pick("prefix_source", "typed")
    turns.pause_in = turns.given + 4
    sharer.press("prefix_many_run")
    assert turns.pausing.wait(60)
    at = sharer.press("prefix_many_stop")
    sound(at)
    assert "Stopped" in told(at, "info") and not at.get("plotly_chart")


def test_a_model_with_a_state_is_refused_with_the_way_out(sharer: Sharer, monkeypatch: pytest.MonkeyPatch) -> None:
    hybrid = FAMILIES["qwen3_next"]()
    monkeypatch.setitem(sharer.visit.house._loader.__globals__["MODELS"], "smollm2-135m", lambda: hybrid)
    at = sharer.served("\n".join(LINES))
    sound(at)
    assert "one running state" in told(at, "error") and "Compare two prompts instead" in told(at, "error")


def test_lists_from_files_keep_their_lines() -> None:
    assert lines_of("a \r\n\n  b\n\t\n") == ["a ", "  b"]
    with pytest.raises(Refused, match=f"at most {MOST_PROMPTS}"):
        encoded(tiny_llama(), ["a"] * (MOST_PROMPTS + 1), False)
    with pytest.raises(Refused, match="tokens long together"):
        encoded(tiny_llama(), ["x" * 250] * 100, False)


def result_of(lines: list[str], budget: int | None) -> many_work.ManyResult:
    lm = tiny_llama()
    notes: list[float] = []
    work = many_work.serving(lm, [encode(lm, line) for line in lines], budget, False)
    result = work(notes.append, nullcontext)
    assert notes == [at / len(lines) for at in range(len(lines))]
    return result


def test_a_run_can_be_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of([*LINES, HOSTILE], None)
    wanted = ManyWanted(ModelKey("tiny"), (*LINES, HOSTILE), None)
    html = many_save.as_html(N_, "light", "en", tiny_llama(), wanted, result)
    assert html.count('class="plotly-graph-div"') == 5 and "<script>alert" not in html
    frame = pd.read_csv(io.StringIO(many_save.in_blocks(result, "served").to_csv(index=False)))
    assert frame.groupby("block_size").size().to_dict() == dict.fromkeys(many_work.SIZES, 5)
    monkeypatch.setattr(kvviz, "load", lambda *args, **options: tiny_llama(), raising=False)
    names: dict[str, object] = {}
    exec(many_save.as_python(wanted), names)
    assert names["served"]["reused_tokens"].tolist() == result.served["reused_tokens"].tolist()
    assert names["blocks"].statistics == result.blocks[-1].statistics


def test_a_report_of_nothing_stored_has_no_tree() -> None:
    result = result_of(LINES, 10)
    html = many_save.as_html(N_, "light", "en", None, ManyWanted(ModelKey("tiny"), tuple(LINES), 10), result)
    assert html.count('class="plotly-graph-div"') == 4
    assert many_save.in_blocks(result, "served").empty  # no size of block fits, and that is no error
