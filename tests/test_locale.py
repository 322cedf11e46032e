"""Every message a person can see is in every catalogue, whole, and nothing else is."""

from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po

from kvviz.locale import LANGUAGES, catalogue_path, translator
from tests.catalogues import marked, problems, written
from tests.layers import modules

ROOT = Path(__file__).parents[1]
SOURCES = {name: file.read_text(encoding="utf-8") for name, file in modules(ROOT).items()}
MESSAGES = set[str]().union(*map(marked, SOURCES.values()))
OTHERS = [language for language in LANGUAGES if language != "en"]


@pytest.mark.parametrize("language", OTHERS)
def test_the_catalogue_is_complete(language: str) -> None:
    path = catalogue_path(language)
    assert path.exists(), "no catalogue yet: make messages, then fill it"
    with path.open("rb") as file:
        assert problems(MESSAGES, read_po(file)) == []


@pytest.mark.parametrize("module", SOURCES)
def test_messages_are_literal(module: str) -> None:
    messages, wrong = written(SOURCES[module])
    assert wrong == []
    assert messages == marked(SOURCES[module]), "babel and Python's parser disagree on what is marked"


def test_a_translator_gives_the_catalogue_and_falls_back_to_english() -> None:
    assert translator("en")("Anything at all") == "Anything at all"
    assert translator("xx")("Anything at all") == "Anything at all"


def _catalogue(**entries: str) -> Catalog:
    catalogue = Catalog(locale="zh_TW")
    for key, text in entries.items():
        catalogue.add(key.replace("_", " "), text)
    return catalogue


PLANTED = {
    "missing": ({"One", "Two"}, {"One": "一"}, ["missing: Two"]),
    "left over": ({"One"}, {"One": "一", "Two": "二"}, ["left over: Two"]),
    "empty": ({"One"}, {"One": " "}, ["empty: One"]),
    "lost placeholder": ({"{n} tokens"}, {"{n}_tokens": "些許詞元"}, ["placeholders differ: {n} tokens"]),
    "added placeholder": ({"Tokens"}, {"Tokens": "{n} 個詞元"}, ["placeholders differ: Tokens"]),
    "changed format": ({"{n:,}"}, {"{n:,}": "{n}"}, ["placeholders differ: {n:,}"]),
    "half a brace": ({"{n}"}, {"{n}": "{n"}, ["unbalanced braces: {n}"]),
    "lost code": ({"Run `make`"}, {"Run_`make`": "執行 make"}, ["markup: Run `make`"]),
    "translated code": ({"Run `make`"}, {"Run_`make`": "執行 `製作`"}, ["markup: Run `make`"]),
    "half a formula": ({"Cost $n$"}, {"Cost_$n$": "成本 $n"}, ["markup: Cost $n$"]),
    "good": ({"Run `make` on {n}"}, {"Run_`make`_on_{n}": "在 {n} 上執行 `make`"}, []),
}


@pytest.mark.parametrize(("messages", "entries", "expected"), PLANTED.values(), ids=PLANTED)
def test_a_planted_problem_is_found(messages: set[str], entries: dict[str, str], expected: list[str]) -> None:
    assert problems(messages, _catalogue(**entries)) == expected


def test_fuzzy_and_obsolete_messages_are_found() -> None:
    catalogue = _catalogue(One="一")
    catalogue["One"].flags.add("fuzzy")
    assert problems({"One"}, catalogue) == ["fuzzy: One"]
    catalogue = _catalogue(One="一", Two="二")
    catalogue.obsolete["Two"] = catalogue["Two"]
    catalogue.delete("Two")
    assert problems({"One"}, catalogue) == ["left over: Two"]


@pytest.mark.parametrize(
    "call",
    [
        't(f"{n} tokens")',
        't("tokens: " + n)',
        't("{n} tokens".format(n=n))',
        't("one" if n == 1 else "many")',
        't(NAMES["key"] + ".")',
        'Refused("No model " + name)',
        "N_(name)",
    ],
)
def test_a_text_put_together_inside_the_call_is_found(call: str) -> None:
    assert len(written(call)[1]) == 1


def test_messages_are_found_where_they_are_written() -> None:
    source = """
raise Refused("Too long: {n}. "
              "Shorten it.", n=t("inner"))
st.button(t("Go"), help=shell.t("Help {n}").format(n=t(kind.title)), key=t(NAMES["key"]))
STAGES = [N_("Reading"), N_("Writing")]
weights.t()
"""
    expected = {"Too long: {n}. Shorten it.", "inner", "Go", "Help {n}", "Reading", "Writing"}
    assert marked(source) == expected
    assert written(source) == (expected, [])
