"""Pairs of prompts that each show one thing about prefixes, and a day's prompts at a support desk."""

from dataclasses import dataclass

from kvviz.locale import N_


@dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts, given to the model as they are in every language of the screen; with `chat`, turns of a chat that
    are parted by lines of "---"."""

    title: str
    first: str
    second: str
    chat: bool = False


_ASSISTANT = (
    "You are the assistant of a small museum. Answer in two sentences, name the room, and never guess. "
    "The clocks are in room one, the maps in room two, the lamps in room three.\n\nQuestion: "
)

PAIRS = {
    "gold": Pair(N_("One word differs"), "大家好我是大金", "大家好我是小金"),
    "system": Pair(
        N_("One system prompt, two questions"),
        _ASSISTANT + "Where are the lamps?\nAnswer:",
        _ASSISTANT + "Which room has the clocks?\nAnswer:",
    ),
    "same": Pair(N_("Identical"), "The lamp is in room three.", "The lamp is in room three."),
    "inside": Pair(
        N_("One inside the other"),
        "The lamp is in room three, beside the old clock.",
        "The lamp is in room three",
    ),
    "nothing": Pair(N_("Nothing in common"), "Once upon a time there was a lamp", "大家好我是小金"),
    "space": Pair(N_("A space at the end"), "Hello ", "Hello world"),
    "seam": Pair(N_("A word goes on"), "The capital of Fran", "The capital of France is"),
    "template": Pair(N_("Only the chat template"), "hi", "Bonjour", chat=True),
    "turns": Pair(
        N_("Second turn of a chat"),
        "What is a cache?",
        "What is a cache?\n---\nA place for results that will be needed again.\n---\nAnd a KV cache?",
        chat=True,
    ),
}

_DESK = (
    "You are the support desk of a shop for lamps. Be short and friendly. Orders leave the house within two days; "
    "a parcel takes three days inside the country and a week abroad. Lamps can be sent back within thirty days, "
    "unused and in their box, and the money comes back within five days. Bulbs cannot be sent back once they are "
    "opened. A broken lamp is replaced at once if a picture of it is sent. Invoices are under My orders. Passwords "
    "are never sent by mail. If a question is about anything else, say that you will ask a colleague.\n\nCustomer: "
)
_BACK = "You are the returns robot of a shop for lamps. Say yes or no, and why.\n\nCustomer: "
_QUESTIONS = (
    "Where is my parcel?",
    "Can I send a lamp back?",
    "Where is my parcel?",
    "Can I send an opened bulb back?",
    "My lamp arrived broken. What now?",
    "Where is my invoice?",
    "Where is my parcel? I ordered it on Monday and have not heard anything since then.",
    "How long does a parcel take abroad?",
    "My lamp arrived broken. What now? I have a picture of it.",
    "I forgot my password.",
)
_RETURNS = (
    "The box is gone.",
    "I used the lamp for a week.",
    "The box is gone. Can I send it in another one?",
)

# Prompts of one day, in order: a long system prompt before most of them, another one now and then, some repeated.
DESK_DAY = tuple(
    f"{system}{question}\nDesk:"
    for system, question in [
        *((_DESK, question) for question in _QUESTIONS[:4]),
        *((_BACK, question) for question in _RETURNS[:2]),
        *((_DESK, question) for question in _QUESTIONS[4:8]),
        (_BACK, _RETURNS[2]),
        *((_DESK, question) for question in (*_QUESTIONS[8:], _QUESTIONS[0], _QUESTIONS[1])),
        (_BACK, _RETURNS[0]),
    ]
)
DESK_TITLE = N_("A day at the support desk")
