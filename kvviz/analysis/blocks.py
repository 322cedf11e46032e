"""Prefix caching in whole blocks, as vLLM does it: the bookkeeping alone, exact, without a model.

A block of `block_size` ids is known by a hash over its parent's hash and its ids, so equal blocks after different
prefixes are different. Only full blocks are found again, and never the last token of a prompt. Blocks of finished
prompts wait in a queue, least recently used first; a prompt hands its blocks over last block first, so that of one
prompt the tail is evicted first. A block that holds no full run of ids is used again before all others. Equal
blocks that were computed twice (the last block of a repeated prompt) are both kept, as vLLM keeps them.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from kvviz.analysis.prefixes import reusable
from kvviz.analysis.radix import Counted, RadixTree
from kvviz.analysis.served import Served, Statistics, served_frame, statistics
from kvviz.errors import Refused

START = bytes(32)  # the parent of every first block


def block_hash(parent: bytes, ids: Sequence[int]) -> bytes:
    """SHA-256 over the parent's hash and the ids, 8 bytes each."""
    return hashlib.sha256(parent + b"".join(int(each).to_bytes(8, "little") for each in ids)).digest()


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """What happened to a block at a request: "hit", "stored" or "evicted"; `start` is its first token's position."""

    request: int
    event: str
    block: int
    hash: bytes
    parent: bytes
    start: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Full:
    """A full run of ids as its block knows it."""

    hash: bytes
    parent: bytes
    start: int
    ids: tuple[int, ...]


class BlockCache:
    """Serves prompts one after another from blocks of `block_size` tokens, `bytes_per_token` each.

    `budget_bytes` holds a whole number of blocks (None: no limit). `served`, `events` and the frames tell what
    happened. Raises Refused for a block size below 1 or a budget below one block.
    """

    def __init__(self, block_size: int, bytes_per_token: int, budget_bytes: int | None = None) -> None:
        if block_size < 1:
            raise Refused("A block must have at least 1 token, not {value}.", value=block_size)
        self.block_size = block_size
        self.bytes_per_token = bytes_per_token
        self.capacity = None if budget_bytes is None else budget_bytes // (block_size * max(1, bytes_per_token))
        if self.capacity == 0:
            raise Refused(
                "The budget is smaller than one block of {tokens} tokens. Raise the budget or take smaller blocks.",
                tokens=block_size,
            )
        self.served: list[Served] = []
        self.events: list[BlockEvent] = []
        self._made = 0
        self._free: OrderedDict[int, None] = OrderedDict()  # the next one to be used again comes first
        self._full: dict[int, _Full] = {}
        self._found: dict[bytes, dict[int, None]] = {}  # hash -> blocks that hold it
        self._seen = RadixTree()
        self._ever: set[bytes] = set()

    @property
    def blocks(self) -> int:
        """Blocks that hold a run of ids that can be found again; one that several prompts share counts once."""
        return len(self._full)

    @property
    def held_bytes(self) -> int:
        """Bytes of those blocks."""
        return self.blocks * self.block_size * self.bytes_per_token

    @property
    def statistics(self) -> Statistics:
        """Hits, misses, tokens and bytes saved so far."""
        return statistics(self.served)

    def serve(self, ids: Sequence[int]) -> Served:
        """Take what is there, store the rest, evict what has to go. Raises Refused for no id."""
        ids, request, size = tuple(ids), len(self.served), self.block_size
        if not ids:
            raise Refused("There is no token. Type at least one character.")
        shared, _ = self._seen.match(ids)
        self._seen.insert(ids, request, lambda start: Counted(len(ids) - start, 0))
        needed = -(-len(ids) // size)
        large = self.capacity is not None and needed > self.capacity
        before, blocks = len(self.events), []
        if not large:
            blocks = self._hits(ids, request)
            hits = len(blocks)
            blocks += [self._take(request) for _ in range(needed - hits)]
            self._store(ids, blocks, hits, request)
            self._release(blocks)
        happened = [event.event for event in self.events[before:]]
        reused = happened.count("hit") * size
        record = Served(
            request=request,
            prompt_tokens=len(ids),
            shared_tokens=shared,
            reused_tokens=reused,
            stored_tokens=happened.count("stored") * size,
            evicted_tokens=happened.count("evicted") * size,
            saved_bytes=reused * self.bytes_per_token,
            held_bytes=self.held_bytes,
            stored=not large,
            reason="" if reused else self._reason(ids, shared, request, large),
        )
        self.served.append(record)
        self._ever.update(event.hash for event in self.events[before:] if event.event == "stored")
        return record

    def frame(self) -> pd.DataFrame:
        """One row a prompt, as `kvviz.analysis.served.served_frame` has it."""
        return served_frame(self.served)

    def events_frame(self) -> pd.DataFrame:
        """One row an event. Columns: request, event, block, start, tokens, hash, parent (8 hex digits each), ids."""
        rows = [
            (e.request, e.event, e.block, e.start, len(e.ids), e.hash.hex()[:8], e.parent.hex()[:8], e.ids)
            for e in self.events
        ]
        return pd.DataFrame(rows, columns=["request", "event", "block", "start", "tokens", "hash", "parent", "ids"])

    def _hits(self, ids: tuple[int, ...], request: int) -> list[int]:
        """Blocks of the longest run of full blocks from the first on that are there, taken out of the queue."""
        found, parent = [], START
        for start in range(0, reusable(len(ids), len(ids)) // self.block_size * self.block_size, self.block_size):
            parent = block_hash(parent, ids[start : start + self.block_size])
            holders = self._found.get(parent)
            if not holders:
                break
            block = next(iter(holders))
            self._free.pop(block, None)
            found.append(block)
            self._note(request, "hit", block)
        return found

    def _take(self, request: int) -> int:
        """A block to write into: an unused one while there are any, else the least recently used one."""
        unused = self._free and next(iter(self._free)) not in self._full
        if not unused and (self.capacity is None or self._made < self.capacity):
            self._made += 1
            return self._made - 1
        block, _ = self._free.popitem(last=False)
        if block in self._full:
            self._note(request, "evicted", block)
            full = self._full.pop(block)
            del self._found[full.hash][block]
            if not self._found[full.hash]:
                del self._found[full.hash]
        return block

    def _store(self, ids: tuple[int, ...], blocks: list[int], hits: int, request: int) -> None:
        parent = self._full[blocks[hits - 1]].hash if hits else START
        for number in range(hits, len(ids) // self.block_size):
            start = number * self.block_size
            run = ids[start : start + self.block_size]
            full = _Full(block_hash(parent, run), parent, start, run)
            self._full[blocks[number]] = full
            self._found.setdefault(full.hash, {})[blocks[number]] = None
            self._note(request, "stored", blocks[number])
            parent = full.hash

    def _release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self._free[block] = None
            if block not in self._full:
                self._free.move_to_end(block, last=False)

    def _reason(self, ids: tuple[int, ...], shared: int, request: int, large: bool) -> str:
        size = self.block_size
        if large:
            return "large"
        if not shared:
            return "nothing" if request else "first"
        if shared < size:
            return "block"
        if reusable(shared, len(ids)) < size:
            return "last"
        return "evicted" if block_hash(START, ids[:size]) in self._ever else "budget"

    def _note(self, request: int, event: str, block: int) -> None:
        full = self._full[block]
        self.events.append(BlockEvent(request, event, block, full.hash, full.parent, full.start, full.ids))
