"""What a scorer knows of every item, kept with an index: saved, grown, compacted, damaged."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.datasets.records import Item
from crosscut.encoders import states
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.late import SMALL, TokenVectors
from crosscut.encoders.words import Lexicon
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.scorers.onnx import BoundOnnxCrossEncoder, OnnxCrossEncoder
from crosscut.scores.engines import LocalEngine
from crosscut.search.stopping import Confident
from crosscut.storage import Folder, Kind, generations
from tests.services.test_known import make
from tests.tiny_models import sentences

torch = pytest.importorskip("torch")

QUERIES = ["he sat on the [START] bank [END] of the river", "big red dog", "the of", "a zebra by the river"]
ITEMS = [Item(f"d{j}", "" if j % 3 else f"title {j} bank", text) for j, text in enumerate(sentences(40))]
MORE = [Item(f"e{j}", "", text) for j, text in enumerate(["zebra river bank", "", "big dog", *sentences(9, seed=3)])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make(tmp_path_factory.mktemp("known-index")))


@pytest.fixture(scope="module")
def built(folder: str) -> Index:
    return Index.build(ITEMS, scorer=folder, encoder=folder)


def told(index: Index) -> list[tuple[Any, ...]]:
    """Everything that searches and the known part say, exactly."""
    scorer = index._state.scorer
    assert scorer is not None
    assert scorer.knows
    alive = np.flatnonzero(index._state.alive)
    said: list[tuple[Any, ...]] = []
    for query in QUERIES:
        hits = index.search(query, k=5, budget=12)
        said.append((hits.ids, hits.scores.tolist(), hits.calls, [r.estimates.tolist() for r in hits.trace]))
        said.append((scorer.known(query)[alive].tolist(), scorer.known(query, alive).tolist()))
    return said


class Counted:
    """How many texts the encoder's lower layers read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.items = 0
        self.queries = 0
        inner = OnnxDualEncoder._read

        def read(encoder: OnnxDualEncoder, tokens: Sequence[Any], states: Any = None, *more: Any, **how: Any) -> Any:
            if states is None:
                self.items += len(tokens)
            else:
                self.queries += len(tokens)
            return inner(encoder, tokens, states, *more, **how)

        monkeypatch.setattr(OnnxDualEncoder, "_read", read)


def test_items_are_read_once_and_never_again(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: Index
) -> None:
    wanted = told(built)
    counted = Counted(monkeypatch)
    monkeypatch.setattr(OnnxDualEncoder, "encode_items", None)  # the same pass gives the vectors of round one
    index = Index.build(ITEMS, scorer=folder, encoder=folder)
    assert counted.items == len(ITEMS)
    assert told(index) == wanted
    index.save(tmp_path / "i")
    asked = counted.queries
    loaded = Index.load(tmp_path / "i")
    assert told(loaded) == wanted  # bit for bit
    assert counted.items == len(ITEMS)
    assert counted.queries <= asked + 2 * len(QUERIES)  # of what was loaded only queries are read
    assert loaded.scorer is not None
    assert index.scorer is not None
    assert loaded.scorer.fingerprint == index.scorer.fingerprint
    loaded.add(MORE)
    assert counted.items == len(ITEMS) + len(MORE)


