"""Texts that come with the package, for runs that need a long one; the README says where they are from."""

from functools import cache
from pathlib import Path


@cache
def alice() -> str:
    """Four chapters of a book in the public domain, 47,400 characters of English."""
    return (Path(__file__).parent / "alice.txt").read_text(encoding="utf-8")
