"""The list of a converted folder's files with sizes and checksums, written last and checked at every load.

The checksum is CRC-32 over blocks of 32 MiB, computed on all cores: it finds any damage that disks and
interrupted writes do and costs about a fifth of a second for the default model's 540 MB, so that it can run
at every load and no time stamp has to be believed. (SHA-256 costs about a second.)
"""

import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MANIFEST = "kvviz.json"
FORMAT = 1  # raise when the conversion writes something else; older copies are then made anew
_BLOCK = 32 * 2**20


def write(folder: Path, source: dict[str, str]) -> None:
    """Describe every file now in `folder`, and the `source` they were made from."""
    files = {path.name: _describe(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    text = json.dumps({"format": FORMAT, "source": source, "files": files}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def damage(folder: Path, source: dict[str, str]) -> str | None:
    """What is wrong with the converted copy in `folder` (for the log), or None when every byte is as written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or manifest["source"] != source:
            return "made from something else"
        files: dict[str, Any] = manifest["files"]
        if not {"config.json", "model.safetensors", "tokenizer.json"} <= files.keys():
            return "the manifest is incomplete"
        for name, recorded in files.items():
            if (folder / name).stat().st_size != recorded["bytes"]:
                return f"{name} has the wrong size"
        for name, recorded in files.items():
            if _describe(folder / name) != recorded:
                return f"{name} has changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"unreadable ({error})"
    return None


def _describe(path: Path) -> dict[str, Any]:
    length = path.stat().st_size
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        sums = list(pool.map(lambda start: _block_sum(path, start), range(0, length, _BLOCK)))
    return {"bytes": length, "crc32": sums}


def _block_sum(path: Path, start: int) -> int:
    checksum = 0
    with path.open("rb") as file:
        file.seek(start)
        remaining = _BLOCK
        while remaining and (piece := file.read(min(remaining, 2**20))):
            checksum = zlib.crc32(piece, checksum)
            remaining -= len(piece)
    return checksum
