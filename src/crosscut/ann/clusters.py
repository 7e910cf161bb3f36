"""k-means for clustered indexes: FAISS when it is installed, scikit-learn's mini-batches otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from crosscut.linalg.arrays import finite
from crosscut.linalg.products import widen
from crosscut.storage import put_down
from crosscut.threads import cores
from crosscut.types import Array

Single = npt.NDArray[np.float32]

PER_LIST = 64  # vectors a centroid is learned from
ITERATIONS = 10
MANY = 2048  # lists beyond which they are found in two steps
NEAR = 3  # clusters in whose lists a vector's list is looked for
BLOCK = 1 << 24  # similarities held at a time: 64 MiB
SOME = 1 << 14  # vectors read at a time, from here and there


def usual_lists(n: int) -> int:
    """A power of two near 4 √n: what ranking the centroids costs is then a part of what scanning costs."""
    return int(min(n, 1 << max(0, round(math.log2(4 * math.sqrt(max(n, 1)))))))


def single(block: Array) -> Single:
    """Any float array as float32."""
    return widen(block) if block.dtype == np.float16 else np.ascontiguousarray(block, dtype=np.float32)


def blocks(vectors: Array, step: int) -> Iterator[tuple[slice, Single]]:
    """Some rows at a time, as float32."""
    for start in range(0, len(vectors), step):
        rows = slice(start, min(start + step, len(vectors)))
        yield rows, single(vectors[rows])
        put_down(vectors)


def _drawn(vectors: Array, count: int, seed: int) -> Single:
    """Some of the vectors (m × d), as float32."""
    picked = np.sort(np.random.default_rng(seed).choice(len(vectors), min(len(vectors), count), replace=False))
    drawn = np.empty((len(picked), vectors.shape[1]), np.float32)
    for start in range(0, len(picked), SOME):
        drawn[start : start + SOME] = single(vectors[picked[start : start + SOME]])
        put_down(vectors)
    return drawn


def partition(
    vectors: Array, lists: int | None = None, seed: int = 0, *, inner: bool = True
) -> tuple[Single, npt.NDArray[np.int64]]:
    """Centroids (lists × d), a usual number of them when not given, and every vector's list (n).

    For inner products (`inner`) of vectors that have all one length, the centroids have one length too.
    """
    count = min(lists or usual_lists(len(vectors)), len(vectors))
    if count > MANY and inner:
        return _in_two_steps(vectors, count, seed, spherical=unit_length(vectors, seed))
    centres = centroids(vectors, count, seed, spherical=inner and unit_length(vectors, seed))
    return centres, assign(vectors, centres)


def _in_two_steps(vectors: Array, lists: int, seed: int, *, spherical: bool) -> tuple[Single, npt.NDArray[np.int64]]:
    """Many lists: clusters of clusters. A vector is compared with the lists of its `NEAR` closest clusters, not with
    all, which costs a fraction and misses the nearest list now and then."""
    sample = _drawn(vectors, PER_LIST // 2 * lists, seed)
    coarse = centroids(sample, round(math.sqrt(lists)), seed, spherical=spherical)
    of = assign(sample, coarse)
    sizes = np.bincount(of, minlength=len(coarse))
    share = _shares(lists, sizes)
    fine = [
        centroids(sample[of == cell], int(share[cell]), seed, spherical=spherical) for cell in np.flatnonzero(sizes)
    ]
    centres = np.concatenate(fine)
    cells = np.repeat(np.flatnonzero(sizes), [len(part) for part in fine])
    return centres, _assign_near(vectors, coarse, centres, cells)


def _shares(lists: int, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of lists of each cluster: by its size, `lists` in all, at least one if it has members."""
    wanted = lists * sizes / max(int(sizes.sum()), 1)
    share = np.minimum(np.maximum(np.floor(wanted).astype(np.int64), sizes > 0), sizes)
    while (missing := lists - int(share.sum())) > 0 and (share < sizes).any():
        order = np.argsort(np.where(share < sizes, share - wanted, np.inf), kind="stable")[:missing]
        share[order] += share[order] < sizes[order]
    while share.sum() > lists and (share > 1).any():  # those that were rounded up to one took too many
        share[np.argmax(np.where(share > 1, share - wanted, -np.inf))] -= 1
    return share


def _assign_near(
    vectors: Array, coarse: Single, centres: Single, cells: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """(n) the nearest centroid among those of the closest cells."""
    out = np.empty(len(vectors), dtype=np.int64)
    norms, halves = (coarse * coarse).sum(axis=1) / 2, (centres * centres).sum(axis=1) / 2
    starts = np.searchsorted(cells, np.arange(len(coarse) + 1))
    near = min(NEAR, len(coarse))
    for rows, block in blocks(vectors, 1 << 16):
        close = np.argpartition(norms - block @ coarse.T, near - 1, axis=1)[:, :near]  # (b × near)
        best = np.full(len(block), -np.inf, np.float32)
        found = np.zeros(len(block), np.int64)
        for cell in range(len(coarse)):
            here = np.flatnonzero((close == cell).any(axis=1))
            low, high = starts[cell], starts[cell + 1]
            if not len(here) or low == high:
                continue
            values = block[here] @ centres[low:high].T  # (m × lists of the cell)
            values -= halves[low:high]
            top = values.argmax(axis=1)
            value = values[np.arange(len(here)), top]
            better = value > best[here]
            best[here[better]], found[here[better]] = value[better], low + top[better]
        out[rows] = found
    return out


def centroids(vectors: Array, lists: int, seed: int = 0, *, spherical: bool = False) -> Single:
    """(lists × d) centroids of a sample of the vectors; unit length when `spherical`."""
    sample = _drawn(vectors, PER_LIST * lists, seed)
    finite(sample, "vectors")  # FAISS ends the process on infinite distances
    try:
        import faiss
    except ImportError:
        found = _mini_batches(sample, lists, seed)
        if spherical:
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found
    faiss.omp_set_num_threads(cores())
    means = faiss.Kmeans(
        sample.shape[1],
        lists,
        niter=ITERATIONS,
        spherical=spherical,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=PER_LIST,
    )
    means.train(sample)
    return np.ascontiguousarray(means.centroids, dtype=np.float32)


def _mini_batches(sample: Single, lists: int, seed: int) -> Single:
    from sklearn.cluster import MiniBatchKMeans

    means = MiniBatchKMeans(
        lists, random_state=seed, n_init=1, batch_size=max(1024, 4 * lists), max_iter=ITERATIONS, init="random"
    )
    return np.ascontiguousarray(means.fit(sample).cluster_centers_, dtype=np.float32)


def assign(vectors: Array, centres: Single) -> npt.NDArray[np.int64]:
    """(n) the nearest centroid of every vector, by Euclidean distance."""
    norms = (centres * centres).sum(axis=1) / 2
    out = np.empty(len(vectors), dtype=np.int64)
    for rows, block in blocks(vectors, max(1, BLOCK // max(len(centres), centres.shape[1]))):
        near = block @ centres.T  # (b × lists)
        near -= norms
        out[rows] = near.argmax(axis=1)
    return out


def unit_length(vectors: Array, seed: int = 0) -> bool:
    """Whether the vectors, judging by a sample, have all the same length."""
    lengths = np.linalg.norm(_drawn(vectors, 1000, seed), axis=1)
    return bool(lengths.std() <= 0.01 * lengths.mean())
