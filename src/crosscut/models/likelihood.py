"""Language models as scorers: how likely is the query, once the passage was read?

    f(q, i) = 1/|q| · Σ_t log p(q_t | passage i, instruction, q_1 … q_{t−1})

The query likelihood model of retrieval (Ponte and Croft 1998) with a pretrained language model (Sachan et al. 2022). A
small model that was never trained to judge orders passages well by it; asked "relevant, yes or no?", only a large one
does: that is the other reading, the log-odds of the two answers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

import numpy as np

from crosscut.datasets.records import MENTION_END, MENTION_START, Item, Items, items_of, plain_text
from crosscut.errors import InputError
from crosscut.models.batching import LRUCache
from crosscut.models.causal_lm import CausalLM, OnnxLM, TorchLM
from crosscut.models.cross_encoder import score_pairwise
from crosscut.models.spec import split_name
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, Scorer, ScoreResult, count_of
from crosscut.types import Floats, Positions

Reading = Literal["likelihood", "yes-no"]
TEMPLATES: dict[str, str] = {
    "likelihood": "Passage: {passage}\n\n{instruction}\n",
    "yes-no": "Passage: {passage}\nQuery: {query}\n{instruction}\n",
}
INSTRUCTIONS: dict[str, str] = {
    "likelihood": "Please write a search query about this passage.",
    "yes-no": "Does the passage answer the query? Answer Yes or No:",
}
PREFIX = "likelihood:"
JUDGES = "crosscut.judges"
MAX_TOKENS = 220
QUERY_TOKENS = 48
LONGEST_TEXT = 4000  # characters of a passage that are read
SENTENCE_END = re.compile(r"[.!?](?=\s)")
REMEMBERED = 4096


class QueryLikelihood(Scorer):
    """A causal language model as a scorer.

    >>> scorer = QueryLikelihood.load("HuggingFaceTB/SmolLM2-135M-Instruct")
    >>> scorer = QueryLikelihood.load("judge")                             # of the package crosscut-judge

    Parameters
    ----------
    model : the language model.
    reading : "likelihood", the mean log p of the query's tokens behind the passage, or "yes-no", the log-odds of Yes.
    template : the text before the query's tokens, with `{passage}`, `{instruction}`, and for "yes-no" `{query}`.
    instruction : what the model is asked to do.
    max_tokens : most tokens of a passage, which is cut at the end of a sentence.
    """

    local = True  # a call costs neither money nor a request: a server may warm it up

    def __init__(
        self,
        model: CausalLM,
        *,
        reading: Reading = "likelihood",
        template: str | None = None,
        instruction: str | None = None,
        max_tokens: int = MAX_TOKENS,
        name: str = "",
    ) -> None:
        if reading not in TEMPLATES:
            raise InputError(f"a language model is read as {' or '.join(TEMPLATES)}, not as {reading!r}")
        if max_tokens < 8:
            raise InputError(f"{max_tokens} tokens have no room for a passage; give 8 or more")
        self.model, self.reading, self.max_tokens, self.name = model, reading, max_tokens, name
        self.template = TEMPLATES[reading] if template is None else template
        self.instruction = INSTRUCTIONS[reading] if instruction is None else instruction
        if "{passage}" not in self.template:
            raise InputError(f"the template {self.template!r} has no {{passage}}; say where the passage goes")
        settings = "\0".join([model.fingerprint, reading, self.template, self.instruction, str(max_tokens)])
        self._fingerprint = f"lm-{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        reading: Reading = "likelihood",
        template: str | None = None,
        instruction: str | None = None,
        max_tokens: int = MAX_TOKENS,
        threads: int | None = None,
    ) -> QueryLikelihood:
        """Return the scorer of a hub id, a folder of transformers or of a GGUF file, or "judge"."""
        bare, how = split_name(str(model))
        folder = judge_folder() if bare == "judge" else Path(bare)
        if bare == "judge" and folder is None:
            raise InputError("there is no judge: pip install crosscut-judge")
        made: CausalLM
        made = OnnxLM(folder, threads=threads) if folder and any(folder.glob("*.gguf")) else TorchLM.load(bare, how)
        return cls(
            made, reading=reading, template=template, instruction=instruction, max_tokens=max_tokens, name=str(model)
        )

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """Return this model over items; each is tokenised when first scored."""
        return _BoundLikelihood(self, items_of(items))

    def score_texts(self, pairs: Sequence[tuple[str, list[int]]]) -> Floats:
        """Return the scores of (query, tokens of a passage)."""
        read = self.model.encode
        if self.reading == "yes-no":
            yes, no = read("Yes")[:1], read("No")[:1]
            prefixes = [self._prefix(passage, query) for query, passage in pairs]
            found = self.model.log_probs([*prefixes, *prefixes], [yes] * len(pairs) + [no] * len(pairs))
            values = np.asarray([value[0] for value in found])
            return np.asarray(values[: len(pairs)] - values[len(pairs) :])
        tokens = {query: (read(query) or read(" "))[:QUERY_TOKENS] for query, _ in pairs}
        prefixes = [self._prefix(passage) for _, passage in pairs]
        found = self.model.log_probs(prefixes, [tokens[query] for query, _ in pairs])
        return np.asarray([value.mean() for value in found])

    def _prefix(self, passage: list[int], query: str = "") -> list[int]:
        before, after = self.template.replace("{instruction}", self.instruction).split("{passage}", 1)
        read = self.model.encode
        return [*read(before.replace("{query}", query)), *passage, *read(after.replace("{query}", query))]

    def __repr__(self) -> str:
        return f"QueryLikelihood({self.name!r}, fingerprint={self.fingerprint!r})"


class _BoundLikelihood(BoundScorer):
    """A language model over its items."""

    pairs_per_batch = 8

    def __init__(self, scorer: QueryLikelihood, items: Items) -> None:
        self._scorer, self._items = scorer, items
        self.n_items = count_of(items)
        self._passages: LRUCache[int, list[int]] = LRUCache(REMEMBERED)

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        queries = [unmarked(str(query)) for query, _ in requests]

        def read(owners: Positions, handles: Positions) -> Callable[[], Floats]:
            passages = self._passages.of(handles.tolist(), self._read)
            pairs = [(queries[owner], passage) for owner, passage in zip(owners.tolist(), passages, strict=True)]
            return partial(self._scorer.score_texts, pairs)

        return score_pairwise(requests, read)

    def _read(self, handles: list[int]) -> list[list[int]]:
        items = self._items.get(np.asarray(handles, np.int64))
        return [passage_tokens(self._scorer.model, plain_text(item), self._scorer.max_tokens) for item in items]


def passage_tokens(model: CausalLM, text: str, most: int) -> list[int]:
    """Return the tokens of a passage, cut at the end of the last sentence that fits."""
    text = text[:LONGEST_TEXT]
    tokens = model.encode(text)
    if len(tokens) <= most:
        return tokens
    for end in reversed(
        [match.end() for match in SENTENCE_END.finditer(text[: int(len(text) * most / len(tokens) * 1.2)])]
    ):
        cut = model.encode(text[:end])
        if most // 3 <= len(cut) <= most:
            return cut
    return tokens[:most]


def unmarked(query: str) -> str:
    """Return a query without the marks of its mention."""
    return " ".join(query.replace(MENTION_START, " ").replace(MENTION_END, " ").split()) if "[" in query else query


def judge_folder() -> Path | None:
    """Return where the model of an installed judge lies (an entry point of the group `crosscut.judges`)."""
    for entry in entry_points(group=JUDGES):
        return Path(str(entry.load()))
    return None
