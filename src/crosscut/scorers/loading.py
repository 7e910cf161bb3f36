"""A scorer from what the user has: a name, a folder, a hub id, an address, a model, a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from crosscut.errors import InputError
from crosscut.scorers.adapters import TextScorer, from_library
from crosscut.scorers.base import Scorer


def load_scorer(scorer: Any = "default") -> Scorer:
    """The scorer that `scorer` names or is.

    ===========================================  ====================================================
    `"default"`                                  bundled base scores, which take no call; with the package
                                                 crosscut-judge, and a language model's opinion
    `"likelihood:MODEL"`                         a causal language model (`crosscut.models.likelihood`)
    a folder                                     a model that sentence-transformers can load
    `"organisation/name"`                        a hub model: on onnxruntime on the CPU, by torch on a GPU; settings
                                                 behind a `#` (`crosscut.models.spec`)
    `"https://…"`, `"cohere+https://…"`, …       a rerank or chat endpoint (`crosscut.scorers.rerank_api`)
    a `CrossEncoder` of sentence-transformers    wrapped; raw logits
    a cross-encoder of LangChain                 `score(pairs)`
    a model of `rerankers`                       `rank(query, texts)`
    a `Scorer`                                   itself
    any `f(query, texts) -> scores`              `TextScorer(f)`, sync or async
    ===========================================  ====================================================
    """
    if isinstance(scorer, str | Path):
        return _named(str(scorer))
    if isinstance(scorer, Scorer):
        return scorer
    if hasattr(scorer, "predict") and hasattr(scorer, "tokenizer"):
        from crosscut.models.cross_encoder import TorchCrossEncoder

        return TorchCrossEncoder(scorer)
    known = from_library(scorer)
    if known is not None:
        return known
    if callable(scorer):
        return TextScorer(scorer)
    raise InputError(
        f"{scorer!r} is no scorer: pass a name, a folder, a hub id, an address, a CrossEncoder, "
        "or a function f(query, texts)"
    )


def default_scorer(name: str = "default", *, threads: int | None = None) -> Scorer:
    """Return the bundled scorer: base scores, and the opinion of a judge where one is installed."""
    from crosscut.bundled.base_scores import BaseScorer
    from crosscut.models.likelihood import QueryLikelihood, judge_folder

    base = BaseScorer.load(name, threads=threads)
    if judge_folder() is None:
        return base
    from crosscut.bundled.judged import JudgedScorer

    return JudgedScorer(base, QueryLikelihood.load("judge", threads=threads))


def check_saved(name: str, where: str, trust_remote: bool) -> None:
    """Refuse a scorer's name out of somebody's folder that sends texts or a key where the user did not say.

    An address needs the user's word; which key goes there, and whether in clear text, is never for a folder to say.
    """
    if "://" not in name:
        return
    fragment = urlsplit("//host#" + name.partition("#")[2]).fragment  # as `from_url` will read it, whatever the host
    given = dict(parse_qsl(fragment, keep_blank_values=True))
    chosen = [f"{setting}={given[setting]}" for setting in ("key_env", "allow_plain_http") if setting in given]
    if chosen:
        raise InputError(
            f"{where} names the scorer {name!r}, and {' and '.join(chosen)} is for you to say, not for a folder: "
            "pass the address yourself, scorer=… (--scorer), if you trust it"
        )
    if not trust_remote:
        raise InputError(
            f"{where} would send queries and items to the scorer at {name!r}: if you trust it, pass the address "
            "yourself, scorer=… (--scorer), or trust_remote=True (--trust-remote)"
        )


def _named(name: str) -> Scorer:
    if "://" in name:
        from crosscut.scorers.rerank_api import from_url

        return from_url(name)
    from crosscut.bundled.model_dir import is_model_dir

    if is_model_dir(name):
        return default_scorer(name)
    if name.startswith("likelihood:"):
        from crosscut.models.likelihood import QueryLikelihood

        return QueryLikelihood.load(name.removeprefix("likelihood:"))
    bare = name.partition("#")[0]
    if not Path(bare).is_dir() and bare.count("/") != 1:
        raise InputError(
            f"there is no scorer called {name!r} and no folder of that name; pass 'default', a model folder, "
            "a hub id such as 'organisation/model', or an address"
        )
    from crosscut.models.cross_encoder import load_cross_encoder

    return load_cross_encoder(name)
