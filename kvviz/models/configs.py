"""A model's configuration from whatever names it: preset, folder, file, JSON, dict, config, hub id, loaded model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from kvviz.errors import Refused
from kvviz.geometry import fields as plain
from kvviz.models import folders, hub
from kvviz.models.catalogue import CATALOGUE
from kvviz.models.loading import LanguageModel
from kvviz.models.presets import presets

_LARGEST = 2_000_000  # characters; the longest config in use has a hundredth of it
_NOT_GEOMETRY = ("auto_map", "quantization_config", "torch_dtype", "dtype", "transformers_version", "_name_or_path")


@dataclass(frozen=True, eq=False)
class Described:
    """What is known of a model without its weights.

    `config` is None for a model type transformers does not know: then `fields` are all there is. `source` says where
    the numbers come from, in English or as a name. `assumed` names fields that the config leaves out.
    """

    title: str
    source: str
    fields: Mapping[str, Any]
    config: PreTrainedConfig | None
    assumed: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The model type as the config says it."""
        return str(self.fields.get("model_type") or "")

    @property
    def has_encoders(self) -> bool:
        """Whether the language model is a part of a model that also reads images or sound."""
        return plain.text_fields(self.fields) is not self.fields


def describe(what: object) -> Described:
    """Find the configuration that `what` means. Goes to the network only for a hub id.

    `what` is a preset's or a packaged model's name, a folder, a config.json file, JSON text, a dict, a transformers
    config, a hub id or a loaded model. Raises Refused for everything else, and for fields that make no sense.
    """
    if isinstance(what, LanguageModel):
        return _of_config(what.model.config, what.title, what.source)
    if isinstance(what, PreTrainedConfig):
        return _of_config(what, what.model_type, type(what).__name__)
    if isinstance(what, Mapping):
        return _of_fields(what, str(what.get("model_type") or "config.json"), "dict")
    if isinstance(what, str | Path):
        return _named(str(what).strip())
    raise Refused(
        "A plan is made for a model's name, folder or configuration, not for {what}.", what=type(what).__name__
    )


def _named(name: str) -> Described:
    if name.startswith(("{", "[")):
        return _of_text(name, "config.json", "JSON")
    if preset := presets().get(name.lower()):
        return _of_fields(preset.config, preset.title, preset.source)
    path = _path(name)
    if path and path.is_dir():
        return _of_file(path / "config.json", path.name, str(path))
    if path and path.is_file():
        return _of_file(path, path.name, str(path))
    if hub.is_id(name) and len(name) < 200:
        return _of_file(hub.fetch_config(name), name, f"https://huggingface.co/{name}")
    raise Refused(
        "{name} is neither a model known here nor a folder nor the text of a config.json. Known are: {known}.",
        name=name[:80] or "''",
        known=", ".join(sorted({*presets(), *CATALOGUE})),
    )


def _path(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, no such home
        return None


def _of_file(path: Path, title: str, source: str) -> Described:
    try:
        if path.stat().st_size > _LARGEST:
            raise _too_large()
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Refused("{name} has no config.json. Give the folder that a model was saved to.", name=title) from error
    except (OSError, UnicodeDecodeError) as error:
        raise Refused("The config.json of {name} cannot be read. Download the model again.", name=title) from error
    return _of_text(text, title, source)


def _of_text(text: str, title: str, source: str) -> Described:
    if len(text) > _LARGEST:
        raise _too_large()
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(
            "This text is not JSON ({reason}). Give the contents of a config.json.", reason=folders.brief(error)
        ) from error
    if not isinstance(raw, dict):
        raise Refused("This JSON is not the configuration of a model. Give the contents of a config.json.")
    return _of_fields(raw, title if title != "config.json" else str(raw.get("model_type") or title), source)


def _too_large() -> Refused:
    return Refused("A configuration has a few thousand characters, and this has millions. Give a config.json.")


def _of_fields(raw: Mapping[str, Any], title: str, source: str) -> Described:
    plain.check(raw)
    kind = raw.get("model_type")
    left_out = plain.assumed(raw)
    if raw.get("is_encoder_decoder") is True and kind not in CONFIG_MAPPING:
        raise Refused(
            "{name} is an encoder-decoder model ({kind}). Choose a model that only decodes, such as Llama or GPT-2.",
            name=title,
            kind=kind,
        )
    if kind not in CONFIG_MAPPING:
        return Described(title, source, raw, None, left_out)
    settings = {key: value for key, value in raw.items() if key not in ("model_type", *_NOT_GEOMETRY)}
    try:
        config = AutoConfig.for_model(kind, **settings)
    except Exception as error:  # a foreign file may break the library's code in any way
        raise Refused(
            "The configuration does not make sense to transformers ({reason}). Correct it.",
            reason=folders.brief(error),
        ) from error
    described = _of_config(config, title, source)
    return Described(title, source, raw, described.config, left_out)


def _of_config(config: PreTrainedConfig, title: str, source: str) -> Described:
    text = config.get_text_config(decoder=True)
    if text is config or getattr(config, "is_encoder_decoder", False):
        folders.check_causal(config, title)
    return Described(title, source, config.to_dict(), text)
