"""What is known without a call, and the cross-encoder that corrects it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.datasets.records import Item, ItemList
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.known import FEATURES, Constants, Facts, Known, QueryWeights
from crosscut.encoders.titles import Titles
from crosscut.encoders.words import Lexicon
from crosscut.errors import CrosscutError, InputError
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.types import Handles
from tests.tiny_models import sentences, write_encoder
from tests.unit.test_storage import damaged

torch = pytest.importorskip("torch")

QUERIES = ["he sat on the [START] bank [END] of the river", "big red dog", "", "the of"]
ITEMS = [*sentences(40), "bank [ENT] slope of land", "", "river [ENT]"]


def weights(rng: np.random.Generator, most_words: float) -> QueryWeights:
    size = len(FEATURES) + 1
    bends = rng.normal(size=(size, 2)).astype(np.float32) * 0.1
    most = np.asarray([np.inf] * len(FEATURES) + [most_words], np.float32)
    return QueryWeights(np.linspace(0.2, 1.4, size, dtype=np.float32), bends, most)


def constants(vocabulary: int) -> Constants:
    rng = np.random.default_rng(0)
    return Constants(
        plain=weights(rng, 4),
        marked=weights(rng, 40),
        late_given_cosine=np.asarray([[0.5, 0.3]] * 2, np.float32),
        token_idf=np.arange(vocabulary, dtype=np.float32) * np.float32(1 / 8),
        lexicon=Lexicon.of(ITEMS),
    )


def make(path: Path) -> Path:
    """A folder whose cross-encoder corrects what is known."""
    from crosscut.training.bert import read_encoder
    from crosscut.training.export import export
    from crosscut.training.models import CrossModel, DualModel

    shape, weights = read_encoder(write_encoder(path / "encoder"))
    torch.manual_seed(1)
    cross, dual = CrossModel(shape, 1, "emb"), DualModel(shape, 1)
    for model in (cross, dual):
        model.start_from(weights)
    narrow = np.random.default_rng(1).normal(size=(shape.hidden_size, 8)).astype(np.float32)
    tokenizer = path / "encoder" / "tokenizer.json"
    known = constants(shape.vocab_size)
    return export(path / "model", tokenizer, cross=cross, dual=dual, item_tokens=24, narrow=narrow, known=known)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("known"))


def test_a_score_is_what_is_known_and_its_correction(folder: Path) -> None:
    scorer = OnnxCrossEncoder.load(folder)
    bound = scorer.bind(ITEMS)
    assert (scorer.corrects, bound.knows) == (True, True)
    every = np.arange(len(ITEMS))
    for query in QUERIES:
        (costly,) = bound.costly_many([(query, every)])
        assert np.isfinite(bound.known(query)).all()
        known, weight = bound.known(query), bound._read_all().ask(query).correction
        np.testing.assert_allclose(bound.score(query, every), known + weight * costly.scores, atol=1e-5)
        np.testing.assert_allclose(scorer.score(query, ITEMS), bound.score(query, every), atol=1e-6)


LIES = {
    "config.json": [
        "[]",
        "{",
        '{"format": 4}',
        "[" * 100_000,
        '{"format": 4, "shape": {"hidden_size": "x"}}',
        "\ud800",
    ],
    "known.json": ["[]", '{"plain": {"most_words": 1e999}}', "[" * 100_000, '{"marked": {}, "plain": 3}'],
    "lexicon.json": ["[]", '{"documents": -1, "mean_length": 1, "parts_per_million": {}}', "[" * 100_000],
    "tokenizer.json": ["[]", "{}", "[" * 1000],
}


def test_a_folder_of_a_stranger_is_used_or_refused(folder: Path, tmp_path: Path) -> None:
    """Configurations that lie, headers that claim terabytes, objects of Python: a sentence that names the folder."""
    theirs = tmp_path / "theirs"

    def used() -> list[float]:
        scorer = OnnxCrossEncoder.load(theirs)
        return np.asarray(scorer.score(QUERIES[0], ITEMS[:5])).tolist()

    def replaced(name: str, data: bytes) -> None:
        shutil.rmtree(theirs, ignore_errors=True)
        shutil.copytree(folder, theirs)
        (theirs / name).unlink()
        (theirs / name).write_bytes(data)

    for name, texts in LIES.items():
        for text in texts:
            replaced(name, text.encode(errors="surrogatepass"))
            with pytest.raises(InputError, match="theirs"):
                used()
    good = (folder / "token_idf.npy").read_bytes()
    for idf in (np.zeros(3, np.float16), np.full(10_000, np.nan), np.zeros((9, 9)), np.array([{}], dtype=object)):
        replaced("token_idf.npy", b"")
        np.save(theirs / "token_idf.npy", idf, allow_pickle=True)
        with pytest.raises(InputError, match="theirs"):
            used()
    shape = good[good.index(b"(") : good.index(b",)")]
    huge = good.replace(shape, b"(" + b"9" * 17, 1).replace(b" " * (18 - len(shape)), b"", 1)
    for bad in (huge, good[:40], b"", b"PK\x03\x04" + good):
        replaced("token_idf.npy", bad)
        with pytest.raises(InputError, match="theirs"):
            used()
    for name in ("lower.onnx", "cross.onnx"):
        whole = (folder / name).read_bytes()
        other = (folder / ("cross.onnx" if name == "lower.onnx" else "lower.onnx")).read_bytes()
        for bad in (b"", b"\x80\x04N.", whole[: len(whole) // 2], other):
            replaced(name, bad)
            with pytest.raises(CrosscutError, match="theirs"):
                used()


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_model_is_another_model_or_refused(folder: Path, tmp_path: Path, seed: int) -> None:
    """Its fingerprint is what scores and indexes are kept under."""
    rng = random.Random(seed)
    theirs = tmp_path / "theirs"
    shutil.copytree(folder, theirs)
    right = OnnxCrossEncoder.load(folder)
    victim = rng.choice([file for file in sorted(theirs.iterdir()) if file.name != "dual.onnx"])
    whole = victim.read_bytes()
    victim.unlink()
    victim.write_bytes(damaged(whole, rng))
    try:
        scorer = OnnxCrossEncoder.load(theirs)
        scores = scorer.score(QUERIES[0], ITEMS[:5])
    except CrosscutError as error:
        told = str(error)
        assert "theirs" in told
    else:
        same = np.array_equal(scores, right.score(QUERIES[0], ITEMS[:5]))
        assert same or scorer.fingerprint != right.fingerprint


def test_a_score_depends_on_its_pair_alone(folder: Path) -> None:
    scorer = OnnxCrossEncoder.load(folder)
    bound, wider = scorer.bind(ITEMS), scorer.bind([*sentences(30, seed=5), *ITEMS])
    some = np.asarray([3, 41, 7])
    unread = {query: scorer.bind(ITEMS).known(query, some) for query in QUERIES}
    for query in QUERIES:
        wider.known(query)
        every = bound.known(query)
        together = bound.known(query, np.arange(len(ITEMS)))
        np.testing.assert_allclose(every, together, atol=1e-6)
        for position in some.tolist():
            (alone,) = bound.known(query, np.asarray([position]))
            assert alone == together[position]
        np.testing.assert_array_equal(wider.known(query, some + 30), together[some])  # other items change nothing
        np.testing.assert_allclose(unread[query], together[some], atol=1e-6)  # nor whether the others were read


def test_many_queries_know_what_each_knows_alone(folder: Path) -> None:
    model = OnnxCrossEncoder.load(folder)
    alone, together = model.bind(ITEMS), model.bind(ITEMS)
    found = together.known_of_all([*QUERIES, QUERIES[0]])
    assert len(found) == len(QUERIES) + 1
    for query, known in zip([*QUERIES, QUERIES[0]], found, strict=True):
        np.testing.assert_array_equal(known, alone.known(query))
    assert together.known_of_all([]) == []
    bare = OnnxCrossEncoder.load(folder, alone=True).bind(ITEMS)  # that corrects nothing knows nothing
    np.testing.assert_array_equal(bare.known_of_all(QUERIES[:2]), np.zeros((2, len(ITEMS))))


def test_a_scorer_of_ones_own_knows_query_by_query() -> None:
    class Knowing:
        """Knows a number for every item."""

        n_items, knows = 3, True

        def known(self, query: str, handles: Handles | None = None) -> np.ndarray:
            every = np.arange(3) * float(len(query))
            return every if handles is None else every[handles]

        def score_many(self, requests: Any) -> list[np.ndarray]:
            return [self.known(query, handles) for query, handles in requests]

    found = as_bound(Knowing()).known_of_all(["a", "bb"])
    np.testing.assert_array_equal(found, [[0, 1, 2], [0, 2, 4]])
    with pytest.raises(InputError, match="knows nothing of a score without a call"):
        as_bound(lambda query, handles: np.zeros(len(handles))).known_of_all(["a"])


def test_what_is_known_grows_with_the_items(folder: Path) -> None:
    items = ItemList(ITEMS[:20])
    bound = OnnxCrossEncoder.load(folder).bind(items.shared)
    assert (bound.knows, bound.n_items) == (True, None)
    before = {query: bound.known(query) for query in QUERIES}
    longer = items.grown(ITEMS[20:30])
    added = bound.known(QUERIES[0], np.asarray([25, 3]))  # one not read with the others, one read
    longer.grown(ITEMS[30:])
    whole = OnnxCrossEncoder.load(folder).bind(ITEMS)
    for query in QUERIES:
        after = bound.known(query)
        assert (len(before[query]), len(after)) == (20, len(ITEMS))
        np.testing.assert_array_equal(after[:20], before[query])
        np.testing.assert_allclose(after, whole.known(query), atol=1e-6)
    np.testing.assert_allclose(added, bound.known(QUERIES[0])[[25, 3]], atol=1e-6)
    some = np.asarray([42, 0, 25])  # of both parts
    np.testing.assert_allclose(bound.known(QUERIES[0], some), bound.known(QUERIES[0])[some], atol=1e-6)


def test_round_one_of_a_search_takes_what_is_known(folder: Path) -> None:
    items = ItemList(ITEMS)
    bound = OnnxCrossEncoder.load(folder).bind(items.shared)
    vectors = np.random.default_rng(2).normal(size=(len(ITEMS), 6))  # they say nothing of the items
    searcher = crosscut.Searcher(bound, vectors=vectors)
    best = ["bank [ENT] he sat on the bank of the river"] * 3
    for more in ([], best):  # what is added later is not the searcher's, however much is known of it
        items = items.grown(more)
        for query in QUERIES[:2]:
            hits = searcher.search(query, 5, 20, query_vector=np.ones(6))
            known = bound.known(query)
            assert len(known) == len(items)
            first = hits.trace[0].positions
            assert first.tolist() == np.argsort(-known[: len(ITEMS)], kind="stable")[: len(first)].tolist()
            assert hits.scored.max() < len(ITEMS)
            np.testing.assert_allclose(hits.scores, bound.score(query, np.asarray(hits.ids)), atol=1e-5)


def test_over_a_store_it_knows_candidates(folder: Path) -> None:
    class Store:
        def get(self, handles: Handles) -> list[Item]:
            return ItemList(ITEMS).get(handles)

    scorer = OnnxCrossEncoder.load(folder)
    bound = scorer.bind(Store())
    assert bound.knows
    some = np.asarray([41, 3])
    np.testing.assert_allclose(bound.known(QUERIES[0], some), scorer.bind(ITEMS).known(QUERIES[0])[some], atol=1e-5)
    np.testing.assert_allclose(bound.score(QUERIES[0], some), scorer.bind(ITEMS).score(QUERIES[0], some), atol=1e-5)


def test_features_are_what_they_say(folder: Path) -> None:
    encoder = OnnxDualEncoder.load(folder)
    known = Known.of(encoder, ITEMS)
    query = QUERIES[0]
    asked = known.ask(query)
    vectors = encoder.encode_items(ITEMS)
    np.testing.assert_allclose(vectors, known.vectors, atol=1e-3)
    cosine = vectors @ encoder.encode_queries([query])[0]
    match = known.words.match(query)
    late = known._late(asked, None)
    title = Titles.of(ITEMS).match("bank")
    assert title[ITEMS.index("bank [ENT] slope of land")] == 1
    features = np.stack([match.relative, cosine, *late.T, title], 1)
    np.testing.assert_allclose(known.all(query), features @ asked.weights, rtol=1e-4, atol=1e-4)
    assert (late <= 1.01).all()
    # without a mention that part is silent
    plain = known.ask("big red dog")
    assert not known._late(plain, None)[:, 1].any()
    assert not known._title(plain, None).any()


def test_far_items_are_estimated_and_near_ones_exact(folder: Path) -> None:
    encoder = OnnxDualEncoder.load(folder)
    known, shallow = Known.of(encoder, ITEMS), Known.of(encoder, ITEMS, deep=10)
    for query in QUERIES[:2]:
        exact, rough = known.all(query), shallow.all(query)
        assert (np.abs(exact - rough) < 1e-5).sum() >= 10
        assert not np.allclose(exact, rough)
        assert abs(np.median(exact - rough)) < 0.1  # estimates do not stand above the rest
        np.testing.assert_allclose(shallow.at(query, np.arange(len(ITEMS))), exact, atol=1e-5)


def test_what_a_mention_names_is_near(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words do not find a title of stop words: late interaction is computed for it because it is named."""
    items = [*ITEMS, "the [ENT] an article"]
    known = Known.of(OnnxDualEncoder.load(folder), items, deep=1)
    computed: list[Handles] = []
    late = known._late
    monkeypatch.setattr(known, "_late", lambda asked, places: computed.append(places) or late(asked, places))
    known.all("big red dog and [START] the [END]")
    known.all("big red dog and the")
    assert [places.tolist() == [len(ITEMS)] for places in computed] == [True, False]