@pytest.mark.parametrize(("room", "least", "most"), [(1 << 30, 40, 40), (4_000, 1, 39), (0, 0, 0)])
def test_the_pass_of_the_dual_encoder_serves_the_cross_encoder_too(
    folder: str, monkeypatch: pytest.MonkeyPatch, room: int, least: int, most: int
) -> None:
    """States are kept while the index is built, as many as fit; the rest is read when scored. Scores are equal."""
    monkeypatch.setattr(states, "AHEAD_BYTES", room)
    index = Index.build(ITEMS, scorer=folder, encoder=folder)
    scorer = index._state.scorer
    assert isinstance(scorer, BoundOnnxCrossEncoder)
    kept = dict(scorer.items.states)
    assert sum(own.nbytes for own in kept.values()) <= room
    assert least <= len(kept) <= most
    read: list[int] = []
    alone = states.encode_alone

    def count(lower: Any, texts: Sequence[Any]) -> Any:
        read.append(len(texts))
        return alone(lower, texts)

    monkeypatch.setattr(states, "encode_alone", count)
    index.preload()
    assert sum(read) == len(ITEMS) - len(kept)
    monkeypatch.undo()
    other = scorer.model.bind(ITEMS)
    for handle, own in other.items.read(np.arange(len(ITEMS))).items():
        np.testing.assert_array_equal(scorer.items.states[handle], own.states)
        for ours, theirs in zip(scorer.items.tokens[handle], own.tokens, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    everything = np.arange(len(ITEMS))
    for query in QUERIES:
        mine, others = (one.costly_many([(query, everything)])[0].scores for one in (scorer, other))
        np.testing.assert_array_equal(mine, others)
    index.forget([ITEMS[0].id])
    after = index._state.scorer
    assert isinstance(after, BoundOnnxCrossEncoder)
    assert not after.items.states


def test_nothing_is_tokenised_but_queries_and_what_is_scored(
    built: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.save(tmp_path / "i")
    loaded = Index.load(tmp_path / "i")
    assert isinstance(loaded.scorer, OnnxCrossEncoder)
    tokenizer, read = loaded.scorer.folder.tokenizer, []
    inner = tokenizer.items
    monkeypatch.setattr(tokenizer, "items", lambda items: read.extend(items) or inner(items))
    monkeypatch.setattr("crosscut.retrieval.bm25.Postings.count", None)
    hits = loaded.search(QUERIES[0], k=3, budget=4, stop="patience@rounds=99")
    assert (hits.calls, len(read)) == (4, 4)


def test_the_lexicon_is_frozen_when_the_index_is_built(folder: str, tmp_path: Path, built: Index) -> None:
    index = Index.build(ITEMS, scorer=folder, encoder=folder)
    scorer = index._state.scorer
    assert scorer is not None
    every = np.arange(len(ITEMS))
    before = [(scorer.known(query).tolist(), scorer.score(query, every).tolist()) for query in QUERIES]
    assert index.scorer is not None
    name = index.scorer.fingerprint
    index.add(MORE)
    for _ in range(2):
        scorer = index._state.scorer
        assert scorer is not None
        assert index.scorer is not None
        assert index.scorer.fingerprint == name  # stored scores and logs stay good
        for query, (known, scores) in zip(QUERIES, before, strict=True):
            assert len(scorer.known(query)) == len(ITEMS) + len(MORE)
            assert scorer.known(query)[: len(ITEMS)].tolist() == known
            assert scorer.score(query, every).tolist() == scores
        index.save(tmp_path / "i")
        index = Index.load(tmp_path / "i")
    other = Index.build([*ITEMS, *MORE], scorer=folder, encoder=folder)  # the one way to another lexicon
    assert other.scorer is not None
    assert other.scorer.fingerprint != name
    assert isinstance(other.scorer, OnnxCrossEncoder)
    assert other.scorer.lexicon is not None
    assert other.scorer.lexicon.fingerprint == Lexicon.of(f"{i.title} {i.text}" for i in [*ITEMS, *MORE]).fingerprint


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(["add", "remove", "compact", "save"]), max_size=6), st.randoms())
def test_whatever_comes_and_goes_a_score_stays_what_it_was(
    folder: str, tmp_path_factory: pytest.TempPathFactory, steps: list[str], random: Any
) -> None:
    index = Index.build(ITEMS[:12], scorer=folder, encoder=folder)
    rest = [*ITEMS[12:], *MORE]
    truth: dict[tuple[str, str], tuple[float, float]] = {}
    for step in [*steps, "save"]:
        if step == "add":
            index.add([rest.pop(random.randrange(len(rest))) for _ in range(random.randrange(1, 6)) if rest])
        elif step == "remove" and len(index) > 6:
            index.remove(random.sample([item.id for item in index.items], 3))
        elif step == "compact":
            index.compact()
        elif step == "save":
            path = tmp_path_factory.mktemp("i") / "i"
            index.save(path)
            assert Index.verify(path) == []
            index = Index.load(path)
        state = index._state
        assert state.scorer is not None
        places = np.asarray([state.place(item.id) for item in index.items])
        for query in QUERIES[:2]:
            known, scores = state.scorer.known(query, places), state.scorer.score(query, places)
            np.testing.assert_allclose(state.scorer.known(query)[places], known, atol=1e-6)
            for item, *values in zip(index.items, known.tolist(), scores.tolist(), strict=True):
                assert truth.setdefault((query, item.id), tuple(values)) == tuple(values)


def test_an_encoder_of_its_own_in_round_one(folder: str, tmp_path: Path, built: Index) -> None:
    class Mine:
        fingerprint, dimension = "mine", 4

        def encode_queries(self, texts: Sequence[str]) -> Any:
            return np.ones((len(texts), 4), np.float32)

        def encode_items(self, items: Sequence[Any], *, progress: Any = None) -> Any:
            return np.random.default_rng(0).normal(size=(len(items), 4)).astype(np.float32)

    index = Index.build(ITEMS, scorer=folder, encoder=Mine())
    theirs, ours = built._state.scorer, index._state.scorer
    assert theirs is not None
    assert ours is not None
    assert index._state.known is not None
    assert index._state.known.vectors is not None
    index.add(MORE)
    index.save(tmp_path / "i")
    loaded = Index.load(tmp_path / "i", encoder=Mine())
    again = loaded._state.scorer
    assert again is not None
    for query in QUERIES:
        assert again.known(query)[: len(ITEMS)].tolist() == theirs.known(query).tolist()
        assert again.known(query).tolist() == ours.known(query).tolist()
    without = Index.build(ITEMS, scorer=folder, encoder=None, queries=QUERIES, bm25=False)
    assert without._state.scorer is not None
    assert without._state.scorer.knows


