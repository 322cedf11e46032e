"""Which text the Attention page measures: an example, typed, from a file, or the last run of Cache growth."""

import streamlit as st

from kvviz.errors import Refused
from kvviz.locale import N_, Translate
from kvviz.models.prompts import encode
from kvviz.ui.attention.run import AttentionRun, Wanted, begin, desk
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.growth.inputs import LONG_PAGE
from kvviz.ui.growth.run import GrowthRun
from kvviz.ui.growth.run import desk as growth_desk
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence

# option -> (name, text): each shows one phenomenon
PRESETS = {
    "plain": (
        N_("A plain sentence"),
        "The old lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote the weather into his "
        "book before the first ships came past the rocks.",
    ),
    "animal": (N_("What does “it” mean?"), "那隻動物沒有過馬路，因為它太累了"),
    "repeat": (
        N_("Repeated words"),
        "lamp river seven cloud stone lamp river seven cloud stone lamp river seven cloud",
    ),
    "punctuation": (
        N_("Starts with punctuation"),
        ", and then the rain began, and nobody had an umbrella, and we ran.",
    ),
    "newlines": (
        N_("New lines"),
        "Summer is warm.\nWinter is cold.\nSpring is green.\nAutumn is red.\nSummer is warm.",
    ),
    "long": (N_("A long page"), LONG_PAGE),
}
_SOURCES = {"text": N_("Text"), "file": N_("File"), "growth": N_("Last run of Cache growth")}


def ask(page: Page) -> Wanted | None:
    """Draw the inputs; the text to measure in ids, or None with the reason on the screen."""
    t = page.t
    source = st.segmented_control(
        t("Text from"),
        list(_SOURCES),
        format_func=lambda name: t(_SOURCES[name]),
        default="text",
        required=True,
        key="attention_source",
        persist_state="session",
    )
    if source == "growth":
        return _from_growth(t, page)
    text = _from_file(t) if source == "file" else _typed(t)
    return None if text is None else _encoded(t, page, text)


def run_or_stop(page: Page, wanted: Wanted | None) -> AttentionRun | None:
    """The two buttons; the run to show, or None when there is none yet."""
    t, run = page.t, desk().run
    lm = page.resident.model if page.resident else None
    working = run is not None and run.job.running
    left, middle, right = st.columns([1, 1, 4], vertical_alignment="center")
    # with a refused text too: the click that takes the corrected one along must not find a disabled button
    ready = lm is not None and (wanted is not None or st.session_state["attention_source"] == "text")
    go = left.button(
        t("Measure"), key="measure", type="primary", icon=":material/visibility:", width="stretch", disabled=not ready
    )
    if go and wanted is not None:
        begin(wanted, lm)
        st.rerun()
    if middle.button(t("Stop"), key="stop", icon=":material/stop:", width="stretch", disabled=not working):
        run.job.cancel()
        st.rerun()
    if wanted is not None:
        right.caption(t("{count} tokens").format(count=f"{len(wanted.ids):,}"))
    return run


def _typed(t: Translate) -> str:
    def fill() -> None:
        if chosen := st.session_state["attention_preset"]:
            st.session_state["attention_text"] = PRESETS[chosen][1]

    if "attention_text" not in st.session_state:
        st.session_state["attention_text"] = PRESETS["plain"][1]
    names = {name: t(PRESETS[name][0]) for name in PRESETS}
    st.pills(t("Examples"), list(PRESETS), format_func=names.get, key="attention_preset", on_change=fill)
    return st.text_area(t("Text"), key="attention_text", persist_state="session", height=100)


def _from_file(t: Translate) -> str | None:
    file = st.file_uploader(t("A text file in UTF-8"), type="txt", key="attention_file")
    if file is None:
        return None
    try:
        return file.getvalue().decode("utf-8-sig")
    except UnicodeDecodeError:
        st.error(t("This file is not UTF-8 text. Save it as UTF-8 and try again."), icon=":material/error:")
        return None


def _from_growth(t: Translate, page: Page) -> Wanted | None:
    run = growth_desk().run
    if run is not None and run.job.running:
        st.fragment(_await_growth, run_every=0.5)(t, run)
        return None
    if run is None or not run.steps:
        st.info(t("There is no finished run yet. Press Run on the page Cache growth and come back."))
        return None
    if page.resident is None or run.lm is not page.resident.model:
        st.info(t("That run was made with another model. Choose the same one at the left, or run it again."))
        return None
    text = run.text()
    token_strip(text.tokens, origins=text.origins, key="attention_source_strip", t=t)
    seen = run.steps[-1].seen  # the last token was chosen but never fed: it has no row
    return Wanted(run.wanted.model, tuple(token.id for token in text.tokens[:seen]), tuple(text.origins[:seen]))


def _await_growth(t: Translate, run: GrowthRun) -> None:
    if not run.job.running:
        st.rerun()
    st.info(t("The run is still writing: {count} tokens so far.").format(count=len(run.steps)))


def _encoded(t: Translate, page: Page, text: str) -> Wanted | None:
    lm = page.resident.model if page.resident else None
    if lm is None:
        return None
    try:
        prompt = encode(lm, text, limit=settings().max_attention_tokens)
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None
    return Wanted(page.resident.key, prompt.ids, prompt.origins)
