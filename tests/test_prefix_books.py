"""Shared prefixes, the radix tree and block caching: worked out by hand, and against simulations of another make."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.analysis.blocks import BlockCache
from kvviz.analysis.prefixes import equal_pairs, in_blocks, reusable, shared_prefix
from kvviz.analysis.radix import Counted, RadixTree, tree_events_frame, tree_frame
from kvviz.errors import Refused

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), min_size=1, max_size=14)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2], 2), ([1, 2, 3], [1], 1), ([1], [2], 0), ([], [1], 0)],
)
def test_shared_prefix(first, second, shared):
    assert shared_prefix(first, second) == shared == shared_prefix(second, first)


def test_at_most_all_but_the_last_is_reused():
    assert [reusable(shared, 5) for shared in (0, 3, 4, 5)] == [0, 3, 4, 4]


@pytest.mark.parametrize(
    ("shared", "tokens", "size", "reused"),
    # vLLM 0.32 with blocks of 32, as it reported them
    [(100, 100, 32, 96), (64, 64, 32, 32), (65, 65, 32, 64), (40, 80, 32, 32), (0, 80, 32, 0), (10, 12, 16, 0)],
)
def test_whole_blocks(shared, tokens, size, reused):
    assert in_blocks(shared, tokens, size) == reused


def test_equal_tokens_are_paired_with_the_nearest():
    assert equal_pairs([7, 8, 7, 9, 7], [7, 5, 9, 7, 6], 1) == [(3, 2), (2, 3)]


def _serve(tree, ids, request):
    return tree.insert(ids, request, lambda start: Counted(len(ids) - start, 1))


def test_a_tree_by_hand():
    tree = RadixTree(budget=8)
    assert _serve(tree, (1, 2, 3, 4), 0) == (4, 0)
    assert _serve(tree, (1, 2, 5, 6), 1) == (2, 0)  # splits after 1 2
    assert tree_frame(tree)[["node", "parent", "start", "tokens", "bytes", "last_use", "ids"]].values.tolist() == [
        [2, 0, 0, 2, 2, 1, (1, 2)],
        [1, 2, 2, 2, 2, 0, (3, 4)],
        [3, 2, 2, 2, 2, 1, (5, 6)],
    ]
    assert _serve(tree, (9, 9, 9), 2) == (3, 2)  # 3 4 was used least recently
    assert _serve(tree, (1, 2), 3) == (0, 0)
    assert _serve(tree, (8, 8, 8, 8), 4) == (4, 5)  # 5 6, then 9 9 9; 1 2 was used after them
    assert _serve(tree, (7,) * 9, 5) == (0, 0)
    assert tree_events_frame(tree.events)[["request", "event", "ids"]].values.tolist() == [
        [0, "stored", (1, 2, 3, 4)],
        [1, "split", (1, 2)],
        [1, "stored", (5, 6)],
        [2, "evicted", (3, 4)],
        [2, "stored", (9, 9, 9)],
        [4, "evicted", (5, 6)],
        [4, "evicted", (9, 9, 9)],
        [4, "stored", (8, 8, 8, 8)],
    ]
    assert tree.used == 6


class FlatTree:
    """The same rules on a set of prefixes: which are stored, where runs end, and when each was last used."""

    def __init__(self, budget):
        self.budget, self.used, self.ends, self.gone = budget, {}, set(), []

    def serve(self, ids, request):
        shared = max((n for n in range(1, len(ids) + 1) if ids[:n] in self.used), default=0)
        for n in range(1, shared + 1):
            self.used[ids[:n]] = request
        if shared:
            self.ends.add(ids[:shared])
        if shared == len(ids) or len(ids) > self.budget:
            return shared
        while len(self.used) + len(ids) - shared > self.budget:
            leaves = [end for end in self.ends if not any(p[:-1] == end for p in self.used) and end != ids[: len(end)]]
            leaf = min(leaves, key=self.used.get)
            self.ends.remove(leaf)
            start = max((n for n in range(1, len(leaf)) if leaf[:n] in self.ends), default=0)
            self.gone.append((request, leaf[start:]))
            for n in range(start + 1, len(leaf) + 1):
                del self.used[leaf[:n]]
        self.used |= {ids[:n]: request for n in range(shared + 1, len(ids) + 1)}
        self.ends.add(ids)
        return shared


@settings(max_examples=200, deadline=None)
@given(prompts, st.integers(1, 30))
def test_the_tree_is_that_of_a_flat_simulation(requests, budget):
    tree, flat = RadixTree(budget), FlatTree(budget)
    for request, ids in enumerate(requests):
        shared = tree.match(ids)[0]
        stored, evicted = _serve(tree, ids, request)
        assert shared == flat.serve(ids, request)
        nodes = list(tree.nodes())
        assert tree.used == sum(len(node.ids) for node in nodes) == len(flat.used) <= budget
        assert {_text(node): node.last_use for node in nodes} == {end: flat.used[end] for end in flat.ends}
        assert stored in (0, len(ids) - shared) and evicted >= 0
    assert [(e.request, e.ids) for e in tree.events if e.event == "evicted"] == flat.gone
    moved = {name: sum(len(e.ids) for e in tree.events if e.event == name) for name in ("stored", "evicted")}
    assert moved["stored"] - moved["evicted"] == tree.used


def _text(node):
    return (_text(node.parent) + node.ids) if node.parent is not None else ()


def _told(cache):
    return [(event.request, event.event, event.block, event.ids) for event in cache.events]


def test_blocks_by_hand_the_tail_goes_first():
    cache = BlockCache(block_size=2, bytes_per_token=1, budget_bytes=6)
    served = [cache.serve(ids) for ids in ([1, 2, 3, 4, 5], [1, 2, 9, 9, 9], [1, 2, 3, 4], [7])]
    assert _told(cache) == [
        (0, "stored", 0, (1, 2)),
        (0, "stored", 1, (3, 4)),
        (1, "hit", 0, (1, 2)),
        (1, "evicted", 1, (3, 4)),  # block 2 was unused and came first
        (1, "stored", 2, (9, 9)),
        (2, "hit", 0, (1, 2)),
        (2, "stored", 1, (3, 4)),  # block 1 held no full run
        (3, "evicted", 2, (9, 9)),
    ]
    assert [each.reused_tokens for each in served] == [0, 2, 2, 0]
    assert [each.shared_tokens for each in served] == [0, 2, 4, 0]
    assert [each.reason for each in served] == ["first", "", "", "nothing"]
    assert [each.held_bytes for each in served] == [4, 4, 6, 4]
    assert (cache.statistics.hits, cache.statistics.misses, cache.statistics.tokens_saved) == (2, 2, 4)
    assert cache.statistics.hit_rate == 4 / 15


def test_blocks_by_hand_a_repeated_prompt_computes_its_last_block_again():
    cache = BlockCache(block_size=2, bytes_per_token=10, budget_bytes=80)
    for ids in ([1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8, 5, 6], [1, 2, 3, 4]):
        cache.serve(ids)
    assert _told(cache) == [
        (0, "stored", 0, (1, 2)),
        (0, "stored", 1, (3, 4)),
        (1, "hit", 0, (1, 2)),
        (1, "stored", 2, (3, 4)),  # a second block with the same run
        (2, "evicted", 1, (3, 4)),  # after the last empty block, 3
        (2, "evicted", 2, (3, 4)),
        (2, "stored", 3, (5, 6)),
        (2, "stored", 1, (7, 8)),
        (2, "stored", 2, (5, 6)),
        (3, "hit", 0, (1, 2)),
        (3, "evicted", 2, (5, 6)),
        (3, "stored", 2, (3, 4)),
    ]
    assert cache.statistics.bytes_saved == 40 and cache.held_bytes == 80
    parents = {event.block: event.parent for event in cache.events[6:9]}
    hashes = {event.block: event.hash for event in cache.events[6:9]}
    assert parents[1] == hashes[3] and parents[2] == hashes[1] and hashes[2] != hashes[3]


class Lines:
    """vLLM's rules without hashes or a queue: a list of full runs, each with the time it was handed over."""

    def __init__(self, size, capacity):
        self.size, self.capacity, self.runs = size, capacity, []

    def serve(self, ids, request):
        size, needed = self.size, -(-len(ids) // self.size)
        if needed > self.capacity:
            return 0
        held = []
        for n in range(size, len(ids), size):
            run = next((run for run in self.runs if run[0] == ids[:n]), None)
            if run is None:
                break
            held.append(run)
        evicted = max(0, len(self.runs) + needed - len(held) - self.capacity)
        for _ in range(evicted):
            self.runs.remove(min((run for run in self.runs if run not in held), key=lambda run: run[1]))
        held += [[ids[:n], None] for n in range(size * (len(held) + 1), len(ids) + 1, size)]
        self.runs += [run for run in held if run[1] is None]
        for place, run in enumerate(held):
            run[1] = (request, -place)
        return evicted


@settings(max_examples=200, deadline=None)
@given(prompts, st.integers(1, 4), st.integers(1, 8))
def test_blocks_are_those_of_a_simulation_without_hashes(requests, size, capacity):
    cache, lines = BlockCache(size, 3, capacity * size * 3), Lines(size, capacity)
    for request, ids in enumerate(requests):
        record = cache.serve(ids)
        assert record.evicted_tokens == lines.serve(ids, request) * size
        assert cache.held_bytes == len(lines.runs) * size * 3 <= capacity * size * 3
        assert record.reused_tokens <= min(record.shared_tokens, len(ids) - 1) // size * size
        assert (record.reason == "") == (record.reused_tokens > 0)
    assert sorted(_whole(cache, full) for full in cache._full.values()) == sorted(run[0] for run in lines.runs)
    happened = [event.event for event in cache.events]
    assert happened.count("stored") - happened.count("evicted") == cache.blocks
    totals = cache.statistics
    assert totals.hits + totals.misses == len(requests)
    assert totals.tokens_saved == happened.count("hit") * size == cache.frame()["reused_tokens"].sum()
    assert cache.frame()["hit_rate"].iloc[-1] == pytest.approx(totals.hit_rate)


def _whole(cache, full):
    """The ids from the first on that end with this run, from the chain of hashes in the events."""
    before = {event.hash: event for event in cache.events}
    return (_whole(cache, before[full.parent]) if full.start else ()) + full.ids


@settings(max_examples=50, deadline=None)
@given(prompts)
def test_blocks_of_one_token_without_limit_reuse_all_that_is_shared(requests):
    cache = BlockCache(1, 1)
    for ids in requests:
        record = cache.serve(ids)
        assert record.reused_tokens == reusable(record.shared_tokens, len(ids))


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([[1, 2, 3, 4]], "first"),
        ([[1, 2, 3, 4], [5, 2, 3, 4]], "nothing"),
        ([[1, 2, 3, 4], [1, 9, 3, 4]], "block"),
        ([[1, 2, 3], [1, 2]], "last"),
        ([[1, 2], [3, 4, 5, 6], [7, 8, 9, 9], [1, 2, 3]], "evicted"),
        ([[1] * 5, [1] * 4], "budget"),
        ([[1] * 5], "large"),
    ],
)
def test_why_nothing_was_reused(requests, reason):
    cache = BlockCache(2, 1, 4)
    assert [cache.serve(ids) for ids in requests][-1].reason == reason


def test_what_cannot_be_a_block_cache_is_refused():
    with pytest.raises(Refused, match="at least 1 token"):
        BlockCache(0, 1)
    with pytest.raises(Refused, match="smaller than one block of 16"):
        BlockCache(16, 100, 1599)
    with pytest.raises(Refused, match="no token"):
        BlockCache(16, 100).serve([])
