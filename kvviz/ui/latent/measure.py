"""Both ways computed for what is asked: at once with random weights, on a click with the loaded model."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import streamlit as st

from kvviz.geometry.latent import LatentSizes
from kvviz.latents import LatentComparison, latent, latent_of, small_enough
from kvviz.models.loading import LanguageModel
from kvviz.ui.latent.inputs import Asked
from kvviz.ui.shell import Page
from kvviz.ui.task import Progress, Turn, result_of, run_or_stop

_REPEATS = 5  # while a visitor waits


@dataclass(frozen=True, slots=True)
class Measured:
    """A comparison, and what it was made for."""

    asked: Asked
    found: LatentComparison
    lm: LanguageModel | None = field(default=None, compare=False)


def measure(page: Page, asked: Asked) -> Measured | None:
    """The comparison; None while there is none."""
    t = page.t
    if asked.source != "loaded":
        with st.spinner(t("Computing both ways …")):
            return Measured(asked, _random(*small_enough(asked.sizes, asked.tokens), asked.measured))
    lm = page.resident.model

    def work(progress: Progress, turn: Turn) -> Measured:
        found = latent_of(lm, asked.ids, layer=asked.layer, dtype=asked.measured, repeats=_REPEATS, turn=turn)
        return Measured(asked, found, lm)

    wanted: Hashable = (page.resident.key, asked.layer, asked.ids, asked.measured)
    task = run_or_stop(page, "latent", wanted, work, t("Compute"))
    if task is None:
        st.caption(t("Press the button: the model reads the text up to this layer, then its cache is attended to."))
        return None
    return result_of(page, task, wanted)


@st.cache_resource(max_entries=128, show_spinner=False)
def _random(sizes: LatentSizes, tokens: int, dtype: str) -> LatentComparison:
    """Immutable, so visitors share it."""
    return latent(sizes, tokens, dtype=dtype, repeats=_REPEATS)
