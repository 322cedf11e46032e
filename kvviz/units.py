"""Sizes and counts as people read them; powers of 1024 are always written KiB, MiB, GiB."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Bytes as text: `size(23040) == "22.5 KiB"`; below 1024 the exact number of bytes."""
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:,.0f} B" if unit == "B" else f"{value:,.{_decimals(value)}f} {unit}"


def _decimals(value: float) -> int:
    return 2 if value < 10 else 1 if value < 100 else 0
