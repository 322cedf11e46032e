"""A radix tree over token ids with a byte budget: prompts share the nodes of their common prefixes.

An edge carries a run of ids and whatever is stored for them (`Payload`: K and V, or only their size). A prompt that
leaves an edge in the middle splits it. Over the budget the least recently used leaf goes first, so that what many
prompts share, which lies near the root, goes last.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd

from kvviz.analysis.prefixes import shared_prefix

ROOT = 0


class Payload(Protocol):
    """What is stored for a run of ids."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    def split(self, at: int) -> "tuple[Payload, Payload]":
        """What is stored for the first `at` ids, and for the rest; together as many bytes as before."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A payload that is only counted: `tokens` of `each` bytes."""

    tokens: int
    each: int

    @property
    def nbytes(self) -> int:
        """tokens x each."""
        return self.tokens * self.each

    def split(self, at: int) -> "tuple[Counted, Counted]":
        """The same count in two parts."""
        return Counted(at, self.each), Counted(self.tokens - at, self.each)


@dataclass(eq=False, slots=True)
class Node:
    """A run of ids that begins at position `start` of every prompt through it; `last_use` is a request's number."""

    number: int
    parent: "Node | None"
    start: int
    ids: tuple[int, ...]
    payload: Payload | None
    last_use: int
    children: "dict[int, Node]" = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes stored for this run alone."""
        return self.payload.nbytes if self.payload is not None else 0


@dataclass(frozen=True, slots=True)
class TreeEvent:
    """What happened to a node at a request: "stored", "split" (it is the part before the cut) or "evicted"."""

    request: int
    event: str
    node: int
    parent: int
    start: int
    ids: tuple[int, ...]
    bytes: int
    last_use: int


class RadixTree:
    """Runs of ids and their payloads, at most `budget` bytes of them (None: no limit)."""

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.used = 0
        self.events: list[TreeEvent] = []
        self._root = Node(ROOT, None, 0, (), None, -1)
        self._next = ROOT + 1

    def match(self, ids: Sequence[int]) -> tuple[int, list[Node]]:
        """How many of `ids`, from the first on, the tree holds, and the nodes on the way; nothing is changed.

        The last node may be used in part: its run ends at `start + len(ids)` of the node, the match may end before.
        """
        node, at, path = self._root, 0, []
        while at < len(ids) and (child := node.children.get(ids[at])) is not None:
            path.append(child)
            same = shared_prefix(child.ids, ids[at : at + len(child.ids)])
            at += same
            if same < len(child.ids):
                break
            node = child
        return at, path

    def insert(self, ids: Sequence[int], request: int, payload: Callable[[int], Payload]) -> tuple[int, int]:
        """Store `ids` and mark their path as used by `request`; (tokens stored, tokens evicted).

        `payload(n)` gives what is to be stored for `ids[n:]`. Room is made before it is stored, never from the
        prompt's own path. A prompt that is larger than the budget by itself stores and evicts nothing.
        """
        shared, path = self.match(ids)
        if path and (cut := shared - path[-1].start) < len(path[-1].ids):
            path[-1] = self._split(path[-1], cut, request)
        for node in path:
            node.last_use = request
        if shared == len(ids):
            return 0, 0
        rest = payload(shared)
        if self.budget is not None and sum(node.nbytes for node in path) + rest.nbytes > self.budget:
            return 0, 0
        evicted = self._make_room(rest.nbytes, path, request)
        self._add(path[-1] if path else self._root, shared, tuple(ids[shared:]), rest, request)
        return len(ids) - shared, evicted

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root, parents before children."""
        waiting = list(self._root.children.values())
        while waiting:
            node = waiting.pop(0)
            yield node
            waiting += node.children.values()

    def _split(self, node: Node, at: int, request: int) -> Node:
        """Cut `node` before its id number `at`; the new node has the first part, the old one keeps the rest."""
        head, tail = node.payload.split(at)
        front = Node(self._next, node.parent, node.start, node.ids[:at], head, node.last_use)
        self._next += 1
        node.parent.children[node.ids[0]] = front
        front.children[node.ids[at]] = node
        node.parent, node.start, node.ids, node.payload = front, node.start + at, node.ids[at:], tail
        self._note(request, "split", front)
        return front

    def _make_room(self, new: int, path: list[Node], request: int) -> int:
        evicted = 0
        while self.budget is not None and self.used + new > self.budget:
            # two leaves never have the same last use: a request uses one path, and a path has one leaf
            leaf = min((each for each in self.nodes() if not each.children and each not in path), key=_last_use)
            del leaf.parent.children[leaf.ids[0]]
            self.used -= leaf.nbytes
            evicted += len(leaf.ids)
            self._note(request, "evicted", leaf)
        return evicted

    def _add(self, parent: Node, start: int, ids: tuple[int, ...], payload: Payload, request: int) -> None:
        node = Node(self._next, parent, start, ids, payload, request)
        self._next += 1
        parent.children[ids[0]] = node
        self.used += node.nbytes
        self._note(request, "stored", node)

    def _note(self, request: int, event: str, node: Node) -> None:
        self.events.append(
            TreeEvent(request, event, node.number, node.parent.number, node.start, node.ids, node.nbytes, node.last_use)
        )


def _last_use(node: Node) -> int:
    return node.last_use


def tree_frame(tree: RadixTree) -> pd.DataFrame:
    """One row a node, parents before children (the root, node 0, has no row).

    Columns: node, parent, start (position of its first token), tokens, bytes, last_use (request), leaf, ids.
    """
    rows = [
        (n.number, n.parent.number, n.start, len(n.ids), n.nbytes, n.last_use, not n.children, n.ids)
        for n in tree.nodes()
    ]
    return pd.DataFrame(rows, columns=["node", "parent", "start", "tokens", "bytes", "last_use", "leaf", "ids"])


def tree_events_frame(events: Sequence[TreeEvent]) -> pd.DataFrame:
    """One row an event. Columns: request, event, node, parent, start, tokens, bytes, last_use, ids."""
    rows = [(e.request, e.event, e.node, e.parent, e.start, len(e.ids), e.bytes, e.last_use, e.ids) for e in events]
    columns = ["request", "event", "node", "parent", "start", "tokens", "bytes", "last_use", "ids"]
    return pd.DataFrame(rows, columns=columns)
