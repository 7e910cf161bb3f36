"""Every command of the papers' inventory and recipes runs at toy size, typed as it stands on the page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut.cli import app
from tests.hub_models import write_model
from tests.services.test_published import write_bert, write_worlds
from tests.services.test_reproduce import archive, write_beir, write_msmarco
from tests.tiny_models import sentences

pytestmark = pytest.mark.filterwarnings("default")
PAPERS = Path(__file__).parents[2] / "docs" / "papers"
NAMES = ("recipes", "inventory", "anncur", "adacur", "axn", "early-exit")
SMALL = {  # so that a toy is enough
    "train paper student": ["--max-tokens", "48", "--batch-size", "4"],
    "train paper": ["--epochs", "1", "--max-tokens", "24", "--candidates", "3"],
    "reproduce": ["--seeds", "1"],
    "bench ivf": ["-k", "5", "--lists", "16", "--repeats", "1"],
    "replay": ["--seeds", "1"],
}
__all__ = ["archive"]


def commands(page: str) -> list[str]:
    """What a page says to type: whole commands between backticks in tables, and indented lines."""
    text = (PAPERS / f"{page}.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    found = [one for line in rows for one in re.findall(r"`(crosscut [^`]+)`", line)]
    found = list(dict.fromkeys([*found, *re.findall(r"^    (crosscut .+)$", text, re.M)]))
    figures = page not in ("recipes", "inventory")  # tests/test_reproduce.py runs those
    return [one for one in found if not figures or not one.startswith("crosscut reproduce")]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> dict[str, str]:
    """A folder with everything that the pages name, small; and what stands for what cannot be there."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "scores.npz").write_bytes(archive.read_bytes())
    write_worlds(folder / "zeshel", ("forgotten", "yugioh"))
    for name in ("beir", "scidocs", "msmarco"):
        write_beir(folder / name)
    judged = "".join(f"q{n}\ti{n}\t1\n" for n in range(8))
    (folder / "msmarco" / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    write_msmarco(folder / "msmarco-tsv")
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in sentences(40)))
    (folder / "train.txt").write_text("\n".join(sentences(12, seed=3)))
    rng = np.random.default_rng(0)
    for name, count in (("items", 600), ("queries", 90), ("test", 30)):
        np.save(folder / f"{name}.npy", rng.normal(size=(count, 8)).astype(np.float32))
    (folder / "right.json").write_text(json.dumps([[n] for n in range(30)]))
    bert, teacher = write_bert(folder, 0.15), write_model(folder / "teacher", "bert", layers=1)
    return {
        "folder": str(folder),
        "DIR": "scores.npz",
        "bert-base-uncased": str(bert),
        "emb+nishantyadav/emb_crossenc_msmarco_miniLM": f"emb+{bert}",
        "nishantyadav/emb_crossenc_zeshel": str(teacher),
        **dict.fromkeys("ABC", str(teacher)),
    }


def typed(command: str, toy: dict[str, str]) -> list[str]:
    """The words of a command, with models that are here and without a GPU."""
    words = [toy.get(word, word) for word in shlex.split(command)[1:]]
    words = [toy["bert-base-uncased"] if word.startswith("sentence-transformers/") else word for word in words]
    words = [re.sub(r"cuda(:\d)?", "cpu", word) for word in words]
    return words + next((more for start, more in SMALL.items() if command.startswith(f"crosscut {start}")), [])


@pytest.mark.parametrize("page", NAMES)
def test_every_command_runs(page: str, toy: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy["folder"])
    monkeypatch.setenv("CROSSCUT_CACHE", str(Path(toy["folder"]) / "cache"))
    failed = []
    for command in commands(page):
        told: Any = CliRunner().invoke(app, typed(command, toy))
        if told.exit_code:
            failed.append(f"{command}\n    {told.output.strip()[-300:]} {told.exception!r}")
    assert not failed, "\n".join(failed)


def test_the_pages_have_commands() -> None:
    found = {page: len(commands(page)) for page in NAMES}
    assert found["recipes"] > 10
    assert found["inventory"] > 40
    assert found["adacur"] == found["early-exit"] == 1


def test_every_row_has_a_command_or_a_reason() -> None:
    text = (PAPERS / "inventory.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    for row in (line for line in rows if line.split("|")[1].strip() not in ("method", "model", "measure")):
        last = re.split(r"(?<!\\)\|", row)[-2]
        assert re.search(r"`crosscut|\(recipes\.md\)|tried", last + row.split("|")[1]), row
