"""Prompts: nothing stripped, one beginning of sequence, every id with its origin, refusals that say what to do."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from kvviz.errors import Refused
from kvviz.models.prompts import Prompt, encode
from kvviz.models.tokens import plain_text
from tests import small_tokenizers as small

# Turns as templates write them; "trim" is what Llama 3 and Gemma do, the default turn is SmolLM2's.
TURN = "<|turn|>user\n{{ messages[0]['content'] }}<|end|>\n<|turn|>assistant{{ '\\n' }}"
TRIMMED = "{{ bos_token }}[user] {{ messages[0]['content'] | trim }} [/user]"
SWITCHING = "{{ 'no thinking' if '/no' in messages[0]['content'] else 'think a lot' }}\n" + TURN
REFUSING = "{{ raise_exception('only {two} turns') }}"
REWRITING = "{{ messages[0]['content'] | upper | replace('A', '!') }}{{ messages[0]['content'] | length }}"


def model(tokenizer, template=None, context=None):
    tokenizer.chat_template = template
    return SimpleNamespace(tokenizer=tokenizer, context=context, config=None)


def users(prompt: Prompt) -> str:
    """The text of the ids that are said to be the user's."""
    pairs = zip(prompt.tokens, prompt.origins, strict=True)
    return plain_text(token for token, origin in pairs if origin == "user")


@pytest.mark.parametrize(
    "text", ["a", " ", "hi ", "\n\n", "a\0b", "<b>&amp;</b>", "$x$ *y*", "\u6771\U0001f44d\U0001f3fd"]
)
def test_raw_text_is_fed_as_typed(text):
    prompt = encode(model(small.byte_level()), text)
    assert prompt.text == plain_text(prompt.tokens) == text
    assert set(prompt.origins) == {"user"}
    assert prompt.typed_controls == ()
    assert len(prompt.ids) == len(prompt.tokens) == len(prompt.origins)


@pytest.mark.parametrize("build", [small.byte_level, small.llama2])
def test_one_bos_also_when_it_was_typed(build):
    lm = model(build(bos=True))
    prompt = encode(lm, "the")
    assert prompt.origins[0] == "bos" and set(prompt.origins[1:]) == {"user"}
    typed = encode(lm, "<s>the")
    assert typed.ids.count(0) == 1 and typed.ids[0] == 0
    assert typed.typed_controls == (0,)
    assert encode(lm, "").origins == ("bos",)


def test_an_end_of_sequence_is_not_appended():
    prompt = encode(model(small.wordpiece()), "hello zzz")
    assert [token.label for token in prompt.tokens] == ["[CLS]", "·hello", "[UNK]"]
    assert prompt.origins == ("bos", "user", "user")
    assert prompt.typed_controls == ()


@pytest.mark.parametrize(
    "text", ["", "a", "user", "assistant", "user\n", "hi ", " ", "<|turn|>assistant\n", "\u6771 \u4eac"]
)
@pytest.mark.parametrize("trim", [False, True])
def test_the_users_part_of_a_template_is_found(text, trim):
    prompt = encode(model(small.byte_level(trim_offsets=trim), TURN), text, chat=True)
    assert plain_text(prompt.tokens) == f"<|turn|>user\n{text}<|end|>\n<|turn|>assistant\n"
    assert users(prompt) == text
    assert "bos" not in prompt.origins
    assert prompt.typed_controls == ((6,) if text.startswith("<|turn|>") else ())


@settings(max_examples=60, deadline=None)
@given(st.text(st.one_of(st.sampled_from("user \n<|>[/]"), st.characters(exclude_categories=["Cs"])), max_size=20))
def test_any_users_part_is_found(text):
    prompt = encode(model(small.byte_level(), TURN), text, chat=True)
    assert users(prompt) == text


@pytest.mark.parametrize("text", ["  hi \n", "user", "hi", "   "])
def test_a_template_may_trim(text):
    prompt = encode(model(small.byte_level(), TRIMMED), text, chat=True)
    assert users(prompt).strip() == text.strip()
    assert prompt.text == text
    assert prompt.origins[0] == "bos"


def test_a_template_may_look_into_the_text():
    prompt = encode(model(small.byte_level(), SWITCHING), "no /no", chat=True)
    assert plain_text(prompt.tokens).startswith("no thinking\n")
    assert users(prompt) == "no /no"


