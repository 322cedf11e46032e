"""The shape of a cache from a config alone: layer kinds, bytes, and what fits where."""
