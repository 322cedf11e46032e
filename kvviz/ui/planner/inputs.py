"""What is planned: a model, a length, users, number formats and cards."""

from dataclasses import dataclass

import streamlit as st

from kvviz.errors import Refused
from kvviz.geometry.dtypes import DTYPES
from kvviz.geometry.gpus import GPUS
from kvviz.geometry.plan import Plan
from kvviz.locale import N_, Translate
from kvviz.models.presets import presets
from kvviz.planning import plan
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence
from kvviz.ui.url import from_url, to_url

_FIRST = "llama-3.1-8b"
_SOURCES = {
    "preset": N_("Well-known model"),
    "loaded": N_("The loaded model"),
    "json": N_("config.json"),
    "name": N_("Hub id or folder"),
}


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """The plan of the chosen model and the cards it is to fit on; `name` is what `kvviz.plan` was given."""

    plan: Plan
    name: str
    gpu: str
    gpus: int
    reserve: float


def ask_model(page: Page, key: str = "plan", default: str = _FIRST) -> tuple[Plan, str] | None:
    """A model, planned for the default length, and what names it; None with the reason on the screen."""
    t = page.t
    offered = [name for name in _SOURCES if not (settings().public and name == "name")]
    from_url(f"{key}_source", offered, "preset")
    source = st.segmented_control(
        t("Model from"),
        offered,
        format_func=lambda name: t(_SOURCES[name]),
        key=f"{key}_source",
        required=True,
        label_visibility="collapsed",
    )
    to_url(f"{key}_source", "preset")
    name = _name(page, source, key, default)
    if not name:
        return None
    try:
        with st.spinner(t("Running the model's code without weights …"), show_time=True):
            return planned(name) if source != "loaded" else plan(page.resident.model), name
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None


def ask_sizes(page: Page, model: Plan, name: str) -> Asked:
    """Length, users, formats and cards."""
    t = page.t
    first, second, third, fourth, fifth, sixth = st.columns([3, 2, 2, 2, 3, 2], vertical_alignment="bottom")
    tokens = first.number_input(
        t("Tokens of context"), 1, 10**8, 32_768, step=1024, key="plan_tokens", bind="query-params"
    )
    users = second.number_input(t("Users"), 1, 10**5, 1, key="plan_users", bind="query-params")
    formats = list(DTYPES)
    cache = third.selectbox(t("Cache in"), formats, index=1, key="plan_dtype", bind="query-params", help=_scales(t))
    weights = fourth.selectbox(t("Weights in"), formats, index=1, key="plan_weights", bind="query-params")
    cards = [card.name for card in GPUS]
    card = fifth.selectbox(t("GPU"), cards, index=4, key="plan_gpu", bind="query-params")
    count = sixth.number_input(t("How many"), 1, 1024, 1, key="plan_gpus", bind="query-params")
    return Asked(
        model.at(tokens=int(tokens), batch=int(users), dtype=cache, weights_dtype=weights), name, card, int(count), 0.1
    )


def _scales(t: Translate) -> str:
    lines = [f"{each.name}: {t(each.scales)}" for each in DTYPES.values() if each.scales]
    return t("Formats of 8 and 4 bits keep scales beside their numbers:") + "\n\n" + "\n\n".join(lines)


def _name(page: Page, source: str, key: str, default: str) -> str | None:
    t = page.t
    if source == "preset":
        known = presets()
        from_url(f"{key}_model", list(known), default)
        name = st.selectbox(t("Model"), list(known), format_func=lambda each: known[each].title, key=f"{key}_model")
        to_url(f"{key}_model", default)
        return name
    if source == "loaded":
        lm = page.resident.model if page.resident else None
        if lm is None:
            st.info(t("No model is loaded yet. Wait for the one at the left."))
        return lm and lm.name
    if source == "name":
        return st.text_input(
            t("Hub id or folder"), key=f"{key}_name", placeholder="owner/model", persist_state="session",
            help=t("Of a hub id the config.json alone is fetched, nothing else."),
        ).strip()  # fmt: skip
    file = st.file_uploader(t("A config.json"), type="json", key=f"{key}_file")
    if file is not None:
        return file.getvalue().decode("utf-8", errors="replace")
    return st.text_area(
        t("Or paste its contents"), key=f"{key}_json", height=100, persist_state="session",
        placeholder='{"model_type": "llama", "num_hidden_layers": 32, ...}',
    ).strip()  # fmt: skip


@st.cache_resource(max_entries=64, show_spinner=False)
def planned(name: str) -> Plan:
    """Plans are immutable, so visitors share them; pasted configurations count by their text."""
    if not settings().public or name in presets() or name.startswith("{"):
        return plan(name)
    raise Refused("This server plans only the models of its list and pasted configurations. Choose one of those.")
