"""Folders that come from somebody else: links, pipes, forged checksums, models that choose code or files."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.ann import clustered
from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.index import KIND as CLUSTERED
from crosscut.datasets.records import plain_text
from crosscut.errors import CrosscutError, InputError, StoreError
from crosscut.index import Index, corpus
from crosscut.index.folder import KIND
from crosscut.index.log import SearchLog
from crosscut.models.bi_encoder import TorchDualEncoder
from crosscut.models.hub import check_modules
from crosscut.models.session import OnnxSession
from crosscut.score_store import ScoreStore
from crosscut.scorers.adapters import TextScorer
from crosscut.search.prior import Prior
from crosscut.spaces.factorization.factors import KIND as FACTORS
from crosscut.spaces.factorization.factors import Factors, Fitting
from crosscut.spaces.sparse import Normalisation
from crosscut.storage import Kind, checksum_of, digest, npy_header
from tests.unit.test_index import Planted, build, planted_items

WORLD = Planted()
ODD: list[Any] = [None, -1, 0, 2**70, 1e308, "", "x", "../../etc", "x" * 1000, [], {}, [[]], True, [1, 2], 3.5]
QUERIES = [f"query {j}" for j in range(6)]
TEXTS = [f"text {j}" for j in range(20)]


def loaded(path: Path) -> Index:
    return Index.load(path, scorer=TextScorer(WORLD.score, fingerprint="planted"), encoder=WORLD)


def used(path: Path) -> None:
    """All that a search reads of an index; what it answers is true, whatever the index says."""
    index = loaded(path)
    for how in ({}, {"method": "hybrid"}, {"filter": {"year": {"gte": 0}, "colour": ["red", "blue"]}}):
        hits = index.search("query 50", 5, 20, **how)
        assert hits.calls <= 20
        assert len(set(hits.ids)) == len(hits) <= 5
        assert all(index[hit.id] == hit.item for hit in hits if hit.id in index)
        read = [plain_text(hit.item) for hit in hits if hit.item is not None]
        assert hits.scores.tolist() == pytest.approx(WORLD.score("query 50", read).tolist() if read else [])


def saved(path: Path) -> Path:
    index = build(WORLD, queries=8, stop=30)
    index.save(path)
    return path


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values of a JSON document."""
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


def outcome(work: Callable[[], object]) -> str:
    """It works, or is refused in a sentence: no other exception. Which of them, so that a test can ask for both."""
    try:
        work()
    except CrosscutError:
        return "refused"
    return "works"


