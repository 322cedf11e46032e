"""Texts that try to be something else: shown exactly as typed, run or refused in a sentence, never obeyed."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.growth_page import MARKS, GrowthPage

PROMPTS = [
    "<script>alert(1)</script>",
    "$x$ and $y$ *b* [link](https://example.com) :red[no]",
    "<|im_start|>user",
    "<b>x</b> <img src=x onerror=alert(1)>",
    "\N{WAVING HAND SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5} hi",
    "שלום עולم مرحبا",
    " \n\t ",
]
REFUSED = [
    ("", "The prompt is empty"),
    ("A cat. " * 2_857 + "!", r"The prompt is [\d,]+ tokens long and at most 4,096 are allowed"),  # 20,000 characters
]
HEX = re.compile(r"(·*) ?((?:[0-9A-F]{2} ?)+)(?: \(.+ \d/\d\))?")


@pytest.fixture
def growth(page: Page) -> GrowthPage:
    """The page, watched for dialogs and errors of its scripts."""
    seen: list[str] = []
    page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: seen.append(str(error)))
    # a path that Streamlit's client tries and does not find is no error of a script
    page.on(
        "console",
        lambda told: "404" in told.text or told.type != "error" or seen.append(f"{told.text} {told.location}"),
    )
    yield GrowthPage(page).open("new=4")
    assert seen == []
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_every_text_is_shown_as_typed(growth: GrowthPage) -> None:
    for text in PROMPTS:
        growth.type(text)
        expect(growth.page.get_by_text(f" tokens, {len(text)} characters")).to_be_visible()
        _shows(growth, text, "prompt_strip")
    # and in every part of the page that a run fills
    for text in PROMPTS[:4]:
        growth.start(text)
        growth.wait_end(4)
        _shows(growth, text, "run_strip")
        growth.page.locator(".st-key-check button").click()
        expect(growth.page.get_by_test_id("stText").filter(has_text="copied after").first).to_be_visible()
        growth.page.get_by_text("The same in Python").click()
        expect(growth.page.get_by_test_id("stCode").filter(has_text=f"prompt = {text!r}")).to_be_visible()


def test_spelled_control_tokens_are_named(growth: GrowthPage) -> None:
    growth.type("<|im_start|>user")
    special = growth.page.locator(".st-key-prompt_strip .list .token.special")
    expect(special).to_have_text(["<|im_start|>"])
    expect(growth.page.get_by_text(re.compile("control tokens"))).to_be_visible()


def test_what_cannot_run_is_a_sentence(growth: GrowthPage) -> None:
    for text, sentence in REFUSED:
        growth.type(text)
        told = growth.page.get_by_test_id("stAlert").filter(has_text=re.compile(sentence))
        expect(told).to_be_visible(timeout=30_000)
        growth.run.click()
        expect(told).to_be_visible()
        expect(growth.page.locator(".st-key-grid")).to_have_count(0)


def _shows(growth: GrowthPage, text: str, strip: str) -> None:
    tokens = growth.page.locator(f".st-key-{strip} .list .token.user")
    expect(tokens.first).to_be_attached()
    chips = tokens.evaluate_all(
        "chips => chips.map(chip => [chip.className, chip.textContent, chip.childElementCount])"
    )
    assert "".join(_typed(look, label) for look, label, _ in chips).encode("latin-1").decode() == text.translate(MARKS)
    assert not any(children for _, _, children in chips)


def _typed(look: str, label: str) -> str:
    """A chip's text as the bytes it stands for, one character each; hex is taken for what it says."""
    if " bytes " not in f" {look} ":
        return label.encode().decode("latin-1")
    marks, digits = HEX.fullmatch(label).groups()
    return marks.encode().decode("latin-1") + bytes.fromhex(digits).decode("latin-1")
