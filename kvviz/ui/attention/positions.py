"""Choosing a token by its position: a number that always lies within the text."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator


def position_input(place: DeltaGenerator, label: str, count: int, *, key: str, default: int) -> int:
    """A number from 0 to `count` - 1, kept under `key`; one left over from a longer text becomes the last."""
    last = count - 1
    st.session_state[key] = min(last, st.session_state.get(key, default))
    return int(place.number_input(label, 0, last, key=key, step=1, persist_state="session"))
