"""Quantised cache: every token stays, in fewer bits. No eviction, but an arm to compare evictions with."""

from dataclasses import dataclass
from typing import ClassVar

from kvviz.locale import N_
from kvviz.policies.full import Full
from kvviz.policies.settings import check, setting

FORMS = {
    "fp8": N_("fp8: 8-bit floating point, one scale for all K of a layer and one for all V"),
    "int8": N_("int8: 8-bit whole numbers, a scale and a zero point for each group of channels of a token"),
    "int4": N_("int4: 4-bit whole numbers, a scale and a zero point for each group of channels of a token"),
}


@dataclass(frozen=True)
class Quantised(Full):
    """A full cache whose K and V are stored in `form` and turned back to numbers of the model's dtype to be read.

    fp8 is transformers' own: the tokens that come first, `first` of them in `kvviz.evaluate` and the prompt in
    `kvviz.stream`, are read in full precision and fix the scales; what is larger later is cut off at the largest
    number. int8 and int4 store token by token, so it does not matter how the text is fed; every query sees all keys as
    they are stored, its own included. Scale and zero point are float16.
    """

    form: str = setting("fp8", N_("Form"), N_("How numbers are stored."), choices=FORMS)
    group: int = setting(
        32, N_("Group"), N_("Channels that share a scale and a zero point (int8, int4)."), low=2, high=1024
    )
    first: int = setting(
        128, N_("First piece"), N_("Tokens from which fp8 takes its scales, read in full precision."), low=1, high=4096
    )

    id: ClassVar[str] = "quantised"
    title: ClassVar[str] = N_("quantised cache")
    rule: ClassVar[str] = N_("Every token stays; keys and values are stored in fewer bits.")

    def __post_init__(self) -> None:
        """Raise Refused for a form that is not known and numbers out of bounds."""
        check(self)

    @property
    def bits(self) -> int:
        """Of one number, scales not counted."""
        return 4 if self.form == "int4" else 8

    def __str__(self) -> str:
        """Python that makes it: the form, and what differs from the defaults."""
        said = [f"form={self.form!r}", *(f"{name}={getattr(self, name)}" for name in ("group", "first"))]
        return f"Quantised({', '.join(each for each in said if each not in ('group=32', 'first=128'))})"
