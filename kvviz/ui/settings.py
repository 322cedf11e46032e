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
    prefill_chunk: int = 512  # tokens of a prompt computed before the next visitor has a turn
    models: int = 2  # models kept in memory at once


@cache
def settings() -> Settings:
    """The settings of this process, read once. Raises ValueError naming a variable that is not a number above 0."""
    return read_settings(os.environ)


def read_settings(environment: dict[str, str]) -> Settings:
    """Settings from `environment`; variables that are not there keep their defaults."""
    public = environment.get("KVVIZ_PUBLIC") == "1"
    numbers = {}
    for name in ("max_prompt_tokens", "max_new_tokens", "prefill_chunk", "models"):
        text = environment.get(f"KVVIZ_{name.upper()}", "").strip()
        if text:
            if not text.isdecimal() or int(text) < 1:
                raise ValueError(f"KVVIZ_{name.upper()} must be a whole number above 0, not {text!r}")
            numbers[name] = int(text)
    return Settings(public=public, **numbers)