def test_an_index_may_freeze_a_lexicon_of_its_own(folder: Path) -> None:
    scorer = OnnxCrossEncoder.load(folder)
    lexicon = Lexicon.of(ITEMS[:10])
    own = OnnxCrossEncoder.load(folder, lexicon=lexicon)
    assert own.fingerprint != scorer.fingerprint  # no stored score is mistaken for another's
    assert own.fingerprint == OnnxCrossEncoder.load(folder, lexicon=Lexicon.of(ITEMS[:10])).fingerprint
    some = np.arange(5)
    before, after = (own.bind(items).score(QUERIES[1], some) for items in (ITEMS[:10], ITEMS))
    np.testing.assert_allclose(after, before, atol=1e-6)
    assert not np.allclose(after, scorer.bind(ITEMS).score(QUERIES[1], some))


def test_constants_are_kept(folder: Path, tmp_path: Path) -> None:
    first = Constants.load(folder)
    first.save(tmp_path)
    again = Constants.load(tmp_path)
    for one, other in ((first.plain, again.plain), (first.marked, again.marked)):
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.bends, other.bends)
        np.testing.assert_array_equal(one.most_words, other.most_words)
    np.testing.assert_array_equal(first.token_idf, again.token_idf)
    (tmp_path / "known.json").write_text("{}")
    with pytest.raises(InputError, match="does not say what is known"):
        Constants.load(tmp_path)


