"""A conversation in a model's chat template as ids, and which of them are what was said."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from kvviz.errors import Refused

_ROLES = ("user", "assistant")
_STAND_IN = "\ue000kvviz\ue001"  # private-use characters: no template can hold them already


def plain_ids(tokenizer: PreTrainedTokenizerBase, text: str, special: bool = False) -> list[int]:
    """The tokenizer's ids for a text, without (or with) what it adds by itself."""
    return list(tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])


def head_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What the tokenizer puts in front of every text by its own rule: a BOS, or nothing."""
    bare, full = plain_ids(tokenizer, "a"), plain_ids(tokenizer, "a", special=True)
    starts = [at for at in range(len(full)) if full[at : at + len(bare)] == bare]
    return full[: starts[0]] if starts else []


def chat_ids(tokenizer: PreTrainedTokenizerBase, turns: Sequence[str]) -> tuple[list[int], list[str]]:
    """Ids of the turns (the user's first, then alternating) in the template, each with "user", "template" or "bos".

    Raises Refused where the model has no template, or one that does not accept the turns.
    """
    if not tokenizer.chat_template or not tokenizer.is_fast:
        raise Refused("This model comes without a usable chat template. Switch the chat template off.")
    rendered = _render(tokenizer, turns)
    said = [_turn(tokenizer, rendered, turns, index) for index in range(len(turns))]
    encoded = tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, spans = list(encoded["input_ids"]), _spans(encoded["offset_mapping"], rendered)
    origins = [
        "user" if any(left < end and right > begin for begin, end in said) else "template" for left, right in spans
    ]
    head = head_ids(tokenizer)
    mark = head[0] if head else tokenizer.bos_token_id
    marks = [at for at, origin in enumerate(origins) if origin == "template" and ids[at] == mark]
    if head and not marks:
        return head + ids, ["bos"] * len(head) + origins
    # SmolLM2 calls BOS what its template writes before every turn: a mark that comes again is no beginning.
    if marks and (head or len(marks) == 1):
        origins[marks[0]] = "bos"
    return ids, origins


def _render(tokenizer: PreTrainedTokenizerBase, turns: Sequence[str]) -> str:
    messages = [{"role": _ROLES[at % 2], "content": text} for at, text in enumerate(turns)]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is somebody's program: anything can come out of it
        raise Refused(
            "The model's chat template does not accept this prompt ({reason}). Switch the chat template off.",
            reason=" ".join(str(error).split())[:200] or type(error).__name__,
        ) from error


def _turn(tokenizer: PreTrainedTokenizerBase, rendered: str, turns: Sequence[str], index: int) -> tuple[int, int]:
    """Begin and end, in the rendered template, of what it made of one turn; (0, 0) for an earlier one it rewrote."""
    # Searching for the text would find "user" in the template itself; a stand-in is found only once.
    framed = _render(tokenizer, [*turns[:index], _STAND_IN, *turns[index + 1 :]])
    before, _, after = framed.rpartition(_STAND_IN)
    end = len(rendered) - len(after)
    if rendered.startswith(before) and rendered.endswith(after) and end >= len(before):
        return len(before), end
    # A template that looks into the text ("/no_think") frames it differently: the last place it stands is the turn.
    body = rendered[:end] if rendered.endswith(after) else rendered
    for form in (turns[index], turns[index].strip()):
        if form and form in body:
            begin = body.rindex(form)
            return begin, begin + len(form)
    if index + 1 < len(turns):
        return 0, 0
    raise Refused("The model's chat template rewrites this prompt beyond recognition. Switch the chat template off.")


def _spans(offsets: list[tuple[int, int]], rendered: str) -> list[tuple[int, int]]:
    """The characters each id stands for, white space around them left out where there is something else."""
    spans, reached = [], 0
    for left, right in offsets:
        # Byte-level tokenizers that trim offsets (Llama 3) say (n, n) for a token of white space that ends at n.
        begin = left if right > left else min(reached, left)
        piece = rendered[begin:right]
        core = piece.strip()
        # A control token may swallow the white space beside it (Phi-3), which can be the user's.
        spans.append((begin + piece.index(core), begin + piece.index(core) + len(core)) if core else (begin, right))
        reached = max(reached, right)
    return spans