@pytest.mark.parametrize("template", [TURN, TRIMMED])
@pytest.mark.parametrize("build", [small.byte_level, small.llama2])
def test_one_bos_in_chat_whoever_writes_it(build, template):
    prompt = encode(model(build(bos=True), template), "the <s>", chat=True)
    origins = [origin for each, origin in zip(prompt.ids, prompt.origins, strict=True) if each == 0]
    assert origins == ["bos", "user"]
    assert prompt.ids[0] == 0


def test_a_mark_of_every_turn_is_no_beginning():
    template = "{{ bos_token }}user {{ messages[0]['content'] }}{{ eos_token }}{{ bos_token }}model"
    prompt = encode(model(small.byte_level(), template), "hi", chat=True)
    assert prompt.ids.count(0) == 2
    assert set(prompt.origins) == {"template", "user"}


def test_white_space_swallowed_by_a_control_token_does_not_make_it_the_users():
    tokenizer = small.byte_level()
    greedy = {"rstrip": True, "lstrip": True, "special": True, "normalized": False}
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken("<|greedy|>", **greedy)]})
    lm = model(tokenizer, "<|greedy|>{{ messages[0]['content'] }}<|greedy|>")
    prompt = encode(lm, "\nhi ", chat=True)
    assert prompt.origins == ("template", "user", "user", "template")
    assert prompt.typed_controls == ()


@pytest.mark.parametrize(
    ("template", "text", "says"),
    [
        (None, "hi", "without a usable chat template"),
        (REFUSING, "hi", "only {two} turns"),
        (REWRITING, "banana", "beyond recognition"),
        ("{{ nothing.at.all }}", "hi", "does not accept"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(template, text, says):
    with pytest.raises(Refused, match="Switch the chat template off") as refused:
        encode(model(small.byte_level(), template), text, chat=True)
    assert says in str(refused.value)


def test_nothing_at_all_is_refused():
    with pytest.raises(Refused, match="empty"):
        encode(model(small.byte_level()), "")


@pytest.mark.parametrize("chat", [False, True])
def test_a_lone_surrogate_is_refused_with_its_place(chat):
    with pytest.raises(Refused, match=r"Character 2 .*U\+D83D"):
        encode(model(small.byte_level(), TURN), "a\ud83d", chat=chat)


def test_nul_is_refused_where_the_tokenizer_drops_it():
    with pytest.raises(Refused, match="NUL"):
        encode(model(small.wordpiece()), "hello\0a")


def test_length_limits_name_both_numbers():
    lm = model(small.byte_level(), context=10)
    assert len(encode(lm, "x" * 10, limit=10).ids) == 10
    with pytest.raises(Refused, match=r"11 tokens .* 10\."):
        encode(lm, "x" * 11)
    with pytest.raises(Refused, match=r"1,500 tokens .* 1,400 "):
        encode(model(small.byte_level()), "x" * 1500, limit=1400)


def test_the_template_of_smollm2_is_told_from_the_text(smollm2):
    for text in ("hi", "Bonjour", "user", "a"):
        prompt = encode(smollm2, text, chat=True)
        assert prompt.origins[:24] == ("template",) * 24 and prompt.origins[24] == "user"
        assert users(prompt) == text
        turn = [{"role": "user", "content": text}]
        assert list(prompt.ids) == smollm2.tokenizer.apply_chat_template(turn, add_generation_prompt=True)["input_ids"]
    assert encode(smollm2, "Hello", chat=False).origins == ("user",)
    typed = encode(smollm2, "<|im_start|>x")
    assert (typed.ids[0], typed.typed_controls) == (smollm2.tokenizer.bos_token_id, (0,))


def test_20_000_characters_of_smollm2(smollm2):
    text = "\u6771\u4eac, caf\u00e9 \U0001f44d\n" * 1666
    lm = SimpleNamespace(tokenizer=smollm2.tokenizer, context=None, config=None)
    assert plain_text(encode(lm, text).tokens) == text
    with pytest.raises(Refused, match="8,192"):
        encode(smollm2, text)


def test_gemma3_begins_once(gemma3):
    assert encode(gemma3, "Hello").origins == ("bos", "user")
    typed = encode(gemma3, "<bos>Hello")
    assert typed.ids == encode(gemma3, "Hello").ids
    assert typed.typed_controls == (0,)
    with pytest.raises(Refused, match="Switch the chat template off"):
        encode(gemma3, "Hello", chat=True)
