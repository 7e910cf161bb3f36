"""`crosscut bench ivf`: Table 2 of the early-exit paper, for the user's own vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosscut.cli.common import loaded_array, progress_bar, say, table
from crosscut.errors import InputError

app = typer.Typer(help="Measure on your own data.", no_args_is_help=True)


@app.callback()
def _several() -> None:
    """Measure on your own data."""


@app.command()
def ivf(
    vectors: Annotated[Path, typer.Option(help="Item vectors (items × dimensions), .npy.")],
    queries: Annotated[Path, typer.Option(help="Query vectors (queries × dimensions), .npy.")],
    test_queries: Annotated[
        Path | None, typer.Option(help="Test queries, .npy; without them, a third of --queries is held out.")
    ] = None,
    judgements: Annotated[
        Path | None, typer.Option(help="JSON: for every test query, the positions of its relevant items.")
    ] = None,
    metric: Annotated[str, typer.Option(help="ip or l2.")] = "ip",
    lists: Annotated[int | None, typer.Option(help="Number of clusters; about 4 √n when not given.")] = None,
    target: Annotated[float, typer.Option(help="R*@1 that the fixed number of lists N must reach.")] = 0.95,
    loss: Annotated[float, typer.Option(help="R*@1 that a rule may lose against N.")] = 0.02,
    k: Annotated[int, typer.Option("-k", help="Size of the result.")] = 100,
    tau: Annotated[
        list[int] | None,
        typer.Option(help="Lists after which learned rules look; several are tried.", show_default="10"),
    ] = None,
    trials: Annotated[int, typer.Option(help="Forests of other hyper-parameters that are tried for each.")] = 1,
    half: Annotated[bool, typer.Option(help="Store vectors as float16.")] = False,
    repeats: Annotated[int, typer.Option(help="Timed runs; the median counts.")] = 5,
    threads: Annotated[int | None, typer.Option(help="Threads; all cores when not given.")] = None,
    seed: Annotated[int, typer.Option(help="Of k-means and of splits.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Write the tuned index into this folder.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Compare exit rules of a clustered index on your vectors: recall, lists, vectors, time; and the rival N′.

    Rules are learned and tuned on the train queries and measured on the test queries.

    Examples:

        crosscut bench ivf --vectors items.npy --queries queries.npy

        crosscut bench ivf --vectors items.npy --queries train.npy --test-queries test.npy --judgements gold.json
    """
    import json

    import numpy as np

    from crosscut.ann.ivf import IVF
    from crosscut.ann.ivf.tuning import tune
    from crosscut.evaluation.clustered import as_records, as_table, table_2
    from crosscut.evaluation.report import machine
    from crosscut.storage import write_json

    if metric not in ("ip", "l2"):
        raise InputError(f"--metric takes ip or l2; got {metric!r}")
    items, train = _vectors(vectors), _vectors(queries)
    if test_queries is None:
        order = np.random.default_rng(seed).permutation(len(train))
        test, train = train[np.sort(order[: len(train) // 3])], train[np.sort(order[len(train) // 3 :])]
        if judgements is not None:
            raise InputError("judgements belong to test queries: pass them with --test-queries")
    else:
        test = _vectors(test_queries)
    gold: Any = None
    if judgements is not None:
        gold = json.loads(judgements.read_text(encoding="utf-8"))
        if len(gold) != len(test):
            raise InputError(f"{judgements} judges {len(gold)} queries and there are {len(test)} test queries")
    with progress_bar() as tell:
        tell("clustering", 0, 1)
        index = IVF.build(
            items, lists=lists, metric="l2" if metric == "l2" else "ip", dtype=np.float16 if half else None, seed=seed
        )
        tell("clustering", 1, 1)
        tuned = tune(
            index, train, target=target, k=k, loss=loss, taus=tau or (10,), trials=trials, seed=seed, progress=tell
        )
        rows, limit = table_2(index, tuned, test, k=k, gold=gold, repeats=repeats, threads=threads, progress=tell)
    index.rule = tuned.rule
    title = f"{index.n:,} × {index.d}, {index.most:,} lists, N = {tuned.lists}, {len(test):,} test queries"
    table(title, *as_table(rows, limit, k))
    if save is not None:
        index.save(save)
        say(f"wrote {save}, its rule: {index.rule}")
    if json_path is not None:
        write_json(
            json_path,
            {
                "machine": machine(),
                "vectors": [index.n, index.d, str(index.vectors.dtype)],
                "lists": index.most,
                "N": tuned.lists,
                "target": target,
                "loss": loss,
                "k": k,
                "train_queries": len(train),
                "test_queries": len(test),
                "rows": as_records(rows),
                "limits": limit,
            },
        )
        say(f"wrote {json_path}")


def _vectors(path: Path) -> Any:
    import numpy as np

    array = loaded_array(path, mapped=True)
    if not isinstance(array, np.ndarray) or array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"{path} must hold one two-dimensional array of floats")
    return np.asarray(array)