def homes_of(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files of every folder that a record names."""
    return {record["folder"]: record["files"], **record["parts"]}


def forged(path: Path, kind: Kind, name: str, data: bytes) -> None:
    """Another file in the place of one of a folder, with the checksums that anybody can make."""
    record = json.loads((path / kind.record).read_text())
    del record["checksum"]
    home, files = next((home, files) for home, files in homes_of(record).items() if name in files)
    (path / home / name).unlink()
    (path / home / name).write_bytes(data)
    files[name] = {"bytes": len(data), "blake2b": digest(data).hexdigest()}
    record["checksum"] = checksum_of(record)
    (path / kind.record).write_text(json.dumps(record))


def npy(array: Any) -> bytes:
    return npy_header(array.dtype, array.shape) + array.tobytes()


def ways(array: Any) -> Iterator[tuple[str, Any]]:
    """An array with something in it that no honest one has, or of another shape or kind."""
    floats, last = array.dtype.kind == "f", array.size - 1
    most = np.finfo(array.dtype).max if floats else np.iinfo(array.dtype).max if array.dtype.kind in "iu" else True
    least = -most if floats else np.iinfo(array.dtype).min if array.dtype.kind in "iu" else False
    for value in (most, least, *((np.nan, np.inf) if floats else ())):
        for places in (slice(0, 1), slice(last // 2, last // 2 + 1), slice(last, None), slice(None)):
            made = array.copy()
            made.reshape(-1)[places] = value
            yield f"{value} at {places.start}", made
    yield "reversed", np.ascontiguousarray(array.reshape(-1)[::-1].reshape(array.shape))
    yield "shorter", array[:-1]
    yield "longer", np.concatenate([array, array[-1:]])
    yield "empty", array[:0]
    yield "another kind", array.astype("<c16")
    if array.ndim > 1:
        yield "narrower", np.ascontiguousarray(array[:, :-1])
        yield "no columns", np.ascontiguousarray(array[:, :0])


def without_a_crash(folder: Path, work: Path, kind: Kind, use: Callable[[Path], None]) -> dict[str, set[str]]:
    """Every array of a folder in every way, with the right checksums: what became of each file."""
    outcomes: dict[str, set[str]] = {}
    record = json.loads((folder / kind.record).read_text())
    for file in sorted(file for home in homes_of(record) for file in (folder / home).glob("*.npy")):
        for what, array in ways(np.load(file)):
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(folder, work)
            forged(work, kind, file.name, npy(array))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # numbers of 1e38 may overflow: an order, no score
                    outcomes.setdefault(file.name, set()).add(outcome(lambda: use(work)))
            except Exception as error:
                raise AssertionError(f"{file.name}, {what}") from error
    return outcomes


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


def test_a_forged_record_is_refused_or_harmless(index: Path, tmp_path: Path) -> None:
    outcomes = []
    for seed in range(40):
        path = tmp_path / str(seed)
        shutil.copytree(index, path)
        record, rng = record_of(index), random.Random(seed)
        files = {name: record.pop(name) for name in ("files", "folder", "format", "version", "parts") if seed % 2}
        lied = lie(record, rng)  # every other time not about files, which are refused at once
        sealed(path, {**files, **lied} if isinstance(lied, dict) else lied)
        outcomes.append(outcome(lambda path=path: used(path)))
    assert min(outcomes.count("refused"), outcomes.count("works")) >= 2, outcomes


def test_a_forged_file_with_the_right_checksums_is_refused_or_harmless(index: Path, tmp_path: Path) -> None:
    outcomes = []
    for seed in range(60):
        path = tmp_path / str(seed)
        shutil.copytree(index, path)
        names = sorted(name for files in homes_of(record_of(path)).values() for name in files)
        forged(path, KIND, *changed(path, names[seed % len(names)], random.Random(seed)))
        outcomes.append(outcome(lambda path=path: used(path)))
    assert min(outcomes.count("refused"), outcomes.count("works")) >= 2, outcomes


def changed(path: Path, name: str, rng: random.Random) -> tuple[str, bytes]:
    """A file that says something else in a few places."""
    data = next(path.glob(f"0*/{name}")).read_bytes()
    if name.endswith(".json"):
        data = json.dumps(lie(json.loads(data), rng)).encode()
    elif name.endswith(".jsonl"):
        data = b"".join(json.dumps(lie(json.loads(line), rng)).encode() + b"\n" for line in data.splitlines())
    else:
        harmed = bytearray(data)
        for _ in range(4):
            harmed[rng.randrange(min(128, len(data) - 1), len(data))] = rng.randrange(256)
        data = bytes(harmed)
    return name, data


def test_no_array_of_an_index_leads_astray(index: Path, tmp_path: Path) -> None:
    """Compiled code goes by them: outside of an array, or with NaN, it would crash or answer anything."""
    outcomes = without_a_crash(index, tmp_path / "a", KIND, used)
    assert len(outcomes) >= 12, sorted(outcomes)
    assert {name for name, found in outcomes.items() if "refused" not in found} == set()


def test_no_array_of_a_large_index_leads_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its segments have lists."""
    for module, name, size in ((clustered, "SMALL", 20), (corpus, "LISTED", 4)):
        monkeypatch.setattr(module, name, size)
    build(WORLD, stop=30).save(tmp_path / "large")
    grown = loaded(tmp_path / "large")
    grown.add(planted_items(30, 36))
    grown.remove(["i3"])
    grown.save()
    outcomes = without_a_crash(tmp_path / "large", tmp_path / "a", KIND, used)
    assert {"centroids.npy", "starts.npy", "order.npy"} <= outcomes.keys()
    assert {name for name, found in outcomes.items() if "refused" not in found} == set()


def test_no_array_of_what_was_learned_leads_astray(tmp_path: Path) -> None:
    index, rng = build(WORLD, stop=30), np.random.default_rng(0)
    prior = Prior(rng.normal(size=8), rng.normal(size=8), 1.0, np.eye(8), 0.5, 40, np.arange(0, 30, 3), np.ones(10))
    index.corpus = replace(index.corpus, prior=prior)
    index.save(tmp_path / "learned")
    outcomes = without_a_crash(tmp_path / "learned", tmp_path / "a", KIND, used)
    learned = {name: found for name, found in outcomes.items() if name.startswith("prior-")}
    assert len(learned) == 5
    for name in learned:
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(tmp_path / "learned", tmp_path / "a")
        made = np.load(tmp_path / "learned" / record_of(tmp_path / "learned")["folder"] / name)
        made.reshape(-1)[:2] = made.reshape(-1)[1] if name == "prior-seen.npy" else np.nan
        forged(tmp_path / "a", KIND, name, npy(made))
        with pytest.raises(InputError, match=name):
            loaded(tmp_path / "a")
    for wrong in ({"slope": float("nan")}, {"noise": -1.0}, {"weight": 1e300}, {"noise": float("inf")}):
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(tmp_path / "learned", tmp_path / "a")
        facts = {"slope": 1.0, "noise": 0.5, "searches": 40, "weight": 1.0, "bought": False, **wrong}
        forged(tmp_path / "a", KIND, "prior.json", json.dumps(facts).encode())
        with pytest.raises(InputError, match=r"prior\.json"):
            loaded(tmp_path / "a")


def test_no_array_of_factors_leads_astray(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    items, queries = rng.normal(size=(20, 4)).astype("<f4"), rng.normal(size=(5, 4)).astype("<f4")
    fitting = Fitting("als", 1, 0, 1, 1, 5, [1], [1], [1], 0)
    Factors(items, queries, Normalisation(0.5, 2.0), fitting).save(tmp_path / "factors")

    def use(path: Path) -> None:
        made = Factors.load(path)
        assert np.isfinite(made.query_factors).all()
        assert np.isfinite(made.rows(np.arange(made.n))).all()

    outcomes = without_a_crash(tmp_path / "factors", tmp_path / "a", FACTORS, use)
    assert {name: "refused" in found for name, found in outcomes.items()} == dict.fromkeys(outcomes, True)


@pytest.mark.parametrize("wrong", [{"slope": float("nan")}, {"intercept": float("inf")}, {"relevant": 0}, {"x": 1}])
def test_a_forged_calibration_is_refused(index: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = tmp_path / "a"
    shutil.copytree(index, path)
    right = {"fingerprint": "planted", "slope": 1.0, "intercept": 0.0, "queries": 10, "pairs": 100, "relevant": 9}
    sealed(path, record_of(path) | {"calibration": right | wrong})
    with pytest.raises(InputError):
        loaded(path)
    sealed(path, record_of(path) | {"calibration": right})
    assert 0 < loaded(path).search("query 50", 5, 20)[0].probability < 1  # type: ignore[operator]


@pytest.mark.parametrize("notes", [3, [[]], {"a": 1}, None])
def test_forged_notes_of_a_tuning_are_harmless(index: Path, tmp_path: Path, notes: Any) -> None:
    path = tmp_path / "a"
    shutil.copytree(index, path)
    sealed(path, record_of(path) | {"tuned": {"notes": notes}})
    with pytest.raises(InputError, match="needs a calibration"):
        loaded(path).search("query 50", 5, 20, target_recall=0.9)


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


@pytest.mark.parametrize("end", ["pipe", "/dev/zero"])
def test_what_never_ends_is_not_read(index: Path, tmp_path: Path, end: str) -> None:
    """A pipe would hold a process for ever, a device fill its memory."""
    path = tmp_path / "a"
    home = next(iter(record_of(index)["parts"]))
    for victim in (KIND.record, f"{home}/items.jsonl", f"{home}/segment.json"):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(index, path)
        (path / victim).unlink()
        endless(path / victim, end)
        with pytest.raises(InputError, match="it is no file"):
            loaded(path)
    store = tmp_path / "store"
    made = ScoreStore(store, scorer_fingerprint="theirs")
    made.put_block(QUERIES, TEXTS, np.zeros((6, 20), np.float32))
    made.database.path.unlink()
    endless(made.database.path, end)
    with pytest.raises(StoreError, match="is no file"):
        ScoreStore.open(store)
    endless(tmp_path / "log", end)
    with pytest.raises(StoreError, match="is no file"):
        SearchLog(tmp_path / "log").read()


def endless(path: Path, end: str) -> None:
    os.mkfifo(path) if end == "pipe" else path.symlink_to(end)


def test_a_forged_clustered_index_is_refused_or_harmless(tmp_path: Path) -> None:
    """Its hits exist, each once, at the distance that is returned, whatever metric and rule the record has."""
    path, vectors = tmp_path / "ivf", np.random.default_rng(0).normal(size=(80, 8)).astype(np.float32)
    IVF.build(vectors, lists=4).save(path)
    honest = json.loads((path / "ivf.json").read_text())
    del honest["checksum"]

    def use() -> None:
        index = IVF.load(path)
        found = index.search(vectors[0], 3)
        assert len(set(found.ids.tolist())) == len(found.ids) <= 3
        products, apart = vectors[found.ids] @ vectors[0], ((vectors[found.ids] - vectors[0]) ** 2).sum(axis=1)
        np.testing.assert_allclose(found.scores, products if index.metric == "ip" else -apart, atol=1e-3)

    outcomes = []
    for seed in range(40):
        lied = lie(honest, random.Random(seed))
        if isinstance(lied, dict):
            lied["checksum"] = checksum_of(lied)
        (path / "ivf.json").write_text(json.dumps(lied))
        outcomes.append(outcome(use))
    assert min(outcomes.count("refused"), outcomes.count("works")) >= 2, outcomes


def test_starts_of_lists_that_wrap_around_are_refused(tmp_path: Path) -> None:
    """Each is larger than the one before by so much as numbers of 64 bits can hold."""
    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    IVF.build(vectors, lists=8).save(tmp_path / "ivf")
    starts = np.array([0, 2**62, 2**63 - 1, -(2**63), -(2**62), -5, 0, 3, 60], "<i8")
    assert (np.diff(starts) >= 0).all()
    forged(tmp_path / "ivf", CLUSTERED, "starts.npy", npy(starts))
    with pytest.raises(InputError, match=r"starts\.npy"):
        IVF.load(tmp_path / "ivf")


def test_no_array_of_a_clustered_index_leads_astray(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    IVF.build(vectors, lists=4).save(tmp_path / "ivf")

    def use(path: Path) -> None:
        index = IVF.load(path)
        for rule in (4, None):
            found = index.search(vectors[0], 5, rule=rule)
            assert len(set(found.ids.tolist())) == len(found.ids) <= 5
            assert np.isfinite(found.scores).all()
        index.rows(found.ids)
        assert np.isfinite(index.search(vectors[1], 5).scores).all()

    outcomes = without_a_crash(tmp_path / "ivf", tmp_path / "a", CLUSTERED, use)
    assert {name: "refused" in found for name, found in outcomes.items()} == dict.fromkeys(outcomes, True)


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
        OnnxSession(folder / "a.onnx", 1)


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
    for load in (check_modules, TorchDualEncoder.load):
        with pytest.raises(InputError, match="is not run"):
            load(tmp_path)


@pytest.mark.parametrize("place", ["..", "../../elsewhere", "/tmp", "link"])
def test_a_model_folder_points_nowhere_else(tmp_path: Path, place: str) -> None:
    """Training writes new weights where the old ones lie."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path, target_is_directory=True)
    (folder / "modules.json").write_text(json.dumps([{**GOOD[0], "path": place}, *GOOD[1:]]))
    for load in (check_modules, TorchDualEncoder.load):
        with pytest.raises(InputError, match="not in that folder"):
            load(folder)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[[]]", '[{"type": 3}]', "[" * 100_000, '"x"'])
def test_modules_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    if text == "{}":
        check_modules(tmp_path)
        return
    with pytest.raises(InputError, match="made of"):
        check_modules(tmp_path)


def test_modules_as_they_are_saved(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(json.dumps(GOOD))
    check_modules(tmp_path)


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
