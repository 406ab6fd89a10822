"""Linking against a search for the longest common prefix, and every way a source can mislead it."""

import dataclasses

import numpy as np
import pytest
from builders import chain, hash_prompts, link_tokens, links, token_prompts
from hypothesis import given
from hypothesis import strategies as st
from oracles import link_by_search
from strategies import paths, split_paths

from capplan import key_tree, linking
from capplan.errors import TraceError
from capplan.linking import Linker, find_candidates, link_prompts
from capplan.prompts import Labels

BIG = st.sampled_from([0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1])


def feed_in_pieces(pieces, ids="chained"):
    linker = Linker(ids)
    for piece in pieces:
        linker.feed(piece, "pieces")
    return linker.finish("pieces")


def cut_at_random(items, random):
    cuts = sorted(random.sample(range(len(items) + 1), random.randint(0, len(items))))
    return [items[a:b] for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True)]


# --- token ids


@given(paths(), st.integers(1, 4))
def test_links_are_the_longest_common_prefixes(prompts, block):
    assert links(link_tokens(prompts, block)) == link_by_search(prompts, block)


@given(split_paths(), st.integers(1, 3))
def test_paths_go_on_into_known_outputs(made, block):
    whole = [path for path, _ in made]
    trace = link_tokens(whole, block, n_input=[n for _, n in made])
    assert trace.outputs_known
    assert links(trace) == link_by_search(whole, block)


@given(paths(), st.integers(1, 3), st.integers(1, 5), st.randoms(use_true_random=False))
def test_batch_cuts_and_room_for_growth_change_nothing(prompts, block, first_room, random):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_tree, "FIRST_SLOTS", 2 << first_room)
        pieces = [token_prompts(piece, block) for piece in cut_at_random(prompts, random)]
        trace = feed_in_pieces(pieces)
    assert links(trace) == link_by_search(prompts, block)
    assert trace.requests.input_tokens.tolist() == [len(prompt) for prompt in prompts]


def test_room_grows_for_one_path_longer_than_all_there_is(monkeypatch):
    monkeypatch.setattr(key_tree, "FIRST_SLOTS", 4)
    prompts = [[1], list(range(500)), [*range(499), 7]]
    assert links(link_tokens(prompts)) == ([-1, -1, 1], [0, 0, 499])


@given(paths(), st.data())
def test_session_labels_only_suggest_what_to_compare_with(prompts, data):
    names = st.sampled_from(["a", "b", None])
    session = data.draw(st.lists(names, min_size=len(prompts), max_size=len(prompts)))
    assert links(link_prompts([token_prompts(prompts, 2, session=session)])) == link_by_search(prompts, 2)


def test_candidate_is_the_sessions_previous_row_else_the_row_before():
    session = Labels.encode(["a", "b", "a", None, None, "b", "a"])
    assert find_candidates(session).tolist() == [-1, 0, 0, 2, 3, 1, 2]


@given(paths(alphabet=2), st.permutations([0, 2**31, 2**32 - 1]))
def test_relabelling_tokens_changes_nothing(prompts, labels):
    relabelled = [[labels[token] for token in prompt] for prompt in prompts]
    assert links(link_tokens(relabelled, 2)) == links(link_tokens(prompts, 2))


@pytest.mark.parametrize("block", [1, 2, 16])
def test_empty_prompts_share_nothing(block):
    prompts = [[], [1] * 40, [], [1] * 40]
    expected = 40 // block * block
    assert links(link_tokens(prompts, block)) == ([-1, -1, -1, 1], [0, 0, 0, expected])


def test_ties_go_to_the_earliest_row():
    prompts = [[1, 2, 3], [1, 2, 4], [1, 2, 5], [1, 2, 4, 6], [1, 2, 4, 7]]
    assert links(link_tokens(prompts)) == ([-1, 0, 0, 1, 1], [0, 2, 2, 3, 3])


# --- block hashes


@given(paths(), st.integers(1, 3))
def test_chained_hashes_give_the_links_of_the_tokens(prompts, block):
    keys = {}
    hashed = hash_prompts([chain(prompt, block, keys) for prompt in prompts], block, [len(p) for p in prompts])
    assert links(link_prompts([hashed])) == links(link_tokens(prompts, block))


