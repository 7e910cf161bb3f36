"""Readers of large files: all formats give the same items, columns are never guessed, memory is bounded."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.datasets import Item, read_items, read_queries
from crosscut.datasets.files import RECENT, Unique
from crosscut.errors import InputError

ROWS: list[dict[str, Any]] = [
    {"pk": "01", "headline": "Salt", "body": 'a "quoted", text\nof two lines', "year": 1999},
    {"pk": "02", "headline": "", "body": "שלום 🙂 [x]", "year": 2005},
    {"pk": "03", "headline": "Sea\\", "body": "plain", "year": 2010},
]
ITEMS = [Item(row["pk"], row["headline"], row["body"], {"year": row["year"]}) for row in ROWS]
NAMED: dict[str, Any] = {"text": "body", "title": "headline", "id": "pk", "numbers": ["year"]}


def write(path: Path) -> Path:
    """The rows, as the ending of the path says."""
    kind = path.name.partition(".")[2]
    if kind == "csv":
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(ROWS)
    elif kind == "parquet":
        pa.parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)
    elif kind == "feather":
        pa.feather.write_feather(pa.Table.from_pylist(ROWS), path)
    elif kind == "arrow":
        table = pa.Table.from_pylist(ROWS)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
    elif kind == "json":
        path.write_text(json.dumps(ROWS, indent=2, ensure_ascii=False), "utf-8")
    else:
        text = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "arrow", "json", "jsonl", "jsonl.gz"])
def test_every_format_gives_the_same_items(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"rows.{ending}")
    calls: list[tuple[str, int, int]] = []
    assert list(read_items(path, progress=lambda *call: calls.append(call), **NAMED)) == ITEMS
    if ending != "arrow":  # of a stream nobody knows the length
        assert calls[-1][1] == calls[-1][2] > 0
    assert read_queries(path, text="body", title="headline")[0].text.startswith('Salt a "quoted"')
    with pytest.raises(InputError, match=r"has no 'text' or 'contents'; it has .*'body'.*: name the one"):
        list(read_items(path))
    with pytest.raises(InputError, match=r"no (column )?'bdy'"):
        list(read_items(path, text="bdy"))
    assert [item.metadata for item in read_items(path, **{**NAMED, "metadata": [], "numbers": []})] == [{}, {}, {}]
    assert [item.id for item in read_items(path, text="body")] == ["1", "2", "3"]


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    for part, rows in enumerate((ROWS[:1], ROWS[1:])):
        pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / f"part-{part}.parquet")
    assert list(read_items(tmp_path, **NAMED)) == ITEMS
    pa.parquet.write_table(pa.Table.from_pylist(ROWS[:1]), tmp_path / "part-2.parquet")
    with pytest.raises(InputError, match="repeats the id '01' of line 1"):
        list(read_items(tmp_path, **NAMED))


def test_ms_marco(tmp_path: Path) -> None:
    path = tmp_path / "collection.tsv"
    path.write_bytes(b'0\tThe "presence\rof" communication\n1\tone\r\n2\tdocument\xc2\x85next\n')
    texts = [item.text for item in read_items(path)]
    assert texts == ['The "presence of" communication', "one", "document\x85next"]
    path.write_text("D1\thttp://a\tTitle\tBody\nD2\thttp://b\tOther\tText\n")
    with pytest.raises(InputError, match="line 1 has 4 fields between tabs; expected id and text"):
        list(read_items(path))
    items = list(read_items(path, id="1", title="3", text="4"))
    assert items == [Item("D1", "Title", "Body", {"2": "http://a"}), Item("D2", "Other", "Text", {"2": "http://b"})]
    path.write_text("id\ttext\tcolour\na\tone\tred\n")
    assert list(read_items(path)) == [Item("a", "", "one", {"colour": "red"})]
    path.write_text("id\ttext\na\tone\tred\n")
    with pytest.raises(InputError, match="line 2 has 3 fields between tabs; expected 2 as in its first line"):
        list(read_items(path))


@pytest.mark.parametrize(
    ("name", "content", "named", "message"),
    [
        ("a.jsonl", '{"_id": "a", "id": "b", "text": "x"}', {}, "has '_id' and 'id': say which is the id"),
        ("a.jsonl", '{"text": "a", "contents": "b"}', {}, "has 'text' and 'contents': say which is the text"),
        ("a.csv", "id,text\na,b,c\n", {}, "line 2 has 3 fields for 2 columns"),
        ("a.csv", "id,id\na,b\n", {}, "names the columns, each once"),
        ("a.csv", "", {}, "is empty"),
        ("a.csv", 'id,text\na,"b\n', {}, "broken CSV"),
        ("a.csv", "id,text,year\na,b,19x\n", {"numbers": ["year"]}, "'year' is '19x', which is no number"),
        ("a.json", '[{"text": "a"}, {"text": "b"', {}, "broken JSON after element 1"),
        ("a.json", '[{"text": "a"},]', {}, "a comma before the end"),
        ("a.json", '[{"text": "a"} {"text": "b"}]', {}, "expected , or ]"),
        ("a.json", '[{"text": "a"}', {}, "the array is not closed"),
        ("a.json", "[1]", {}, "element 1 is a JSON int"),
        ("a.parquet", "no parquet", {}, "cannot be read"),
        ("a.txt", "x", {"text": "body"}, "no columns to name"),
        ("a.jsonl", '{"text": "x"}', {"text": "text", "id": "text"}, "three columns"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, content: str, named: dict[str, Any], message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message.replace("]", r"\]")):
        list(read_items(tmp_path / name, **named))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=30), st.integers(0, 3))
def test_arrays_of_any_texts(tmp_path_factory: pytest.TempPathFactory, texts: list[str], indent: int) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_bytes(json.dumps([{"text": text} for text in texts], indent=indent or None).encode())
    assert [item.text for item in read_items(path)] == texts


def test_ids_are_compared_beyond_the_recent_ones() -> None:
    unique = Unique("a file")
    for number in range(3 * RECENT + 5):
        unique.check(f"id {number}", number + 1)
    unique.close()
    unique.check("id 7", 10**6)
    with pytest.raises(InputError, match="line 1000000 repeats the id 'id 7' of line 8;"):
        unique.close()


PEAK = """
import resource, sys
from crosscut.datasets import read_items
list(zip(range(1000), read_items(sys.argv[1])))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(1 for _ in read_items(sys.argv[1]))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("ending", ["tsv", "json", "parquet"])
def test_memory_is_bounded(tmp_path: Path, ending: str) -> None:
    path, n = tmp_path / f"large.{ending}", 200_000
    text = "a passage of some words and then some more of them " * 4
    if ending == "tsv":
        path.write_text("".join(f"{j}\t{text}{j}\n" for j in range(n)))
    elif ending == "json":
        path.write_text("[" + ",\n".join(f'{{"id": "{j}", "text": "{text}{j}"}}' for j in range(n)) + "]")
    else:
        table = pa.table({"id": [str(j) for j in range(n)], "text": [f"{text}{j}" for j in range(n)]})
        pa.parquet.write_table(table, path, row_group_size=20_000)
    count, more = map(int, subprocess.check_output([sys.executable, "-c", PEAK, str(path)], text=True).split())
    assert count == n
    assert more * 1024 < 45_000_000 + n * 130, "the ids, and no texts"  # of 42 MB of texts, and of objects for them


