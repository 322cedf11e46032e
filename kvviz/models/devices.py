"""Where a model runs and in which number format, and how much memory there is."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from kvviz.errors import Refused
from kvviz.units import size

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device: all of it, what can still be had, and what this process holds."""

    total: int
    free: int
    used_by_process: int


def resolve_device(name: str = "auto") -> torch.device:
    """The device of "auto" (CUDA, then MPS, then CPU), "cpu", "cuda", "cuda:1" or "mps". Raises Refused if absent."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise Refused("There is no device called {name}. Choose auto, cpu, cuda, cuda:1 or mps.", name=repr(name))
    if device.type == "cuda":
        return _cuda(device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise Refused("This machine has no Apple GPU that PyTorch can use. Choose auto or cpu.")
    return torch.device(device.type)


def _cuda(device: torch.device) -> torch.device:
    if not torch.cuda.is_available():
        raise Refused(
            "PyTorch finds no CUDA GPU here. Choose auto or cpu, or install a CUDA build of PyTorch (see the README)."
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    count = torch.cuda.device_count()
    if index >= count:
        raise Refused(
            "There is no GPU number {index}: this machine has {count}, counted from 0.", index=index, count=count
        )
    return torch.device("cuda", index)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format; "auto" is bfloat16 on a GPU and float32 on a CPU. Raises Refused for unknown names."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise Refused(
            "There is no number format called {name} here. Choose auto, float32, bfloat16 or float16.", name=repr(name)
        )
    return DTYPES[name]


def memory(device: torch.device) -> DeviceMemory:
    """Bytes of `device` now. On a CPU a container's limit (cgroup v2) counts as the machine's end."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device)
        return DeviceMemory(total, free + held - torch.cuda.memory_allocated(device), held)
    if device.type == "mps":
        total, used = torch.mps.recommended_max_memory(), torch.mps.driver_allocated_memory()
        return DeviceMemory(total, max(0, total - used), used)
    machine = psutil.virtual_memory()
    total, free = within_limit(machine.total, machine.available, Path("/sys/fs/cgroup"))
    return DeviceMemory(total, free, psutil.Process().memory_info().rss)


def within_limit(total: int, free: int, group: Path) -> tuple[int, int]:
    """(total, free) bytes when the control group at `group` may allow less; unchanged where it sets no limit."""
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # file pages that nobody uses count as used here, but the kernel gives them back on demand
        used -= int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return total, free
    return min(total, limit), max(0, min(free, limit - used))


def room(device: torch.device) -> int:
    """Free bytes for weights: of the device, or of all CUDA GPUs together, over which a model can be spread."""
    if device.type != "cuda":
        return memory(device).free
    return sum(memory(torch.device("cuda", index)).free for index in range(torch.cuda.device_count()))


def spread_needed(needed: int, device: torch.device, *, fixed: bool, name: str) -> bool:
    """Whether weights of `needed` bytes must be spread over all GPUs; `fixed` forbids it (a GPU asked for by number).

    Raises Refused when they do not fit. A twentieth is kept free for activations and the cache.
    """
    if needed * 1.05 <= memory(device).free:
        return False
    if device.type == "cuda" and not fixed and torch.cuda.device_count() > 1 and needed * 1.05 <= room(device):
        return True
    raise too_large(name, needed, device)


def too_large(name: str, needed: int | None, device: torch.device) -> Refused:
    """The sentence for weights that do not fit on `device`."""
    if needed is None:
        return Refused("{name} does not fit: memory ran out while loading. Choose a smaller model.", name=name)
    return Refused(
        "{name} does not fit: its weights need {needed} and {free} are free on {device}. "
        "Choose a smaller model, or bfloat16 instead of float32.",
        name=name,
        needed=size(needed),
        free=size(memory(device).free),
        device=str(device),
    )


def device_title(device: torch.device) -> str:
    """What people call the device: the GPU's name, or the processor's with the number of CPUs to be had."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"{platform.processor() or 'Apple'} (MPS)"
    return f"{_processor()} × {_cpus()}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
