"""Labels: one per id, and the bytes behind them are exactly what the tokenizer decodes."""

import gc
import unicodedata
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.models.labels import visible
from kvviz.models.tokens import TextStream, plain_text, tokens
from tests import small_tokenizers as small

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
THUMB = "\U0001f44d\U0001f3fd"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
TEXTS = [
    "", " ", "    ", "hello the llama", " leading", "trailing ", "\r\n", "a\tb\n\n", "a\0b", "\u00a0\u3000\u202ex",
    THUMB, FAMILY, "\u6771\u4eac \u8c93", "e\u0301 \u0301", "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "1234567890", "def f(x):\n    return x[0]", "<b>x</b> &amp; \"q\" 'q'", "It costs $5 and $6 *today*",
    "x != y and 'social' .", "<|turn|>x<|end|>", "<|tur", "\u2581", "\u0120\u010a", "\ufffd",
]  # fmt: skip
SMALL = {"byte_level": small.byte_level(), "llama2": small.llama2(), "unigram": small.unigram()}
SMALL |= {"no_bos": small.llama2(bos=False), "wordpiece": small.wordpiece()}
ANY_TEXT = st.text(st.one_of(st.sampled_from("he llo\n\t\u6771\U0001f44d<>"), st.characters(exclude_categories=["Cs"])))


def check(tokenizer, ids):
    """The invariants of one list of ids, against the tokenizer's own decoding."""
    found = tokens(tokenizer, ids)
    decoded = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert [token.id for token in found] == list(ids)
    assert [token.position for token in found] == list(range(len(ids)))
    for token in found:
        assert token.label.strip() == token.label != ""
        assert not {unicodedata.category(char) for char in token.label.replace(" ", "")} & {"Cc", "Zs", "Zl", "Zp"}
        assert not set(token.label) & set(BIDI)
    assert b"".join(token.raw for token in found).decode(errors="replace") == decoded
    stream = TextStream(tokenizer)
    assert "".join([stream.push(each) for each in ids] + [stream.rest()]) == plain_text(found) == decoded


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("text", TEXTS)
def test_raw_bytes_rebuild_what_the_tokenizer_decodes(name, text):
    for special in (False, True):
        check(SMALL[name], SMALL[name](text, add_special_tokens=special)["input_ids"])


@settings(max_examples=60, deadline=None)
@given(ANY_TEXT)
def test_any_text_is_rebuilt(text):
    for tokenizer in SMALL.values():
        check(tokenizer, tokenizer(text)["input_ids"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 262), max_size=20))
def test_any_ids_of_a_byte_level_model_are_rebuilt(ids):
    check(SMALL["byte_level"], ids)


@settings(max_examples=60, deadline=None)
@given(ANY_TEXT, st.integers(0, 30))
def test_a_continuation_has_the_same_bytes_as_in_the_whole(text, cut):
    for tokenizer in SMALL.values():
        ids = tokenizer(text)["input_ids"]
        whole = tokens(tokenizer, ids)
        cut = min(cut, len(ids))
        parts = tokens(tokenizer, ids[:cut]) + [tokens(tokenizer, [ids[at]], at)[0] for at in range(cut, len(ids))]
        assert [token.raw for token in parts] == [token.raw for token in whole]
        assert [token.position for token in parts] == list(range(len(ids)))


