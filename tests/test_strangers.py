"""Folders that come from somebody else: links, pipes, forged checksums, models that choose code or files."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.ann.ivf import IVF
from crosscut.encoders.modules import read_modules
from crosscut.encoders.named import TorchDualEncoder
from crosscut.encoders.session import Session
from crosscut.errors import CrosscutError, InputError
from crosscut.index import Index, streaming
from crosscut.index.folder import KIND
from crosscut.index.log import SearchLog, _checksum, _packed
from crosscut.scorers.callable import TextScorer
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.scores import ScoreStore
from crosscut.storage import MARK, checksum_of, digest
from tests.test_index import Planted, build, planted_items
from tests.test_known import make
from tests.test_log import logged

WORLD = Planted()
ODD: list[Any] = [None, -1, 0, 2**70, 1e308, "", "x", "../../etc", "x" * 1000, [], {}, [[]], True, [1, 2], 3.5]
QUERIES = [f"query {j}" for j in range(6)]
TEXTS = [f"text {j}" for j in range(20)]


def loaded(path: Path) -> Index:
    return Index.load(path, scorer=TextScorer(WORLD.score, fingerprint="planted"), encoder=WORLD)


def used(path: Path) -> None:
    """All that a search reads of an index."""
    index = loaded(path)
    index.search("query 50", 5, 20)
    index.search("query 50", 5, 20, method="hybrid")
    index.search("query 50", 5, 20, filter={"year": {"gte": 0}})


def saved(path: Path) -> Path:
    index = build(WORLD, queries=8, stop=30)
    index.save(path)
    return path


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in JSON."""
    parts = value.items() if isinstance(value, dict) else list(enumerate(value))[:4] if isinstance(value, list) else ()
    return [at, *(place for key, part in parts for place in places(part, (*at, key)))]


def lie(value: Any, rng: random.Random) -> Any:
    """The same JSON with something odd in one place, or without it."""
    box = whole = {"": json.loads(json.dumps(value))}
    at = ("", *rng.choice(places(whole[""])))
    for key in at[:-1]:
        box = box[key]
    if rng.random() < 0.2:
        del box[at[-1]]
    else:
        box[at[-1]] = rng.choice(ODD)
    return whole.get("")


def told(work: Callable[[], object]) -> None:
    """It works, or is refused in a sentence: no other exception."""
    with contextlib.suppress(CrosscutError):
        work()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("theirs") / "index")


