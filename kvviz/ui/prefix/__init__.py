"""Streamlit parts of the Prefix reuse page."""
