"""The model at work: the attention probe, the cache, streaming generation."""
