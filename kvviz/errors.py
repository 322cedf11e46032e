"""The one exception a person is meant to read."""

from collections.abc import Callable


class Refused(ValueError):
    """A request that cannot be served: one sentence that says what is wrong and what to do.

    The message is an English template (and the key of the message catalogues); `facts` fill its
    placeholders. `str(error)` is the English sentence, `sentence(t)` the one in the reader's language.
    """

    def __init__(self, message: str, **facts: object) -> None:
        self.message = message
        self.facts = facts
        super().__init__(message.format(**facts))

    def sentence(self, t: Callable[[str], str]) -> str:
        """The sentence through a translator `t` (see `kvviz.locale.translator`)."""
        return t(self.message).format(**self.facts)
