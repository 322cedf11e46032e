"""The child process that turns one GGUF file into a folder of safetensors, tokenizer and configuration.

A process of its own, because the work takes half a minute and gigabytes: the interpreter of a serving app
stays free, its memory comes back afterwards, and transformers' progress bars have somewhere to go.
Run as `python -m kvviz.models.dequantise FOLDER SHA256 PART...`; says `stage NAME` on a line as it goes.
"""

import hashlib
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

WRONG_DIGEST = 3  # exit status: the parts are not the file that was expected


def main(folder: Path, sha256: str, parts: list[Path]) -> int:
    """Convert; 0 when `folder` holds the whole result."""
    threading.Thread(target=_beat, daemon=True).start()
    _stage("reading")
    gguf = _joined(parts, folder)
    with gguf.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            return WRONG_DIGEST
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    _stage("tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    correct_splitting(tokenizer, str(_field(gguf, "tokenizer.ggml.pre")))
    tokenizer.save_pretrained(folder)
    _stage("weights")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    _stage("writing")
    model.save_pretrained(folder, max_shard_size="1TB")
    if gguf.parent == folder:
        gguf.unlink()
    return 0


def correct_splitting(tokenizer: Any, scheme: str) -> None:
    """Split text as the model was trained where transformers' GGUF reader falls back to GPT-2's rule.

    SmolLM's tokenizer cuts out every digit before the GPT-2 rule. Without that "a  1" ends in two tokens
    (space, space + 1 in pieces) that the model never saw together.
    """
    if scheme == "smollm":
        from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
        )


def _field(gguf: Path, name: str) -> object:
    from transformers.integrations.gguf import read_gguf_metadata

    return read_gguf_metadata(str(gguf))[0].get(name)


def _joined(parts: list[Path], folder: Path) -> Path:
    if len(parts) == 1:
        return parts[0]
    whole = folder / "whole.gguf"
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, 2**20)
    return whole


def _stage(name: str) -> None:
    print(f"stage {name}", flush=True)


def _beat() -> None:
    """A sign of life; when nobody reads it any more, the parent is gone and this process ends too."""
    while True:
        time.sleep(0.5)
        try:
            print("beat", flush=True)
        except OSError:
            os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], [Path(part) for part in sys.argv[3:]]))
