"""Where two encoded prompts part, told from their ids alone, before any model has run."""

from dataclasses import dataclass

from kvviz.analysis.prefixes import in_blocks, reusable, shared_prefix
from kvviz.models.prompts import Prompt
from kvviz.models.tokens import Token

BLOCK = 16  # tokens; vLLM's block size


@dataclass(frozen=True)
class Parting:
    """Two prompts and the length of their common prefix of ids."""

    first: Prompt
    second: Prompt

    @property
    def shared(self) -> int:
        """Ids in common from the first on."""
        return shared_prefix(self.first.ids, self.second.ids)

    @property
    def reused(self) -> int:
        """Tokens of the second prompt that need not be computed."""
        return reusable(self.shared, len(self.second.ids))

    @property
    def computed(self) -> int:
        """Tokens of the second prompt that have to be computed."""
        return len(self.second.ids) - self.reused

    @property
    def blocks(self) -> int:
        """Whole blocks of `BLOCK` tokens that are reused."""
        return in_blocks(self.shared, len(self.second.ids), BLOCK) // BLOCK

    @property
    def characters(self) -> int:
        """Characters in common of the texts as typed."""
        return shared_prefix(self.first.text, self.second.text)

    @property
    def difference(self) -> tuple[Token | None, Token | None]:
        """The first tokens that differ; None where a prompt has ended."""
        at = self.shared
        return tuple(each.tokens[at] if at < len(each.tokens) else None for each in (self.first, self.second))

    @property
    def unseen(self) -> int:
        """Shared tokens that nobody typed: of the chat template, or the one a text begins with."""
        return sum(origin != "user" for origin in self.second.origins[: self.shared])

    @property
    def cut_characters(self) -> int:
        """Characters that the typed texts share and that lie, at least in part, in tokens that differ.

        0 for chats: what a template does to a text is not told from its ids.
        """
        if "template" in self.second.origins:
            return 0
        typed = zip(self.second.tokens[: self.shared], self.second.origins, strict=False)
        covered = sum(len(token.raw) for token, origin in typed if origin == "user")
        common = self.second.text[: self.characters]
        return sum(len(common[: at + 1].encode("utf-8", "surrogatepass")) > covered for at in range(len(common)))


def labels(parting: Parting) -> list[str]:
    """One label for each aligned position: the token, or both where they differ."""
    pairs = zip(parting.first.tokens, parting.second.tokens, strict=False)
    return [one.label if one.id == two.id else f"{one.label} | {two.label}" for one, two in pairs]
