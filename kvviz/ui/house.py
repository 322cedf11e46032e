"""The models of one server process: each loaded once, whoever asks, and the least used one let go."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kvviz.models.loading import LanguageModel, load
from kvviz.ui.jobs import Job
from kvviz.ui.turns import Turns


class ModelKey(NamedTuple):
    """What decides which weights are in memory."""

    name: str
    device: str = "auto"
    dtype: str = "auto"


class Resident:
    """A model on its way into memory, or there: `job.running`, then `model` or `job.error`."""

    def __init__(self, key: ModelKey) -> None:
        self.key = key
        self.stage = ""
        self.share = 0.0
        self.model: LanguageModel | None = None
        self.demonstration: object | None = None  # Home's run of this model, let go together with it
        self.job: Job

    def note(self, stage: str, share: float) -> None:
        """Progress from `kvviz.load`: an English message marked for the catalogues, and a share from 0 to 1."""
        self.stage, self.share = stage, share


class ModelHouse:
    """At most `capacity` models; loads run one after the other, so two of them never compete for memory."""

    def __init__(self, capacity: int, turns: Turns, loader: Callable[..., LanguageModel] = load) -> None:
        self._capacity = capacity
        self._turns = turns
        self._loader = loader
        self._residents: OrderedDict[ModelKey, Resident] = OrderedDict()
        self._changes = threading.Lock()
        self._loading = threading.Lock()

    def ask(self, key: ModelKey) -> Resident:
        """The resident of `key`; the first to ask starts its loading."""
        with self._changes:
            resident = self._residents.get(key)
            if resident is None:
                resident = self._residents[key] = Resident(key)
                resident.job = Job(lambda job: self._load(resident, job)).start()
            self._residents.move_to_end(key)
            return resident

    def forget(self, key: ModelKey) -> None:
        """Let go of a model (or of its failure), so that the next one to ask loads it again."""
        with self._changes:
            self._residents.pop(key, None)

    def _load(self, resident: Resident, job: Job) -> None:
        with self._loading:
            self._make_room()
            turn = partial(self._turns.take, resident, job.stop)
            resident.model = self._loader(*resident.key, progress=resident.note, turn=turn)
            # the model's many small objects are here to stay: keep them out of every later collection
            gc.collect()
            gc.freeze()

    def _make_room(self) -> None:
        """Let the least used models go; a failed load takes no room, and neither does one that waits its turn."""
        with self._changes:
            present = [key for key, resident in self._residents.items() if resident.model is not None]
            for key in present[: max(0, len(present) - self._capacity + 1)]:
                del self._residents[key]
        gc.unfreeze()
        gc.collect()
