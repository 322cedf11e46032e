"""What every page shares: the way to the pages, the language, the model, the head of the page.

Importing this module is quick: what needs torch is imported when the frame of the page is already on the screen.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from kvviz.locale import N_, Translate
from kvviz.palette import Theme
from kvviz.ui.language import choose_language, current_translator
from kvviz.ui.url import PAGE

if TYPE_CHECKING:
    from kvviz.ui.house import Resident

_ROUTED = "kvviz.routed"
# Streamlit leaves 6rem free above a page, which a projector has not to spare
_CLOSER = "<style>[data-testid=stMainBlockContainer] {padding-top: 3rem}</style>"


class PageEntry(NamedTuple):
    """One page of the app; adding a page is its file and one of these."""

    name: str  # the file in pages/, and the path in the URL
    title: str
    question: str
    icon: str
    heading: str = ""  # where it is not the title


PAGES = (
    PageEntry("home", N_("Home"), N_("A microscope for the KV cache of language models."), ":material/home:", "kvviz"),
    PageEntry(
        "growth",
        N_("Cache growth"),
        N_("What does a model keep of every token it reads and writes, and what does that cost?"),
        ":material/grid_on:",
    ),
    PageEntry(
        "attention",
        N_("Attention"),
        N_("Which tokens does everybody look at, and which does nobody ever look at again?"),
        ":material/visibility:",
    ),
    PageEntry(
        "pruning",
        N_("Pruning & windows"),
        N_("What happens to the text, and to its loss, when cached tokens are thrown away?"),
        ":material/content_cut:",
    ),
    PageEntry(
        "prefix",
        N_("Prefix reuse"),
        N_("What can two prompts share of a cache, and why no more?"),
        ":material/content_copy:",
    ),
    PageEntry(
        "planner",
        N_("Memory planner"),
        N_("How much memory does a cache need, whatever the architecture?"),
        ":material/memory:",
    ),
    PageEntry(
        "latent",
        N_("Latent attention (MLA)"),
        N_("How can a cache without keys and values give the same attention, and what does that cost?"),
        ":material/compress:",
    ),
)


@dataclass(frozen=True)
class Page:
    """What a page is given: a translator, the theme, and the model the visitor chose (on its way or there)."""

    t: Translate
    theme: Theme
    resident: "Resident | None"


def navigate() -> None:
    """Show the page the URL asks for, inside the frame that all pages share."""
    _configure()
    with st.sidebar:
        choose_language()
    shown = _navigation(current_translator())
    st.session_state[_ROUTED] = True
    st.session_state[PAGE] = shown.url_path
    shown.run()


def open_page(name: str) -> Page:
    """Head of the page called `name`, the shared side bar, and what the page needs to work with."""
    if not st.session_state.get(_ROUTED):
        # Streamlit's older mechanism runs a file in pages/ without app.py when a deep link is the first
        # request after the server starts; registering the navigation switches to app.py from the next run on.
        _configure()
        _navigation(current_translator())
        st.rerun()
    entry = next(page for page in PAGES if page.name == name)
    t = current_translator()
    st.html(_CLOSER)
    st.title(entry.heading or t(entry.title), anchor=False)
    st.markdown(t(entry.question))
    from kvviz.ui.model_panel import model_panel  # seconds, the first time: torch and transformers

    with st.sidebar:
        resident = model_panel(t)
    return Page(t, "dark" if st.context.theme.type == "dark" else "light", resident)


def _configure() -> None:
    # an emoji: the browser would fetch a material icon for its tab from fonts.gstatic.com
    st.set_page_config(page_title="kvviz", page_icon="🔬", layout="wide")


def _navigation(t: Translate) -> st.Page:
    folder = Path(__file__).parents[2] / "pages"
    return st.navigation(
        [
            st.Page(
                folder / f"{page.name}.py", title=t(page.title), icon=page.icon, url_path=page.name, default=not index
            )
            for index, page in enumerate(PAGES)
        ]
    )
