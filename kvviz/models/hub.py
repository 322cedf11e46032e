"""Models by hub id: downloads configuration, tokenizer and safetensors, never code and never pickled weights."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    IncompleteSnapshotError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm.auto import tqdm

from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.models import folders
from kvviz.units import size

_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model", "spiece.model", "*.bpe.model"]
_IGNORE = ["*/*", "consolidated*"]  # other formats of the same weights
_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_SECONDS = 5

Progress = Callable[[str, float], None]


def is_id(name: str) -> bool:
    """Whether `name` can be a hub id at all: `owner/model` or `model`."""
    return bool(_ID.fullmatch(name)) and ".." not in name and "--" not in name


def fetch(name: str, room: int, report: Progress) -> tuple[Path, str]:
    """(folder, commit) of the hub model `name`, from the local hub cache where the network is out of reach.

    `room` is what memory can hold, in bytes: a model that cannot fit is refused before it is downloaded.
    """
    report(N_("Looking up the model on the hub"), 0.0)
    try:
        info = HfApi().model_info(name, files_metadata=True, timeout=_SECONDS)
    except GatedRepoError as error:
        raise _gated(name) from error
    except RepositoryNotFoundError as error:
        raise Refused("The hub has no model called {name}, or it is private. Check the spelling.", name=name) from error
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            raise Refused("The hub does not let you read {name}. Log in with `hf auth login`.", name=name) from error
        return _cached(name, error)
    except Exception as error:  # the client's transport errors share no base with the hub's own
        return _cached(name, error)
    _check(name, info, room)
    try:
        folder = snapshot_download(
            name,
            revision=info.sha,
            allow_patterns=_PATTERNS,
            ignore_patterns=_IGNORE,
            etag_timeout=_SECONDS,
            tqdm_class=_bar(report),
        )
    except GatedRepoError as error:
        raise _gated(name) from error
    except Exception as error:
        return _cached(name, error)
    return Path(folder), str(info.sha)


def fetch_config(name: str) -> Path:
    """The config.json of the hub model `name` and nothing else, from the local hub cache where that has it.

    Raises Refused where there is no such model or file, and where the hub is out of reach.
    """
    try:
        return Path(hf_hub_download(name, "config.json", etag_timeout=_SECONDS))
    except GatedRepoError as error:
        raise _gated(name) from error
    except RepositoryNotFoundError as error:
        raise Refused("The hub has no model called {name}, or it is private. Check the spelling.", name=name) from error
    except Exception as error:  # the client's transport errors share no base with the hub's own
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise Refused("{name} has no config.json. Give the folder that a model was saved to.", name=name) from error
        raise Refused(
            "{name} is not on this machine and the model hub cannot be reached ({reason}). "
            "Go online, or choose an installed model or a local folder.",
            name=name,
            reason=folders.brief(error),
        ) from error


def _gated(name: str) -> Refused:
    return Refused(
        "{name} is behind a licence gate. Accept its terms at https://huggingface.co/{name} and log in with "
        "`hf auth login`.",
        name=name,
    )


def _cached(name: str, cause: Exception) -> tuple[Path, str]:
    try:
        folder = Path(snapshot_download(name, local_files_only=True, allow_patterns=_PATTERNS, ignore_patterns=_IGNORE))
    except (LocalEntryNotFoundError, IncompleteSnapshotError, OSError, ValueError) as error:
        raise Refused(
            "{name} is not on this machine and the model hub cannot be reached ({reason}). "
            "Go online, or choose an installed model or a local folder.",
            name=name,
            reason=folders.brief(cause),
        ) from error
    return folder, folder.name


def _check(name: str, info: Any, room: int) -> None:
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or [] if "/" not in file.rfilename}
    if "config.json" not in sizes:
        raise Refused("{name} has no config.json. Give the folder that a model was saved to.", name=name)
    weights = sum(
        count for file, count in sizes.items() if file.endswith(".safetensors") and not file.startswith("consolidated")
    )
    if not weights:
        raise folders.no_weights(name, list(sizes))
    if weights > 2 * room:  # half of it, should float32 files be loaded in 16 bits
        raise Refused(
            "{name} does not fit: its files have {needed}, and {free} of memory are free. Choose a smaller model.",
            name=name,
            needed=size(weights),
            free=size(room),
        )


def _bar(report: Progress) -> type[tqdm]:
    """A progress bar class that reports bytes instead of drawing."""

    class Reporting(tqdm):  # type: ignore[misc, type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*arguments, **(options | {"disable": False, "file": _Nowhere()}))

        def update(self, n: float | None = 1) -> bool | None:
            changed = super().update(n)
            if self.unit == "B" and self.total:
                report(N_("Downloading the model"), min(self.n / self.total, 1.0))
            return changed

    return Reporting


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass
