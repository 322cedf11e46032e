"""`load`: a language model by catalogue name, local folder or hub id, ready to be watched."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from kvviz.engine.probe import ATTENTION
from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.models import devices, folders, hub
from kvviz.models.catalogue import CATALOGUE
from kvviz.models.convert import converted

Progress = Callable[[str, float], None]  # (stage in English, marked for translation; share done, 0 to 1)

Turn = Callable[[], AbstractContextManager]

# from_pretrained sets torch's default dtype for all threads while it builds the model
_building = threading.Lock()


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model in eval mode with its tokenizer and where both came from."""

    name: str  # as asked for: catalogue name, hub id or folder
    title: str  # for people
    model: PreTrainedModel  # its attention is the probe's, unless the note says otherwise
    tokenizer: PreTrainedTokenizerBase
    device: torch.device  # where inputs go
    dtype: torch.dtype
    source: str  # where the weights came from, for people
    revision: str  # identifies the weights: package version, commit, or fingerprint of the folder
    note: str  # what a reader of numbers must know, marked for translation; or ""

    @property
    def config(self) -> PreTrainedConfig:
        """The configuration of the text decoder, also for models with other parts around it."""
        return self.model.config.get_text_config(decoder=True)

    @property
    def context(self) -> int | None:
        """The longest text, in tokens, that the model was made for, if its configuration says so."""
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights; tied ones count once."""
        return sum(weight.numel() * weight.element_size() for weight in self.model.parameters())


@dataclass(frozen=True, slots=True)
class _Found:
    folder: Path
    title: str
    source: str
    revision: str
    note: str = ""


def load(
    name: str, device: str = "auto", dtype: str = "auto", *, progress: Progress | None = None, turn: Turn = nullcontext
) -> LanguageModel:
    """Load `name`: "smollm2-135m", "gemma-3-270m", a folder with safetensors, or a hub id.

    device: "auto" (CUDA, MPS, CPU), "cpu", "cuda", "cuda:1", "mps". dtype: "auto" (bfloat16 on a GPU, float32
    on a CPU), "float32", "bfloat16", "float16". `progress` gets (stage, share); what it raises ends the loading.
    The model is built inside `turn()`, as `kvviz.stream` takes one a forward: building changes a setting of torch
    that holds for every thread.
    Code that comes with a model is never run and pickled weights are never opened.
    Raises Refused, with what to do, for everything that cannot be loaded.
    """
    report = progress or (lambda stage, share: None)
    target = devices.resolve_device(str(device))
    number = devices.resolve_dtype(str(dtype).removeprefix("torch."), target)
    found = _find(name, target, report)
    shown = name if name in CATALOGUE or hub.is_id(name) else found.title
    config = folders.read_config(found.folder, shown)
    weights = folders.weight_files(found.folder, shown)
    folders.check_tokenizer(found.folder, shown)
    bytes_needed = folders.parameters(weights) * number.itemsize
    spread = devices.spread_needed(bytes_needed, target, fixed=":" in device, name=shown)
    report(N_("Loading the tokenizer"), 0.1)
    tokenizer = _tokenizer(found.folder, shown)
    report(N_("Loading the weights"), 0.3)
    watched = _interchangeable(config)
    with turn():
        model = _model(found.folder, shown, number, target, spread, ATTENTION if watched else "eager")
    report(N_("Loaded"), 1.0)
    note = found.note if watched else N_("This architecture computes its attention in a way that cannot be observed.")
    where = model.get_input_embeddings().weight.device
    return LanguageModel(name, found.title, model, tokenizer, where, number, found.source, found.revision, note)


def _find(name: str, device: torch.device, report: Progress) -> _Found:
    if card := CATALOGUE.get(name):
        source = f"{card.package} {card.version}"
        return _Found(converted(card, report), card.title, source, f"{source} {card.sha256[:12]}", card.note)
    if os.environ.get("KVVIZ_PUBLIC") == "1":
        raise Refused("This server offers only these models: {names}.", names=", ".join(CATALOGUE))
    path = Path(name).expanduser() if name.strip() else None
    if path is not None and path.is_dir():
        path = path.resolve()
        return _Found(path, path.name, str(path), folders.fingerprint(path))
    if path is not None and path.is_file():
        raise Refused("{name} is a file. Give the folder that holds config.json and the safetensors.", name=name)
    if not hub.is_id(name):
        raise Refused(
            "There is no folder {name}, and it is not a hub id either. "
            "Give a model of the catalogue ({names}), a folder, or a hub id such as owner/model.",
            name=repr(name),
            names=", ".join(CATALOGUE),
        )
    folder, commit = hub.fetch(name, devices.room(device), report)
    return _Found(folder, name.rpartition("/")[2], f"{name} @ {commit[:12]}", commit)


def _interchangeable(config: PreTrainedConfig) -> bool:
    """Whether the model's code asks transformers' AttentionInterface (Bloom, MPT and Falcon compute on their own).

    `_supports_attention_backend` would be the wrong flag: hybrids such as Qwen3-Next ask the interface without it.
    """
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return all(one._can_set_attn_implementation() for one in kinds)


def _tokenizer(folder: Path, name: str) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        empty = not tokenizer("a b").input_ids
    except Exception as error:  # foreign files may break the library's code in any way
        raise Refused(
            "The tokenizer of {name} cannot be loaded ({reason}). Save it again into the model's folder.",
            name=name,
            reason=folders.brief(error),
        ) from error
    if empty:
        raise Refused("The tokenizer of {name} is empty. Save it again into the model's folder.", name=name)
    return tokenizer


def _model(
    folder: Path, name: str, dtype: torch.dtype, device: torch.device, spread: bool, attention: str
) -> PreTrainedModel:
    try:
        with _building:
            model, facts = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation=attention,
                device_map="auto" if spread else None,
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
        model = model if spread else model.to(device)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise devices.too_large(name, None, device) from error
    except Exception as error:  # foreign files may break the library's code in any way
        raise Refused(
            "transformers cannot load {name}: {reason}. Choose another copy of the model.",
            name=name,
            reason=folders.brief(error).rstrip("."),
        ) from error
    missing = facts["missing_keys"]
    if missing:
        # transformers would fill these with random numbers and only log it
        raise Refused(
            "The weights of {name} lack {count} of the tensors the model needs, among them {first}. "
            "Choose another copy of the model.",
            name=name,
            count=len(missing),
            first=min(missing),
        )
    return model.eval()
