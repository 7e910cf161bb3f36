"""An LLM as a judge: one request a pair to an OpenAI-compatible chat endpoint.

The model is asked for one digit, 0 to 9: a single token for every tokenizer. When the endpoint returns
log-probabilities, the score is the expected rating Σ r p(r) / Σ p(r) over the digits at the place of the answer, which
separates pairs that tie by the digit alone; otherwise it is the digit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import urlsplit

import numpy as np

from crosscut.errors import InputError, ScorerAnswerError
from crosscut.scorers.http import Delivery, RemoteScorer, Transport, TransportOptions
from crosscut.types import Floats

PATH = "/chat/completions"
AUTO = "auto"
RATINGS = {str(rating): rating for rating in range(10)}
ANSWER = re.compile(
    r"(?:(?:rating|score|answer)\s*+[:=]\s*+)?([0-9](?:\.[0-9]+)?)\s*+(?:/\s*+9\s*+)?\.?", re.IGNORECASE
)

PROMPT = """Rate how well the document answers the query, from 0 (not at all) to 9 (perfectly).

Query: {query}

Document: {item}

Answer with one digit from 0 to 9 and nothing else."""
REMINDER = "That was not a rating. Answer with one digit from 0 to 9 and nothing else."


class ChatJudge(RemoteScorer):
    """A pointwise judge behind a chat endpoint.

    Parameters
    ----------
    url
        The address that takes the POST, such as https://api.openai.com/v1/chat/completions.
    prompt
        With {query} and {item} in it; it must ask for one digit, 0 to 9. Item texts are data from elsewhere and can
        try to talk to the model: say what is asked before and after them.
    logprobs
        Ask for log-probabilities; an endpoint that does not know them may refuse the request.
    key_env
        The environment variable that holds the key; "auto": OPENAI_API_KEY for api.openai.com, none elsewhere.
    options
        Further fields of the request; None takes one away, such as {"max_tokens": None, "max_completion_tokens": 4}.

    Examples
    --------
    >>> judge = ChatJudge("http://localhost:8000/v1/chat/completions", model="qwen3-8b", concurrency=16)
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        prompt: str = PROMPT,
        logprobs: bool = True,
        key_env: str | None = AUTO,
        options: Mapping[str, Any] | None = None,
        concurrency: int = 8,
        **transport: Unpack[TransportOptions],
    ) -> None:
        missing = [name for name in ("{query}", "{item}") if name not in prompt]
        if missing:
            raise InputError(f"the prompt of a judge needs {' and '.join(missing)} in it: {prompt[:80]!r}")
        if key_env == AUTO:
            key_env = "OPENAI_API_KEY" if urlsplit(url).hostname == "api.openai.com" else None
        super().__init__(Transport(url, key_env=key_env, concurrency=concurrency, **transport), batch_size=1)
        self.model = model
        self.prompt = prompt
        self.logprobs = logprobs
        self.options = dict(options or {})

    def relevance(self, ratings: Floats) -> Floats:
        """Return ratings 0 … 9 as 0 … 1."""
        return ratings / 9

    def identity(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "model": self.model,
            "prompt": self.prompt,
            "logprobs": self.logprobs,
            "options": self.options,
        }

    async def ask(self, query: str, texts: Sequence[str], delivery: Delivery) -> Floats:
        return np.array([await self._judge(query, text, delivery) for text in texts], np.float64)

    async def _judge(self, query: str, text: str, delivery: Delivery) -> float:
        messages = [{"role": "user", "content": filled(self.prompt, query, text)}]
        first = await self._answer(messages, delivery)
        score = self._rating(first)
        if score is not None:
            return score
        said = str(_content(first) or "")[:2000]
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": REMINDER}]
        if delivery.budget.left < 1:
            raise ScorerAnswerError(
                f"{self.model} at {self.url} answered {said[:80]!r}, no digit from 0 to 9, and the budget ends here"
            )
        second = await self._answer(messages, delivery)
        score = self._rating(second)
        if score is None:
            raise ScorerAnswerError(
                f"{self.model} at {self.url} was asked twice for a digit from 0 to 9 and answered "
                f"{str(_content(first))[:80]!r}, then {str(_content(second))[:80]!r}; change the prompt or the model"
            )
        return score

    async def _answer(self, messages: list[dict[str, str]], delivery: Delivery) -> dict[str, Any]:
        """Return the first choice of the endpoint."""
        body: dict[str, Any] = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 8}
        if self.logprobs:
            body |= {"logprobs": True, "top_logprobs": 20}
        body |= self.options
        body = {name: value for name, value in body.items() if value is not None}
        answer = await self.transport.post(body, delivery)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
            raise ScorerAnswerError(
                f"{self.url} was expected to answer {{'choices': [{{'message': …}}]}}; got {str(answer)[:120]}"
            )
        return dict(choice or {})

    def _rating(self, choice: Mapping[str, Any]) -> float | None:
        content = _content(choice)
        match = ANSWER.fullmatch(content.strip()) if isinstance(content, str) else None
        if match is None or not 0 <= float(match[1]) <= 9:
            return None
        expected = expected_rating(choice) if self.logprobs else None
        return float(match[1]) if expected is None else expected


def filled(prompt: str, query: str, item: str) -> str:
    """Return the prompt with its two texts; braces inside the texts stay as they are."""
    parts = re.split(r"(\{query\}|\{item\})", prompt)
    return "".join({"{query}": query, "{item}": item}.get(part, part) for part in parts)


def expected_rating(choice: Mapping[str, Any]) -> float | None:
    """Σ r p(r) / Σ p(r) at the first token that is a digit; None without usable log-probabilities."""
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    digits = (token for token in (tokens if isinstance(tokens, list) else []) if _digit(token) is not None)
    token: dict[str, Any] = next(digits, {})
    rivals = token.get("top_logprobs")
    weights: dict[int, float] = {}
    for rival in rivals if isinstance(rivals, list) and rivals else [token]:
        rating = _digit(rival)
        value = rival.get("logprob") if rating is not None else None
        if rating is not None and isinstance(value, int | float) and not isinstance(value, bool) and value <= 0.01:
            weights[rating] = weights.get(rating, 0.0) + math.exp(value)  # "7" and " 7" are one rating
    total = sum(weights.values())
    return sum(rating * weight for rating, weight in weights.items()) / total if total > 0 else None


def _digit(token: Any) -> int | None:
    return RATINGS.get(str(token.get("token")).strip()) if isinstance(token, dict) else None


def _content(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    return message.get("content") if isinstance(message, dict) else None