def test_a_scorer_brings_its_lexicon_or_knows_nothing(folder: str, tmp_path: Path) -> None:
    lexicon = Lexicon.of(["zebra"] * 3)
    index = Index.build(ITEMS, scorer=OnnxCrossEncoder.load(folder, lexicon=lexicon), encoder=folder)
    assert isinstance(index.scorer, OnnxCrossEncoder)
    assert index.scorer.lexicon is lexicon
    index.save(tmp_path / "i")
    assert told(Index.load(tmp_path / "i", scorer=folder)) == told(index)
    with pytest.raises(InputError, match="has no name"):
        Index.load(tmp_path / "i")
    with pytest.raises(InputError, match="was built with scorer"):
        Index.load(tmp_path / "i", scorer=OnnxCrossEncoder.load(folder, lexicon=Lexicon.of(["dog"])))
    other = Index.load(tmp_path / "i", scorer=lambda query, texts: [len(text) for text in texts], any_scorer=True)
    assert other._state.scorer is not None
    assert not other._state.scorer.knows
    other.search(QUERIES[0])
    with pytest.raises(InputError, match="load it with the scorer that it was built with to add items"):
        other.add(["a text"])
    brought = Index.build(ITEMS, scorer=folder, encoder=folder, vectors=index._state.vectors)
    brought.save(tmp_path / "b")
    again = Index.load(tmp_path / "b")  # nothing was encoded: what is known is known of candidates
    assert again._state.known is None
    assert again._state.scorer is not None
    assert not again._state.scorer.knows
    own = Index.build(ITEMS, scorer=folder, encoder=folder)
    for query in QUERIES:
        hits, whole = again.search(query, k=40), own.search(query, k=40)
        assert hits.ids == whole.ids
        np.testing.assert_allclose(hits.scores, whole.scores, atol=1e-5)
    alone = Index.build(ITEMS, scorer=OnnxCrossEncoder.load(folder, alone=True), encoder=folder)
    assert alone._state.known is None
    alone.search(QUERIES[0])


def test_train_queries_are_scored_under_the_frozen_lexicon(folder: str, tmp_path: Path) -> None:
    index = Index.build(ITEMS, scorer=folder, encoder=folder, queries=QUERIES, store=tmp_path / "scores")
    scorer = index._state.scorer
    assert scorer is not None
    assert index._state.anchors is not None
    np.testing.assert_allclose(
        index._state.anchors[1], scorer.score(QUERIES[1], np.arange(len(ITEMS))), rtol=1e-3, atol=1e-3
    )
    again = Index.build(ITEMS, scorer=folder, encoder=folder, queries=QUERIES, store=tmp_path / "scores")
    assert (index.build_calls, again.build_calls) == (len(QUERIES) * len(ITEMS), 0)
    index.add(MORE)
    assert 0 < index.complete(engine=LocalEngine(1, "processes")) <= len(QUERIES) * len(MORE)
    assert index._state.anchors is not None
    more = scorer.score(QUERIES[1], np.arange(len(ITEMS), len(ITEMS) + len(MORE)))
    np.testing.assert_allclose(index._state.anchors[1, len(ITEMS) :], more, rtol=1e-3, atol=1e-3)


def test_what_is_forgotten_leaves_no_word(folder: str, tmp_path: Path) -> None:
    secret = Item("s", "", "the zebra in the land")
    index = Index.build([*ITEMS, secret], scorer=folder, encoder=folder)
    index.forget(["s"])
    index.save(tmp_path / "i")
    for path in (tmp_path / "i").rglob("*"):
        assert path.is_dir() or b"zebra" not in path.read_bytes()


FILES = (
    "known.json",
    "lexicon.json",
    "lexicon-stems.npy",
    "lexicon-shares.npy",
    "tokens.npy",
    "token-lengths.npy",
    "title-words.npy",
    "title-sizes.npy",
    "title-names.npy",
)


@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_in_a_sentence(
    built: Index, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "BLOCK", 256)
    built.save(tmp_path / "i")
    (path,) = (tmp_path / "i").glob(f"*/{name}")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"damaged: {name} does not match its checksum"):
        Index.load(tmp_path / "i")
    assert any(name in sentence for sentence in Index.verify(tmp_path / "i"))
    if name == "tokens.npy":  # a large one is compared before it is first used
        monkeypatch.setattr(generations, "LATER", 0)
        loaded = Index.load(tmp_path / "i")
        with pytest.raises(InputError, match=r"tokens.npy does not match"):
            loaded.search(QUERIES[0])
    path.unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        Index.load(tmp_path / "i")


