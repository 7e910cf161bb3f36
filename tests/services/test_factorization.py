"""Factors: planted matrices are recovered, solvers agree with each other and with a dense reference."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.datasets.planted import planted
from crosscut.errors import DivergedError, InputError
from crosscut.methods import AXN
from crosscut.spaces.factorization import Factors, factorize
from crosscut.spaces.factorization.als import SideScores, als
from crosscut.spaces.factorization.factors import SolverProgress
from crosscut.spaces.factorization.inductive import InductiveFactors, Mlp
from crosscut.spaces.sparse import Normalisation, SparseScores, items_per_query, queries_per_item

torch = pytest.importorskip("torch")
SOLVERS: tuple[Any, ...] = ("als", "transductive", "inductive")
FAST: dict[str, dict[str, Any]] = {
    "als": {},
    "transductive": {"rate": 0.02, "epochs": 60, "batch": 256},
    "inductive": {"rate": 0.01, "epochs": 60, "batch": 256},
}


@pytest.fixture(scope="module")
def world() -> dict[str, np.ndarray]:
    """400 items of rank 6, seen dimly by the encoder; 120 train queries and 20 others."""
    data = planted(140, 400, rank=6, noise=0.02, dimension=12, blur=2.0, seed=0)
    return {
        "train": data.scores[:120],
        "test": data.scores[120:],
        "vectors": data.vectors,
        "train_vectors": data.query_vectors[:120],
        "test_vectors": data.query_vectors[120:],
    }


def observed(world: dict[str, np.ndarray], k_d: int = 60) -> SparseScores:
    return SparseScores.from_dense(world["train"], items_per_query(k_d, world["train"].shape, seed=1))


@pytest.fixture(scope="module")
def fitted(world: dict[str, np.ndarray]) -> dict[str, Factors]:
    scores = observed(world)
    return {
        solver: factorize(scores, world["vectors"], world["train_vectors"], solver=solver, **FAST[solver])
        for solver in SOLVERS
    }


@pytest.mark.parametrize("solver", ["transductive", "inductive"])
def test_a_device_is_passed_on(world: dict[str, np.ndarray], solver: Any) -> None:
    """Where there is no GPU: the CPU by name gives the same, and a device without numbers fails at the first number."""
    how = {**FAST[solver], "epochs": 2}
    plain = factorize(observed(world), world["vectors"], world["train_vectors"], solver=solver, **how)
    named = factorize(observed(world), world["vectors"], world["train_vectors"], solver=solver, device="cpu", **how)
    np.testing.assert_allclose(named.rows(np.arange(400)), plain.rows(np.arange(400)))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        factorize(observed(world), world["vectors"], world["train_vectors"], solver=solver, device="meta", **how)
    for device, said in (("cpu,cpu", "one device"), ("nowhere", "no device")):
        with pytest.raises(InputError, match=said):
            factorize(observed(world), world["vectors"], world["train_vectors"], solver=solver, device=device, **how)


def test_products_of_inductive_factors_in_fewer_bits(
    world: dict[str, np.ndarray], fitted: dict[str, Factors], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The networks' products are of bfloat16, weights and losses of float32; what comes out is nearly the same."""
    import torch

    seen: set[Any] = set()
    gelu = torch.nn.GELU.forward
    monkeypatch.setattr(torch.nn.GELU, "forward", lambda self, x: (seen.add(x.dtype), gelu(self, x))[1])
    how: dict[str, Any] = {**FAST["inductive"], "solver": "inductive"}
    rough = factorize(observed(world), world["vectors"], world["train_vectors"], dtype="bf16", **how)
    assert seen == {torch.bfloat16}
    exact = fitted["inductive"]
    assert rough.fitting.settings["dtype"] == "bf16"
    assert rough.rows(np.arange(4)).dtype == exact.rows(np.arange(4)).dtype
    assert rough.fitting.held_out[rough.fitting.best] < 1.1 * exact.fitting.held_out[exact.fitting.best]
    one, other = rough.rows(np.arange(400)), exact.rows(np.arange(400))
    assert np.abs(one - other).max() > 0
    assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.99
    for solver, dtype, said in (
        ("inductive", "fp16", "fp16 trains on a GPU, not on 'cpu'"),
        ("inductive", "int8", "fp32, bf16, fp16, not in 'int8'"),
        ("transductive", "bf16", "they have no products of matrices"),
    ):
        with pytest.raises(InputError, match=said):
            factorize(
                observed(world), world["vectors"], world["train_vectors"], dtype=dtype, **{**how, "solver": solver}
            )


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_held_out_loss_falls(fitted: dict[str, Factors], solver: str) -> None:
    fitting = fitted[solver].fitting
    assert fitting.best > 0
    assert fitting.held_out[fitting.best] == min(fitting.held_out)
    assert fitting.held_out[fitting.best] < (0.95 if solver == "inductive" else 0.35) * fitting.held_out[0]
    assert fitting.training_seconds > 0
    assert fitting.observed == 120 * 60