def labels(tokenizer, text, **kwargs):
    return [
        token.label for token in tokens(tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"], **kwargs)
    ]


def test_pieces_of_a_character_name_it():
    found = tokens(SMALL["byte_level"], SMALL["byte_level"]("\u6771")["input_ids"])
    assert [token.label for token in found] == ["E6 (東 1/3)", "9D (東 2/3)", "B1 (東 3/3)"]
    assert {token.kind for token in found} == {"bytes"}
    assert labels(SMALL["llama2"], "t\u00e9") == ["t", "C3 (é 1/2)", "A9 (é 2/2)"]


def test_an_unfinished_character_is_hex_alone():
    ids = SMALL["byte_level"]("a\u6771")["input_ids"]
    assert [token.label for token in tokens(SMALL["byte_level"], ids[:-1])] == ["a", "E6", "9D"]
    stream = TextStream(SMALL["byte_level"])
    assert [stream.push(each) for each in ids] == ["a", "", "", "\u6771"]
    assert stream.rest() == ""
    stream.push(ids[1])
    assert stream.rest() == "\ufffd"


def test_pieces_of_a_joiner_and_a_control_character_are_named_by_code():
    assert labels(SMALL["byte_level"], "\u200d")[0] == "E2 (U+200D 1/3)"
    assert labels(SMALL["byte_level"], "\u202e")[2] == "AE (U+202E 3/3)"


def test_sentencepiece_space_at_the_start_is_dropped_once_and_only_there():
    tokenizer = SMALL["no_bos"]
    ids = tokenizer("the")["input_ids"]
    assert tokens(tokenizer, ids)[0].raw == b"t"
    assert tokens(tokenizer, ids, start=5)[0].raw == b" t"
    alone = tokens(tokenizer, tokenizer("a")["input_ids"])[0]
    assert (alone.label, alone.raw, alone.kind) == ("·", b"", "text")


def test_a_broken_run_of_fallback_bytes_keeps_its_whole_characters():
    ids = SMALL["llama2"].convert_tokens_to_ids(["<0x41>", "<0xE6>", "<0x9D>"])
    found = tokens(SMALL["llama2"], ids, start=1)
    assert [(token.label, token.raw) for token in found] == [("A", b"A"), ("E6", b"\xe6"), ("9D", b"\x9d")]
    assert plain_text(found) == "A\ufffd"


def test_an_unknown_id_has_a_name_and_no_bytes():
    for tokenizer in SMALL.values():
        (found,) = tokens(tokenizer, [49155])
        assert (found.label, found.raw, found.kind) == ("[id 49155]", b"", "special")


def test_an_unknown_id_does_not_begin_the_text():
    tokenizer = SMALL["no_bos"]
    check(tokenizer, [49155, *tokenizer("the")["input_ids"]])


def test_a_token_added_later_is_seen():
    tokenizer = small.byte_level()
    number = len(tokenizer)
    assert tokens(tokenizer, [number])[0].label == f"[id {number}]"
    tokenizer.add_tokens(["<later>"])
    assert tokens(tokenizer, [number])[0].label == "<later>"


def test_special_tokens_are_spelled_out():
    found = tokens(SMALL["llama2"], SMALL["llama2"]("<|turn|>")["input_ids"])
    assert [(found[0].label, found[0].kind), (found[-1].label, found[-1].kind)] == [
        ("<s>", "special"),
        ("<|turn|>", "special"),
    ]
    assert "<|turn|>" not in labels(SMALL["llama2"], "<|tur")


def test_end_of_word_marks_become_spaces_also_in_a_stream():
    tokenizer = small.gpt1()
    ids = tokenizer("ab a")["input_ids"]
    assert plain_text(tokens(tokenizer, ids)) == tokenizer.decode(ids) + " " == "ab a "


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" a b", "·a·b"), ("\r\n", "\\x0d⏎"), ("\t\0", "⇥\\x00"), ("\x85", "\\x85"), ("\u202eabc", "U+202Eabc"),
        ("\u00a0", "U+00A0"), ("\u3000", "U+3000"), ("\u0301", "◌\u0301"), (" \u0301", "·◌\u0301"),
        ("e\u0301\u0302", "e\u0301\u0302"), ("\ufe0f", "U+FE0F"), ("\u2764\ufe0f", "\u2764\ufe0f"), (FAMILY, FAMILY),
        ("\u200d", "U+200D"), ("a\u200d", "aU+200D"), ("\u2800", "U+2800"), ("\u05dd", "\u05dd"),
        ("<b>&amp;$x$", "<b>&amp;$x$"),
        (THUMB, THUMB), ("\ue000", "U+E000"), ("\u00b7", "\u00b7"),
    ],
)  # fmt: skip
def test_what_leaves_no_ink_is_shown(text, label):
    assert visible(text) == label


def test_a_tokenizer_in_plain_python():
    tokenizer = small.Words()
    check(tokenizer, tokenizer("hello cache a hello")["input_ids"])
    assert tokens(tokenizer, [9])[0].label == "[id 9]"


@pytest.mark.parametrize("build", [small.byte_level, small.Words])
def test_a_tokenizer_is_not_kept_alive(build):
    tokenizer = build()
    tokens(tokenizer, [1])
    alive = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_rebuilds(smollm2, text):
    check(smollm2.tokenizer, smollm2.tokenizer(text)["input_ids"])


def test_every_smollm2_id_agrees_with_decoding_it_alone(smollm2):
    for number in range(smollm2.tokenizer.vocab_size):
        assert plain_text(tokens(smollm2.tokenizer, [number])) == smollm2.tokenizer.decode([number])


def test_smollm2_labels(smollm2):
    assert labels(smollm2.tokenizer, "\u6771\u4eac") == [
        "E6 9D (東 1/2)",
        "B1 (東 2/2)",
        "E4 BA (京 1/2)",
        "AC (京 2/2)",
    ]
    assert len(labels(smollm2.tokenizer, THUMB)) == 6
    assert labels(smollm2.tokenizer, "Hello  world\n") == ["Hello", "·", "·world", "⏎"]


@pytest.mark.parametrize("text", TEXTS)
def test_gemma3_rebuilds(gemma3, text):
    check(gemma3.tokenizer, gemma3.tokenizer(text)["input_ids"])


def test_gemma3_labels(gemma3):
    assert labels(gemma3.tokenizer, "Hello world \u6771\u4eac") == ["Hello", "·world", "·東京"]
    assert labels(gemma3.tokenizer, "\U000130b8")[0] == "F0 (\U000130b8 1/4)"
