"""`crosscut index show`."""

from __future__ import annotations

import json
from typing import Any

import typer

from crosscut.cli.common import table
from crosscut.cli.options import Folder, Json

KNOWN = {
    "vectors.npy": "vectors",
    "bm25.json": "words",
    "anchors.npy": "scores of train queries",
    "factors.json": "factors",
    "prior.json": "past searches",
}
"""Of the files of an index: what they tell a search."""


def show(folder: Folder, as_json: Json = False) -> None:
    """Say what is in an index.

    Example:

        crosscut index show my.index
    """
    from crosscut.index.folder import KIND
    from crosscut.storage import Folder as Saved

    manifest = Saved(folder, KIND).record()
    size = sum(file["bytes"] for file in manifest["files"].values())
    hidden = ("files", "tuned", "format", "folder", "block")
    facts: dict[str, Any] = {name: value for name, value in manifest.items() if name not in hidden}
    facts |= {"bytes": size, "tuned": manifest["tuned"] is not None}
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    named = folder / str(manifest["folder"]) / "metadata.json"
    keys = json.loads(named.read_bytes()) if named.exists() else {"keys": [], "others": []}
    known = [told for name, told in KNOWN.items() if name in manifest["files"]]
    table(str(folder), ("what", "value"), _told(facts, [*keys["keys"], *keys["others"]], known))


def _told(facts: dict[str, Any], keys: list[str], known: list[str]) -> list[tuple[str, str]]:
    """The facts of an index in words."""
    cut, budget, stop = facts.get("passages"), facts.get("budget"), facts.get("stop")
    units = "items" if cut is None else "passages"
    mega = f"{facts['bytes'] / 1e6:,.1f} MB" if facts["bytes"] >= 1e5 else f"{facts['bytes']:,} bytes"
    return [
        (units, f"{facts['items']:,}" + ("" if cut is None else f" of at most {cut['words']} words")),
        ("metadata", ", ".join(key for key in keys if not key.startswith("passage_")) or "none"),
        ("scorer", _model(facts["scorer"])),
        ("encoder", _model(facts["encoder"])),
        ("searches know", ", ".join(known) or "nothing but the items"),
        ("searched by", facts["method"] + (", settings tuned" if facts["tuned"] else "")),
        ("budget", f"{budget or 100} calls, unless a search says otherwise"),
        ("searches stop", stop or "when the budget is spent; with the scorer in the box, as soon as it is sure"),
        ("hits ordered by", facts["order"]),
        (
            "probabilities",
            "calibrated" if facts.get("calibration") else "uncalibrated",
        ),
        ("calls to build it", f"{facts['build_calls']:,}"),
        ("on disk", f"{mega}, format {facts['version']}, generation {facts['generation']}"),
    ]


def _model(saved: dict[str, Any] | None) -> str:
    if saved is None:
        return "none"
    return f"{saved['name'] or 'an object without a name'} (fingerprint {saved['fingerprint']})"
