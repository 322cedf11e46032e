"""Limits and modes of one installation, from environment variables KVVIZ_*."""

import os
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Settings:
    """What a visitor may ask for. Each field is the environment variable KVVIZ_<NAME>."""

    public: bool = False  # only catalogue models; no paths on the screen
    max_prompt_tokens: int = 4096  # a 20,000 character page of English is about 4,500
    max_new_tokens: int = 1024
    max_attention_tokens: int = 8192  # of a text whose attention is measured
    max_policy_tokens: int = 16384  # of a text that is read under eviction policies
    prefill_chunk: int = 512  # tokens of a prompt computed before the next visitor has a turn
    models: int = 2  # models kept in memory at once


@cache
def settings() -> Settings:
    """The settings of this process, read once. Raises ValueError naming a variable with a wrong value."""
    return read_settings(os.environ)


def read_settings(environment: dict[str, str]) -> Settings:
    """Settings from `environment`; variables that are not there keep their defaults."""
    public = environment.get("KVVIZ_PUBLIC", "")
    if public not in ("", "0", "1"):  # "true" taken for off would open a server that was meant to be restricted
        raise ValueError(f"KVVIZ_PUBLIC must be 1 (on) or 0, not {public!r}")
    numbers = {}
    for name in (
        "max_prompt_tokens",
        "max_new_tokens",
        "max_attention_tokens",
        "max_policy_tokens",
        "prefill_chunk",
        "models",
    ):
        text = environment.get(f"KVVIZ_{name.upper()}", "").strip()
        if text:
            if not text.isdecimal() or int(text) < 1:
                raise ValueError(f"KVVIZ_{name.upper()} must be a whole number above 0, not {text!r}")
            numbers[name] = int(text)
    return Settings(public=public == "1", **numbers)
