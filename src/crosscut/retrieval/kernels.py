"""Compiled loops of BM25; importing this module loads numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.linalg.kernels import compiled


@compiled()
def count(tokens: Any, starts: Any, terms: int) -> Any:
    """Return the terms of each text, each once, how often it occurs, and terms and words of each text.

    `tokens` are numbers of terms, −1 for a stop word; those of text i begin at `starts[i]`.
    """
    numbers, counts = np.empty(len(tokens), np.int32), np.empty(len(tokens), np.uint8)
    sizes, lengths = np.zeros(len(starts) - 1, np.int64), np.zeros(len(starts) - 1, np.uint32)
    last = np.full(terms, -1, np.int64)  # where a term was written last
    end = 0
    for text in range(len(sizes)):
        begin = end
        for token in tokens[starts[text] : starts[text + 1]]:
            if token < 0:
                continue
            lengths[text] += 1
            if last[token] >= begin:
                counts[last[token]] = min(counts[last[token]] + 1, 255)
            else:
                last[token] = end
                numbers[end], counts[end] = token, 1
                end += 1
        sizes[text] = end - begin
    return numbers[:end], counts[:end], sizes, lengths


@compiled()
def transpose(texts: Any, terms: Any, counts: Any, starts: Any) -> Any:
    """Turn pairs from text by text to term by term: `starts` says where each term begins."""
    items, often = np.empty(len(terms), np.int32), np.empty(len(terms), np.uint8)
    ends = starts[:-1].copy()
    for text in range(len(texts) - 1):
        for place in range(texts[text], texts[text + 1]):
            to = ends[terms[place]]
            items[to], often[to] = text, counts[place]
            ends[terms[place]] = to + 1
    return items, often


@compiled()
def add(
    items: Any, counts: Any, lengths: Any, idf: float, k1: float, b: float, mean: float, out: npt.NDArray[np.float32]
) -> None:
    """out[i] += idf · tf / (tf + k₁ (1 − b + b · |i| / mean)) for the items of one term."""
    for place in range(len(items)):
        item = items[place]
        if 0 <= item < len(lengths):  # a damaged file must not reach other memory
            tf = np.float64(counts[place])
            out[item] += np.float32(idf * tf / (tf + k1 * (1 - b + b * lengths[item] / mean)))
