"""DataFrame in, plotly Figure out: one function a question."""

from kvviz.figures.growth import cache_growth, token_times, with_and_without

__all__ = ["cache_growth", "token_times", "with_and_without"]
