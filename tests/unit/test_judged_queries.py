"""Which queries are judged, and which of them are test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crosscut.datasets.beir import is_test
from crosscut.datasets.judged import read_judged
from crosscut.errors import InputError


def folder(path: Path, *, splits: bool = False, files: bool = False) -> Path:
    path.mkdir()
    records = [
        {"_id": f"q{j}", "text": f"query {j}", **({"split": "train" if j % 3 else "test"} if splits else {})}
        for j in range(30)
    ]
    (path / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    lines = [f"q{j}\td{j}\t1\n" for j in range(29)]  # the last is not judged
    if files:
        (path / "qrels").mkdir()
        (path / "qrels" / "dev.tsv").write_text("".join(lines[:7]))
    else:
        (path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return path


def test_a_split_in_the_queries_is_respected(tmp_path: Path) -> None:
    made = read_judged(folder(tmp_path / "a", splits=True), split="test")
    assert list(made.queries) == [f"q{j}" for j in range(0, 29, 3)]
    assert made.qrels["q3"] == {"d3": 1.0}
    assert len(read_judged(tmp_path / "a", split="all").queries) == 29
    with pytest.raises(InputError, match="there are test, train, and 'all'"):
        read_judged(tmp_path / "a", split="dev")


def test_without_splits_a_fixed_fifth_is_test(tmp_path: Path) -> None:
    path = folder(tmp_path / "a")
    test, train = (read_judged(path, split=split) for split in ("test", "train"))
    assert set(test.queries) == {f"q{j}" for j in range(29) if is_test(f"q{j}")}
    assert not set(test.queries) & set(train.queries)
    assert len(test.queries) + len(train.queries) == 29
    assert "a fixed fifth is test" in test.note
    with pytest.raises(InputError, match="no splits"):
        read_judged(path, split="dev")


def test_a_file_of_a_split_is_that_split(tmp_path: Path) -> None:
    assert list(read_judged(folder(tmp_path / "a", files=True), split="dev").queries) == [f"q{j}" for j in range(7)]


def test_a_folder_of_split_files_says_which_there_are_and_takes_all(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", files=True)
    (path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq9\td1\t1\nq3\tother\t2\n")
    made = read_judged(path, split="all")
    assert list(made.queries) == [*(f"q{j}" for j in range(7)), "q9"]
    assert made.qrels["q3"] == {"d3": 1.0, "other": 2.0}
    with pytest.raises(InputError, match="no judgements of split 'train': there are dev, test, and 'all'"):
        read_judged(path, split="train")


def test_of_a_file_the_judged_queries_are_taken_and_others_ids_are_refused(tmp_path: Path) -> None:
    queries, qrels = tmp_path / "queries.tsv", tmp_path / "qrels.tsv"
    queries.write_text("".join(f"q{j}\tquery {j}\n" for j in range(30)))
    qrels.write_text("q20\td1\t1\nq21\td2\t0.5\n")
    made = read_judged(queries, qrels=qrels)
    assert made.queries == {"q20": "query 20", "q21": "query 21"}
    assert made.note == "2 queries of queries.tsv, the judged ones of 30"
    assert len(read_judged(queries).queries) == 30
    (tmp_path / "queries.txt").write_text("query 20\nquery 21\n")
    with pytest.raises(InputError, match=r"none of the 2 queries .* the first of them is 'q20', .* has the id '1'"):
        read_judged(tmp_path / "queries.txt", qrels=qrels)
    qrels.write_text("q20\td1\tnan\n")
    with pytest.raises(InputError, match="'nan' is not a number"):
        read_judged(queries, qrels=qrels)


def test_samples_depend_on_the_seed_alone(tmp_path: Path) -> None:
    made = read_judged(folder(tmp_path / "a"), split="all")
    one, two, other = made.sample(9), made.sample(9), made.sample(9, seed=1)
    assert list(one.queries) == list(two.queries) != list(other.queries)
    assert list(one.queries) != list(made.queries)[:9]
    assert made.sample(100) is made
    assert one.by_text.keys() == set(one.queries.values())


def test_a_file_with_splits_uses_no_train_query_as_test_query(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", splits=True)
    queries, qrels = path / "queries.jsonl", path / "qrels.tsv"
    test = read_judged(queries, qrels=qrels)
    assert list(test.queries) == [f"q{j}" for j in range(0, 29, 3)]
    assert test.note == "10 queries of queries.jsonl: those whose split is 'test', the judged ones of 30"
    train = read_judged(queries, qrels=qrels, split="train")
    assert len(train.queries) == 19
    assert not set(train.queries) & set(test.queries)
    assert len(read_judged(queries, qrels=qrels, split="all").queries) == 29
    with pytest.raises(InputError, match="is of split 'dev': there are test, train, and 'all'"):
        read_judged(queries, qrels=qrels, split="dev")
    assert len(read_judged(queries).queries) == 30  # nothing is judged of them
    (tmp_path / "one.txt").write_text("a query\n")
    assert read_judged(tmp_path / "one.txt").note == "1 query of one.txt"
