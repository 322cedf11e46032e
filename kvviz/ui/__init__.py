"""Everything that touches the screen; the only package that imports Streamlit."""
