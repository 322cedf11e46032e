"""What the visitor asks of the Cache growth page: a text, how to continue it, and Run or Stop."""

import streamlit as st

from kvviz.errors import Refused
from kvviz.locale import N_, Translate
from kvviz.models.prompts import Prompt, encode
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.growth.run import GrowthRun, Wanted, begin, desk
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence

# option -> (name, text); the texts are given to the model as they are, in every language of the screen
PRESETS = {
    "story": (N_("A story"), "Once upon a time, in a small village by the sea, there lived a girl who"),
    "fact": (N_("A fact"), "The capital of France is"),
    "chinese": (N_("Chinese"), "大家好我是大金"),
    "repeat": (N_("A repetition"), "one two three one two three one two three one two"),
    "long": (N_("A long page"), ""),
}
_SENTENCES = (
    "The keys and values of every earlier token stay in the cache, layer by layer.",
    "A new token asks its question once and leaves a key and a value behind.",
    "In a sliding layer the oldest of them fall out of the window as new ones arrive.",
    "In a full layer nothing is ever lost, and so the memory grows with every word.",
)
LONG_PAGE = " ".join(f"{number}. {_SENTENCES[number % len(_SENTENCES)]}" for number in range(1, 36))


def ask(page: Page) -> Wanted | None:
    """Draw the inputs; return the run they describe, or None while no model is named."""
    t = page.t
    _preset(t)
    text = st.text_area(t("Prompt"), key="prompt", persist_state="session", height=68, label_visibility="collapsed")
    left, chat_place, compare_place, sampling_place = st.columns([5, 4, 5, 3], vertical_alignment="bottom")
    most = settings().max_new_tokens
    new = left.slider(t("New tokens"), 1, max(2, most), min(64, most), key="new", bind="query-params")
    chat = chat_place.toggle(
        t("Chat template"),
        key="chat",
        bind="query-params",
        help=t("Wraps the prompt as the model was trained to be talked to, in tokens you did not type."),
    )
    with sampling_place.popover(t("Sampling"), width="stretch", help=t("How the next token is chosen.")):
        temperature, top_p, seed = _sampling(t)
    compare = compare_place.toggle(
        t("Also without cache"),
        key="compare",
        bind="query-params",
        disabled=temperature > 0,
        help=t("Runs the same greedy text a second time, computing every token anew at each step."),
    )
    if page.resident is None:
        return None
    return Wanted(page.resident.key, text, chat, min(new, most), temperature, top_p, seed, compare and temperature == 0)


def run_or_stop(page: Page, wanted: Wanted | None) -> GrowthRun | None:
    """The two buttons and what the prompt is in tokens; the run to show, or None when there is none yet."""
    t, run = page.t, desk().run
    lm = page.resident.model if page.resident else None
    prompt = _encoded(t, page, wanted)
    working = run is not None and run.job.running
    left, middle, right = st.columns([1, 1, 4], vertical_alignment="center")
    # with a refused prompt too: the click that takes the corrected text along must not find a disabled button
    ready = wanted is not None and lm is not None
    go = left.button(
        t("Run"), key="run", type="primary", icon=":material/play_arrow:", width="stretch", disabled=not ready
    )
    if go and prompt is not None:
        begin(wanted, lm, prompt)
        st.rerun()
    if middle.button(t("Stop"), key="stop", icon=":material/stop:", width="stretch", disabled=not working):
        run.job.cancel()
        st.rerun()
    if prompt is not None:
        told = t("{count} tokens, {chars} characters")
        right.caption(told.format(count=f"{len(prompt.ids):,}", chars=f"{len(wanted.text):,}"))
    if prompt is not None and run is None:
        token_strip(prompt.tokens, origins=prompt.origins, key="prompt_strip", t=t)
    return run


def _preset(t: Translate) -> None:
    def fill() -> None:
        chosen = st.session_state["preset"]
        if chosen:
            st.session_state["prompt"] = LONG_PAGE if chosen == "long" else PRESETS[chosen][1]

    if "prompt" not in st.session_state:
        st.session_state["prompt"] = PRESETS["story"][1]
    st.pills(
        t("Examples"),
        list(PRESETS),
        format_func=lambda name: t(PRESETS[name][0]),
        key="preset",
        on_change=fill,
        label_visibility="collapsed",
    )


def _sampling(t: Translate) -> tuple[float, float, int]:
    told = t("0 is greedy: always the likeliest token.")
    temperature = st.slider(t("Temperature"), 0.0, 2.0, 0.0, 0.1, key="temperature", bind="query-params", help=told)
    greedy = temperature == 0
    top_p = st.slider(t("Top-p"), 0.05, 1.0, 1.0, 0.05, key="top_p", bind="query-params", disabled=greedy)
    seed = st.number_input(t("Seed"), 0, 2**31 - 1, 0, key="seed", bind="query-params", disabled=greedy)
    return temperature, top_p, int(seed)


def _encoded(t: Translate, page: Page, wanted: Wanted | None) -> Prompt | None:
    """The prompt in tokens, or None with a sentence on the screen."""
    lm = page.resident.model if page.resident else None
    if lm is None or wanted is None:
        return None
    try:
        prompt = encode(lm, wanted.text, chat=wanted.chat, limit=settings().max_prompt_tokens)
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None
    if prompt.typed_controls:
        st.info(t("Your text contains control tokens of this model and is read as such. They are outlined below."))
    return prompt
