"""What all visitors of one server process share: the models in memory and the line at the device."""

import streamlit as st

from kvviz.ui.house import ModelHouse
from kvviz.ui.settings import settings
from kvviz.ui.turns import Turns


@st.cache_resource(show_spinner=False)
def shared_turns() -> Turns:
    """The line at this server's device."""
    return Turns()


@st.cache_resource(show_spinner=False)
def house() -> ModelHouse:
    """The models of this server."""
    return ModelHouse(settings().models, shared_turns())