@pytest.mark.parametrize("solver", ["als", "transductive"])
def test_a_planted_matrix_is_recovered(world: dict[str, np.ndarray], fitted: dict[str, Factors], solver: str) -> None:
    factors = fitted[solver]
    wanted = factors.normalisation(world["train"])
    start = world["train_vectors"] @ world["vectors"].T
    error = np.sqrt(np.mean((factors.query_factors @ factors.array.T - wanted) ** 2))  # unobserved pairs included
    assert error < 0.3 * np.sqrt(np.mean((start - wanted) ** 2))


def test_solvers_agree(fitted: dict[str, Factors]) -> None:
    als_, adamw = (fitted[name].query_factors @ fitted[name].array.T for name in ("als", "transductive"))
    assert np.corrcoef(als_.ravel(), adamw.ravel())[0, 1] > 0.97


def test_als_is_the_normal_equations() -> None:
    """Every row against a dense solve, for rows with fewer, as many and more observations than dimensions."""
    rng = np.random.default_rng(3)
    d, counts = 5, [0, 1, 3, 5, 9, 9, 12]
    other = rng.standard_normal((12, d)).astype(np.float32)
    start = rng.standard_normal((len(counts), d)).astype(np.float32)
    rows = np.repeat(np.arange(len(counts)), counts)
    columns = np.concatenate([rng.permutation(12)[:count] for count in counts])
    scores = SparseScores.from_triples(rows, columns, rng.standard_normal(len(rows)), (len(counts), 12))
    found = SideScores.of(scores).solve(other, start, 0.7)
    dense = scores.csr().toarray()
    for row, count in enumerate(counts):
        x = other[np.flatnonzero(np.isin(np.arange(12), scores.pairs.items[scores.pairs.queries == row]))]
        assert len(x) == count
        g = dense[row][scores.pairs.items[scores.pairs.queries == row]]
        wanted = np.linalg.solve(x.T @ x + 0.7 * np.eye(d), x.T @ g + 0.7 * start[row])
        np.testing.assert_allclose(found[row], wanted, atol=1e-4)
    turned = SparseScores.from_triples(columns, rows, dense[rows, columns], (12, len(counts)))
    np.testing.assert_allclose(SideScores.of(turned, transposed=True).solve(other, start, 0.7), found, atol=1e-5)


def test_als_lowers_its_objective_every_half_step(world: dict[str, np.ndarray]) -> None:
    scores = observed(world)
    queries0, items0 = world["train_vectors"].astype(np.float32), world["vectors"].astype(np.float32)
    by_query, by_item = SideScores.of(scores), SideScores.of(scores, transposed=True)

    def objective(u: np.ndarray, v: np.ndarray) -> float:
        predicted = np.einsum("md,md->m", u[scores.pairs.queries], v[scores.pairs.items])
        ridge = 0.5 * (np.sum((u - queries0) ** 2) + np.sum((v - items0) ** 2))
        return float(np.sum((predicted - scores.scores) ** 2) + ridge)

    u, v = queries0, items0
    values = [objective(u, v)]
    for _ in range(3):
        u = by_query.solve(v, queries0, 0.5)
        values.append(objective(u, v))
        v = by_item.solve(u, items0, 0.5)
        values.append(objective(u, v))
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(values))


