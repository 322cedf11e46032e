"""Eviction policies: what stays in the cache when there is no room for everything.

A new one is a file with a `Policy` and its `Ledger`, and its name in `REGISTRY`: pages draw its controls from its
settings, and the contract tests take it up by themselves.
"""

from kvviz.policies.base import NEVER, Ledger, Policy
from kvviz.policies.full import Full
from kvviz.policies.h2o import H2O
from kvviz.policies.knorm import KNorm
from kvviz.policies.quantised import Quantised
from kvviz.policies.random import Random
from kvviz.policies.scissorhands import Scissorhands
from kvviz.policies.settings import Setting, settings_of
from kvviz.policies.sinks_window import SinksWindow
from kvviz.policies.snapkv import SnapKV
from kvviz.policies.tova import TOVA
from kvviz.policies.window import Window

REGISTRY: dict[str, type[Policy]] = {
    kind.id: kind for kind in (Window, SinksWindow, H2O, Scissorhands, TOVA, SnapKV, KNorm, Random)
}

__all__ = [
    "H2O",
    "NEVER",
    "REGISTRY",
    "TOVA",
    "Full",
    "KNorm",
    "Ledger",
    "Policy",
    "Quantised",
    "Random",
    "Scissorhands",
    "Setting",
    "SinksWindow",
    "SnapKV",
    "Window",
    "settings_of",
]