def test_words_count_up_to_as_many_as_were_chosen_on() -> None:
    own = weights(np.random.default_rng(0), most_words=14)
    of_features, of_correction = np.split(np.stack([own.of(Facts(words, 5.0)) for words in (7, 14, 15, 400)]), [-1], 1)
    assert of_correction[0] != of_correction[1]
    assert of_correction[1] == of_correction[2] == of_correction[3]  # no guess beyond
    assert len({tuple(row) for row in of_features.tolist()}) == 4  # these have no such limit here


def test_a_marked_mention_has_weights_of_its_own(folder: Path) -> None:
    known = OnnxCrossEncoder.load(folder).bind(ITEMS)._read_all()
    constants, facts = known.constants, [known.words.limit(query) for query in QUERIES[:2]]
    for query, (mass, words), kind in zip(QUERIES, facts, (constants.marked, constants.plain), strict=False):
        asked = known.ask(query)
        np.testing.assert_array_equal([*asked.weights, asked.correction], kind.of(Facts(words, mass / words)))
    bare = QUERIES[0].replace("[START] ", "").replace("[END] ", "")
    assert not np.allclose(known.ask(bare).weights, known.ask(QUERIES[0]).weights)


def test_a_folder_without_constants_stands_alone(tmp_path: Path) -> None:
    from crosscut.training.bert import read_encoder
    from crosscut.training.export import export
    from crosscut.training.models import CrossModel, DualModel

    shape, weights = read_encoder(write_encoder(tmp_path / "encoder"))
    cross, dual = CrossModel(shape, 1, "emb"), DualModel(shape, 1)
    cross.start_from(weights)
    dual.start_from(weights)
    tokenizer = tmp_path / "encoder" / "tokenizer.json"
    export(tmp_path / "model", tokenizer, cross=cross, dual=dual, item_tokens=24)
    bound = OnnxCrossEncoder.load(tmp_path / "model").bind(ITEMS)
    assert not bound.known("big red dog").any()
    assert (bound.knows, bound.model.corrects) == (False, False)
    with pytest.raises(InputError, match="no token vectors"):
        OnnxDualEncoder.load(tmp_path / "model").read_items(ITEMS)
    with pytest.raises(InputError, match="needs a dual encoder and a projection"):
        export(tmp_path / "other", tokenizer, cross=cross, known=constants(shape.vocab_size))
