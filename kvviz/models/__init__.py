"""Language models for kvviz: the catalogue, loading, devices, tokens and prompts."""