HOSTILE = {
    "endless.jsonl.gz": b"0" * 100_000,
    "endless.csv.gz": b"id,text\n" + b"a" * 100_000,
    "endless.csv": b'id,text\n1,"' + b"a" * 100_000,
    "endless.tsv.gz": b"a" * 100_000,
    "endless.txt.gz": b"a" * 100_000,
    "endless.json.gz": b'[{"text": "' + b"a" * 100_000,
    "deep.json": b"[" * 100_000,
    "deep.jsonl": b'{"text": ' + b"[" * 20_000,
    "digits.jsonl": b'{"text": "a", "n": ' + b"9" * 20_000 + b"}",
    "digits.json": b'[{"text": "a", "n": ' + b"9" * 20_000 + b"}]",
    "latin.jsonl": '{"text": "caf\u00e9"}'.encode("latin-1"),
    "wide.csv": "id,text\n1,a".encode("utf-16"),
    "half.jsonl.gz": b"half",
    "plain.jsonl.gz": b"plain",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_a_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that do not end, packed a thousandfold; nesting; numbers of 20,000 digits; other encodings; torn files."""
    monkeypatch.setattr("crosscut.datasets.files.LONGEST", 50_000)
    monkeypatch.setattr("crosscut.datasets.plain.LONGEST", 50_000)
    monkeypatch.setattr("crosscut.datasets.plain.PIECE", 1 << 10)
    csv.field_size_limit(50_000)
    data = HOSTILE[name]
    if name.endswith(".gz") and name != "plain.jsonl.gz":
        data = gzip.compress(data)
    if name == "half.jsonl.gz":
        data = data[:-9]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError, match=name.partition(".")[0]):
        list(read_items(path))


DAMAGED = """
import os, random, sys
from pathlib import Path
from crosscut.datasets.reading import read_items
from crosscut.errors import InputError
path, rng = Path(sys.argv[1]), random.Random(0)
good = path.read_bytes()
for number in range(int(sys.argv[2])):
    data = bytearray(good)
    for _ in range(rng.choice([1, 4, 40])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
    try:
        for item in read_items(path):
            assert isinstance(item.text, str)
    except InputError as error:
        assert path.name in str(error), error
"""


@pytest.mark.parametrize("name", ["file.arrow", "stream.arrow", "packed.feather", "rows.parquet"])
def test_damaged_columns_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """Offsets that lead out of a column end a process that follows them: in one of its own, nothing of that happens."""
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    count = 300
    table = pyarrow.table(
        {
            "id": [f"i{j}" for j in range(count)],
            "text": [f"text {j} of the corpus" for j in range(count)],
            "tags": [[f"t{j % 3}", "all"] for j in range(count)],
            "kind": pyarrow.array(["one", "other"] * (count // 2)).dictionary_encode(),
            "when": pyarrow.array(range(count), pyarrow.timestamp("us")),
            "more": [{"place": "here", "number": j} for j in range(count)],
        }
    )
    path = tmp_path / name
    if name.endswith(".parquet"):
        pyarrow.parquet.write_table(table, path, row_group_size=100)
    elif name.endswith(".feather"):
        pyarrow.feather.write_feather(table, path, compression="zstd")
    else:
        made = pyarrow.ipc.new_stream if name.startswith("stream") else pyarrow.ipc.new_file
        with pyarrow.OSFile(str(path), "wb") as file, made(file, table.schema) as rows:
            rows.write_table(table, 100)
    done = subprocess.run(
        [sys.executable, "-c", DAMAGED, str(path), "150"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