@given(paths(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_relabelled_and_cut_hashes_give_the_same_links(prompts, block, random):
    keys = {}
    chained = [chain(prompt, block, keys) for prompt in prompts]
    labels = [4 * label + 3 for label in random.sample(range(2**62), len(keys))]
    relabelled = [[labels[key] for key in ids] for ids in chained]
    pieces = [hash_prompts(piece, block) for piece in cut_at_random(relabelled, random)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_tree, "FIRST_SLOTS", 4)
        assert links(feed_in_pieces(pieces)) == links(link_tokens(prompts, block))


@pytest.mark.parametrize("base", [2**53, 2**63, 2**64 - 2])
@pytest.mark.parametrize("ids", ["chained", "content"])
def test_neighbouring_64_bit_ids_stay_apart(base, ids):
    prompts = hash_prompts([[base], [base + 1], [base]], 16)
    assert links(link_prompts([prompts], ids=ids)) == ([-1, -1, 0], [0, 0, 16])


UNCHAINED = {
    "second predecessor": ([[1, 2], [3, 2]], 2, 1),
    "second position, new head": ([[1, 2, 3], [9, 8, 7, 3]], 3, 3),
    "second position, as the head": ([[1, 2], [2]], 2, 0),
    "second position, further up": ([[1, 2, 3], [1, 3]], 3, 1),
    "twice in one request": ([[1, 2, 1]], 1, 2),
    "twice in a row": ([[5, 5]], 5, 1),
    "head exchanged": ([[1, 2, 3], [4, 2, 3]], 2, 1),
}


@pytest.mark.parametrize(("id_lists", "block_id", "block"), UNCHAINED.values(), ids=UNCHAINED)
def test_unchained_ids_are_refused(id_lists, block_id, block):
    row = len(id_lists) - 1
    with pytest.raises(TraceError) as caught:
        link_prompts([hash_prompts(id_lists, 64)], "folder")
    found = str(caught.value)
    assert found.startswith(f"folder, row {row} (request '{row}'): block id ")
    assert found.endswith(
        " of the prompt) has a second predecessor or position, so ids are not prefix-chained; "
        "--ids content chains them anew"
    )
    assert f"block id {block_id} (block {block} " in found


@given(st.lists(st.lists(st.integers(0, 4), max_size=5), max_size=6).filter(any))
def test_exactly_the_unchained_ids_are_refused(id_lists):
    prefixes = {}
    for ids in id_lists:
        for k, block_id in enumerate(ids):
            prefixes.setdefault(block_id, set()).add(tuple(ids[: k + 1]))
    if all(len(found) == 1 for found in prefixes.values()):
        assert links(link_prompts([hash_prompts(id_lists, 1)])) == link_by_search(id_lists, 1)
    else:
        with pytest.raises(TraceError, match="--ids content"):
            link_prompts([hash_prompts(id_lists, 1)])


@given(st.lists(st.lists(BIG, max_size=5), min_size=1, max_size=6), st.integers(1, 3))
def test_ids_by_content_are_linked_as_sequences(id_lists, block):
    parent, shared = link_by_search(id_lists, 1)
    expected = parent, [block * n for n in shared]
    assert links(link_prompts([hash_prompts(id_lists, block)], ids="content")) == expected


@given(paths(), st.integers(1, 3))
def test_rechaining_chained_ids_changes_nothing(prompts, block):
    keys = {}
    hashed = hash_prompts([chain(prompt, block, keys) for prompt in prompts], block)
    assert links(link_prompts([hashed], ids="content")) == links(link_prompts([hashed]))


@given(st.data(), st.sampled_from(["chained", "content"]))
def test_namespaces_are_traces_of_their_own(data, ids):
    keys = {}
    id_lists = [chain(prompt, 1, keys) for prompt in data.draw(paths())]
    spaces = data.draw(st.lists(st.integers(0, 2), min_size=len(id_lists), max_size=len(id_lists)))
    parent, shared = links(link_prompts([hash_prompts(id_lists, 1, namespaces=spaces)], ids=ids))
    for space in set(spaces):
        rows = [row for row, own in enumerate(spaces) if own == space]
        own_parent, own_shared = link_by_search([id_lists[row] for row in rows], 1)
        assert [parent[row] for row in rows] == [rows[q] if q >= 0 else -1 for q in own_parent]
        assert [shared[row] for row in rows] == own_shared


TOO_WIDE = (
    "folder: block ids of more than 40 bits that mean the same everywhere, and others that do not; --ids content keeps "
    "them apart"
)


@given(st.data(), st.sampled_from(["chained", "content"]))
def test_wide_ids_and_wide_namespaces_are_kept_apart_too(data, ids):
    keys = {}
    chained = [chain(prompt, 1, keys) for prompt in data.draw(paths())]
    labels = data.draw(st.lists(BIG | st.integers(0, 5), min_size=len(keys), max_size=len(keys), unique=True))
    id_lists = [[labels[key] for key in path] for path in chained]
    wide = st.sampled_from([1, 2, 2**24 - 1, 2**24, 2**64 - 1])
    spaces = data.draw(st.lists(wide, min_size=len(id_lists), max_size=len(id_lists)))
    parent, shared = links(link_prompts([hash_prompts(id_lists, 1, namespaces=spaces)], ids=ids))
    for space in set(spaces):
        rows = [row for row, own in enumerate(spaces) if own == space]
        own_parent, own_shared = link_by_search([id_lists[row] for row in rows], 1)
        assert [parent[row] for row in rows] == [rows[q] if q >= 0 else -1 for q in own_parent]
        assert [shared[row] for row in rows] == own_shared


def test_largest_namespace_and_id_fit():
    prompts = hash_prompts([[2**40 - 1]] * 3, 64, namespaces=[2**24 - 1, 2**24 - 2, 2**24 - 1])
    assert links(link_prompts([prompts])) == ([-1, -1, 0], [0, 0, 64])


@pytest.mark.parametrize("turn", [1, -1])
def test_wide_ids_of_all_files_beside_ids_of_one_are_refused(turn):
    batches = [hash_prompts([[(1 << 40) + 7]], 64), hash_prompts([[7]], 64, namespaces=[1])]
    with pytest.raises(TraceError) as caught:
        link_prompts(batches[::turn], "folder")
    assert str(caught.value) == TOO_WIDE


def test_one_kind_of_ids_per_trace():
    with pytest.raises(TraceError) as caught:
        link_prompts([hash_prompts([[1]], 16), token_prompts([[1]], 16)], "two")
    assert str(caught.value) == "two: token ids after block hashes; one kind of ids per trace is accepted"


# --- going on


@given(paths(), st.integers(1, 3), st.randoms(use_true_random=False), st.sampled_from(["tokens", "chained", "content"]))
def test_a_linker_that_goes_on_gives_what_one_alone_gives(prompts, block, random, kind):
    keys = {}
    ids = "content" if kind == "content" else "chained"

    def make(first, last):
        part = prompts[first:last]
        made = (
            token_prompts(part, block)
            if kind == "tokens"
            else hash_prompts([chain(p, block, keys) for p in part], block)
        )
        names = [str(k) for k in range(first, last)]
        return dataclasses.replace(made, requests=dataclasses.replace(made.requests, request_ids=names))

    cut = random.randint(1, len(prompts))
    first = Linker(ids)
    first.feed(make(0, cut), "a")
    linker = Linker.resume(first.finish("a"), first.keys)
    linker.feed(make(cut, len(prompts)), "b")
    whole = Linker(ids)
    whole.feed(make(0, len(prompts)), "b")
    assert linker.finish("b").fingerprint == whole.finish("b").fingerprint
    np.testing.assert_array_equal(linker.keys.segments, whole.keys.segments)
    np.testing.assert_array_equal(linker.keys.starts, whole.keys.starts)


# --- errors


@pytest.mark.parametrize("batches", [[], [token_prompts([], 16)]])
def test_no_requests_are_refused(batches):
    with pytest.raises(TraceError) as caught:
        link_prompts(batches, "empty.jsonl")
    assert str(caught.value) == "empty.jsonl: no requests; at least one is needed"


def test_changing_block_size_is_refused():
    with pytest.raises(TraceError) as caught:
        link_prompts([hash_prompts([[1]], 64), hash_prompts([[1]], 32)], "two")
    assert str(caught.value) == "two: block size 32 after 64; one size per trace is accepted"


def test_outputs_in_some_batches_only_are_refused():
    with pytest.raises(TraceError) as caught:
        link_prompts([token_prompts([[1, 2]], 1, n_input=[1]), token_prompts([[1]], 1)], "two")
    assert str(caught.value) == "two: output ids in some parts only; accepted: in all or in none"


def test_unknown_treatment_of_ids_is_refused():
    with pytest.raises(ValueError, match="ids is 'raw'; accepted: 'chained', 'content'"):
        Linker("raw")


def test_two_prefixes_with_one_key_are_refused_rather_than_merged(monkeypatch):
    monkeypatch.setattr(linking.link, "link_ids", lambda *_: (0, 3))
    with pytest.raises(TraceError) as caught:
        link_tokens([[1, 2, 3, 4]])
    assert str(caught.value) == (
        "prompts, row 0 (request '0'): two different prefixes have one 64-bit key; link the parts of the trace apart"
    )


def test_trace_is_checked_before_it_is_handed_out():
    prompts = token_prompts([[1], [2]], 1)
    requests = dataclasses.replace(prompts.requests, request_ids=["x", "x"])
    with pytest.raises(TraceError) as caught:
        link_prompts([dataclasses.replace(prompts, requests=requests)], "twice")
    assert str(caught.value) == "twice, row 1: request_id 'x' stands twice; names must be unique"


def test_columns_and_notes_pass_through():
    first, second = token_prompts([[1], [1]], 1, session=["a", None]), token_prompts([[2]], 1, session=["a"])
    second = dataclasses.replace(second, requests=dataclasses.replace(second.requests, request_ids=["2"]))
    trace = link_prompts([first, second], "s", notes=("n",))
    assert trace.requests.session.decode() == ["a", None, "a"]
    assert trace.requests.request_ids == ["0", "1", "2"]
    assert (trace.source, trace.notes, trace.resolution_tokens, len(trace)) == ("s", ("n",), 1, 3)
    assert np.isnan(trace.requests.arrival_s).all()
