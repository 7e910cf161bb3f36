from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from crosscut.datasets import read_beir
from crosscut_lab.cli import app


def test_list_names_the_methods() -> None:
    found = CliRunner().invoke(app, ["list"])
    assert found.exit_code == 0
    assert "crosscut" in found.output.split()


def test_crosscut_does_not_import_the_lab() -> None:
    code = "import sys, crosscut, crosscut.cli, crosscut.evaluation.replay; print('crosscut_lab' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_wordnet_is_read_as_an_entity_linking_data_set(tmp_path: Path) -> None:
    """Format: wndb(5WN)."""
    line = '00001740 28 n 02 year 0 twelvemonth 0 000 | a period of time; "it lasted for years"; "she left"\n'
    for part in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{part}").write_text("  licence\n" + (line if part == "noun" else ""))
    found = CliRunner().invoke(app, ["wordnet", "noun.time", str(tmp_path / "out"), "--source", str(tmp_path)])
    assert found.exit_code == 0, found.output
    collection = read_beir(tmp_path / "out")
    assert collection.items[0].title == "year, twelvemonth"
    assert [query.text for query in collection.queries] == ["it lasted for [START] years [END]"]
    assert collection.gold(collection.queries[0].id) == ["00001740-n"]
