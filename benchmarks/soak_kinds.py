"""What the soak (`soak.py`) attacks: every command that writes, every kind of folder and file, and what is in them."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests import test_index_learning as learning

from crosscut.ann import clustered
from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.index import KIND as CLUSTERED
from crosscut.datasets.reading import read_items
from crosscut.index import Index, streaming
from crosscut.index.folder import KIND as INDEX
from crosscut.index.log import Logged, SearchLog
from crosscut.score_store import ScoreStore
from crosscut.scorers import TextScorer
from crosscut.spaces.factorization.factors import KIND as FACTORS
from crosscut.spaces.factorization.factors import Factors, Fitting
from crosscut.spaces.sparse import Normalisation
from crosscut.storage import Kind, generations

TEXTS = [f"item {j} of the soak" for j in range(40)]
ITEMS = [{"id": f"i{j}", "text": text, "year": 1900 + j, "tags": [f"t{j % 3}", "all"]} for j, text in enumerate(TEXTS)]
QUERIES = [f"query {j}" for j in range(12)]
MANY = 300  # items of a large index, whose files stay as they are
NEW = {"id": "new", "text": "new"}
ASKED = "query 50 of the soak"
SIZES = {
    (clustered, "SMALL"): 100,
    (generations, "BLOCK"): 512,
    (generations, "LATER"): 0,
    (streaming, "PORTION"): 64,
    (streaming, "ENCODED"): 64,
    (streaming, "BLOCK"): 1024,
}
"""By which a few items are many."""


class Planted:
    """An encoder and a scorer made of hashes."""

    fingerprint = "soak"
    dimension = 8

    def encode_items(self, texts: Sequence[Any], *, progress: Any = None) -> Any:
        return np.array([_hashed(str(getattr(text, "text", text)), 8) for text in texts], np.float32).reshape(-1, 8)

    def encode_queries(self, texts: Sequence[str]) -> Any:
        return self.encode_items(texts)

    def score(self, query: str, texts: Sequence[str]) -> Any:
        return [float(_hashed(f"{query}\0{text}", 1)[0]) for text in texts]


def _hashed(text: str, size: int) -> Any:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=4 * size).digest(), "<u4") / 2.0**31 - 1


WORLD = Planted()
SCORER = TextScorer(WORLD.score, fingerprint="soak")
TRUTH = np.array([WORLD.score(query, TEXTS) for query in QUERIES], np.float32)


def loaded(path: Path, **how: Any) -> Index:
    return Index.load(path, scorer=SCORER, encoder=WORLD, **how)


def made(stop: int = 30, **how: Any) -> Index:
    return Index.build(ITEMS[:stop], scorer=SCORER, encoder=WORLD, queries=QUERIES, dtype=np.float32, **how)


def ivf(n: int) -> IVF:
    return IVF.build(WORLD.encode_items([f"vector {j}" for j in range(n)]), lists=8)


def factors(n: int) -> Factors:
    vectors = WORLD.encode_items([f"factor {j}" for j in range(n)])
    return Factors(vectors, vectors[:5], Normalisation(0.5, 2.0), Fitting("als", 1, 0, 1, 1, 5, [1], [1], [1], 0))


def grand() -> None:
    """Few items are many, and their files are read piece by piece: from here on, in this process."""
    for (module, name), size in SIZES.items():
        setattr(module, name, size)


def corpus_of(path: Path) -> Path:
    """The file that a large index is built from."""
    corpus = path.parent / "corpus.jsonl"
    if not corpus.exists():
        rows = ({"id": f"i{j}", "text": f"item {j} of the soak", "year": j % 50} for j in range(MANY))
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(corpus, (1, 1))  # the source of a build that goes on is the same
    return corpus


def large(path: Path) -> Index:
    grand()
    return Index.build(corpus_of(path), scorer=SCORER, encoder=WORLD, dtype=np.float32, path=path)


def grown(path: Path) -> None:
    """A large index with items beside its files, and others that are gone."""
    index = large(path)
    index.add([{"id": f"n{j}", "text": f"new {j} of the soak", "year": j} for j in range(9)])
    index.remove(["i3", "n4"])
    index.save()


def stopped(path: Path) -> None:
    """A build that was stopped while it encoded items."""
    grand()
    commit, left = streaming.StreamedBuild._commit, iter(range(7))

    def interrupted(self: Any, *args: Any, **how: Any) -> None:
        commit(self, *args, **how)
        if next(left, None) is None:
            raise KeyboardInterrupt

    streaming.StreamedBuild._commit = interrupted  # type: ignore[method-assign]
    with suppress(KeyboardInterrupt):
        large(path)
    streaming.StreamedBuild._commit = commit  # type: ignore[method-assign]


def taught(path: Path) -> Index:
    """An index, and a log of searches beside it that it can learn from."""
    index = learning.made()
    index.keep_log(path.with_name("searches.log"))
    if not path.with_name("searches.log").exists():
        index.search_many(learning.QUERIES, 10, 60)
    return index


def learned(path: Path) -> None:
    index = taught(path)
    index.learn()
    index.calibrate(queries=learning.QUERIES[:10])
    index.save(path)


LEARNING: dict[str, Any] = {"scorer": TextScorer(learning.score, fingerprint="planted"), "encoder": learning.Known()}


def model(path: Path) -> str:
    """A model whose scorer knows part of every score."""
    from tests.services.test_known import make

    folder = path.parent / "tiny"
    if not folder.exists():
        folder.mkdir()
        make(folder)
    return str(folder / "model")


def knowing(path: Path) -> None:
    from tests.services.test_known_index import ITEMS as SENTENCES

    grand()
    folder = model(path)
    Index.build(SENTENCES, scorer=folder, encoder=folder).save(path)


def with_model(path: Path) -> None:
    """An index, and beside it the model that it was built with."""
    from tests.services.test_known import make
    from tests.services.test_known_index import ITEMS as SENTENCES

    (path / "tiny").mkdir(parents=True)
    make(path / "tiny")
    folder = str(path / "tiny" / "model")
    Index.build(SENTENCES, scorer=folder, encoder=folder).save(path / "index")


# -- what is in them -----------------------------------------------------------------------------------------------


def content(index: Index) -> Any:
    """What is kept of an index, but for what a search says."""
    told = index.calibration
    return (
        [list(item) for item in index.items],
        index.tuned is not None,
        None if told is None else told.json(),
        index.corpus.prior is not None,
    )


def index_content(path: Path) -> Any:
    return content(loaded(path))


def large_content(path: Path) -> Any:
    grand()
    return content(loaded(path))


def learned_content(path: Path) -> Any:
    return content(Index.load(path, **LEARNING))


def _answers(index: Index, query: str, **how: Any) -> Any:
    hits = index.search(query, 5, 20, **how)
    return [(hit.id, hit.score, hit.round, hit.text, hit.probability, repr(hit.estimate)) for hit in hits]


def index_look(path: Path) -> Any:
    index = loaded(path)
    ways: list[dict[str, Any]] = [{}, {"method": "hybrid"}]
    ways += [{"filter": {"year": {"gte": 1910}}}, {"filter": {"tags": "t1"}}]
    found = [_answers(index, ASKED, **how) for how in ways]
    return content(index), found, index["i7"], "i99" in index, str(index.method), index.anchor_queries


def large_look(path: Path) -> Any:
    grand()
    index = loaded(path)
    ways: list[dict[str, Any]] = [{}, {"method": "hybrid"}, {"filter": {"year": {"lt": 9}}}]
    found = [_answers(index, ASKED, **how) for how in ways]
    return content(index), found, index["i7"], ["i3" in index, "n5" in index], str(index.method)


def built_look(path: Path) -> Any:
    index = large(path)
    return large_look(path), path.with_name(path.name + streaming.BUILDING).exists(), len(index)


def learned_look(path: Path) -> Any:
    index = Index.load(path, **LEARNING)
    return content(index), [_answers(index, query) for query in learning.LATER[:3]]


def knowing_look(path: Path) -> Any:
    grand()
    folder = model(path)
    index = Index.load(path, scorer=folder, encoder=folder)
    return content(index), [_answers(index, query) for query in ("big red dog", "a zebra by the river")]


def model_look(path: Path) -> Any:
    folder = str(path / "tiny" / "model")
    index = Index.load(path / "index", scorer=folder, encoder=folder)
    return content(index), [_answers(index, query) for query in ("big red dog", "a zebra by the river")]


def log_look(path: Path) -> Any:
    """A damaged record is passed over: whatever is read was written. And the log is written to again, or it is told."""
    written = {repr(search) for search in logged(0, 30)}
    SearchLog(path / "searches.log").append(logged(29, 1))
    return [repr(search) for search in SearchLog(path / "searches.log").read() if repr(search) not in written]


def logged(start: int, count: int) -> list[Logged]:
    return [
        Logged(f"q{j}", "m", float(j), [f"i{k}" for k in range(j % 7)], *(np.arange(j % 7, dtype=np.float32),) * 2)
        for j in range(start, start + count)
    ]


def make_log(path: Path) -> None:
    log = SearchLog(path / "searches.log")
    log.append([*logged(0, 30), logged(1, 1)[0]._replace(ids=["gone"])])
    log.forget(ids=["gone"])


def store_look(path: Path) -> Any:
    """Scores, with what was reported damaged taken for right: it is scored again."""
    logging.getLogger("crosscut.score_store").setLevel(logging.CRITICAL)
    store = ScoreStore.open(path)
    found = np.asarray(store.matrix(QUERIES, TEXTS, partial=True))
    extra = store.pairs(["another query"], TEXTS).scores.tolist()
    store.put_pairs(["another query"], TEXTS, [0], [3], [0.5])
    if store.verify():
        found, extra = np.where(np.isnan(found), TRUTH, found), extra or [0.5, 0.25]
    return found.tolist(), extra


def make_store(path: Path) -> None:
    store = ScoreStore(path, scorer_fingerprint="soak")
    store.put_block(QUERIES[:6], TEXTS, TRUTH[:6])
    store.put_block(QUERIES[6:], TEXTS, TRUTH[6:])
    store.put_pairs(["another query"], TEXTS, [0, 0], [3, 4], [0.5, 0.25])
    store.forget(["a text that was scored"])


def make_corpora(path: Path) -> None:
    """Files of items as others make them."""
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    path.mkdir()
    table = pyarrow.table(
        {
            **{name: [item[name] for item in ITEMS] for name in ("id", "text", "year", "tags")},
            "kind": pyarrow.array(["one", "other"] * (len(ITEMS) // 2)).dictionary_encode(),
            "when": pyarrow.array([item["year"] for item in ITEMS], pyarrow.timestamp("s")),
            "more": [{"place": "here", "number": j} for j in range(len(ITEMS))],
        }
    )
    for name, writer in (("a.arrow", pyarrow.ipc.new_file), ("b.arrow", pyarrow.ipc.new_stream)):
        with pyarrow.OSFile(str(path / name), "wb") as file, writer(file, table.schema) as rows:
            rows.write_table(table, 16)
    pyarrow.feather.write_feather(table, path / "c.feather")
    pyarrow.parquet.write_table(table, path / "d.parquet", row_group_size=16)
    pyarrow.parquet.write_table(table, path / "e.parquet", compression="zstd", write_page_checksum=True)
    lines = [json.dumps(item) for item in ITEMS]
    (path / "f.jsonl").write_text("\n".join(lines))
    (path / "g.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (path / "h.json").write_text(f"[{','.join(lines)}]")
    (path / "i.csv").write_text("id,text\n" + "\n".join(f"{item['id']},{item['text']}" for item in ITEMS))


def corpora_look(path: Path) -> Any:
    """Nothing in a corpus tells a wrong letter: it is read, or it is told."""
    for file in sorted(path.iterdir()):
        for item in read_items(file):
            assert isinstance(item.id, str)
            assert isinstance(item.text, str)
    return "read"


def ivf_look(path: Path) -> Any:
    index = IVF.load(path)
    found = index.search(WORLD.encode_queries(["a query"])[0], 5, rule=8)
    return found.ids.tolist(), found.scores.tolist(), index.metric, index.rule


def factors_look(path: Path) -> Any:
    again = Factors.load(path)
    return again.array.tolist(), again.query_factors.tolist(), again.normalisation, again.fitting


def warm_up() -> None:
    """Load and compile, once, what all the processes that are forked need."""
    import onnxruntime  # noqa: F401
    import pyarrow.feather
    import pyarrow.parquet  # noqa: F401
    import starlette.testclient  # noqa: F401

    import crosscut.server  # noqa: F401

    sizes = [(module, name, getattr(module, name)) for module, name in SIZES]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        grown(path)
        large_look(path)
        made().save(Path(folder) / "b")
        index_look(Path(folder) / "b")
    for module, name, value in sizes:
        setattr(module, name, value)


# -- commands that write -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """Something that writes: what it starts from, what it does, and how to see what is there."""

    name: str
    kind: Kind
    start: Callable[[Path], object]
    run: Callable[[Path], object]
    content: Callable[[Path], Any]
    again: Callable[[Path], object] | None = None
    """What must work after it was stopped: the same, if that makes sense twice."""
    half: Callable[[Path], object] | None = None
    """The first half of it, where the halves are saved one by one."""


def _changed(change: Callable[[Index], object], load: Callable[[Path], Index] = loaded) -> Callable[[Path], object]:
    def run(path: Path) -> None:
        index = load(path)
        change(index)
        index.save()

    return run


def _large(path: Path) -> Index:
    grand()
    return loaded(path)


def _save(path: Path) -> None:
    loaded(path).save()


def _save_large(path: Path) -> None:
    _large(path).save()


def _forget(path: Path) -> None:
    """Items, their scores in a store and their scores in a log, of a large index."""
    grand()
    index = loaded(path, store=path.parent / f"{path.name}.scores")
    index.keep_log(path.parent / f"{path.name}.log")
    index.search(ASKED, 5, 30)
    index.forget(["i7", "n5"])
    held = [file for file in path.rglob("*") if file.is_file() and b"item 7 of" in file.read_bytes()]
    assert not held, held


def _forget_again(path: Path) -> None:
    (_forget if "i7" in _large(path) else _save_large)(path)
    assert not ScoreStore(path.parent / f"{path.name}.scores", scorer_fingerprint=SCORER.fingerprint).verify()
    SearchLog(path.parent / f"{path.name}.log").append(logged(0, 1))


def _build_again(path: Path) -> None:
    """It goes on, or it was done; nothing of it is left beside the index."""
    work = path.with_name(path.name + streaming.BUILDING)
    if not (path / INDEX.record).exists() or (work / "settings.json").exists():
        large(path)
    _save_large(path)
    assert not work.exists(), sorted(work.iterdir())


def _compact(path: Path) -> None:
    index = _large(path)
    index.compact()
    index.save()
    held = [file for file in path.rglob("*") if file.is_file() and b"item 3 of" in file.read_bytes()]
    assert not held, held


def _http(path: Path) -> None:
    """Items that come and go by requests; the server saves them by itself, and when it ends."""
    from starlette.testclient import TestClient

    from crosscut.server import Settings, make_app

    interrupted: list[bool] = []
    signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))  # as a server does, which then ends in good order
    os.environ["CROSSCUT_WRITE_TOKEN"] = "may-write"
    app = make_app(loaded(path), Settings(save_seconds=0.01))
    with TestClient(app, base_url="http://127.0.0.1", headers={"authorization": "Bearer may-write"}) as client:
        assert client.post("/items", json={"items": [NEW]}).status_code == 200
        assert interrupted or client.delete("/items/i3").status_code == 200
    if interrupted:
        raise KeyboardInterrupt


def _learn(path: Path) -> None:
    index = Index.load(path, **LEARNING)
    index.keep_log(path.with_name("searches.log"))
    index.learn()
    index.save()


def _small(path: Path) -> None:
    made().save(path)


COMMANDS = [
    Command("index build", INDEX, lambda path: None, lambda path: made(20).save(path), index_content),
    Command("index build in its folder", INDEX, lambda path: None, large, large_content, _build_again),
    Command("index add", INDEX, _small, _changed(lambda i: i.add(ITEMS[30:])), index_content, _save),
    Command(
        "index remove",
        INDEX,
        lambda path: made().save(path),
        _changed(lambda i: i.remove(["i3"])),
        index_content,
        _save,
    ),
    Command(
        "index tune",
        INDEX,
        lambda path: made().save(path),
        _changed(lambda i: i.tune(None, 3, 20)),
        index_content,
        _save,
    ),
    Command(
        "index calibrate",
        INDEX,
        lambda path: made().save(path),
        _changed(lambda i: i.calibrate()),
        index_content,
        _save,
    ),
    Command("index learn", INDEX, lambda path: taught(path).save(path), _learn, learned_content, _learn),
    Command("index save", INDEX, lambda path: made(20).save(path), lambda path: made().save(path), index_content),
    Command(
        "large index add",
        INDEX,
        large,
        _changed(lambda i: i.add([NEW]), _large),
        large_content,
        _save_large,
    ),
    Command(
        "large index remove",
        INDEX,
        grown,
        _changed(lambda i: i.remove(["i9", "n1"]), _large),
        large_content,
        _save_large,
    ),
    Command("large index compact", INDEX, grown, _compact, large_content, _compact),
    Command("large index forget", INDEX, grown, _forget, large_content, _forget_again),
    Command("items over HTTP", INDEX, _small, _http, index_content, _save, _changed(lambda i: i.add([NEW]))),
    Command(
        "IVF.save",
        CLUSTERED,
        lambda path: ivf(200).save(path),
        lambda path: ivf(300).save(path),
        lambda path: np.asarray(IVF.load(path).vectors).tolist(),
    ),
    Command(
        "Factors.save",
        FACTORS,
        lambda path: factors(50).save(path),
        lambda path: factors(80).save(path),
        lambda path: Factors.load(path).array.tolist(),
    ),
]

KINDS: dict[str, tuple[Callable[[Path], object], Callable[[Path], Any]]] = {
    "index with anchors": (_small, index_look),
    "index with factors": (lambda path: made(space="als", per_query=10).save(path), index_look),
    "large index": (large, large_look),
    "large index that changed": (grown, large_look),
    "build that was stopped": (stopped, built_look),
    "index that learned, with probabilities": (learned, learned_look),
    "index with a known part": (knowing, knowing_look),
    "model and its index": (with_model, model_look),
    "log of searches": (make_log, log_look),
    "IVF": (lambda path: ivf(300).save(path), ivf_look),
    "factors": (lambda path: factors(50).save(path), factors_look),
    "score store": (make_store, store_look),
    "corpora": (make_corpora, corpora_look),
}
