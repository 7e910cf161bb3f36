"""Texts to hits with the bundled models: build, search, filter, grow, save, load."""

from __future__ import annotations

import tempfile
from pathlib import Path

import crosscut

RECORDS = [
    {"id": "bank-1", "title": "bank", "text": "sloping land beside a body of water", "kind": "place"},
    {"id": "bank-2", "title": "bank", "text": "a financial institution that accepts deposits", "kind": "company"},
    {"id": "bass-1", "title": "bass", "text": "the lowest part of the musical range", "kind": "music"},
    {"id": "bass-2", "title": "bass", "text": "an edible freshwater fish", "kind": "animal"},
    {"id": "light-1", "title": "light", "text": "of comparatively little physical weight", "kind": "weight"},
    {"id": "light-2", "title": "light", "text": "visible electromagnetic radiation", "kind": "physics"},
]

index = crosscut.Index.build(RECORDS)
hits = index.search("they pulled the canoe up on the [START] bank [END]", k=2, budget=4)
print([f"{hit.id} {hit.score:.1f}" for hit in hits], hits.calls, "calls,", hits.stop_reason)

hits = index.search("he caught a large [START] bass [END]", k=1, budget=4, filter={"kind": ["animal", "music"]})
print(hits.ids)

index.add([{"id": "crane-1", "title": "crane", "text": "a large long-necked wading bird", "kind": "animal"}])
with tempfile.TemporaryDirectory() as folder:
    index.save(Path(folder) / "my.index")
    again = crosscut.Index.load(Path(folder) / "my.index")
    print(len(again), again.search("a [START] crane [END] stood in the reeds", k=1, budget=5).ids)
