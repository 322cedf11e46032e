"""Sentences about two prompts: why no more of the second is reused."""

from kvviz.locale import Translate
from kvviz.models.tokens import Token
from kvviz.ui.prefix.parting import Parting


def reasons(t: Translate, parting: Parting) -> list[str]:
    """What ends the shared prefix, and what cannot be seen in the texts; plain text with tokens in it."""
    told = [_end(t, parting)]
    if parting.reused < parting.shared:
        told.append(
            t(
                "The last token of a prompt is computed in any case: the next token is chosen from its logits, and no "
                "cache keeps logits."
            )
        )
    if parting.cut_characters:
        told.append(
            t(
                "{count} more characters are equal, but they lie in tokens that differ: a cache knows ids, not letters."
            ).format(count=parting.cut_characters)
        )
    if parting.unseen:
        told.append(
            t("{count} of the {shared} shared tokens are ones that nobody typed: the chat template or a start token.")
            .format(count=parting.unseen, shared=parting.shared)
        )  # fmt: skip
    return told


def _end(t: Translate, parting: Parting) -> str:
    one, two = parting.difference
    if one is None and two is None:
        return t("The two prompts are the same ids, all {count} of them.").format(count=parting.shared)
    if two is None:
        told = t("The second prompt ends inside the first one: all its {count} ids are shared.")
        return told.format(count=parting.shared)
    if one is None:
        told = t("The second prompt begins with all {count} ids of the first and goes on with {token}.")
        return told.format(count=parting.shared, token=_named(t, two))
    facts = {"position": parting.shared, "first": _named(t, one), "second": _named(t, two)}
    if not parting.shared:
        told = t(
            "The very first ids differ: {first} and {second}. Nothing can be reused, whatever comes later: every "
            "later token has looked back at the first."
        )
        return told.format(**facts)
    told = t(
        "The prompts part at position {position}: {first} in the first, {second} in the second. Nothing after it can "
        "be reused, equal tokens neither: every later token has looked back at this one."
    )
    return told.format(**facts)


def _named(t: Translate, token: Token) -> str:
    return t("“{label}” (id {id})").format(label=token.label, id=token.id)


def legend(t: Translate) -> dict[str, str]:
    """State of a column of the aligned strips -> its name; the order is that of the legend."""
    return {
        "reused": t("shared and reused"),
        "again": t("shared, but computed again"),
        "parted": t("first difference"),
        "rest": t("computed: looks back at the difference"),
        "only": t("of one prompt alone"),
    }
