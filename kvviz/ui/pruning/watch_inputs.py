"""What the visitor asks of the view that watches one policy: a prompt, how far to continue it, the policy."""

import streamlit as st

from kvviz.errors import Refused
from kvviz.locale import Translate
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, encode
from kvviz.ui.growth.inputs import LONG_PAGE, PRESETS
from kvviz.ui.pruning.policy import choose_policy
from kvviz.ui.pruning.watch_run import Wanted, WatchRun, begin, desk
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence

_FIRST = "story"


def ask(page: Page) -> tuple[Wanted | None, Prompt | None]:
    """Draw the inputs; the run they describe and its prompt in tokens, None with the reason on the screen."""
    t = page.t
    _examples(t)
    text = st.text_area(
        t("Prompt"), key="watch_prompt", persist_state="session", height=68, label_visibility="collapsed"
    )
    length, chat_place = st.columns([5, 4], vertical_alignment="bottom", gap="medium")
    most = settings().max_new_tokens
    new = length.slider(t("New tokens"), 1, max(2, most), min(64, most), key="watch_new", bind="query-params")
    chat = chat_place.toggle(
        t("Chat template"),
        key="watch_chat",
        bind="query-params",
        help=t("Wraps the prompt as the model was trained to be talked to, in tokens you did not type."),
    )
    new = min(new, most)
    prompt = _encoded(page, text, chat)
    policy = choose_policy(page, "watch", None if prompt is None else len(prompt.ids) + new - 1)
    if prompt is None or policy is None or page.resident is None:
        return None, None
    return Wanted(page.resident.key, text, policy, chat, new), prompt


def run_or_stop(page: Page, wanted: Wanted | None, prompt: Prompt | None) -> WatchRun | None:
    """The two buttons and what they will do in tokens; the run to show, None when there is none yet."""
    t, run = page.t, desk().run
    working = run is not None and run.job.running
    left, middle, right = st.columns([1, 1, 4], vertical_alignment="center")
    # with refused inputs too: the click that takes a correction along must not find a disabled button
    go = left.button(
        t("Run"),
        key="watch_run",
        type="primary",
        icon=":material/play_arrow:",
        width="stretch",
        disabled=_model(page) is None,
    )
    if go and wanted is not None and prompt is not None:
        begin(wanted, page.resident.model, prompt)
        st.rerun()
    if middle.button(t("Stop"), key="watch_stop", icon=":material/stop:", width="stretch", disabled=not working):
        run.job.cancel()
        st.rerun()
    if wanted is not None and prompt is not None:
        told = t("{prompt} tokens of prompt and up to {new} new ones; at most {budget} stay per layer and KV head")
        if wanted.policy.evicts == "prefill":
            told = t(
                "{prompt} tokens of prompt, of which {budget} stay per layer and KV head, and up to {new} new ones"
            )
        facts = {"prompt": len(prompt.ids), "new": wanted.max_new_tokens, "budget": wanted.policy.budget}
        right.caption(told.format(**{name: f"{count:,}" for name, count in facts.items()}))
    return run


def _examples(t: Translate) -> None:
    def fill() -> None:
        chosen = st.session_state["watch_example"]
        if chosen:
            st.session_state["watch_prompt"] = LONG_PAGE if chosen == "long" else PRESETS[chosen][1]

    if "watch_prompt" not in st.session_state:
        st.session_state["watch_prompt"] = PRESETS[_FIRST][1]
    st.pills(
        t("Examples"),
        list(PRESETS),
        format_func=lambda name: t(PRESETS[name][0]),
        key="watch_example",
        on_change=fill,
        label_visibility="collapsed",
    )


def _model(page: Page) -> LanguageModel | None:
    """The model if it is there; one that is chosen may be on its way."""
    return page.resident.model if page.resident is not None else None


def _encoded(page: Page, text: str, chat: bool) -> Prompt | None:
    """The prompt in tokens, or None with a sentence on the screen."""
    lm = _model(page)
    if lm is None:
        return None
    try:
        prompt = encode(lm, text, chat=chat, limit=settings().max_prompt_tokens)
    except Refused as refusal:
        st.error(sentence(refusal, page.t), icon=":material/error:")
        return None
    if prompt.typed_controls:
        told = page.t("Your text contains control tokens of this model and is read as such. They are outlined below.")
        st.info(told)
    return prompt
