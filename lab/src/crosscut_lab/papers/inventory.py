# ruff: noqa: E501
"""Every table and figure of the four papers: which experiment makes it, or why none does."""

from __future__ import annotations

import re
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
        """Every figure by itself: `fig10a-12a` are three."""
        made: list[str] = []
        for part in self.figure.split(","):
            several = re.fullmatch(r"fig(\d+)(\w?)-(\d+)\2", part)
            numbers = range(int(several[1]), int(several[3]) + 1) if several else ()
            made += [f"fig{number}{several[2]}" for number in numbers] if several else [part]
        return made

    @property
    def why(self) -> str:
        """The note without its links, for a screen."""
        return re.sub(r"\[([^][]*)\]\([^()]*\)", r"\1", self.note)

    @property
    def command(self) -> str:
        return f"crosscut-lab reproduce {self.paper} {self.names[0]} --data DIR" if self.experiment else ""


PAPERS = {
    "anncur": "Yadav et al. 2022, Efficient Nearest Neighbor Search for Cross-Encoder Models using Matrix Factorization",
    "adacur": "Yadav et al. 2023, Efficient k-NN Search with Cross-Encoders using Adaptive Multi-Round CUR Decomposition",
    "axn": "Yadav et al. 2024, Adaptive Retrieval and Scalable Indexing for k-NN Search with Cross-Encoders",
    "early-exit": "Busolin et al. 2024, Early Exit Strategies for Approximate k-NN Search in Dense Retrieval",
}
_TRAIN = "once for each head, [CLS] and [EMB]"
_BENCH = "crosscut-lab ivf --vectors items.npy --queries queries.npy --tau 2 --tau 5 --tau 8 --tau 10 --tau 12 --tau 15 --trials 8"
INVENTORY = (
    Entry("anncur", "fig1a", "the three scorers", None, "a drawing of the models ([recipes](recipes.md))"),
    Entry("anncur", "fig1b", "distribution of scores, scorer and dual encoder", "histogram", _TRAIN),
    Entry("anncur", "fig2", "CUR decomposition", None, "a drawing of the method ([methods](../methods.md))"),
    Entry("anncur", "fig3a,fig10a-24a", "Top-k-Recall@k_r, equal numbers retrieved", "recall-of-retrieved", "`--world`, `--train`, and `--encoder` for each dual encoder"),
    Entry("anncur", "fig3b,fig10b-24b", "Top-k-Recall at equal calls", "recall-against-cost", "`--world`, `--train`, `--encoder`"),
    Entry("anncur", "fig4", "recall against the number of train queries", "train-sizes"),
    Entry("anncur", "fig5", "recall against domain size", "recall-against-cost", "once a world; compare B = 500"),
    Entry("anncur", "fig6", "recall by k_q and k_i", "grid", _TRAIN),
    Entry("anncur", "fig7", "FIXEDITEM, ITEMCUR, ANNCUR", "item-baselines"),
    Entry("anncur", "fig8", "approximation error by k_q and k_i", "grid", _TRAIN),
    Entry("anncur", "fig9", "the same with the oracle's U", "grid"),
    Entry("anncur", "table1", "sizes of the ZESHEL worlds", None, "`--plan` of any figure prints them"),
    Entry("anncur", "table2", "indexing time", "indexing", "calls, which at the scorer's own rate are hours; [distillation](recipes.md) prints its own time"),
    Entry("anncur", "table3a", "entity-linking accuracy by negatives and head", "downstream", f"{_TRAIN}, and for each way to mine negatives ([recipes](recipes.md)); `--budgets 64` is the paper's"),
    Entry("anncur", "table3b", "rank of the score matrix", "rank", "on the same models"),
    Entry("adacur", "fig1,fig9,fig11", "approximate against exact scores of one query", "one-query", "round by round: `crosscut replay --data scores.npz --plots plots/`"),
    Entry("adacur", "fig2,fig12-15", "Top-k-Recall at equal calls", "recall-against-cost", "words first are TF-IDF on ZESHEL, BM25 on BEIR; `--encoder` for each dual encoder"),
    Entry("adacur", "fig3", "recall against rounds", "rounds"),
    Entry("adacur", "fig4,fig5", "latency against rounds", "rounds", "seconds of fit and selection, in the JSON; the scorer's apart"),
    Entry("adacur", "fig6", "TopK against SoftMax", "selection"),
    Entry("adacur", "fig7", "approximation error by sampling strategy", "sampling"),
    Entry("adacur", "fig8", "oracle sampling strategies", "oracle"),
    Entry("adacur", "fig10", "multi-vector models", "multi-view", "views and merged views of any encoder; MuVER's own checkpoint is no format that is read here"),
    Entry("adacur", "abstract", "recall error against reranking, by how much lower", "recall-against-cost", "`error_reduction` in the JSON"),
    Entry("adacur", "table1", "sizes of data and splits", None, "`--plan` of any figure prints them"),
    Entry("axn", "fig1,fig11-16", "recall against indexing cost", "indexing", "`--solver transductive` or `inductive`; DE_DSTL is `--encoder dstl/model`; downstream panels as fig3"),
    Entry("axn", "fig2,table3", "indexing time by step", "indexing", "calls and seconds of training, in the JSON"),
    Entry("axn", "fig3", "downstream accuracy, nDCG@10 and recall", "downstream"),
    Entry("axn", "fig4", "distribution of scores", "histogram"),
    Entry("axn", "fig5", "latency of AXN and ADACUR", "rounds", "seconds of fit and selection, in the JSON"),
    Entry("axn", "fig6", "recall against rounds", "rounds"),
    Entry("axn", "fig7", "query embedding methods, TOUR", "query-methods"),
    Entry("axn", "fig8", "λ of eq. 7", "mixing"),
    Entry("axn", "fig9,fig10", "transductive and inductive, per query and per item", "indexing", "`--solver transductive`, `--solver inductive`"),
    Entry("axn", "table1", "sizes of data and splits", None, "`--plan` of any figure prints them"),
    Entry("axn", "table2", "hyper-parameters of factorisation", None, "[settings](inventory.md#settings-and-grids) of `crosscut.factorize`"),
    Entry("early-exit", "fig1", "φ_h against h, and C(q)", "exits"),
    Entry("early-exit", "table1", "features", None, "`crosscut.ann.ivf.kernels.describe` computes them"),
    Entry("early-exit", "table2", "exit rules: recall, lists, time", "exit-rules", f"vectors of your own: `{_BENCH}`"),
)  # fmt: skip


def plain(figure: str) -> str:
    """`fig10` for "Fig. 10"."""
    return figure.lower().replace(".", "").replace(" ", "")


def find(paper: str, figure: str) -> Entry:
    """The entry of a figure, or a sentence that says which there are."""
    if paper not in PAPERS:
        raise InputError(f"there is no paper {paper!r}; there are {', '.join(PAPERS)}")
    for entry in INVENTORY:
        if entry.paper == paper and plain(figure) in entry.names:
            return entry
    known = ", ".join(entry.figure.replace(",", ", ") for entry in INVENTORY if entry.paper == paper)
    missing = f"{paper} has no {figure!r} here" if figure else f"name a figure of {paper}"
    raise InputError(f"{missing}; there are {known}")
