"""Runs the converting child process, turns its output into progress and its failures into sentences."""

import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import kvviz.models
from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.models.catalogue import Card
from kvviz.models.dequantise import WRONG_DIGEST

# what the child calls it: what people read, share of the whole where it begins, seconds it takes or so
_STAGES = {
    "reading": (N_("Reading the packaged model"), 0.0, 3),
    "tokenizer": (N_("Converting the tokenizer"), 0.1, 12),
    "weights": (N_("Converting the weights"), 0.35, 30),
    "writing": (N_("Writing the converted model"), 0.9, 5),
}
_PERCENT = re.compile(r"(\d{1,3})%\|")
_FULL = re.compile(r"no space left|os error (28|112)\b|errno 28\b|winerror 112\b", re.IGNORECASE)


def run(card: Card, parts: list[Path], into: Path, report: Callable[[str, float], None]) -> None:
    """Convert the GGUF `parts` into the folder `into`. Raises Refused; whatever `report` raises ends the child."""
    child = subprocess.Popen(
        [sys.executable, "-m", "kvviz.models.dequantise", str(into), card.sha256, *map(str, parts)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(),
        encoding="utf-8",
        errors="replace",
    )
    try:
        tail = _follow(child, report)
        status = child.wait()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        if child.stdout:
            child.stdout.close()
    if status:
        raise failure(card, status, "\n".join(tail))


def failure(card: Card, status: int, output: str) -> Refused | OSError:
    """Why the child ended with `status`, from the last lines of its output."""
    if status == WRONG_DIGEST:
        return Refused(
            "The file of {title} is damaged or not the expected version. Install it again: {command}",
            title=card.title,
            command=f"{card.command} --force-reinstall",
        )
    if _FULL.search(output):
        return OSError(28, "No space left on device")
    if status < 0 or status == 137:
        return Refused(
            "Converting {title} was ended from outside, often because memory ran out. "
            "Free about 4 GiB of memory and try again.",
            title=card.title,
        )
    last = output.strip().splitlines()[-1] if output.strip() else f"status {status}"
    return Refused(
        "{title} could not be converted ({reason}). Install it again: {command}",
        title=card.title,
        reason=last[:300],
        command=f"{card.command} --force-reinstall",
    )


def _environment() -> dict[str, str]:
    # the package may be run from its folder without being installed
    home = str(Path(kvviz.models.__path__[0]).parent.parent)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUTF8": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "0",
    }


def _follow(child: subprocess.Popen[str], report: Callable[[str, float], None]) -> deque[str]:
    """Report as lines come; a progress bar's redraws are lines too, since a carriage return ends one."""
    tail: deque[str] = deque(maxlen=20)
    stage, since, share, shown = "reading", time.monotonic(), 0.0, 0.0
    assert child.stdout is not None
    for line in child.stdout:
        text = line.strip()
        if text.startswith("stage ") and text[6:] in _STAGES:
            stage, since, share = text[6:], time.monotonic(), 0.0
        elif found := _PERCENT.search(text):
            share = max(share, int(found[1]) / 100)
        elif text and text != "beat":
            tail.append(text)
        title, begin, usual = _STAGES[stage]
        # where no bar tells, time does: towards the end of the stage, never beyond
        waited = time.monotonic() - since
        inner = share if stage == "weights" and share else waited / (waited + usual)
        shown = max(shown, begin + (_end(stage) - begin) * min(inner, 1.0))
        report(title, shown)
    return tail


def _end(stage: str) -> float:
    begins = [begin for _, begin, _ in _STAGES.values()] + [0.99]
    return begins[list(_STAGES).index(stage) + 1]
