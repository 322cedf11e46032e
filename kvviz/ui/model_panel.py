"""The side bar's model: which one, where and in which number format, and how far its loading is."""

from collections.abc import Callable

import streamlit as st

from kvviz.errors import Refused
from kvviz.geometry.layers import layer_shapes
from kvviz.locale import N_, Translate
from kvviz.models.catalogue import CATALOGUE, installed
from kvviz.models.devices import device_title, memory
from kvviz.models.loading import LanguageModel
from kvviz.ui.house import ModelKey, Resident
from kvviz.ui.server import house
from kvviz.ui.settings import settings
from kvviz.ui.text import plain, sentence
from kvviz.ui.url import from_url, to_url
from kvviz.units import size

_OTHER = "other"
_DTYPES = {"auto": N_("automatic"), "float32": "float32", "bfloat16": "bfloat16", "float16": "float16"}
_DEVICES = {"auto": N_("automatic"), "cpu": "CPU", "cuda": "CUDA", "mps": "MPS"}


def model_panel(t: Translate) -> Resident | None:
    """Draw the choice of model and its state; the model asked for, or None when none is named yet."""
    key = _choose(t)
    if key is None:
        return None
    resident = house().ask(key)
    if resident.job.running:
        _progress(t, resident)
    elif resident.model is not None:
        _describe(t, resident.model)
    else:
        _explain(t, resident)
    return resident


def _choose(t: Translate) -> ModelKey | None:
    names = [*CATALOGUE] + [_OTHER] * (not settings().public)
    name = _pick("model", names, t("Model"), lambda option: _option(t, option))
    if name == _OTHER:
        name = st.text_input(
            t("Hub id or folder"),
            key="other_model",
            persist_state="session",
            placeholder="HuggingFaceTB/SmolLM2-360M",
            help=t("A causal language model with safetensors weights. Code from the hub is never run."),
        ).strip()
    with st.expander(t("Device and number format")):
        device = _pick("device", list(_DEVICES), t("Device"), lambda option: t(_DEVICES[option]))
        dtype = _pick("dtype", list(_DTYPES), t("Number format"), lambda option: t(_DTYPES[option]))
    return ModelKey(name, device, dtype) if name else None


def _pick(key: str, options: list[str], label: str, shown: Callable[[str], str]) -> str:
    """A select box whose choice is in the URL; the first option is the default."""
    from_url(key, options, options[0])
    chosen = st.selectbox(label, options, format_func=shown, key=key, persist_state="session")
    to_url(key, options[0])
    return chosen


def _option(t: Translate, name: str) -> str:
    if name == _OTHER:
        return t("Another model …")
    title = CATALOGUE[name].title
    return title if installed(CATALOGUE[name]) else t("{title} (not installed)").format(title=title)


@st.fragment(run_every=0.3)
def _progress(t: Translate, resident: Resident) -> None:
    if not resident.job.running:
        st.rerun()
    st.progress(min(1.0, resident.share), text=t(resident.stage) if resident.stage else t("Waiting to load the model"))


def _describe(t: Translate, lm: LanguageModel) -> None:
    shapes = layer_shapes(lm.config)
    used = memory(lm.device)
    facts = t("{layers} layers on {device} in {dtype}. Weights {weights}; memory in use {used} of {total}.")
    st.caption(
        facts.format(
            layers=len(shapes),
            device=device_title(lm.device),
            dtype=str(lm.dtype).removeprefix("torch."),
            weights=size(lm.weights_bytes),
            used=size(used.total - used.free),
            total=size(used.total),
        )
    )
    st.caption(plain(lm.source) + (". " + t(lm.note) if lm.note else ""))


def _explain(t: Translate, resident: Resident) -> None:
    error = resident.job.error
    told = (
        sentence(error, t)
        if isinstance(error, Refused)
        else t("The model could not be loaded. The server's log says why.")
    )
    st.error(told, icon=":material/error:")
    if st.button(t("Try again"), key="reload_model"):
        house().forget(resident.key)
        st.rerun()
