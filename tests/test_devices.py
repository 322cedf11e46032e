"""Which device and number format is meant, how much memory there is, and whether a model fits."""

from pathlib import Path

import psutil
import pytest
import torch

from kvviz.errors import Refused
from kvviz.models import devices
from kvviz.models.devices import DeviceMemory, memory, resolve_device, resolve_dtype, spread_needed, within_limit

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
GIB = 2**30


def machine(monkeypatch: pytest.MonkeyPatch, cuda: int = 0, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "name", "expected"),
    [
        (2, True, "auto", "cuda:0"),
        (0, True, "auto", "mps"),
        (0, False, "auto", "cpu"),
        (2, False, "cuda", "cuda:0"),
        (2, False, "cuda:1", "cuda:1"),
        (2, False, "cpu", "cpu"),
        (0, True, "mps", "mps"),
    ],
)
def test_the_device_meant(cuda: int, mps: bool, name: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda, mps)
    assert str(resolve_device(name)) == expected


@pytest.mark.parametrize(
    ("cuda", "name", "sentence"),
    [
        (0, "cuda", "no CUDA GPU"),
        (0, "mps", "no Apple GPU"),
        (2, "cuda:2", "no GPU number 2: this machine has 2"),
        (0, "tpu", "no device called 'tpu'"),
        (0, "", "no device called ''"),
        (0, "meta", "no device called 'meta'"),
        (0, "cuda:x", "no device called"),
    ],
)
def test_a_device_that_is_not_there(cuda: int, name: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda)
    with pytest.raises(Refused, match=sentence):
        resolve_device(name)


def test_number_formats() -> None:
    assert resolve_dtype("auto", CPU) == torch.float32
    assert resolve_dtype("auto", GPU) == resolve_dtype("auto", torch.device("mps")) == torch.bfloat16
    assert [resolve_dtype(name, CPU) for name in ("float32", "bfloat16", "float16")] == [
        torch.float32,
        torch.bfloat16,
        torch.float16,
    ]
    for name in ("int8", "float64", "", "torch.float32"):
        with pytest.raises(Refused, match="no number format"):
            resolve_dtype(name, CPU)


def test_memory_of_this_machine() -> None:
    before = memory(CPU)
    held = torch.ones(64 * 2**20 // 4)
    after = memory(CPU)
    assert 0 < before.free <= before.total <= psutil.virtual_memory().total
    assert after.used_by_process - before.used_by_process > 32 * 2**20
    assert held.sum() > 0


def test_a_container_sets_the_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    assert within_limit(64 * GIB, 32 * GIB, tmp_path) == (4 * GIB, 2 * GIB)
    assert within_limit(64 * GIB, GIB, tmp_path) == (4 * GIB, GIB)
    (tmp_path / "memory.max").write_text("max\n")
    assert within_limit(64 * GIB, 32 * GIB, tmp_path) == (64 * GIB, 32 * GIB)
    assert within_limit(64 * GIB, 32 * GIB, tmp_path / "none") == (64 * GIB, 32 * GIB)


@pytest.mark.parametrize(
    ("needed", "gpus", "fixed", "expected"),
    [
        (10, [16, 16], False, False),
        (20, [16, 16], False, True),
        (20, [16, 16], True, None),
        (20, [16], False, None),
        (31, [16, 16], False, None),  # 31 · 1.05 > 32
        (16, [16], False, None),
        (40, [16, 16, 16], False, True),
    ],
)
def test_one_gpu_if_it_fits_else_all(
    needed: int, gpus: list[int], fixed: bool, expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, len(gpus))
    monkeypatch.setattr(devices, "memory", lambda device: DeviceMemory(0, gpus[device.index] * GIB, 0))
    if expected is None:
        with pytest.raises(Refused, match=f"owner/model does not fit: its weights need {needed}.* 16.* are free"):
            spread_needed(needed * GIB, GPU, fixed=fixed, name="owner/model")
    else:
        assert spread_needed(needed * GIB, GPU, fixed=fixed, name="owner/model") is expected


def test_a_title_for_people() -> None:
    assert devices.device_title(CPU).rpartition("×")[2].strip().isdigit()
