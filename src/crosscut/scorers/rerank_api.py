"""Rerank endpoints: Cohere, Jina, Voyage and text-embeddings-inference (TEI), and those with the same interface.

| shape | request | answer |
|---|---|---|
| `cohere` | {model, query, documents, top_n} | {results: [{index, relevance_score}]} |
| `jina` | {model, query, documents, top_n, return_documents} | {results: [{index, relevance_score}]} |
| `voyage` | {model, query, documents, top_k, return_documents} | {data: [{index, relevance_score}]} |
| `tei` | {query, texts, raw_scores, truncate} | [{index, score}] |

Hosted services answer with numbers between 0 and 1. Their order is that of the logits, but a regression sees little in
numbers that crowd at 0 and 1: `transform="logit"` undoes a sigmoid, ln p/(1 − p).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import numpy as np
from scipy.special import expit

from crosscut.errors import InputError, ScoreCountError, ScorerAnswerError, ScoreValueError
from crosscut.scorers.http import Delivery, RemoteScorer, Transport, TransportOptions
from crosscut.types import Floats

if TYPE_CHECKING:
    from crosscut.scorers.llm_judge import ChatJudge

CLIP = 1e-7  # float32 sigmoids end about here
AUTO = "auto"


@dataclass(frozen=True)
class Shape:
    """The interface of one family of endpoints."""

    path: str
    documents: str  # the field of the texts
    results: str | None  # the field of the results; None: the answer is the list
    score: str
    batch_size: int
    count: str | None  # the field of the number of results wanted: all
    extra: Mapping[str, Any]
    host: str | None = None  # of the hosted service
    key_env: str | None = None  # the variable in which its users keep the key


SCORE = "relevance_score"
BARE = {"return_documents": False}
SHAPES = {
    "cohere": Shape("/v2/rerank", "documents", "results", SCORE, 100, "top_n", {}, "api.cohere.com", "COHERE_API_KEY"),
    "jina": Shape("/v1/rerank", "documents", "results", SCORE, 64, "top_n", BARE, "api.jina.ai", "JINA_API_KEY"),
    "voyage": Shape("/v1/rerank", "documents", "data", SCORE, 100, "top_k", BARE, "api.voyageai.com", "VOYAGE_API_KEY"),
    "tei": Shape("/rerank", "texts", None, "score", 32, None, {"raw_scores": True, "truncate": True}),
}


class RerankEndpoint(RemoteScorer):
    """A rerank endpoint as a scorer.

    Parameters
    ----------
    url
        The address that takes the POST, such as https://api.cohere.com/v2/rerank.
    shape
        `cohere`, `jina`, `voyage` or `tei`.
    model
        Sent along when given.
    key_env
        The environment variable that holds the key. "auto": that of the service (COHERE_API_KEY, JINA_API_KEY,
        VOYAGE_API_KEY) when the address is the service's own, none elsewhere: a key goes to no other host unasked.
    transform
        "none", or "logit" for services that answer with a sigmoid.
    options
        Further fields of the request, such as {"max_tokens_per_doc": 512}.
    batch_size, concurrency
        Documents a request, and requests in flight.
    transport
        see `Transport`: timeout, retries, first_wait, longest_wait, allow_plain_http.

    Examples
    --------
    >>> scorer = RerankEndpoint("https://api.cohere.com/v2/rerank", model="rerank-v3.5", transform="logit")
    >>> index = crosscut.Index.build("corpus.jsonl", scorer=scorer)
    """

    def __init__(
        self,
        url: str,
        *,
        shape: str = "cohere",
        model: str | None = None,
        key_env: str | None = AUTO,
        transform: str = "none",
        options: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        concurrency: int = 4,
        **transport: Unpack[TransportOptions],
    ) -> None:
        if shape not in SHAPES:
            raise InputError(f"a rerank endpoint has the shape {', '.join(SHAPES)}; got {shape!r}")
        if transform not in ("none", "logit"):
            raise InputError(f"transform is 'none' or 'logit'; got {transform!r}")
        self.form = SHAPES[shape]
        if key_env == AUTO:
            key_env = self.form.key_env if urlsplit(url).hostname == self.form.host else None
        super().__init__(
            Transport(url, key_env=key_env, concurrency=concurrency, **transport),
            batch_size=self.form.batch_size if batch_size is None else batch_size,
        )
        self.shape = shape
        self.model = model
        self.transform = transform
        self.options = dict(options or {})

    def relevance(self, scores: Floats) -> Floats:
        """Scores as 0 … 1: services answer with such, TEI is asked for logits."""
        bounded = self.transform == "none" and self.shape != "tei"
        return scores if bounded else np.asarray(expit(scores))

    def identity(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "shape": self.shape,
            "model": self.model,
            "transform": self.transform,
            "options": self.options,
        }

    async def ask(self, query: str, texts: Sequence[str], delivery: Delivery) -> Floats:
        body: dict[str, Any] = {"query": query, self.form.documents: list(texts), **self.form.extra}
        if self.form.count is not None:
            body[self.form.count] = len(texts)
        if self.model is not None:
            body["model"] = self.model
        body |= self.options
        answer = await self.transport.post(body, delivery)
        return self._transformed(self._scores(answer, len(texts)))

    def _scores(self, answer: Any, count: int) -> Floats:
        results = answer
        if self.form.results is not None:
            results = answer.get(self.form.results) if isinstance(answer, dict) else None
        if not isinstance(results, list):
            where = f"a field {self.form.results!r} with a list" if self.form.results else "a list"
            raise ScorerAnswerError(
                f"{self.url} was expected to answer {where}, as {self.shape} does; got {str(answer)[:120]}; "
                f"other shapes: {', '.join(set(SHAPES) - {self.shape})}"
            )
        if len(results) != count:
            raise ScoreCountError(
                f"{self.url} returned {len(results)} results for {count} documents; it must score all"
            )
        scores = np.full(count, np.nan)
        seen = np.zeros(count, bool)
        for result in results:
            fields = result if isinstance(result, dict) else {}
            index, score = fields.get("index"), _number(fields.get(self.form.score))
            if type(index) is not int or not 0 <= index < count or seen[index] or score is None:
                raise ScorerAnswerError(
                    f"{self.url} returned a result that is not {{'index': 0 … {count - 1}, each once, "
                    f"'{self.form.score}': a number}}: {str(result)[:120]}"
                )
            seen[index] = True
            scores[index] = score
        return scores

    def _transformed(self, scores: Floats) -> Floats:
        if self.transform == "none":
            return scores
        if len(scores) and not (scores.min() >= 0 and scores.max() <= 1):
            raise ScoreValueError(
                f"{self.url} returned scores from {scores.min():.4g} to {scores.max():.4g}, and a sigmoid lies "
                "between 0 and 1: use transform='none'"
            )
        clipped = np.clip(scores, CLIP, 1 - CLIP)
        return np.asarray(np.log(clipped / (1 - clipped)), np.float64)


def from_url(url: str) -> RerankEndpoint | ChatJudge:
    """Return the scorer at an address.

    A prefix names the shape: `cohere+https://…`, `jina+…`, `voyage+…`, `tei+http://…`, `chat+http://…`; otherwise the
    host or the path must imply it. Without a path, the shape's own is used. Settings follow a #, which is never sent:
    `cohere+https://api.cohere.com#model=rerank-v3.5&transform=logit&key_env=MY_KEY`.
    """
    prefix, plus, rest = url.partition("+")
    named = prefix if plus and "/" not in prefix and ":" not in prefix else None
    parts = urlsplit(rest if named else url)
    shape = named or _detected(parts.hostname or "", parts.path)
    if shape is None or shape not in (*SHAPES, "chat"):
        names = ", ".join(f"{name}+" for name in (*SHAPES, "chat"))
        wrong = f"{named}+ is none of them" if named else f"the shape of {parts.hostname}{parts.path} is not known"
        raise InputError(f"{wrong}: put one of {names} before the address")
    settings = _settings(parts.fragment)
    path = parts.path.rstrip("/")
    if shape == "chat":
        from crosscut.scorers.llm_judge import PATH, ChatJudge

        if not settings.get("model"):
            raise InputError("a chat endpoint needs the model that judges: put it behind the address, #model=…")
        path = path if path.endswith("/completions") else (path or "/v1") + PATH
        return ChatJudge(urlunsplit(parts._replace(path=path, fragment="")), **settings)
    address = urlunsplit(parts._replace(path=path or SHAPES[shape].path, fragment=""))
    return RerankEndpoint(address, shape=shape, **settings)


def _detected(host: str, path: str) -> str | None:
    for name, shape in SHAPES.items():
        if shape.host == host:
            return name
    if host == "api.openai.com":
        return "chat"
    endings = {"/chat/completions": "chat", "/v2/rerank": "cohere", "/v1/rerank": "jina", "/rerank": "tei"}
    return next((name for ending, name in endings.items() if path.rstrip("/").endswith(ending)), None)


def _flag(text: str) -> bool:
    return text.lower() in ("1", "true", "yes")


READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("model", "key_env", "transform"), str),
    **dict.fromkeys(("batch_size", "concurrency", "retries"), int),
    "timeout": float,
    **dict.fromkeys(("logprobs", "allow_plain_http"), _flag),
}


def _settings(fragment: str) -> dict[str, Any]:
    settings = {}
    for name, text in parse_qsl(fragment, keep_blank_values=True):
        if name not in READ:
            raise InputError(f"{name!r} is no setting of an endpoint; the settings are {', '.join(READ)}")
        try:
            settings[name] = READ[name](text)
        except ValueError:
            raise InputError(f"the setting {name} of an endpoint cannot be {text!r}") from None
    return settings


def _number(value: Any) -> float | None:
    """Return a number of JSON; NaN and infinities, which Python reads too, are refused by the validation."""
    try:
        return float(value) if type(value) in (int, float) else None
    except OverflowError:
        return None
