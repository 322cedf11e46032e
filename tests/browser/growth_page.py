"""The Cache growth page as a person in front of it uses it: what can be pressed, and what is read off the screen."""

import re

from playwright.sync_api import Locator, Page, expect

LOADED_MS = 180_000  # the first visitor of a new machine waits for the conversion of the model
RUN_MS = 90_000  # a run of some dozens of tokens on a busy machine
CHANGED = "what is shown belongs to the earlier ones"
# White space as the token strip shows it.
MARKS = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥"})


class GrowthPage:
    """One visitor's tab."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.prompt = page.get_by_label("Prompt", exact=True)
        # the first: one that has just moved is there twice for a moment
        self.run, self.stop = (page.locator(f".st-key-{name} button").first for name in ("run", "stop"))
        self.grid = page.locator(".st-key-grid .kvviz")
        self.changed = page.get_by_text(CHANGED)
        self.slider = page.locator(".st-key-step").get_by_role("slider")

    def open(self, query: str = "") -> "GrowthPage":
        """Go to the page and wait until the model is in memory; `query` is the part of the URL after the "?"."""
        self.page.goto(f"/growth?{query}")
        expect(self.run).to_be_enabled(timeout=LOADED_MS)
        return self

    def type(self, text: str) -> None:
        """Replace the prompt and tell the app, as Ctrl+Enter does."""
        self.prompt.fill(text)
        self.prompt.press("Control+Enter")

    def start(self, text: str | None = None) -> None:
        """Press Run, at once after typing `text`."""
        if text is not None:
            self.prompt.fill(text)
        self.run.click()
        expect(self.stop).to_be_enabled(timeout=RUN_MS)

    def wait_end(self, new: int, timeout: float = RUN_MS) -> None:
        """Wait until the run on the screen has written all its `new` tokens and its final figures are drawn."""
        expect(self.page.get_by_text(f"All {new} new tokens are written.")).to_be_visible(timeout=timeout)
        expect(self.stop).to_be_disabled(timeout=timeout)
        expect(self.page.locator(".st-key-json button")).to_be_visible(timeout=timeout)

    def value(self, name: str) -> Locator:
        """The large figure called `name` in the row of numbers."""
        final = self.page.locator(f".st-key-number_{name}").get_by_test_id("stMetricValue")
        return final.or_(self.page.locator(f".st-key-live_numbers [data-name={name}] .value"))

    def below(self, name: str) -> Locator:
        """The small line under it."""
        return self.page.locator(f".st-key-number_{name}").get_by_test_id("stCaptionContainer")

    def seen(self) -> int:
        """Tokens seen, as the metric says."""
        return number(self.value("seen"))

    def bytes(self) -> int:
        """Bytes of the cache, as the metric's caption says."""
        return number(self.below("bytes"))

    def seen_in_grid(self, after: int = 0) -> int:
        """Columns of the cache grid, as soon as they are others than `after`."""
        count = None
        while count is None:  # a grid that is drawn anew has no number for a moment
            expect(self.grid).to_have_attribute("data-seen", re.compile(rf"^(?!{after}$)\d+$"), timeout=RUN_MS)
            count = self.grid.get_attribute("data-seen")
        return int(count)

    def tokens(self, origin: str = "", strip: str = "run_strip") -> list[str]:
        """What the chips of a strip show, of one origin ("user", "generated") or of all."""
        chosen = f".{origin}" if origin else ""
        return self.page.locator(f".st-key-{strip} .list .token{chosen}").all_text_contents()

    def prompt_tokens(self) -> int:
        """The number in "18 tokens, 71 characters"."""
        return number(self.page.get_by_text(re.compile(r"^[\d,]+ tokens, [\d,]+ characters$")))


def number(place: Locator) -> int:
    """The first whole number in a text on the screen."""
    return int(re.search(r"[\d,]+", place.inner_text())[0].replace(",", ""))