def test_items_without_scores_stay_with_the_encoder_or_are_embedded(world: dict[str, np.ndarray]) -> None:
    scores = observed(world, 40)
    some = scores.take(scores.pairs.items < 200)
    for solver in SOLVERS:
        factors = factorize(some, world["vectors"], world["train_vectors"], solver=solver, **FAST[solver])
        moved = np.abs(factors.array[200:] - world["vectors"][200:]).max()
        if solver == "als":
            assert moved < 1e-6
        if isinstance(factors, InductiveFactors):
            assert moved > 1e-4
            np.testing.assert_allclose(factors.embed_items(world["vectors"]), factors.array, atol=1e-5)


def test_the_network_in_numpy_is_that_of_torch() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 6))
    x = torch.randn(9, 6)
    share = torch.sigmoid(torch.tensor(-1.5))
    wanted = (share * net(x) + (1 - share) * x).detach().numpy()
    mlp = Mlp(*(p.detach().numpy().T for p in net.parameters()), gate=np.asarray(-1.5, np.float32))
    np.testing.assert_allclose(mlp(x.numpy()), wanted, atol=1e-5)
    with pytest.raises(InputError, match="6 dimensions; got an array of"):
        mlp(np.zeros((2, 5)))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("method", ["rerank", "axn", "crosscut"])
def test_factors_are_searched(
    world: dict[str, np.ndarray], fitted: dict[str, Factors], solver: str, method: str
) -> None:
    factors = fitted[solver]
    queries = world["test_vectors"]
    if isinstance(factors, InductiveFactors) and method == "rerank":
        queries = factors.embed_queries(queries)
    vectors = None if method == "rerank" else world["vectors"]
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world["test"]), vectors=vectors, space=factors, method=method)
    plain = crosscut.Searcher(crosscut.MatrixScorer(world["test"]), vectors=world["vectors"], method="rerank")

    def found(which: crosscut.Searcher, vectors: np.ndarray) -> float:
        hits = which.search_many(range(20), 10, 40, query_vectors=vectors)
        assert all(hit.calls == 40 for hit in hits)
        exact = np.argsort(-world["test"], axis=1)[:, :10]
        return float(np.mean([len(set(hit.ids) & set(row)) / 10 for hit, row in zip(hits, exact, strict=True)]))

    assert found(searcher, queries) > found(plain, world["test_vectors"]) + (0.05 if method != "rerank" else -0.05)


def test_axn_takes_the_normalisation_of_its_factors(fitted: dict[str, Factors], world: dict[str, np.ndarray]) -> None:
    factors = fitted["als"]

    def offset(**settings: Any) -> tuple[object, float]:
        scorer = crosscut.MatrixScorer(world["test"])
        plan = crosscut.Searcher(scorer, space=factors, method=AXN(**settings)).plan
        return plan.then.base.everywhere(), plan.then.scale

    assert offset() == (factors.normalisation.alpha, factors.normalisation.beta)
    assert offset(alpha=0.0, beta=1.0) == (0.0, 1.0)


