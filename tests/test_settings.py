"""Limits from the environment: defaults, each variable, and what is no number."""

import pytest

from kvviz.ui.settings import Settings, read_settings, settings

NUMBERS = [name for name in Settings.__slots__ if name != "public"]


def test_defaults_are_sane() -> None:
    defaults = read_settings({})
    assert defaults == Settings() and defaults.public is False
    assert (defaults.max_prompt_tokens, defaults.max_new_tokens) == (4096, 1024)
    assert (defaults.prefill_chunk, defaults.models) == (512, 2)


@pytest.mark.parametrize("name", NUMBERS)
def test_each_number_has_its_variable(name: str) -> None:
    read = read_settings({f"KVVIZ_{name.upper()}": " 7 "})
    assert getattr(read, name) == 7
    others = [other for other in Settings.__slots__ if other != name]
    assert [getattr(read, other) for other in others] == [getattr(Settings(), other) for other in others]


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e3", "many", "0x10", "²"])
@pytest.mark.parametrize("name", [name.upper() for name in NUMBERS])
def test_a_wrong_number_is_named(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"KVVIZ_{name} must be a whole number above 0, not '{text}'"):
        read_settings({f"KVVIZ_{name}": text})


@pytest.mark.parametrize(("text", "public"), [("1", True), ("0", False), ("", False)])
def test_public_mode(text: str, public: bool) -> None:
    assert read_settings({"KVVIZ_PUBLIC": text}).public is public


@pytest.mark.parametrize("text", ["true", "yes", "on", "2"])
def test_a_public_mode_that_is_neither_on_nor_off_is_refused(text: str) -> None:
    """Whoever writes `true` must not run an open server without noticing."""
    with pytest.raises(ValueError, match="KVVIZ_PUBLIC must be 1"):
        read_settings({"KVVIZ_PUBLIC": text})


def test_other_variables_are_nobodys_business() -> None:
    assert read_settings({"MODELS": "9", "KVVIZ_CACHE": "x", "HOME": "y"}) == Settings()


def test_the_process_reads_its_environment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    monkeypatch.setenv("KVVIZ_MODELS", "3")
    try:
        assert settings().models == 3
        monkeypatch.setenv("KVVIZ_MODELS", "4")
        assert settings().models == 3
    finally:
        settings.cache_clear()
