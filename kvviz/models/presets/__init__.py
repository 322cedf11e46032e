"""Well-known models as the fields of their configs: one JSON file a model, each with the source of its numbers."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """A model that can be planned for without its weights. `source` says where the numbers of `config` are from."""

    name: str
    title: str
    source: str
    config: dict[str, Any]


@cache
def presets() -> dict[str, Preset]:
    """Every preset by name, in alphabetical order; read from the package, nothing is fetched."""
    found = sorted(file.name for file in files(__name__).iterdir() if file.name.endswith(".json"))
    return {preset.name: preset for preset in map(_read, found)}


def _read(file: str) -> Preset:
    raw = json.loads((files(__name__) / file).read_text(encoding="utf-8"))
    return Preset(file.removesuffix(".json"), raw["title"], raw["source"], raw["config"])
