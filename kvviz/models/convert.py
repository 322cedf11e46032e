"""Once per model and machine: the packaged GGUF file becomes a safetensors folder in the user's cache."""

import logging
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.models import manifest
from kvviz.models.catalogue import Card, files
from kvviz.models.converter import run

Progress = Callable[[str, float], None]  # (stage in English, marked for translation; share done, 0 to 1)

_log = logging.getLogger(__name__)
_ABANDONED_SECONDS = 3600


def cache_root() -> Path:
    """KVVIZ_CACHE, else the platform's cache folder of this user, with `kvviz` in it; not created."""
    if own := os.environ.get("KVVIZ_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "kvviz"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "kvviz"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvviz"
    return Path.home() / ".cache" / "kvviz"


def folder(card: Card) -> Path:
    """Where the converted copy of this version of the model belongs."""
    return cache_root() / f"{card.name}-{card.version}-{card.sha256[:12]}-f{manifest.FORMAT}"


def converted(card: Card, progress: Progress | None = None) -> Path:
    """The folder with the converted copy, checked byte by byte; made first where it is missing or damaged.

    Safe against other processes and threads that want the same, and against being ended at any point: the
    copy is written aside and renamed. An exception raised by `progress` ends the conversion and passes on.
    Raises Refused when the package is missing or damaged, or the cache cannot be written.
    """
    report = progress or (lambda stage, share: None)
    target = folder(card)
    if _sound(card, target, warn=True):
        return target
    parts = files(card)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _turn(target, report) as alone:
            if not _sound(card, target):
                _sweep(target, alone)
                _convert(card, parts, target, report)
    except OSError as error:
        raise unwritable(target.parent, error) from error
    return target


def unwritable(place: Path, error: OSError) -> Refused:
    """The sentence for a cache folder that cannot be written; the path is hidden in public mode."""
    shown = "kvviz" if os.environ.get("KVVIZ_PUBLIC") == "1" else place
    return Refused(
        "The model could not be written to the cache folder {folder} ({reason}). "
        "Make room there or set KVVIZ_CACHE to a folder with 2 GiB to spare.",
        folder=shown,
        reason=error.strerror or type(error).__name__,
    )


def _source(card: Card) -> dict[str, str]:
    return {"package": card.package, "version": card.version, "sha256": card.sha256}


def _sound(card: Card, target: Path, warn: bool = False) -> bool:
    if not target.exists():
        return False
    fault = manifest.damage(target, _source(card))
    if fault and warn:
        _log.warning("The converted copy of %s is damaged (%s) and is made anew.", card.title, fault)
    return fault is None


def _convert(card: Card, parts: list[Path], target: Path, report: Progress) -> None:
    aside = target.parent / f".{target.name}.{os.getpid()}.{uuid.uuid4().hex}"
    aside.mkdir()
    try:
        run(card, parts, aside, report)
        manifest.write(aside, _source(card))
        _put(card, aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    report(N_("Converted"), 1.0)


def _put(card: Card, aside: Path, target: Path) -> None:
    """Rename `aside` to `target`; without a working lock another process may have been faster, which is as good."""
    if target.exists() and not _sound(card, target):
        # renamed away first, in one step: nobody ever sees half a folder under the final name
        wreck = aside.with_name(f"{aside.name}.wreck")
        target.rename(wreck)
        shutil.rmtree(wreck, ignore_errors=True)
    try:
        aside.rename(target)
    except OSError:
        if not _sound(card, target):
            raise


@contextmanager
def _turn(target: Path, report: Progress) -> Iterator[bool]:
    """Hold the model's lock, saying so while waiting; yields False where the file system has no locks."""
    lock = FileLock(target.parent / f".{target.name}.lock")
    while True:
        try:
            lock.acquire(timeout=0.5)
            break
        except Timeout:
            report(N_("Waiting for another process that converts this model"), 0.0)
        except NotImplementedError:
            yield False
            return
    try:
        yield True
    finally:
        lock.release()


def _sweep(target: Path, alone: bool) -> None:
    """Remove what ended conversions left: with the lock held nothing of this process's own can be in work."""
    for rest in target.parent.glob(f".{target.name}.*.*"):
        owner = rest.name.removeprefix(f".{target.name}.").partition(".")[0]
        # a lock file may have been deleted under a running conversion: a living owner keeps its folder
        alive = owner.isdigit() and psutil.pid_exists(int(owner)) and not (alone and int(owner) == os.getpid())
        if not alive or time.time() - rest.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(rest, ignore_errors=True)
