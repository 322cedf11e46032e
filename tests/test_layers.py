"""Imports run one way: every module imports only what the row of its package allows, and never in a ring."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import layers

ROOT = Path(__file__).parents[1]

LEAVES = {"kvviz.errors", "kvviz.locale", "kvviz.palette", "kvviz.records", "kvviz.units", "kvviz.words"}
FRAMES = {"numpy", "pandas"}
WEIGHTS = {"accelerate", "filelock", "gguf", "huggingface_hub", "psutil", "safetensors", "tokenizers", "tqdm"}

# What a module may import beside the standard library. A row covers the modules inside its package that
# have none of their own; "kvviz" allows the public API alone.
ALLOWED: dict[str, set[str]] = {
    "kvviz.errors": set(),
    "kvviz.units": set(),
    "kvviz.palette": set(),
    "kvviz.locale": {"babel"},
    "kvviz.records": {"numpy"},
    "kvviz.words": {"kvviz.locale"},
    "kvviz.texts": set(),
    "kvviz.geometry": {*LEAVES, *FRAMES, "kvviz.geometry"},
    # Layer kinds come from transformers' own table, so that a new kind is never guessed at; configs, not models.
    "kvviz.geometry.layers": {*LEAVES, "transformers", "kvviz.geometry"},
    "kvviz.policies": {*LEAVES, "numpy", "kvviz.policies"},
    "kvviz.analysis": {*LEAVES, *FRAMES, "kvviz.geometry", "kvviz.policies", "kvviz.analysis"},
    "kvviz.models": {*LEAVES, *WEIGHTS, "numpy", "torch", "transformers", "kvviz.geometry", "kvviz.models"},
    # Every model is loaded with the probe, so the probe itself may know nothing of models.
    "kvviz.models.loading": {*LEAVES, *WEIGHTS, "torch", "transformers", "kvviz.models", "kvviz.engine.probe"},
    "kvviz.engine.scores": {*LEAVES, "torch"},
    "kvviz.engine.probe": {*LEAVES, "torch", "transformers", "kvviz.engine.scores"},
    "kvviz.engine": {
        *LEAVES,
        *("numpy", "torch", "transformers"),
        *("kvviz.geometry", "kvviz.policies", "kvviz.models", "kvviz.engine"),
    },
    # The bookkeeping of the tree knows nothing of tensors; this one puts real K and V into it.
    "kvviz.engine.treecache": {
        *LEAVES,
        *("torch", "transformers", "kvviz.models", "kvviz.engine"),
        *("kvviz.analysis.prefixes", "kvviz.analysis.radix"),
    },
    # What kvviz.plan gives: a configuration found, its layers read, and the modelling code run without weights.
    "kvviz.planning": {*LEAVES, *FRAMES, "kvviz.geometry", "kvviz.models"},
    # What kvviz.latent gives: latent attention computed both ways, and counted.
    "kvviz.latents": {*LEAVES, *FRAMES, "torch", "kvviz.geometry", "kvviz.models", "kvviz.engine"},
    # What kvviz.attention gives: the engine's measures and the frames made of them in one object.
    "kvviz.summary": {
        *LEAVES,
        *FRAMES,
        *("torch", "kvviz.geometry", "kvviz.analysis", "kvviz.models", "kvviz.engine"),
    },
    # What kvviz.evaluate gives: a text read under policies, and the frames made of it.
    "kvviz.evaluation": {
        *LEAVES,
        *FRAMES,
        *("kvviz.policies", "kvviz.analysis", "kvviz.models", "kvviz.engine"),
    },
    # What kvviz.sweep gives: the same readings at many budgets.
    "kvviz.sweeping": {
        *LEAVES,
        *FRAMES,
        *("kvviz.policies", "kvviz.analysis", "kvviz.models", "kvviz.engine"),
    },
    # What kvviz.probe_facts gives: texts with facts in them, read under policies and asked, as a frame.
    "kvviz.factprobe": {
        *LEAVES,
        *FRAMES,
        *("kvviz.policies", "kvviz.analysis", "kvviz.models", "kvviz.engine", "kvviz.texts", "kvviz.factprobe"),
    },
    # Two prompts, and many: the engine's work and the frames made of it in one object.
    "kvviz.prefix": {
        *LEAVES,
        *FRAMES,
        *("torch", "transformers", "kvviz.geometry", "kvviz.analysis", "kvviz.models", "kvviz.engine", "kvviz.prefix"),
    },
    "kvviz.figures": {*LEAVES, *FRAMES, "plotly", "kvviz.figures"},
    "kvviz.ui": {
        *LEAVES,
        *FRAMES,
        *("plotly", "psutil", "streamlit", "torch", "transformers"),
        *("kvviz", "kvviz.geometry", "kvviz.policies", "kvviz.analysis", "kvviz.models", "kvviz.engine"),
        *(
            "kvviz.summary",
            "kvviz.planning",
            "kvviz.latents",
            "kvviz.evaluation",
            "kvviz.sweeping",
            "kvviz.factprobe",
            "kvviz.texts",
            "kvviz.prefix",
            "kvviz.figures",
            "kvviz.ui",
        ),
    },
    "kvviz": {*LEAVES, "kvviz.geometry", "kvviz.policies", "kvviz.analysis", "kvviz.models", "kvviz.engine"},
    "pages": {*LEAVES, "streamlit", "kvviz", "kvviz.geometry", "kvviz.analysis", "kvviz.figures", "kvviz.ui"},
    "app": {"streamlit", "kvviz.ui"},
}

SOURCES = {name: file.read_text(encoding="utf-8") for name, file in layers.modules(ROOT).items()}


def test_every_import_is_allowed() -> None:
    assert layers.violations(SOURCES, ALLOWED) == []


def test_no_ring() -> None:
    assert layers.cycle(SOURCES) is None


@pytest.mark.parametrize("name", SOURCES)
def test_every_module_says_what_it_is(name: str) -> None:
    sentence = ast.get_docstring(ast.parse(SOURCES[name]))
    assert sentence, f"{name} has no docstring"


def test_importing_kvviz_loads_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "streamlit", "pandas", "plotly"}
    code = f"import sys, kvviz; print(*({heavy!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


PLANTED = {
    "screen in the analysis": ("kvviz.analysis.planted", "import streamlit as st"),
    "page from a figure": ("kvviz.figures.planted", "from kvviz import ui"),
    "torch inside a function": ("kvviz.policies.planted", "def keep():\n    import torch.nn.functional"),
    "models from the probe": ("kvviz.engine.probe", "from kvviz.models.loading import LanguageModel"),
    "engine from the catalogue": ("kvviz.models.planted", "from kvviz.engine.stream import stream"),
    "inside of the package from a page": ("pages.planted", "from kvviz.engine.stream import stream"),
    "relative": ("kvviz.ui.planted", "from . import shell"),
    "no row": ("kvviz.unheard_of.planted", ""),
}


@pytest.mark.parametrize(("module", "source"), PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_found(module: str, source: str) -> None:
    known = {"kvviz": "", "kvviz.ui": "", "kvviz.engine.stream": "", "kvviz.models.loading": "", module: source}
    assert len(layers.violations(known, ALLOWED)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kvviz.models.loading", "import kvviz.engine.probe"),
        ("kvviz.engine.planted", "from kvviz.models.loading import LanguageModel"),
        ("pages.planted", "import kvviz\nfrom kvviz import load\nfrom kvviz.ui import shell"),
        ("kvviz.ui.planted", "import json\nfrom collections.abc import Callable\nimport plotly.graph_objects as go"),
    ],
)
def test_the_right_way_is_not_refused(module: str, source: str) -> None:
    known = {"kvviz": "", "kvviz.ui": "", "kvviz.models.loading": "", "kvviz.engine.probe": "", module: source}
    assert layers.violations(known, ALLOWED) == []


def test_a_planted_ring_is_found() -> None:
    through_a_package = {
        "kvviz.engine": "from kvviz.engine.stream import stream",
        "kvviz.engine.stream": "import kvviz.models.loading",
        "kvviz.engine.probe": "",
        "kvviz.models.loading": "from kvviz.engine.probe import ATTENTION",
    }
    assert layers.cycle(through_a_package)
    assert layers.cycle({**through_a_package, "kvviz.engine": ""}) is None
