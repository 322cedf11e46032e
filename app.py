"""kvviz, a microscope for the KV cache: `streamlit run app.py`."""

from kvviz.ui.shell import navigate

navigate()
