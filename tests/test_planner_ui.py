"""The Memory planner in its states and with bad input; figures of heads and of what layers see."""

import json

import numpy as np
import pytest

import kvviz
from kvviz.figures.heads import head_groups, layer_reach
from kvviz.geometry.layers import LayerShape
from kvviz.geometry.reach import reach
from kvviz.models.presets import presets
from kvviz.ui.planner import answer, inputs
from kvviz.ui.planner.views import VIEWS
from kvviz.ui.settings import Settings
from kvviz.units import size
from tests.test_pages import (
    Visit,
    number,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)

TINY = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100}
TINY |= {"num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 512}


@pytest.mark.parametrize("view", list(VIEWS))
def test_every_view_opens_with_something_on_it(visit: Visit, view: str) -> None:  # noqa: F811
    at = visit.open("planner", view=view)
    sound(at)
    assert VIEWS[view].question in told(at, "subheader")
    assert at.get("plotly_chart") or at.dataframe


def test_the_answer_in_words_and_numbers_equals_the_api(visit: Visit) -> None:  # noqa: F811
    at = visit.open("planner", plan_model="qwen2.5-0.5b", plan_tokens="4096", plan_users="3")
    sound(at)
    plan = kvviz.plan("qwen2.5-0.5b", 4096, 3)
    assert f"One user at 4,096 tokens needs **{size(plan.at(batch=1).total_bytes)}**" in told(at)
    assert f"3 users need **{size(plan.total_bytes)}**" in told(at)
    assert number(at, "Bytes a token") == f"{plan.bytes_per_token:,}"
    assert number(at, "As vLLM reserves it") == size(plan.vllm_bytes)
    assert f"**{plan.fit('NVIDIA H100 80 GB').users:,}** fit beside the weights" in told(at)
    assert "holds exactly these bytes in every layer" in told(at)


def test_a_card_too_small_for_the_weights(visit: Visit) -> None:  # noqa: F811
    at = visit.open("planner", plan_model="llama-3.1-70b", plan_gpu="NVIDIA T4 16 GB")
    sound(at)
    assert "The weights alone" in told(at) and "do not fit on NVIDIA T4 16 GB" in told(at)


def test_a_pasted_configuration_and_bad_ones(visit: Visit) -> None:  # noqa: F811
    at = visit.open("planner", plan_source="json")
    at.text_area(key="plan_json").set_value(json.dumps(TINY)).run()
    sound(at)
    assert number(at, "Bytes a token") == f"{3 * 2 * (16 + 16) * 2:,}"  # layers x heads x (K + V) x bfloat16
    for text, said in (
        ("{", "not JSON"),
        ("[1]", "not the configuration"),
        (json.dumps(TINY | {"num_attention_heads": -4}), ""),
        (json.dumps({"model_type": "t5", "is_encoder_decoder": True}), ""),
    ):
        at.text_area(key="plan_json").set_value(text).run()
        sound(at)
        assert len(at.error) == 1 and said in at.error[0].value, text


def test_a_public_server_offers_no_folder_and_no_hub(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(inputs, "settings", lambda: Settings(public=True))
    at = visit.open("planner", plan_source="name")
    sound(at)
    assert not at.text_input and at.selectbox(key="plan_model").value == "llama-3.1-8b"
    # names that do not come from the list are refused by the page, whatever the URL says
    at.segmented_control(key="plan_source").set_value("json").run()
    at.text_area(key="plan_json").set_value("owner/model").run()
    assert len(at.error) == 1 and "list" in at.error[0].value


def test_the_loaded_model_and_its_measured_bytes(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(answer, "growth_desk", lambda: visit.desk)
    at = visit.ran()
    at = at.switch_page("pages/planner.py").run()
    at.segmented_control(key="plan_source").set_value("loaded").run()
    sound(at)
    step = visit.desk.run.steps[-1]
    assert f"Measured in the last run of Cache growth: {step.cache_bytes:,} bytes after {step.seen:,} tokens" in told(
        at
    )
    assert f"the plan says {step.cache_bytes:,}" in told(at)


def test_the_loaded_model_while_it_is_on_its_way(visit: Visit) -> None:  # noqa: F811
    visit.may_load.clear()
    at = visit.open("planner", loaded=False, plan_source="loaded")
    sound(at)
    assert "No model is loaded yet" in told(at, "info")


def test_what_if(visit: Visit) -> None:  # noqa: F811
    at = visit.open("planner", view="whatif", plan_model="qwen2.5-0.5b")
    at.selectbox(key="what_heads").set_value("gqa").run()
    at.number_input(key="what_groups").set_value(3).run()
    sound(at)
    assert "cannot be shared out evenly" in at.error[0].value
    at.number_input(key="what_groups").set_value(7).run()
    sound(at)
    assert number(at, "What if") == size(kvviz.plan("qwen2.5-0.5b", 32_768).what_if("gqa", groups=7).total_bytes)


def test_the_worked_example(visit: Visit) -> None:  # noqa: F811
    at = visit.open("planner", view="worked")
    for figure in ("706,560", "753,664", "736 KiB", "376,832", "188,416"):
        assert figure in told(at)
    assert 113_975 in at.dataframe[0].value.to_numpy()


def test_every_line_of_the_drawing_joins_a_head_to_its_group() -> None:
    figure = head_groups(8, 2)
    lines, queries, keys, values = figure.data
    ends = np.array(lines.x, dtype=float).reshape(-1, 3)[:, :2]
    assert ends[:, 0].tolist() == list(range(8))
    assert ends[:, 1].tolist() == [1.5] * 4 + [5.5] * 4
    assert list(queries.x) == list(range(8)) and list(keys.x) == list(values.x) == [1.5, 5.5]


def layers(*windows: int | None) -> list[LayerShape]:
    kinds = ["full" if window is None else "sliding" for window in windows]
    return [LayerShape(index, kinds[index], 1, 4, 4, window) for index, window in enumerate(windows)]


@pytest.mark.parametrize("windows", [(4, 4, 4), (3, None, 5), (None, 2), (1, 1), (7, 2, 3, 5)])
def test_reach_equals_masks_multiplied(windows: tuple[int | None, ...]) -> None:
    tokens = 24
    places = np.arange(tokens)
    travelled = np.eye(tokens, dtype=bool)
    frame = reach(layers(*windows), tokens)
    for row, window in zip(frame.itertuples(), windows, strict=True):
        back = places[:, None] - places[None, :]
        mask = (back >= 0) & (back < (window or tokens))
        travelled = (mask.astype(int) @ travelled.astype(int)) > 0
        assert row.sees_tokens == mask[-1].sum()
        assert row.reaches_tokens == travelled[-1].sum()


def test_the_picture_of_reach_has_a_bar_for_both() -> None:
    frame = reach(layers(4, None), 100)
    reached, sliding, full = layer_reach(frame).data
    assert list(reached.x) == [4, 100] and list(sliding.x) == [4] and list(full.x) == [100]


def test_presets_are_offered_by_title(visit: Visit) -> None:  # noqa: F811
    at = visit.open("planner")
    assert at.selectbox(key="plan_model").options == [preset.title for preset in presets().values()]
