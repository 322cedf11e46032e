"""What is looked at: sizes from sliders, those of DeepSeek-V3, or a layer of the loaded model and a text."""

from dataclasses import dataclass

import streamlit as st

from kvviz.engine.latentmodel import MOST_TOKENS, latent_layers, layer_sizes
from kvviz.errors import Refused
from kvviz.geometry.dtypes import DTYPES
from kvviz.geometry.latent import LatentSizes
from kvviz.latents import DTYPES as MEASURED
from kvviz.locale import N_
from kvviz.models.prompts import encode
from kvviz.ui.settings import settings
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence
from kvviz.ui.url import from_url, to_url

_SOURCES = {"small": N_("A small example"), "v3": N_("DeepSeek-V3"), "loaded": N_("The loaded model")}
# heads, rank, rotary width, head width, tokens
_STARTS = {"small": (8, 64, 16, 32, 256), "v3": (128, 512, 64, 128, 4096)}
LENGTHS = [2**power for power in range(18)]
_TEXT = "The cache of this layer holds one latent and one rotary key for every token of this sentence."


@dataclass(frozen=True, slots=True)
class Asked:
    """Sizes and length; `layer` and `ids` of the loaded model where `source` is "loaded"."""

    source: str
    sizes: LatentSizes
    tokens: int
    groups: int
    cached: str
    measured: str
    layer: int | None = None
    ids: tuple[int, ...] = ()
    text: str = ""


def ask(page: Page) -> Asked | None:
    """The controls; None with the reason on the screen."""
    t = page.t
    from_url("latent_source", list(_SOURCES), "small")
    source = st.segmented_control(
        t("Sizes of"), list(_SOURCES), format_func=lambda name: t(_SOURCES[name]), key="latent_source", required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    to_url("latent_source", "small")
    try:
        if source == "loaded":
            return _ask_loaded(page)
        heads, rank, rotary, width, tokens = _sliders(page, source)
        sizes = LatentSizes(heads, rank, rotary, width, width)
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None
    return Asked(source, sizes, tokens, *_formats(page, sizes))


def _sliders(page: Page, source: str) -> tuple[int, ...]:
    t = page.t
    places = st.columns(5, gap="medium")
    labels = (t("Heads $H$"), t("Rank $r$"), t("Rotary width $d_R$"), t("Head width $d_N = d_V$"))
    limits = ((1, 128, 1), (0, 1024, 8), (0, 128, 2), (8, 256, 8))
    names = ("heads", "rank", "rotary", "width")
    *starts, length = _STARTS[source]
    found = [
        int(place.slider(label, least, most, start, step, key=f"{source}_{name}", bind="query-params"))
        for place, label, (least, most, step), start, name in zip(places, labels, limits, starts, names, strict=False)
    ]
    tokens = places[4].select_slider(
        t("Tokens in the cache $T$"), LENGTHS, length, format_func=lambda count: f"{count:,}", key=f"{source}_tokens",
        bind="query-params",
    )  # fmt: skip
    return (*found, int(tokens))


def _formats(page: Page, sizes: LatentSizes) -> tuple[int, str, str]:
    t = page.t
    first, second, third, _ = st.columns([2, 2, 3, 3], gap="medium", vertical_alignment="bottom")
    divisors = [count for count in range(1, sizes.heads + 1) if sizes.heads % count == 0]
    usual = max(count for count in divisors if count <= min(8, max(1, sizes.heads // 4)))
    groups = first.selectbox(
        t("Groups $g$ of GQA"), divisors, divisors.index(usual), key=f"latent_groups_{sizes.heads}"
    )
    cached = second.selectbox(t("Cache in"), list(DTYPES), index=1, key="latent_cached", bind="query-params")
    measured = third.segmented_control(
        t("Computed in"), list(MEASURED), default="float64", required=True, key="latent_measured", bind="query-params"
    )
    return int(groups), cached, measured


def _ask_loaded(page: Page) -> Asked | None:
    t = page.t
    lm = page.resident.model if page.resident is not None else None
    if lm is None:
        st.info(t("No model is loaded yet. Wait for the one at the left."))
        return None
    layers = latent_layers(lm)
    layer_sizes(lm, layers[0] if layers else 0)  # refuses a model without latents
    left, right = st.columns([1, 4], gap="medium")
    layer = left.selectbox(t("Layer"), layers, key="latent_layer")
    text = right.text_area(t("Text"), _TEXT, key="latent_text", persist_state="session", height=80)
    prompt = encode(lm, text, limit=min(MOST_TOKENS, settings().max_attention_tokens))
    sizes = layer_sizes(lm, layer)
    return Asked("loaded", sizes, len(prompt.ids), *_formats(page, sizes), layer, prompt.ids, text)
