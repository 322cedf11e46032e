"""What a model folder holds, read from its files alone, and a sentence for everything that cannot be served."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    PreTrainedConfig,
)

from kvviz.errors import Refused

_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "merges.txt",
)
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def read_config(folder: Path, name: str) -> PreTrainedConfig:
    """The configuration of a causal language model in `folder`. Raises Refused for everything else."""
    path = folder / "config.json"
    if not path.is_file():
        raise Refused("{name} has no config.json. Give the folder that a model was saved to.", name=name)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        kind = raw.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise Refused("The config.json of {name} cannot be read. Download the model again.", name=name) from error
    if kind not in CONFIG_MAPPING:
        raise _unknown(name, kind, "auto_map" in raw)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # a foreign file may break the library's code in any way
        raise Refused(
            "The config.json of {name} does not make sense to transformers ({reason}). Download the model again.",
            name=name,
            reason=brief(error),
        ) from error
    check_causal(config, name)
    return config


def _unknown(name: str, kind: object, remote: bool) -> Refused:
    if remote:
        return Refused(
            "{name} needs program code that comes with the model, which is never run here. "
            "Choose a model that transformers knows.",
            name=name,
        )
    if not isinstance(kind, str):
        return Refused(
            "The config.json of {name} does not say what kind of model it is (model_type). Download the model again.",
            name=name,
        )
    return Refused(
        "This version of transformers does not know models of type {kind}. Update transformers or choose another.",
        kind=repr(kind),
    )


def check_causal(config: PreTrainedConfig, name: str) -> None:
    """Raises Refused for a model that does not write text token by token."""
    if getattr(config, "is_encoder_decoder", False):
        raise Refused(
            "{name} is an encoder-decoder model ({kind}). Choose a model that only decodes, such as Llama or GPT-2.",
            name=name,
            kind=config.model_type,
        )
    # BERT and its like are in both lists: they can be built as decoders, but were trained to look both ways
    encoder = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False)
    if encoder or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise Refused(
            "{name} does not write text token by token ({kind}), so it has no cache to look at. "
            "Choose a causal language model, such as Llama or GPT-2.",
            name=name,
            kind=config.model_type,
        )


def weight_files(folder: Path, name: str) -> list[Path]:
    """The complete safetensors files of `folder`. Raises Refused where they are missing, cut short or pickled."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        paths = [folder / "model.safetensors"]
    elif index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            paths = [folder / shard for shard in sorted(shards)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _incomplete(name, index.name) from error
    else:
        raise no_weights(name, [path.name for path in folder.iterdir()])
    for path in paths:
        if not path.is_file() or header(path) is None:
            raise _incomplete(name, path.name)
    return paths


def no_weights(name: str, names: list[str]) -> Refused:
    """The sentence for a model without safetensors whose files are called `names`."""
    if any(file.endswith(_PICKLED) for file in names):
        return Refused(
            "{name} has only pickled weights, which can run code when opened and are refused. "
            "Choose a copy with safetensors, or convert it with save_pretrained on a machine you trust it on.",
            name=name,
        )
    return Refused("{name} has no weights in safetensors format. Choose a copy that has them.", name=name)


def _incomplete(name: str, file: str) -> Refused:
    return Refused(
        "The weights of {name} are incomplete: {file} is missing or damaged. Download it again.", name=name, file=file
    )


def header(path: Path) -> dict[str, Any] | None:
    """The tensor table of a safetensors file, or None where it is damaged or the file is not as long as it says."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(100_000_000, path.stat().st_size - 8):
                return None
            table: dict[str, Any] = json.loads(file.read(length))
        table.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in table.values()), default=0)
        return table if 8 + length + end == path.stat().st_size else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def parameters(paths: list[Path]) -> int:
    """How many numbers the safetensors files hold."""
    return sum(math.prod(entry["shape"]) for path in paths for entry in (header(path) or {}).values())


def check_tokenizer(folder: Path, name: str) -> None:
    """Raises Refused without tokenizer files: transformers would make up an empty tokenizer instead of failing."""
    if not any((folder / file).is_file() for file in _TOKENIZERS):
        raise Refused(
            "{name} has no tokenizer (tokenizer.json). Save the tokenizer into the same folder as the model.", name=name
        )


def fingerprint(folder: Path) -> str:
    """A short name that changes when a file of the folder is replaced; reads no weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            facts = path.stat()
            digest.update(f"{path.name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]


def brief(error: BaseException) -> str:
    """The first line of an error in at most 200 characters."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
