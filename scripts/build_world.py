"""Rebuild the bundled world from Debian's wordnet-base: python scripts/build_world.py [WORLD] [FOLDER]"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from wordnet import WordNet

NOTICE = Path("/usr/share/doc/wordnet-base/copyright")


def pack(path: Path, lines: list[str]) -> None:
    """Gzip without a time stamp: the same input gives the same bytes."""
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))


def main() -> None:
    world = sys.argv[1] if len(sys.argv) > 1 else "noun.cognition"
    data = Path(__file__).parent.parent / "src" / "crosscut" / "data"
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else data / "worlds" / f"wordnet-{world.split('.')[1]}"
    collection = WordNet().world(world)
    folder.mkdir(parents=True, exist_ok=True)
    items = [{"_id": item.id, "title": item.title, "text": item.text} for item in collection.items]
    queries = [{"_id": query.id, "text": query.text} for query in collection.queries]
    pack(folder / "corpus.jsonl.gz", [json.dumps(item, ensure_ascii=False) for item in items])
    pack(folder / "queries.jsonl.gz", [json.dumps(query, ensure_ascii=False) for query in queries])
    judged = [f"{q}\t{i}\t{int(score)}" for q, gold in collection.judgements.items() for i, score in gold.items()]
    pack(folder / "qrels.tsv.gz", ["query-id\tcorpus-id\tscore", *judged])
    text = NOTICE.read_text("utf-8").split("License: WordNet3.0\n")[1].split("\n\n")[0]
    lines = [line.strip() for line in text.splitlines()]
    notice = "\n".join("" if line == "." else line for line in lines)
    (data / "WORDNET-LICENSE").write_text(
        "The worlds in this folder are made from WordNet 3.0 (Debian package wordnet-base): synsets as "
        "items,\n"
        "examples of the glosses as queries with the lemma marked. scripts/build_world.py rebuilds them.\n\n"
        + notice
        + "\n",
        "utf-8",
    )
    print(f"{folder}: {len(items)} items, {len(queries)} queries")


if __name__ == "__main__":
    main()
