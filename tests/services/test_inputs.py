"""Inputs: frames, datasets, mappings, documents, folders, passages, embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crosscut
from crosscut.cli import app
from crosscut.datasets import Item, read_folder
from crosscut.errors import InputError
from crosscut.index.items import as_items
from crosscut.index.passages import document_of

ROWS = [
    {"id": "s", "title": "Salt", "text": "Sea salt and rock salt.", "year": 1999},
    {"id": "i", "title": "Ice", "text": "Ice floats.", "year": 2005},
]
ITEMS = [Item("s", "Salt", "Sea salt and rock salt.", {"year": 1999}), Item("i", "Ice", "Ice floats.", {"year": 2005})]


def words(query: str, texts: Any) -> list[float]:
    wanted = query.lower().split()
    return [float(sum(text.lower().count(word) for word in wanted)) for text in texts]


def built(source: Any, **options: Any) -> crosscut.Index:
    return crosscut.Index.build(source, **{"scorer": words, "encoder": None, "method": "exact", **options})


def frames() -> dict[str, Any]:
    import datasets
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    return {
        "pandas": pd.DataFrame(ROWS),
        "polars": pl.DataFrame(ROWS),
        "polars, lazy": pl.DataFrame(ROWS).lazy(),
        "pyarrow": pa.Table.from_pylist(ROWS),
        "datasets": datasets.Dataset.from_list(ROWS),
        "datasets, streamed": datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
    }


@pytest.mark.parametrize("kind", ["pandas", "polars", "polars, lazy", "pyarrow", "datasets", "datasets, streamed"])
def test_a_row_is_an_item(kind: str) -> None:
    assert as_items(frames()[kind]) == ITEMS
    assert built(frames()[kind]).search("ice", 1, filter={"year": {"gte": 2000}}).ids == ["i"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "datasets"])
def test_columns_are_named_and_never_guessed(kind: str) -> None:
    frame = frames()[kind]
    old = {"text": "body", "title": "headline", "id": "pk", "year": "year"}
    if kind == "pandas":
        frame = frame.rename(columns=old)
    elif kind == "polars":
        frame = frame.rename(old)
    elif kind == "pyarrow":
        frame = frame.rename_columns(old)
    else:
        frame = frame.rename_columns({name: new for name, new in old.items() if name != new})
    assert as_items(frame, text="body", title="headline", id="pk") == ITEMS
    with pytest.raises(InputError, match=r"no 'text' or 'contents'; it has .*'body', .*text=…"):
        as_items(frame)
    with pytest.raises(InputError, match="no 'bodi'"):
        as_items(frame, text="bodi")


def test_the_index_of_a_pandas_frame_is_the_id() -> None:
    import pandas as pd

    frame = pd.DataFrame(ROWS)
    assert as_items(frame.set_index("id")) == ITEMS
    assert as_items(frame.set_index("id").rename_axis("key"), id="key") == ITEMS
    plain = frame.drop(columns="id")
    assert [item.id for item in as_items(plain)] == ["0", "1"]
    assert [item.id for item in as_items(plain, taken=5)] == ["5", "6"]  # items that are added
    assert [item.id for item in as_items(plain[plain.year > 2000])] == ["1"]
    assert [item.id for item in as_items(frame.set_index("year"))] == ["s", "i"]  # there is a column for it
    series = pd.Series({"a": "one", "b": "two"})
    assert as_items(series) == [Item("a", "", "one"), Item("b", "", "two")]
    holes = pd.DataFrame({"text": ["a", "b"], "year": [1999, None], "when": [pd.Timestamp("2020-01-02"), pd.NaT]})
    assert [item.metadata for item in as_items(holes)] == [
        {"year": 1999, "when": "2020-01-02T00:00:00"},
        {"year": None, "when": None},
    ]
    with pytest.raises(InputError, match="'text'"):
        as_items(pd.DataFrame({"text": ["a", None]}))


def test_mappings_and_tuples() -> None:
    assert as_items({"s": "salt", 2: "ice"}) == [Item("s", "", "salt"), Item("2", "", "ice")]
    assert as_items({"s": {"title": "Salt", "text": "salt", "year": 1}}) == [Item("s", "Salt", "salt", {"year": 1})]
    assert as_items([("s", "salt"), ("i", "Ice", "ice")]) == [Item("s", "", "salt"), Item("i", "Ice", "ice")]
    with pytest.raises(InputError, match="'text' leads to a list; of columns, make a frame"):
        as_items({"text": ["a", "b"]})
    with pytest.raises(InputError, match=r"\(id, text\) or \(id, title, text\); got one of 4"):
        as_items([("a", "b", "c", "d")])
    with pytest.raises(InputError, match="item 0 is a float; expected a text"):
        as_items([1.5])
    with pytest.raises(InputError, match="do not come from a int"):
        as_items(3)
    with pytest.raises(InputError, match="no columns to name; got 'a'"):
        as_items([("a", "b")], text="a")


def test_a_dataset_of_splits_is_asked_about() -> None:
    import datasets

    splits = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS)})
    with pytest.raises(InputError, match=r"splits \(train, test\): pass one of them"):
        as_items(splits)


def test_documents_of_other_libraries() -> None:
    from haystack import Document as Haystack
    from langchain_core.documents import Document as LangChain
    from llama_index.core.schema import Document as Llama
    from llama_index.core.schema import TextNode

    wanted = Item("s", "Salt", "salt", {"year": 1})
    about = {"title": "Salt", "year": 1}
    assert as_items([LangChain("salt", metadata=about, id="s")]) == [wanted]
    assert as_items([LangChain("salt")]) == [Item("0", "", "salt")]
    assert as_items([Llama(text="salt", metadata=about, id_="s"), TextNode(text="ice", id_="i")])[0] == wanted
    assert as_items([Haystack(id="s", content="salt", meta=about)]) == [wanted]
    with pytest.raises(InputError, match="'h' has no text"):
        as_items([Haystack(id="h", content=None)])


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "a.txt").write_text("plain text\nof two lines\n")
    (folder / "deep" / "b.md").write_text("---\ntags: x\n---\n\n# About ice #\n\nIce floats.\n\n## More\n\nIt melts.\n")
    (folder / "c.html").write_text(
        "<html><head><title>Salt &amp; sea</title><style>p {}</style></head>"
        "<body><p>Salt <b>melts</b> ice.</p><script>no()</script><p>So it does.</p></body></html>"
    )
    (folder / ".git" / "d.txt").write_text("hidden")
    (folder / "e.bin").write_bytes(b"\0")
    return folder


def test_a_folder_of_texts(notes: Path, tmp_path: Path) -> None:
    assert list(read_folder(notes)) == [
        Item("a.txt", "", "plain text\nof two lines"),
        Item("c.html", "Salt & sea", "Salt melts ice.\nSo it does."),
        Item("deep/b.md", "About ice", "Ice floats.\n\n## More\n\nIt melts."),
    ]
    assert built(notes).search("floats", 1).ids == ["deep/b.md"]
    done = CliRunner().invoke(
        app, ["index", "build", str(notes), str(tmp_path / "my.index"), "--encoder", "none", "--method", "hybrid"]
    )
    assert done.exit_code == 0, done.output
    assert "deep/b.md" in crosscut.Index.load(tmp_path / "my.index")
    with pytest.raises(InputError, match="no columns to name"):
        as_items(notes, text="body")
    (notes / "f.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match=r"f\.txt is not UTF-8"):
        as_items(notes)


LONG = "Rivers run to the sea. Banks lend money. " + "Nothing here. " * 12 + "Cats sleep all day.\n\nDogs bark at cats."


def test_passages_are_windows_of_sentences() -> None:
    made = list(crosscut.Passages(words=10, overlap=1).cut([Item("d", "T", LONG, {"year": 1})]))
    first = "Rivers run to the sea. Banks lend money. Nothing here."
    assert made[0] == Item("d#1", "T", first, {"year": 1, "passage_of": "d", "passage_at": 0})
    assert made[1].text.startswith("Nothing here. Nothing here.")
    assert all(len(passage.text.split()) <= 10 for passage in made)
    assert all(LONG[p.metadata["passage_at"] :].startswith(p.text) for p in made)
    assert document_of(made[::-1]).text.split() == LONG.split()
    whole = document_of(made)
    assert (whole.id, whole.title, whole.metadata) == ("d", "T", {"year": 1})
    cut = crosscut.Passages(words=4, overlap=0)
    assert cut.windows("one two three four five six") == [(0, 18), (19, 27)]
    assert [cut.windows(text) for text in ("", " ")] == [[(0, 0)], [(0, 1)]]
    for wrong in ({"words": 0}, {"overlap": -1}, {"score": "sum"}):
        with pytest.raises(InputError):
            crosscut.Passages(**wrong)


def test_a_search_of_passages_answers_with_documents(tmp_path: Path) -> None:
    papers = {
        "a": "Cats sleep. " * 30 + "Cats chase cats and more cats.",
        "b": "Dogs bark. " * 40 + "A cat too.",
        "c": "Rivers run. " * 40,
    }
    scorer = crosscut.TextScorer(words, fingerprint="w")
    index = built(papers, passages=crosscut.Passages(words=12, overlap=0), scorer=scorer)
    n = len(index)
    assert n > 15
    hits = index.search("cats", k=3)
    assert hits.calls == n  # the budget counts passages
    assert hits.ids[0] == "a"
    assert len(hits) == len(set(hits.ids)) == 3  # k counts documents
    assert hits[0].text is not None
    assert len(hits[0].text.split()) <= 12  # the passage is shown
    best = max(words("cats", [item.text])[0] for item in index.items if item.metadata["passage_of"] == "a")
    assert hits[0].score == best
    assert index["a"].text.split() == papers["a"].split()
    assert ("a" in index, "a#1" in index, "z" in index) == (True, True, False)
    assert index.search("cats", k=1, budget=2, method="hybrid", candidates=["c"]).ids == ["c"]
    index.save(tmp_path / "my.index")
    again = crosscut.Index.load(tmp_path / "my.index", scorer=scorer)
    rows = [[(hit.id, hit.score, hit.text) for hit in found] for found in (again.search("cats", 3), hits)]
    assert rows[0] == rows[1]
    with pytest.raises(InputError, match="1 of 1 ids are in the index already"):
        again.add({"a": "new"})
    assert again.add({"d": "cats cats cats cats cats. " * 9}) == 1
    assert again.search("cats", 1).ids == ["d"]
    assert again.remove(["d", "b"]) == 2
    assert [item for item in again.items if item.metadata["passage_of"] in ("d", "b")] == []
    with pytest.raises(InputError, match="passage_of"):
        again.add([Item("x", "", "y", {"passage_of": "z"})])


def test_the_mean_of_passages() -> None:
    papers = {"once": "cats cats cats cats. no. no. no.", "often": "cats cats. cats cats. cats cats. cats cats."}
    best = built(papers, passages=crosscut.Passages(words=4, overlap=0)).search("cats", 2)
    mean = built(papers, passages=crosscut.Passages(words=4, overlap=0, score="mean")).search("cats", 2)
    assert best.ids == ["once", "often"]
    assert mean.ids == ["often", "once"]
    assert mean.scores.tolist() == [4.0, 2.0]


def letters(texts: list[str]) -> np.ndarray:
    return np.array([[text.lower().count(letter) for letter in "aeiost"] for text in texts], np.float32)


def test_embeddings_of_ones_own() -> None:
    from langchain_core.embeddings import Embeddings

    class Own(Embeddings):
        model_name = "letters"

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return letters(texts).tolist()

        def embed_query(self, text: str) -> list[float]:
            return (letters([text])[0] * 2).tolist()

    texts = ["a cat sat", "ooo", "tie tie", "essay"]
    for encoder, times in ((letters, 1), ((lambda t: 2 * letters(t), letters), 2), (Own(), 2)):
        index = crosscut.Index.build(texts, scorer=words, encoder=encoder, dtype=np.float32)
        np.testing.assert_array_equal(index.corpus.vectors, letters(texts))
        assert index.encoder is not None
        np.testing.assert_array_equal(index.encoder.encode_queries(["tie"]), times * letters(["tie"]))
        assert index.search("tie", 1, 2, method="rerank").calls == 2
        index.add(["a tie"])
    with pytest.raises(InputError, match=r"\(1,\) numbers for 1 texts"):
        crosscut.Index.build(["a"], scorer=words, encoder=lambda texts: [0.5])
    with pytest.raises(InputError, match="NaN"):
        crosscut.Index.build(["a"], scorer=words, encoder=lambda texts: [[np.nan]])
    with pytest.raises(InputError, match="is no dual encoder"):
        crosscut.Index.build(["a"], scorer=words, encoder=3)


def test_what_used_to_pass_silently() -> None:
    index = built(ROWS)
    with pytest.raises(InputError, match="'yaer', which no item has: did you mean 'year'"):
        index.search("ice", filter={"yaer": 1999})
    with pytest.raises(InputError, match="'x', which no item has: no item has metadata"):
        built(["a"]).search("ice", filter={"x": 1})
    assert index.search("ice", filter={"year": 1}).ids == []
    with pytest.raises(InputError, match="the source is empty"):
        built([])
    for query in ("", " \n"):
        with pytest.raises(InputError, match="a query is empty"):
            index.search(query)


def test_an_empty_file_is_said_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("\n")
    done = CliRunner().invoke(app, ["index", "build", str(tmp_path / "corpus.jsonl"), str(tmp_path / "my.index")])
    assert isinstance(done.exception, InputError)
    assert "empty" in str(done.exception)
    (tmp_path / "corpus.jsonl").write_text(json.dumps(ROWS[0]))


def test_a_folder_of_files_is_cut_by_default(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\n" + "Cats purr. " * 100)
    (tmp_path / "b.md").write_text("# B\n\nDogs bark.")
    cut = built(tmp_path)
    assert cut.passages == crosscut.Passages()
    assert len(cut) > 2
    assert len(built(tmp_path, passages=False)) == 2
    assert built([("a", "Cats purr. " * 100)]).passages is None  # records are items


def test_a_search_is_not_over_before_k_documents_are_found() -> None:
    """Ten passages of one document used to be its top ten, and the answer one document."""
    words = {f"d{j}": f"Cats purr{' now' * (20 - j)}. " * 8 for j in range(20)}
    index = built(words, passages=crosscut.Passages(words=24, overlap=0), encoder=letters, method="axn@rounds=40")
    hits = index.search("cats", 5, 80, stop="patience@rounds=1")
    assert len(hits) == 5
    assert hits.stop_reason == "patience"
    assert len(hits.scored) < len(index)
    assert len({index.corpus.items[place].metadata["passage_of"] for place in hits.scored[:4].tolist()}) < 4


@pytest.mark.parametrize("sign", [";", "\t"])
def test_csv_with_another_separator(tmp_path: Path, sign: str) -> None:
    file = tmp_path / "items.csv"
    file.write_text(f"pk{sign}body\n1{sign}ice, floating\n")
    assert as_items(file, text="body", id="pk") == [Item("1", "", "ice, floating")]
    with pytest.raises(InputError, match=r"no column 'Body' \(did you mean 'body'\?\)"):
        as_items(file, text="Body")


@pytest.mark.parametrize("given", ["40", 40.0, {"words": 40}])
def test_passages_are_a_number_of_words(given: Any) -> None:
    with pytest.raises(InputError, match=r"passages is a number of words, True, False or Passages\(…\); got"):
        crosscut.Index.build(["a text"], passages=given)
