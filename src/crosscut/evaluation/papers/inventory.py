# ruff: noqa: E501
"""Every table and figure of the four papers: which experiment makes it, or why none does."""

from __future__ import annotations

from dataclasses import dataclass

from crosscut.errors import InputError


@dataclass(frozen=True)
class Entry:
    """One table or figure. `experiment` is None where another command makes it, or nothing: `note` says which."""

    paper: str
    figure: str
    title: str
    experiment: str | None
    note: str = ""

    @property
    def names(self) -> list[str]:
        return self.figure.split(",")

    @property
    def command(self) -> str:
        return f"crosscut reproduce {self.paper} {self.names[0]}" if self.experiment else ""


PAPERS = {
    "anncur": "Yadav et al. 2022, Efficient Nearest Neighbor Search for Cross-Encoder Models using Matrix Factorization",
    "adacur": "Yadav et al. 2023, Efficient k-NN Search with Cross-Encoders using Adaptive Multi-Round CUR Decomposition",
    "axn": "Yadav et al. 2024, Adaptive Retrieval and Scalable Indexing for k-NN Search with Cross-Encoders",
    "early-exit": "Busolin et al. 2024, Early Exit Strategies for Approximate k-NN Search in Dense Retrieval",
}
_TRAIN = "`crosscut train paper cross-encoder` with --head emb and cls first, then this on each model"
INVENTORY = (
    Entry("anncur", "fig1b", "distribution of scores, scorer and dual encoder", "histogram"),
    Entry("anncur", "fig3a,fig10a,fig11a,fig12a", "Top-k-Recall@k_r, equal numbers retrieved", "recall-of-retrieved"),
    Entry("anncur", "fig3b,fig10b,fig11b,fig12b", "Top-k-Recall at equal calls", "recall-against-cost"),
    Entry("anncur", "fig4", "recall against the number of train queries", "train-sizes"),
    Entry("anncur", "fig5", "recall against domain size", "recall-against-cost", "once a world; compare B = 500"),
    Entry("anncur", "fig6", "recall by k_q and k_i", "grid"),
    Entry("anncur", "fig7", "FIXEDITEM, ITEMCUR, ANNCUR", "item-baselines"),
    Entry("anncur", "fig8", "approximation error by k_q and k_i", "grid"),
    Entry("anncur", "fig9", "the same with the oracle's U", "grid"),
    Entry("anncur", "fig13-24", "fig. 3 for other worlds and sizes", "recall-against-cost", "--world, --train"),
    Entry("anncur", "table1", "sizes of the ZESHEL worlds", None, "the plan of any figure prints them"),
    Entry("anncur", "table2", "indexing time", "indexing", "calls; at the scorer's own rate they are hours"),
    Entry("anncur", "table3a", "entity-linking accuracy by negatives and head", "downstream", _TRAIN),
    Entry("anncur", "table3b", "rank of the score matrix", "rank", _TRAIN),
    Entry("adacur", "fig2,fig12,fig13,fig14,fig15", "Top-k-Recall at equal calls", "recall-against-cost"),
    Entry("adacur", "fig3", "recall against rounds", "rounds"),
    Entry("adacur", "fig4,fig5", "latency against rounds", "rounds", "seconds of fit and selection; the scorer's apart"),
    Entry("adacur", "fig6", "TopK against SoftMax", "selection"),
    Entry("adacur", "fig7", "approximation error by sampling strategy", "sampling"),
    Entry("adacur", "fig8", "oracle sampling strategies", "oracle"),
    Entry("adacur", "fig9,fig11", "approximate against exact scores of one query", "sampling", "plots: `crosscut replay --plots`"),
    Entry("adacur", "abstract", "recall error against reranking, by how much lower", "recall-against-cost", "`error_reduction` in the JSON"),
    Entry("adacur", "fig10", "multi-vector models", "multi-view", "views and merged views of any encoder; MuVER's own checkpoint is no format that is read here"),
    Entry("adacur", "table1", "sizes of data and splits", None, "the plan of any figure prints them"),
    Entry("axn", "fig1,fig11,fig12,fig13,fig14,fig15,fig16", "recall against indexing cost", "indexing"),
    Entry("axn", "fig2,table3", "indexing time by step", "indexing"),
    Entry("axn", "fig3", "downstream accuracy", "downstream"),
    Entry("axn", "fig4", "distribution of scores", "histogram"),
    Entry("axn", "fig5", "latency of AXN and ADACUR", "rounds"),
    Entry("axn", "fig6", "recall against rounds", "rounds"),
    Entry("axn", "fig7", "query embedding methods, TOUR", "query-methods"),
    Entry("axn", "fig8", "λ of eq. 7", "mixing"),
    Entry("axn", "fig9,fig10", "transductive and inductive, per query and per item", "indexing", "solvers: benchmarks/indexing.py"),
    Entry("axn", "table1", "sizes of data and splits", None, "the plan of any figure prints them"),
    Entry("axn", "table2", "hyper-parameters of factorisation", None, "settings of crosscut.spaces.factorization, the paper's by default"),
    Entry("early-exit", "fig1", "φ_h against h, and C(q)", "exits"),
    Entry("early-exit", "table1", "features", None, "crosscut.ann.ivf.deciding.describe computes them"),
    Entry("early-exit", "table2", "exit rules: recall, lists, time", "exit-rules", "vectors of your own: `crosscut bench ivf --tau 2 … --tau 15 --trials 8`"),
)  # fmt: skip


def find(paper: str, figure: str) -> Entry:
    """The entry of a figure, or a sentence that says which there are."""
    if paper not in PAPERS:
        raise InputError(f"there is no paper {paper!r}; there are {', '.join(PAPERS)}")
    name = figure.lower().replace(".", "").replace(" ", "")
    for entry in INVENTORY:
        if entry.paper == paper and name in entry.names:
            return entry
    known = [one for entry in INVENTORY if entry.paper == paper for one in entry.names]
    raise InputError(f"{paper} has no {figure!r} here; there are {', '.join(known)}")
