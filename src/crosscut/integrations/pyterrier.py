"""PyTerrier: an index as an artifact, and a transformer that searches it; no Java is started.

>>> searcher = CrosscutIndex("my.index").retriever(k=100, budget=200)
>>> searcher.search("how do vaccines work")                # or searcher(topics)
>>> pipeline = bm25 >> searcher % 10                       # round one takes what bm25 found, as GAR does

The columns are those of GAR (pyterrier-adaptive): qid, query, docno, score, rank, iteration (the round).
"""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from crosscut.index import Index
from crosscut.integrations import Loading, Options, check_options, needing, opened

with needing("crosscut.integrations.pyterrier needs {}", "pyterrier"):
    import pandas as pd
    import pyterrier as pt

COLUMNS = ["docno", "score", "rank", "iteration"]


class CrosscutRetriever(pt.Transformer):
    """Queries (qid, query) to results. Results that are given with them are what round one takes, best first."""

    def __init__(self, index: Index, k: int = 100, budget: int | None = None, **options: Unpack[Options]) -> None:
        check_options(self, options)
        self.index, self.k, self.budget, self.options = index, k, budget, options

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=["qid", "query"])
        kept = [name for name in inp.columns if name.startswith("query") or name == "qid"]
        topics = inp[kept].drop_duplicates("qid").reset_index(drop=True)
        found = self.index.search_many(
            topics["query"].tolist(), self.k, self.budget, candidates=self._candidates(inp, topics), **self.options
        )
        rows = [
            (*topic, str(hit.id), hit.score, rank, hit.round - 1)
            for topic, hits in zip(topics.itertuples(index=False), found, strict=True)
            for rank, hit in enumerate(hits)
        ]
        return pd.DataFrame(rows, columns=[*kept, *COLUMNS])

    def _candidates(self, inp: pd.DataFrame, topics: pd.DataFrame) -> list[list[str]] | None:
        if "docno" not in inp.columns:
            return None
        ordered = inp.sort_values("rank") if "rank" in inp.columns else inp
        if "rank" not in inp.columns and "score" in inp.columns:
            ordered = inp.sort_values("score", ascending=False, kind="stable")
        given = {qid: docnos.tolist() for qid, docnos in ordered.groupby("qid")["docno"]}
        return [given[qid] for qid in topics["qid"]]

    def fuse_rank_cutoff(self, k: int) -> CrosscutRetriever:
        """`searcher % k` asks for k hits only; the budget stays."""
        return self if k >= self.k else CrosscutRetriever(self.index, k, self.budget, **self.options)

    def __repr__(self) -> str:
        return f"CrosscutRetriever({self.index!r}, k={self.k}, budget={self.budget})"


class CrosscutIndex(pt.Artifact):
    """The folder of an index, as PyTerrier keeps and shares such things (`pt.Artifact.load`)."""

    ARTIFACT_TYPE, ARTIFACT_FORMAT, ARTIFACT_PACKAGE_HINT = "expensive_index", "crosscut", "crosscut"

    def __init__(self, path: str | Path, **options: Unpack[Loading]) -> None:
        super().__init__(path)
        self.index = opened(path, **options)

    def retriever(self, k: int = 100, budget: int | None = None, **options: Unpack[Options]) -> CrosscutRetriever:
        return CrosscutRetriever(self.index, k, budget, **options)


def metadata_adapter(path: str, listing: list[str]) -> dict[str, str] | None:
    """Return whether a folder is an index, for PyTerrier (an entry point of this package)."""
    return {"type": "expensive_index", "format": "crosscut"} if "index.json" in listing else None