@pytest.mark.parametrize("solver", ["als", "inductive"])
def test_saved_and_loaded_without_torch(
    fitted: dict[str, Factors], world: dict[str, np.ndarray], tmp_path: Path, solver: str
) -> None:
    factors = fitted[solver]
    folder = factors.save(tmp_path / "factors")
    factors.save(folder)  # over itself
    assert sorted(path.name for path in tmp_path.iterdir()) == ["factors"]
    again = Factors.load(folder)
    assert type(again) is type(factors)
    assert again.fitting == factors.fitting
    assert again.normalisation == factors.normalisation
    np.testing.assert_array_equal(again.array, factors.array)
    if isinstance(again, InductiveFactors) and isinstance(factors, InductiveFactors):
        wanted = factors.embed_queries(world["test_vectors"])
        np.testing.assert_array_equal(again.embed_queries(world["test_vectors"]), wanted)
        code = (
            "import sys, numpy as np, crosscut; f = crosscut.Factors.load(sys.argv[1]); "
            "f.embed_items(np.zeros((2, f.d))); f.embed_queries(np.zeros((2, f.d))); assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


def test_damaged_folders_are_named(fitted: dict[str, Factors], tmp_path: Path) -> None:
    folder = fitted["inductive"].save(tmp_path / "factors")
    with pytest.raises(InputError, match="no factors at"):
        Factors.load(tmp_path / "nothing")
    facts = json.loads((folder / "factors.json").read_text())
    (folder / "factors.json").write_text(json.dumps({**facts, "version": 99}))
    with pytest.raises(InputError, match="version 99, this crosscut reads 2; update crosscut or factorise again"):
        Factors.load(folder)
    (folder / "factors.json").write_text(json.dumps(facts))
    assert Factors.load(folder).n == fitted["inductive"].n
    items = next(folder.glob("0*/factors-items.npy"))
    items.write_bytes(items.read_bytes()[:100])
    with pytest.raises(InputError, match=r"damaged: factors-items\.npy has 100 bytes"):
        Factors.load(folder)
    (folder / "factors.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        Factors.load(folder)


def test_a_loss_that_explodes_has_a_name(world: dict[str, np.ndarray]) -> None:
    for solver in ("transductive", "inductive"):
        with pytest.raises(DivergedError, match=r"after epoch \d+: lower the learning rate"), np.errstate(all="ignore"):
            factorize(observed(world, 10), world["vectors"], world["train_vectors"], solver=solver, rate=1e25, epochs=5)
    with pytest.raises(DivergedError, match="training loss of als is nan after epoch 0: raise the ridge"):
        SolverProgress("als", 2, "raise the ridge").note(float("nan"), 1.0)


def test_validation_patience_and_none_of_it(world: dict[str, np.ndarray]) -> None:
    scores = observed(world, 20)
    given = (scores, world["vectors"], world["train_vectors"])
    all_of_it = factorize(*given, solver="transductive", validation=0, epochs=3)
    assert all_of_it.fitting.best == 3
    assert np.isnan(all_of_it.fitting.held_out).all()
    stopped = factorize(*given, solver="transductive", rate=0.3, epochs=50, patience=2)
    assert len(stopped.fitting.held_out) < 50
    one = als(*given, ridge=1.0, validation=0)
    assert one.fitting.settings["ridge"] == 1.0
    first = factorize(*given, solver="inductive", epochs=2, seed=4)
    second = factorize(*given, solver="inductive", epochs=2, seed=4)
    np.testing.assert_array_equal(first.array, second.array)


def test_queries_per_item_and_a_given_normalisation(world: dict[str, np.ndarray]) -> None:
    scores = SparseScores.from_dense(world["train"], queries_per_item(8, world["train"].shape))
    by = Normalisation(0.1, 2.0)
    factors = factorize(scores, world["vectors"], world["train_vectors"], normalise=by)
    assert factors.normalisation == by
    raw = factorize(scores, world["vectors"], world["train_vectors"], normalise=False)
    assert raw.normalisation == Normalisation()


def test_refusals(world: dict[str, np.ndarray]) -> None:
    scores = observed(world, 5)
    given = (scores, world["vectors"], world["train_vectors"])
    with pytest.raises(InputError, match="unknown solver 'svd'"):
        factorize(*given, solver="svd")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be above 0"):
        factorize(*given, ridge=0)
    with pytest.raises(InputError, match="give one ridge"):
        factorize(*given, validation=0)
    with pytest.raises(InputError, match="below 1; got 1"):
        factorize(*given, validation=1)
    with pytest.raises(InputError, match="learning rate must be above 0; got -1"):
        factorize(*given, solver="inductive", rate=-1)
    with pytest.raises(InputError, match="0 epochs"):
        factorize(*given, solver="transductive", epochs=0)
    with pytest.raises(InputError, match="120 query vectors and 7 item vectors"):
        factorize(scores, world["vectors"][:7], world["train_vectors"])
    with pytest.raises(InputError, match="the same encoder"):
        factorize(scores, world["vectors"], world["train_vectors"][:, :5])
    with pytest.raises(InputError, match="no observed score"):
        factorize(scores.take(np.zeros(len(scores), bool)), *given[1:])


def few_of_many(n: int, d: int = 16, dtype: Any = np.float32) -> tuple[SparseScores, np.ndarray, np.ndarray]:
    """Scores of 40 queries with 15 items each, all among the first 500 of n."""
    rng = np.random.default_rng(4)
    vectors, queries = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(40, d)).astype(np.float32)
    items = np.concatenate([rng.choice(500, 15, replace=False) for _ in range(40)])
    rows = np.repeat(np.arange(40), 15)
    scores = np.einsum("md,md->m", queries[rows], vectors[items]) + rng.normal(size=len(items))
    return SparseScores.from_triples(rows, items, scores, (40, n)), vectors, queries


@pytest.mark.parametrize("solver", SOLVERS)
def test_items_without_a_score_do_not_take_part(solver: Any) -> None:
    scores, vectors, queries = few_of_many(3000)
    settings: dict[str, Any] = {"ridge": 1.0} if solver == "als" else {"rate": 0.01, "decay": 0.1, "batch": 64}
    settings["validation"] = 0
    many = factorize(scores, vectors, queries, solver=solver, epochs=4, **settings)
    seen = np.unique(scores.pairs.items)
    pairs = (scores.pairs.queries, np.searchsorted(seen, scores.pairs.items), scores.scores)
    alone = factorize(
        SparseScores.from_triples(*pairs, (40, len(seen))), vectors[seen], queries, solver=solver, epochs=4, **settings
    )
    np.testing.assert_allclose(many.rows(seen), alone.rows(np.arange(len(seen))), rtol=1e-5, atol=1e-6)
    others = np.setdiff1d(np.arange(3000), seen)
    found = many.rows(others)
    if solver == "als":
        np.testing.assert_array_equal(found, vectors[others])
    elif solver == "transductive":  # decay is all that moves them, as in an optimizer that holds every item
        steps = 4 * -(-600 // 64)
        np.testing.assert_allclose(found, vectors[others] * (1 - 0.01 * 0.1) ** steps, rtol=1e-5)
    else:
        assert isinstance(many, InductiveFactors)
        np.testing.assert_allclose(found, many.embed_items(vectors[others]), rtol=1e-5, atol=1e-6)


BOUNDED = """
import sys
from pathlib import Path
import numpy as np
import torch
from crosscut.spaces.factorization import factorize
from crosscut.spaces.base import as_space
from crosscut.storage import maps
from tests.services.test_factorization import few_of_many

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

maps.LARGE = int(sys.argv[2])
scores, vectors, queries = few_of_many(300_000, 128, np.float16)
np.save(sys.argv[3], vectors)
vectors = np.load(sys.argv[3], mmap_mode="r")
factorize(*few_of_many(1000, 128), solver=sys.argv[1], epochs=2)  # what is loaded once, and the compiler
as_space(vectors)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = memory("VmRSS")
made = factorize(scores, vectors, queries, solver=sys.argv[1], epochs=2)
print((memory("VmHWM") - before) / (4 * vectors.size))
assert np.isfinite(made.rows(np.arange(299_000, 300_000))).all()
"""


@pytest.mark.parametrize("solver", SOLVERS)
def test_memory_is_that_of_what_was_scored(solver: str, tmp_path: Path) -> None:
    def peak(large: int) -> float:
        """Memory that a fit takes, over that of n × d numbers of float32."""
        arguments = [sys.executable, "-c", BOUNDED, solver, str(large), str(tmp_path / "vectors.npy")]
        return float(subprocess.run(arguments, stdout=subprocess.PIPE, check=True, text=True).stdout)

    assert peak(1 << 40) < 1.9  # the answer, 1, and the file of float16 that is read, .5
    assert peak(0) < 0.9  # the answer lies in a file, too