def test_token_vectors_are_compared_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "LATER", 0)
    monkeypatch.setattr(generations, "HERE_AND_THERE", 256)
    rng = np.random.default_rng(0)
    texts = [rng.integers(-127, 128, (length, 16)).astype(np.int8) for length in (*rng.integers(0, 9, 98), 0, 5)]
    tokens, query = TokenVectors.of(texts, 16), texts[-1]
    folder = Folder(tmp_path / "i", Kind("index", "index.json", 2))
    folder.save({}, tokens.write)
    (path,) = (tmp_path / "i").glob("*/tokens.npy")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    read = folder.load(lambda saved: TokenVectors.read(saved, 100))
    early = np.array([7, 0, 40, 3, 98])
    np.testing.assert_array_equal(read.best(query, early), tokens.best(query, early))
    for use in (lambda: read.best(query, np.array([99])), lambda: read.joined(tokens), lambda: read.best(query)):
        with pytest.raises(InputError, match=r"tokens.npy does not match its checksum"):
            use()
    with pytest.raises(InputError, match=r"tokens.npy does not match its checksum"):
        folder.save({}, read.write)
    assert any("tokens.npy" in sentence for sentence in folder.verify())


def test_files_that_do_not_go_together(tmp_path: Path) -> None:
    kind = Kind("index", "index.json", 2)
    tokens = TokenVectors.of([np.ones((2, 4), np.int8), np.ones((1, 4), np.int8)], 4)
    folder = Folder(tmp_path / "i", kind)
    folder.save({}, tokens.write)
    assert folder.load(lambda saved: TokenVectors.read(saved, 2)).lengths.tolist() == [2, 1]
    with pytest.raises(InputError, match=r"has shape \(2,\) instead of \(3,\)"):
        folder.load(lambda saved: TokenVectors.read(saved, 3))

    def short(files: Any) -> None:
        files.array("token-lengths", np.asarray([2, 2], np.int32))
        files.array("tokens", np.ones((3, 4), np.int8))

    folder.save({}, short)
    with pytest.raises(InputError, match="does not divide 3 token vectors among 2 items"):
        folder.load(lambda saved: TokenVectors.read(saved, 2))


def test_a_save_that_is_stopped_leaves_what_was_there(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.build(ITEMS, scorer=folder, encoder=folder)
    index.save(tmp_path / "i")
    before = told(index)
    index.add(MORE)

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TokenVectors, "write", stopped)
        with pytest.raises(KeyboardInterrupt):
            index.save()
    shutil.copytree(tmp_path / "i", tmp_path / "copy")
    assert told(Index.load(tmp_path / "copy")) == before
    index.save()
    assert len(Index.load(tmp_path / "i")) == len(ITEMS) + len(MORE)


def test_small_parts_are_joined_and_large_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(-127, 127, (count, 8)).astype(np.int8) for count in (3, 0, 5, 2)]
    grown = TokenVectors.of(texts[:1], 8)
    for text in texts[1:]:
        grown = grown.joined(TokenVectors.of([text], 8))
    assert len(grown._parts) == 1
    large = TokenVectors.of([np.zeros((SMALL // 8 + 1, 8), np.int8)], 8).joined(grown)
    assert len(large._parts) == 2
    query = rng.integers(-127, 127, (3, 8)).astype(np.int8)
    expected = TokenVectors.of(texts, 8).best(query)
    np.testing.assert_array_equal(grown.best(query), expected)
    np.testing.assert_array_equal(large.best(query)[1:], expected)
    np.testing.assert_array_equal(large.taken(np.asarray([4, 1])).best(query), expected[[3, 0]])


def test_a_search_stops_by_itself_unless_it_is_told_not_to(folder: str) -> None:
    items = [Item(str(j), "", text) for j, text in enumerate(sentences(150, seed=8))]
    index = Index.build(items, scorer=folder, encoder=folder)
    assert isinstance(index.default_stop(), Confident)
    assert index.default_stop("rerank") is None
    found = index.search_many(QUERIES, k=3, budget=100)
    assert {hits.stop_reason for hits in found} <= {"confident", "budget"}
    assert any(hits.stop_reason == "confident" and hits.calls < 100 for hits in found)
    assert all(hits.calls == 100 for hits in index.search_many(QUERIES, k=3, budget=100, stop="never"))
    assert all(hits.calls == 100 for hits in index.search_many(QUERIES, k=3, budget=100, method="rerank"))
    alone = Index.build(items, scorer=OnnxCrossEncoder.load(folder, alone=True), encoder=folder)
    assert alone.default_stop() is None
