"""The token strip and the cache grid: what is sent to the browser, read back here by other means."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from kvviz.ui.components import cells, styles
from kvviz.ui.components.cells import held_counts, held_mask, panel, pool_size, pooled

HOSTILE = [
    "<script>alert(1)</script>",
    "<|im_start|>",
    "$x$",
    "**b**",
    "\x00",
    "\ud800",
    "貓",
    "👩\u200d👧",
    "",
    "{label}",
]


def test_held_from_counts_is_the_newest_tokens() -> None:
    assert held_mask([3, 1, 0], 3).tolist() == [[True, True, True], [False, False, True], [False, False, False]]
    assert held_mask(np.eye(2), 2).dtype == bool
    with pytest.raises(ValueError, match="mask of 2 tokens but 5 seen"):
        held_mask(np.eye(2), 5)


def test_bytes_keep_holes_unknown_and_the_range_apart() -> None:
    norms = np.array([[1.0, 3.0, np.nan, 100.0]], dtype=np.float32)
    made = panel(norms, np.array([[True, True, True, False]]))
    assert made.cells.tolist() == [[2, 255, 1, 0]]  # the evicted 100 stretches nothing
    assert (made.low, made.high, made.below, made.above) == (1.0, 3.0, False, False)


def test_bytes_give_the_norms_back_within_half_a_step() -> None:
    norms = np.random.default_rng(0).gamma(2, 5, size=(30, 200)).astype(np.float32)
    made = panel(norms, np.ones(norms.shape, bool))
    assert (made.low, made.high) == (norms.min(), norms.max())
    back = made.low + (made.cells.astype(float) - 2) / 253 * (made.high - made.low)
    assert np.abs(back - norms).max() <= (made.high - made.low) / 253 / 2 + 1e-4


def test_a_fixed_span_says_what_lies_outside() -> None:
    made = panel(np.array([[0.0, 5.0, 20.0]]), np.ones((1, 3), bool), (1.0, 10.0))
    assert made.cells.tolist() == [[2, round(4 / 9 * 253 + 2), 255]]
    assert made.below and made.above


@pytest.mark.parametrize("value", [np.nan, np.inf, 4.0])
def test_one_value_or_none_makes_no_division_by_zero(value: float) -> None:
    made = panel(np.full((2, 3), value), np.ones((2, 3), bool))
    assert set(made.cells.ravel()) == ({2} if value == 4 else {1})
    assert panel(np.zeros((2, 0)), np.zeros((2, 0), bool)).cells.shape == (2, 0)


@pytest.mark.parametrize("pool", [1, 2, 3, 7, 50])
def test_pooling_takes_the_largest_and_counts_the_held(pool: int) -> None:
    rng = np.random.default_rng(pool)
    held = rng.random((4, 23)) < 0.4
    bytes_ = np.where(held, rng.integers(1, 256, held.shape), 0).astype(np.uint8)
    starts = range(0, 23, pool)
    assert pooled(bytes_, pool).tolist() == [[max(row[at : at + pool]) for at in starts] for row in bytes_.tolist()]
    assert held_counts(held, pool).tolist() == [[sum(row[at : at + pool]) for at in starts] for row in held.tolist()]


@pytest.mark.parametrize(("seen", "pool"), [(0, 1), (1, 1), (1200, 1), (1201, 2), (2400, 2), (8192, 7)])
def test_no_more_columns_than_a_screen_has(seen: int, pool: int) -> None:
    assert pool_size(seen) == pool
    assert -(-seen // pool) <= cells.MOST_COLUMNS


def test_scripts_write_text_and_never_markup() -> None:
    scripts = "".join(file.read_text(encoding="utf-8") for file in Path(styles.__file__).parent.glob("*.js"))
    assert "textContent" in scripts
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in scripts


def test_dark_half_of_the_style_sheet_is_the_dark_palette() -> None:
    light, dark = styles.palette_css().split(".kvviz.dark")
    assert "--k: #2a5db8;" in light and "--k: #6ba6f5;" in dark and "--shared-layer:" in dark


def _strip(**options: object) -> None:
    import streamlit as st

    from kvviz.models.tokens import Token
    from kvviz.ui.components.token_strip import token_strip

    labels = options.pop("labels")
    kinds = options.pop("kinds", ["text"] * len(labels))
    made = [Token(5 + at, 100 + at, label, kinds[at], b"") for at, label in enumerate(labels)]
    st.text(repr(token_strip(made, key="strip", t=lambda text: f"⟦{text}⟧", **options)))


def _grid(**options: object) -> None:
    from kvviz.ui.components.cache_grid import cache_grid

    cache_grid(key="grid", t=lambda text: f"⟦{text}⟧", **options)


def _shown(page: Callable[..., None], **options: object) -> tuple[AppTest, dict]:
    at = AppTest.from_function(page, kwargs=options, default_timeout=30).run()
    return at, {} if at.exception else json.loads(at.get("bidi_component")[0].proto.json)


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8)


def test_strip_sends_hostile_tokens_as_they_are() -> None:
    origins = ["bos", "template", *["user"] * 7, "generated"]
    kinds = ["text", "special", *["text"] * 7, "bytes"]
    at, data = _shown(
        _strip, labels=HOSTILE, kinds=kinds, origins=origins, selected=3, weights=[0, np.nan, 2, *[0.5] * 7]
    )
    assert [label for label in data["labels"] if label != r"\ud800"] == [text for text in HOSTILE if text != "\ud800"]
    assert (data["start"], data["ids"], data["kinds"], data["origins"]) == (
        5, list(range(100, 110)), "0200000001", "2100000003",
    )  # fmt: skip
    assert _bytes(data["weights"]).tolist() == [0, 0, 255, *[128] * 7]
    assert at.text[0].value == "3"
    words = data["words"]
    assert all(word.startswith("⟦") for word in (words["name"], words["token"], *words["kinds"], *words["origins"]))


def test_strip_names_its_shades_and_leaves_the_choice_to_the_page() -> None:
    at, data = _shown(_strip, labels=["a", "b"], weights=[0, 1], scale=[(0, "0"), (1, "0.5")], selected=1)
    assert (data["scale"], data["kept"], at.text[0].value) == ([[0, "0"], [255, "0.5"]], False, "1")
    _, data = _shown(_strip, labels=["a", "b"], selected=1, on_select=print)
    assert data["kept"] is True and data["selected"] == 1


def test_strip_of_nothing_and_a_selection_past_the_end() -> None:
    at, data = _shown(_strip, labels=[], selected=3)
    assert data["labels"] == [] and at.text[0].value == "None"
    assert _shown(_strip, labels=["a", "b"], selected=2)[0].text[0].value == "None"


@pytest.mark.parametrize(
    "wrong", [{"origins": ["user"]}, {"origins": ["user", "x"]}, {"kinds": ["text", "x"]}, {"weights": [1]}]
)
def test_strip_refuses_what_does_not_fit(wrong: dict) -> None:
    assert _shown(_strip, labels=["a", "b"], **wrong)[0].exception[0].message


def test_grid_sends_the_numbers_of_the_cache() -> None:
    rng = np.random.default_rng(1)
    keys, values = rng.random((3, 40)) + 1, rng.random((3, 40)) + 7
    kinds = ["full", "sliding", "shared"]
    marks = np.array([1] * 10 + [0] * 30)
    _, data = _shown(
        _grid, key_norms=keys, value_norms=values, held=[40, 15, 0], kinds=kinds, prefill=12, capacity=64, selected=20,
        labels=["x"] * 39 + ["\ud800"], marks=marks, mark_names=[("common start", "shared")],
    )  # fmt: skip
    assert (data["seen"], data["stored"], data["prefill"], data["capacity"]) == (40, [40, 15, 0], 12, 64)
    for sent, norms in zip(data["panels"], (keys, values), strict=True):
        drawn = _bytes(sent["cells"]).reshape(3, 40)
        assert (drawn > 0).sum(axis=1).tolist() == [40, 15, 0]
        held = np.concatenate([norms[0], norms[1, 25:]])
        assert (sent["low"], sent["high"]) == pytest.approx((held.min(), held.max()))
    assert data["kinds"]["rows"] == [0, 1, 2] and data["kinds"]["looks"] == ["full", "sliding", "shared-layer"]
    assert (_bytes(data["marks"]["cells"]) == marks).all() and data["marks"]["looks"] == ["shared"]
    assert "55" in data["words"]["summary"] and all(word.startswith("⟦") for word in data["words"].values())
    assert all(word.startswith("⟦") for word in [*data["kinds"]["words"], *(sent["title"] for sent in data["panels"])])


def test_grid_pools_long_texts_and_says_how_many_are_held() -> None:
    norms = np.ones((2, 2500))
    _, data = _shown(_grid, key_norms=norms, value_norms=None, held=[2500, 511], kinds=["full", "sliding"], prefill=9)
    assert (data["pool"], data["columns"], len(data["panels"])) == (3, 834, 1)
    assert _bytes(data["counts"]).reshape(2, 834).sum(axis=1).tolist() == [2500, 511]


@pytest.mark.parametrize("seen", [0, 1])
def test_grid_of_almost_nothing(seen: int) -> None:
    norms = np.full((2, seen), np.nan, dtype=np.float32)
    _, data = _shown(
        _grid, key_norms=norms, value_norms=norms, held=[seen] * 2, kinds=["full"] * 2, prefill=0, capacity=4
    )
    assert (data["seen"], data["capacity"], data["stored"]) == (seen, 4, [seen, seen])


def test_grid_refuses_shapes_that_do_not_fit() -> None:
    good = {"key_norms": np.ones((2, 5)), "value_norms": None, "held": [5, 5], "kinds": ["full"] * 2, "prefill": 1}
    for wrong in ({"kinds": ["full"]}, {"held": [5]}, {"value_norms": np.ones((2, 4))}, {"marks": np.full(5, 2)}):
        assert _shown(_grid, **{**good, **wrong})[0].exception, wrong
