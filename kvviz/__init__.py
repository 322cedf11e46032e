"""kvviz: a microscope for the KV cache of causal language models.

    import kvviz

    lm = kvviz.load("smollm2-135m")
    steps = list(kvviz.stream(lm, "The capital of France is", max_new_tokens=16))
    kvviz.figures.token_times(kvviz.frame(steps)).show()

Names are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "load": ("kvviz.models.loading", "load"),
    "encode": ("kvviz.models.prompts", "encode"),
    "encode_turns": ("kvviz.models.prompts", "encode_turns"),
    "stream": ("kvviz.engine.stream", "stream"),
    "attention": ("kvviz.summary", "attention"),
    "compare_prefix": ("kvviz.prefix.pair", "compare_prefix"),
    "cheat_prefix": ("kvviz.prefix.wrong", "cheat_prefix"),
    "PrefixCache": ("kvviz.prefix.many", "PrefixCache"),
    "block_cache": ("kvviz.prefix.many", "block_cache"),
    "evaluate": ("kvviz.evaluation", "evaluate"),
    "compare_policies": ("kvviz.evaluation", "compare_policies"),
    "sweep": ("kvviz.sweeping", "sweep"),
    "probe_facts": ("kvviz.factprobe.probe", "probe_facts"),
    "texts": ("kvviz.texts", None),
    "plan": ("kvviz.planning", "plan"),
    "latent": ("kvviz.latents", "latent"),
    "latent_of": ("kvviz.latents", "latent_of"),
    "latent_counts": ("kvviz.geometry.latentcounts", "latent_counts"),
    "LatentSizes": ("kvviz.geometry.latent", "LatentSizes"),
    "policies": ("kvviz.policies", None),
    "frame": ("kvviz.analysis.runs", "steps_frame"),
    "figures": ("kvviz.figures", None),
    "Refused": ("kvviz.errors", "Refused"),
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kvviz' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    home = import_module(module)
    return getattr(home, attribute) if attribute else home


def __dir__() -> list[str]:
    return sorted(__all__)