def record_of(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((path / KIND.record).read_text())
    del record["checksum"]
    return record


def sealed(path: Path, record: Any) -> None:
    """A record with the checksum that anybody can make."""
    if isinstance(record, dict):
        record["checksum"] = checksum_of(record)
    (path / KIND.record).write_text(json.dumps(record))


@pytest.mark.parametrize("seed", range(40))
def test_a_forged_record_is_refused_or_harmless(index: Path, tmp_path: Path, seed: int) -> None:
    shutil.copytree(index, tmp_path / "a")
    sealed(tmp_path / "a", lie(record_of(index), random.Random(seed)))
    told(lambda: used(tmp_path / "a"))


@pytest.mark.parametrize("seed", range(60))
def test_a_forged_file_with_the_right_checksums_is_refused_or_harmless(index: Path, tmp_path: Path, seed: int) -> None:
    rng, path = random.Random(seed), tmp_path / "a"
    shutil.copytree(index, path)
    record = record_of(path)
    name = sorted(record["files"])[seed % len(record["files"])]
    file = path / record["folder"] / name
    data = file.read_bytes()
    if name.endswith(".json"):
        data = json.dumps(lie(json.loads(data), rng)).encode()
    elif name.endswith(".jsonl"):
        data = b"".join(json.dumps(lie(json.loads(line), rng)).encode() + b"\n" for line in data.splitlines())
    else:
        harmed = bytearray(data)
        for _ in range(4):
            harmed[rng.randrange(min(128, len(data) - 1), len(data))] = rng.randrange(256)
        data = bytes(harmed)
    file.unlink()
    file.write_bytes(data)
    record["files"][name] |= {"bytes": len(data), "blake2b": [digest(data).hexdigest()]}
    sealed(path, record)
    told(lambda: used(path))


def test_words_that_are_told_twice_do_not_lead_out_of_an_array(index: Path, tmp_path: Path) -> None:
    """A list of words of the right length that names fewer: compiled code would read past the end."""
    path = tmp_path / "a"
    shutil.copytree(index, path)
    record = record_of(path)
    file = path / record["folder"] / "bm25.json"
    about = json.loads(file.read_text())
    data = json.dumps({**about, "terms": ["same"] * len(about["terms"])}).encode()
    file.unlink()
    file.write_bytes(data)
    record["files"]["bm25.json"] |= {"bytes": len(data), "blake2b": [digest(data).hexdigest()]}
    sealed(path, record)
    with pytest.raises(InputError, match="bm25"):
        loaded(path)


def test_files_outside_the_folder_are_not_read(index: Path, tmp_path: Path) -> None:
    path = tmp_path / "a"
    shutil.copytree(index, path)
    record = record_of(path)
    record["files"]["../../outside"] = {"bytes": 1, "blake2b": ["00"]}
    sealed(path, record)
    with pytest.raises(InputError, match="not in its folder"):
        loaded(path)
    with pytest.raises(InputError, match="not in its folder"):
        Index.verify(path)


def test_a_link_that_looks_like_a_generation_deletes_nothing(index: Path, tmp_path: Path) -> None:
    """Saving deletes old generations; a link to another index's folder is none."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    shutil.copytree(index, theirs)
    shutil.copytree(index, mine)
    home = next(path for path in mine.iterdir() if path.is_dir())
    (theirs / "000000-aaaaaaaa").symlink_to(home, target_is_directory=True)
    again = loaded(theirs)
    again.remove(["i3"])
    again.save()
    again.close()
    assert Index.verify(mine) == []
    used(mine)
    used(theirs)


def test_a_build_does_not_go_on_in_a_folder_of_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious.bin"
    precious.write_bytes(b"precious")
    work = tmp_path / f"a{streaming.BUILDING}"
    work.mkdir()
    (work / MARK).touch()
    (work / "items.bin").symlink_to(precious)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(item) + "\n" for item in planted_items(0, 20)))
    with pytest.raises(InputError, match="building"):
        Index.build(corpus, scorer=TextScorer(WORLD.score, fingerprint="planted"), encoder=WORLD, path=tmp_path / "a")
    streaming.clear(tmp_path / "a")
    assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize("end", ["pipe", "/dev/zero"])
def test_what_never_ends_is_not_read(index: Path, tmp_path: Path, end: str) -> None:
    """A pipe would hold a process for ever, a device fill its memory."""
    path = tmp_path / "a"
    home = record_of(index)["folder"]
    for victim in (KIND.record, f"{home}/items.npy", f"{home}/bm25.json"):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(index, path)
        (path / victim).unlink()
        endless(path / victim, end)
        with pytest.raises(InputError, match="it is no file"):
            loaded(path)
    store = tmp_path / "store"
    made = ScoreStore(store, scorer_fingerprint="theirs")
    made.put_block(QUERIES, TEXTS, np.zeros((6, 20), np.float32))
    block = next(made.folder.glob("blocks/*"))
    block.unlink()
    endless(block, end)
    assert np.isnan(ScoreStore.open(store).matrix(QUERIES, TEXTS, partial=True)).all()
    endless(tmp_path / "log", end)
    with pytest.raises(InputError, match="cannot be read"):
        SearchLog(tmp_path / "log").read()


def endless(path: Path, end: str) -> None:
    os.mkfifo(path) if end == "pipe" else path.symlink_to(end)


@pytest.mark.parametrize("seed", range(60))
def test_a_forged_score_counts_as_missing(tmp_path: Path, seed: int) -> None:
    """Its checksum is right, what it says is not: the store works, and says what it does not use."""
    rng = random.Random(seed)
    made = ScoreStore(tmp_path / "store", scorer_fingerprint="theirs")
    made.put_block(QUERIES[:3], TEXTS, np.ones((3, 20), np.float32))
    made.consolidate(QUERIES[:3], TEXTS)
    made.put_block(QUERIES[3:], TEXTS, np.ones((3, 20), np.float32))
    made.put_pairs(["another"], TEXTS, [0, 0], [3, 4], [0.5, 0.25])
    file = rng.choice(sorted(made.folder.rglob("*.scores")))
    data = file.read_bytes()
    magic, length, _ = struct.unpack_from("<8sII", data)
    text = json.dumps(lie(json.loads(data[16 : 16 + length]), rng)).encode()
    file.write_bytes(struct.pack("<8sII", magic, len(text), zlib.crc32(text)) + text + data[16 + length :])
    store = ScoreStore.open(tmp_path / "store")
    store.matrix(QUERIES, TEXTS, partial=True)
    store.pairs(["another"], TEXTS)
    store.verify()
    store.consolidate()
    store.put_block(QUERIES, TEXTS, np.ones((6, 20), np.float32))
    assert (np.asarray(ScoreStore.open(tmp_path / "store").matrix(QUERIES, TEXTS)) == 1).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_forged_clustered_index_is_refused_or_harmless(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "ivf"
    vectors = np.random.default_rng(0).normal(size=(80, 8)).astype(np.float32)
    IVF.build(vectors, lists=4).save(path)
    record = json.loads((path / "ivf.json").read_text())
    del record["checksum"]
    forged = lie(record, random.Random(seed))
    if isinstance(forged, dict):
        forged["checksum"] = checksum_of(forged)
    (path / "ivf.json").write_text(json.dumps(forged))
    told(lambda: IVF.load(path).search(vectors[0], 3))


@pytest.mark.parametrize("seed", range(20))
def test_a_forged_search_in_a_log_is_passed_over(tmp_path: Path, seed: int) -> None:
    whole = _packed(logged(1))
    line, _, numbers = whole[16:].partition(b"\n")
    body = json.dumps(lie(json.loads(line), random.Random(seed))).encode() + b"\n" + numbers
    path = tmp_path / "log"
    path.write_bytes(struct.pack("<4sI8s", b"ccsr", len(body), _checksum(body)) + body)
    SearchLog(path).append([logged(2)])
    read = SearchLog(path).read()
    assert read[-1].ids == logged(2).ids
    assert all(len(search.ids) == len(search.scores) for search in read)


def test_what_is_forgotten_is_gone_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "real.log", tmp_path / "log"
    link.symlink_to(target)
    search = logged(1, ("forgotten", "b"))
    SearchLog(link).append([search])
    assert b"forgotten" in target.read_bytes()
    SearchLog(link).forget(ids=search.ids[:1])
    assert link.is_symlink()
    assert b"forgotten" not in target.read_bytes()


# -- models --------------------------------------------------------------------------------------------------------


def elsewhere(location: str) -> bytes:
    """A graph that adds numbers of another file to its input."""
    from onnx import TensorProto, helper

    tensor = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    ends = [helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [tensor])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return made


@pytest.mark.parametrize("location", ["weights.bin", "../weights.bin", "/etc/hostname", "link.bin"])
def test_weights_in_other_files_are_refused(tmp_path: Path, location: str) -> None:
    """Beside the graph they would change scores under the same fingerprint; elsewhere they are not the model's."""
    folder = tmp_path / "model"
    folder.mkdir()
    for place in (folder, tmp_path):
        np.arange(4, dtype="<f4").tofile(place / "weights.bin")
    (folder / "link.bin").symlink_to("../weights.bin")
    (folder / "a.onnx").write_bytes(elsewhere(location))
    with pytest.raises(InputError, match="in one file"):
        Session(folder / "a.onnx", 1)
    make(tmp_path)
    (tmp_path / "model" / "cross.onnx").write_bytes(elsewhere(location))
    with pytest.raises(InputError, match="in one file"):
        OnnxCrossEncoder.load(tmp_path / "model").score("query", ["a text"])


GOOD = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.base.modules.pooling.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


@pytest.mark.parametrize(
    "kind", ["os.system", "theirs.Model", "joblib.numpy_pickle", "sentence_transformers.util.misc.importlib", "", "…"]
)
def test_a_model_folder_chooses_no_code(tmp_path: Path, kind: str) -> None:
    (tmp_path / "theirs.py").write_text("raise SystemExit('their code was run')")
    (tmp_path / "modules.json").write_text(json.dumps([*GOOD, {**GOOD[0], "type": kind}]))
    for load in (read_modules, TorchDualEncoder.load):
        with pytest.raises(InputError, match="is not run"):
            load(tmp_path)


@pytest.mark.parametrize("place", ["..", "../../elsewhere", "/tmp", "link"])
def test_a_model_folder_points_nowhere_else(tmp_path: Path, place: str) -> None:
    """Training writes new weights where the old ones lie."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path, target_is_directory=True)
    (folder / "modules.json").write_text(json.dumps([{**GOOD[0], "path": place}, *GOOD[1:]]))
    for load in (read_modules, TorchDualEncoder.load):
        with pytest.raises(InputError, match="not in that folder"):
            load(folder)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[[]]", '[{"type": 3}]', "[" * 100_000, '"x"'])
def test_modules_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    if text == "{}":
        assert read_modules(tmp_path) == []
        return
    with pytest.raises(InputError, match="made of"):
        read_modules(tmp_path)


def test_modules_as_they_are_saved(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(json.dumps(GOOD))
    assert [one.kind for one in read_modules(tmp_path)] == ["Transformer", "Pooling", "Normalize"]
    assert read_modules(tmp_path)[1].folder == tmp_path / "1_Pooling"


# -- data ----------------------------------------------------------------------------------------------------------


ARRAYS = {
    "nan": np.full((5, 60), np.nan, np.float32),
    "infinite": np.full((5, 60), np.inf, np.float32),
    "flat": np.zeros(60, np.float32),
    "deep": np.zeros((5, 60, 2), np.float32),
    "empty": np.zeros((0, 60), np.float32),
    "words": np.array([["a"] * 60] * 5),
    "objects": np.array([[{}] * 60] * 5, dtype=object),
    "complex": np.zeros((5, 60), complex),
    "wide": np.zeros((5, 61), np.float32),
}


@pytest.mark.parametrize("part", ["test", "train"])
@pytest.mark.parametrize("name", ARRAYS)
def test_scores_that_are_none_are_not_reproduced(tmp_path: Path, part: str, name: str) -> None:
    arrays: dict[str, Any] = {"train": np.zeros((8, 60), np.float32), "test": np.zeros((5, 60), np.float32)}
    np.savez(tmp_path / "x.npz", **{**arrays, part: ARRAYS[name]})
    if (part, name) == ("train", "empty"):
        return  # no train queries: some experiments need none
    with pytest.raises(InputError):
        _reproduced(tmp_path / "x.npz")


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04garbage", b"\x93NUMPY"])
def test_an_archive_that_is_none_is_not_reproduced(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(InputError, match="readable archive"):
        _reproduced(tmp_path / "x.npz")


def _reproduced(path: Path) -> None:
    from typer.testing import CliRunner

    from crosscut.cli import app

    how = ["--data", str(path), "--seeds", "1", "--output", str(path.parent / "out"), "--json"]
    done = CliRunner().invoke(app, ["reproduce", "anncur", "fig6", *how])
    if done.exception is not None:
        raise done.exception
