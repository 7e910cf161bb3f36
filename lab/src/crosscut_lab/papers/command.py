"""`crosscut-lab reproduce`, `ivf` and `train`: the papers by command."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crosscut.errors import InputError, MissingDependency
from crosscut_lab.papers.inventory import INVENTORY, Entry, find, plain
from crosscut_lab.report import curves, machine, markdown, numbers, say, write

if TYPE_CHECKING:
    from crosscut_lab.papers.experiments import Setting

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
World = Annotated[str | None, typer.Option(help="World of a ZESHEL folder.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
DENSE_FREE = ("indexing",)
"""Experiments that buy train scores sparsely."""


def reproduce(
    context: typer.Context,
    paper: Annotated[str, typer.Argument(help="anncur, adacur, axn or early-exit; `list`: all.")] = "list",
    figure: Annotated[str, typer.Argument(help="Such as fig3b or table3b.")] = "",
    data: Annotated[Path | None, typer.Option(help="A ZESHEL, BEIR or MS MARCO folder, or an .npz of scores.")] = None,
    world: World = None,
    scorer: Annotated[str, typer.Option(help="A model folder, a hub id, an address, emb+… of ADACUR.")] = "default",
    encoder: Annotated[str, typer.Option(help="A model folder or a hub id; none without vectors.")] = "default",
    similarity: Annotated[
        Literal["dot", "cosine", "model"], typer.Option(help="Of hub encoders: the papers take inner products.")
    ] = "dot",
    size: Annotated[Literal["small", "full"], typer.Option(help="small: 1,000 items, 40 + 40 queries.")] = "small",
    train: Annotated[int | None, typer.Option(min=1, help="Train queries, |Q_train|.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test queries.")] = None,
    k: Annotated[str, typer.Option("-k", help="How many neighbours, comma-separated.")] = "1,10,100",
    budgets: Annotated[str, typer.Option(help="Calls per query, comma-separated.")] = "50,100,200,500",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds (default: 10 for BEIR, else 5).")] = None,
    shortlist: Annotated[int | None, typer.Option(min=1, help="Keep rounds within the first stage's best.")] = None,
    mix: Annotated[float, typer.Option(min=0, max=1, help="λ of AXN's eq. 7 where it is not varied.")] = 0.8,
    solver: Annotated[
        Literal["als", "transductive", "inductive"], typer.Option(help="Of factors: MF_TRNS and MF_IND need torch.")
    ] = "als",
    depths: Annotated[str, typer.Option(help="k_d of indexing: items per train query.")] = "25,100,400,1000",
    per_item: Annotated[str, typer.Option(help="k_d of indexing: train queries per item; empty for none.")] = "",
    cur: Annotated[int, typer.Option(min=0, help="Train queries scored with every item, for CUR in indexing.")] = 0,
    device: Device = "cpu",
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    output: Annotated[Path, typer.Option(help="Folder of scores, vectors and results.")] = Path("reproduced"),
    plan_only: Annotated[bool, typer.Option("--plan", help="Only print what it would cost.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of what is drawn.")] = 3,
    plot: Annotated[bool, typer.Option(help="Draw the figure (PNG).")] = True,
    as_json: Json = False,
) -> None:
    """Make a table or figure of the papers on your data: plan and cost first, then scores, vectors, result.

    Scores and vectors are kept in the output folder, so that the next figure of the same data starts at once and a run
    that was stopped goes on. Figures of indexing buy train scores sparsely: |Q| × k_d calls, and test queries × n.

    Examples:

        crosscut-lab reproduce list

        crosscut-lab reproduce adacur fig3 --data zeshel/ --world yugioh --scorer cross-encoder/ms-marco-MiniLM-L6-v2 --plan

        crosscut-lab reproduce anncur fig6 --data scores.npz

        crosscut-lab reproduce axn fig9 --data scifact/ --solver inductive --depths 100
    """  # noqa: E501
    if paper == "list":
        rows = [(one.paper, one.figure, one.title, one.experiment or one.why) for one in INVENTORY]
        typer.echo(markdown(("paper", "figure", "content", "experiment, or why there is none"), rows))
        return
    entry = find(paper, figure)
    if entry.experiment is None:
        raise InputError(f"{paper} {figure} ({entry.title}) is no experiment: {entry.why}")
    if data is None:
        raise InputError("name the data with --data: a ZESHEL, BEIR or MS MARCO folder, or an .npz of scores")
    facts: dict[str, Any] = {"data": data.name, "world": world, "solver": solver, "seeds": seeds, "size": size}
    if data.suffix == ".npz":
        if plan_only:
            say(f"{data} holds the scores: nothing to pay")
            return
        setting = of_archive(data, train, test)
    else:
        facts |= {"scorer": scorer, "encoder": encoder, "similarity": similarity}
        named = (
            f"{encoder}#similarity={similarity}"
            if encoder.count("/") == 1 and similarity != "model" and not Path(encoder).exists()
            else encoder
        )
        made = of_texts(
            entry, data, world, size, train, test, (scorer, named, device), output,
            cur=cur, depths=numbers(depths), per_item=numbers(per_item), plan_only=plan_only, engine=engine,
        )  # fmt: skip
        if made is None:
            return
        setting = made
    setting = replace(
        setting, ks=numbers(k), budgets=numbers(budgets), rounds=rounds or setting.rounds, shortlist=shortlist,
        mix=mix, solver=solver, depths=numbers(depths), per_item=numbers(per_item), seeds=seeds,
        device=None if device == "cpu" else device,
    )  # fmt: skip
    run(entry, f"{paper}-{plain(figure)}", setting, facts, output, plot=plot, as_json=as_json)


def of_archive(path: Path, train: int | None = None, test: int | None = None) -> Setting:
    """Return the setting of an archive of scores."""
    from crosscut_lab.papers.data import data_of, first_queries, load_arrays, views_of
    from crosscut_lab.papers.experiments import Setting

    arrays = load_arrays(path)
    data, _ = first_queries(data_of(arrays)[0], None, train, test)
    return Setting(data, views=views_of(arrays))


def of_texts(
    entry: Entry, data: Path, world: str | None, size: Any, train: int | None, test: int | None,
    names: tuple[str, str, str], output: Path, *, cur: int, depths: tuple[int, ...], per_item: tuple[int, ...],
    plan_only: bool, engine: str,
) -> Setting | None:  # fmt: skip
    """Return the setting of a folder of texts, its scores bought if need be; None if only the plan was asked for."""
    from crosscut.score_store.engines import make_engine
    from crosscut_lab.papers.data import LIMITS, Purchase, data_of, read_texts, views_of
    from crosscut_lab.papers.experiments import Setting
    from crosscut_lab.papers.models import load_encoder, load_scorer

    texts = read_texts(data, world, size, train=train, test=test)
    n, sparse = len(texts.items), entry.experiment in DENSE_FREE
    anchors = min(LIMITS[size]["item_anchors"], n // 4) if entry.experiment == "item-baselines" else 0
    dense = min(cur, len(texts.train)) if sparse else len(texts.train)
    per_query = max(depths, default=0) if sparse else 0
    by_item = max(per_item, default=0) if sparse else 0
    calls = (len(texts.test) + dense + anchors) * n + len(texts.train) * min(per_query, n) + by_item * n
    plan = f"{len(texts.test)} test and {dense} train queries × {n:,} items"
    plan += f", {len(texts.train)} train queries × {per_query} items" if per_query else ""
    plan += f", {by_item} train queries × {n:,} items" if by_item else ""
    plan += f", {anchors} anchor items × {n:,} items" if anchors else ""
    say(f"{plan}: at most {calls:,} calls")
    if plan_only:
        return None
    scorer, encoder, device = names
    folder = output / f"{texts.name.replace('/', '-')}-{size}"
    purchase = Purchase(
        texts,
        load_scorer(scorer, device),
        None if encoder == "none" else load_encoder(encoder, device),
        folder,
        {"engine": make_engine(engine)},
    )
    arrays = purchase.arrays(train=dense, item_anchors=anchors, views=entry.experiment == "multi-view")
    made, asked = data_of(arrays)
    rounds = 10 if texts.lexical == "bm25" else None  # of BEIR; ZESHEL's are the methods' own
    return Setting(
        made, texts.gold, views=views_of(arrays), rounds=rounds, train_vectors=asked,
        buy=purchase.pairs if sparse else None,
    )  # fmt: skip


def run(
    entry: Entry, name: str, setting: Setting, facts: dict[str, Any], output: Path, *, plot: bool, as_json: bool
) -> dict[str, Any]:
    """Run an experiment; write, print and draw its records."""
    from crosscut.evaluation.replay import ties
    from crosscut_lab.papers.experiments import EXPERIMENTS, VECTOR_EXPERIMENTS

    experiment = str(entry.experiment)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are the notes, printed below
        if experiment in VECTOR_EXPERIMENTS:
            records = VECTOR_EXPERIMENTS[experiment](setting.data, 100)
        else:
            records = EXPERIMENTS[experiment](setting)
    for one in records:
        for unwritten in ("values", "settings", "queries"):
            one.pop(unwritten, None)
    notes = ties(setting.data.test, setting.fitting[0])
    data = setting.data
    facts = {
        "paper": entry.paper, "figure": entry.figure, "experiment": experiment, **facts,
        "queries": len(data.test), "train": 0 if data.anchors is None else len(data.anchors), "items": setting.n,
        "machine": machine(), "notes": notes, "records": records,
    }  # fmt: skip
    write(output / f"{name}.json", facts)
    if as_json:
        typer.echo((output / f"{name}.json").read_text("utf-8"))
        return facts
    if "anchor" not in records[0]:
        typer.echo(curves(records))
    for note in notes:
        say(f"note: {note}")
    say(f"wrote {output / f'{name}.json'}")
    if plot:
        try:
            from crosscut_lab.papers.plots import draw

            draw(records, entry.title, output / f"{name}.png")
        except MissingDependency as error:
            say(f"no plot: {error}")
    return facts


def papers(
    data: Annotated[list[str], typer.Argument(help="Score matrices: names of benchmarks/matrices, or .npz files.")],
    experiments: Annotated[str, typer.Option(help="Comma-separated; all that the data allows by default.")] = "",
    budgets: Annotated[str, typer.Option(help="Calls per query, comma-separated.")] = "50,100,200,500",
    solver: Annotated[Literal["als", "transductive", "inductive"], typer.Option(help="Of factors.")] = "als",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of what is drawn.")] = 1,
    train: Annotated[int | None, typer.Option(min=1, help="Train queries.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test queries.")] = None,
    output: Annotated[Path, typer.Option(help="Folder of the results, one folder a data set.")] = Path(
        "lab/results/papers"
    ),
) -> None:
    """Run the papers' experiments on score matrices: a JSON file an experiment.

    Example: crosscut-lab papers wordnet-time squad-sentences --experiments query-methods,mixing
    """
    from crosscut_lab.matrices import path_of
    from crosscut_lab.papers.experiments import EXPERIMENTS, VECTOR_EXPERIMENTS

    wanted = [name for name in experiments.split(",") if name] or [*EXPERIMENTS, *VECTOR_EXPERIMENTS]
    for name in data:
        path = path_of(name)
        setting = replace(of_archive(path, train, test), budgets=numbers(budgets), seeds=seeds, solver=solver)
        for experiment in wanted:
            entry = next(one for one in INVENTORY if one.experiment == experiment)
            suffix = "" if solver == "als" else f"-{solver}"
            facts = {"data": path.stem, "solver": solver, "seeds": seeds}
            try:
                run(entry, f"{experiment}{suffix}", setting, facts, output / path.stem, plot=False, as_json=False)
            except InputError as error:
                say(f"{path.stem}, {experiment}: not run ({error})")


def transcriptions(
    searches: Annotated[int, typer.Option(min=1, help="Searches to compare, about.")] = 5000,
    seed: Annotated[int, typer.Option(help="Of the random cases.")] = 0,
) -> None:
    """Compare the library with the papers, transcribed in plain numpy, search by search.

    Example: crosscut-lab transcriptions --searches 10000
    """
    from crosscut_lab.papers.transcriptions import compare

    found = compare(searches, seed)
    typer.echo(markdown(("method", "agree", "searches"), ((name, *counts) for name, counts in found.items())))
    if any(agreed < made for agreed, made in found.values()):
        raise typer.Exit(1)


def macro(
    results: Annotated[list[Path], typer.Argument(help="JSON files of one figure, one a data set.")],
) -> None:
    """Average a figure over data sets, each counting the same.

    Example: crosscut-lab macro yugioh/anncur-fig3b.json military/anncur-fig3b.json
    """
    from crosscut_lab.papers.experiments import macro_average

    typer.echo(curves(macro_average([json.loads(path.read_text("utf-8"))["records"] for path in results])))


def ivf(
    vectors: Annotated[Path, typer.Option(help="Item vectors (items × dimensions), .npy.")],
    queries: Annotated[Path, typer.Option(help="Query vectors (queries × dimensions), .npy.")],
    test_queries: Annotated[Path | None, typer.Option(help="Test queries, .npy; else a third of --queries.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="JSON: positions of right items, a list per test query.")] = None,
    metric: Annotated[Literal["ip", "l2"], typer.Option(help="Similarity.")] = "ip",
    clusters: Annotated[int | None, typer.Option(help="Number of clusters; about 4 √n when not given.")] = None,
    target: Annotated[float, typer.Option(help="R*@1 that the fixed number of clusters N must reach.")] = 0.95,
    loss: Annotated[float, typer.Option(help="R*@1 that a rule may lose against N.")] = 0.02,
    k: Annotated[int, typer.Option("-k", help="Size of the result.")] = 100,
    tau: Annotated[str, typer.Option(help="Clusters after which learned rules decide, comma-separated.")] = "10",
    trials: Annotated[int, typer.Option(help="Forests of other hyper-parameters that are tried for each.")] = 1,
    half: Annotated[bool, typer.Option(help="Store vectors as float16.")] = False,
    repeats: Annotated[int, typer.Option(help="Timed runs; the median counts.")] = 5,
    threads: Annotated[int | None, typer.Option(help="Threads; all cores when not given.")] = None,
    seed: Annotated[int, typer.Option(help="Of k-means and of splits.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Write the tuned index into this folder.")] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Compare exit rules of a clustered index on your vectors (early exit, table 2).

    Example: crosscut-lab ivf --vectors items.npy --queries train.npy --test-queries test.npy --qrels gold.json
    """
    import numpy as np

    from crosscut.ann.ivf import IVF
    from crosscut.ann.ivf.tuning import tune
    from crosscut_lab.papers.exits import as_table, table_2

    def read(path: Path) -> Any:
        array = np.load(path, mmap_mode="r")
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
            raise InputError(f"{path} must hold one two-dimensional array of floats")
        return np.asarray(array)

    items, train = read(vectors), read(queries)
    if test_queries is not None:
        test = read(test_queries)
    else:
        if qrels is not None:
            raise InputError("qrels belong to test queries: pass them with --test-queries")
        order = np.random.default_rng(seed).permutation(len(train))
        test, train = train[np.sort(order[: len(train) // 3])], train[np.sort(order[len(train) // 3 :])]
    gold = None if qrels is None else json.loads(qrels.read_text("utf-8"))
    if gold is not None and len(gold) != len(test):
        raise InputError(f"{qrels} judges {len(gold)} queries and there are {len(test)} test queries")
    index = IVF.build(items, lists=clusters, metric=metric, dtype=np.float16 if half else None, seed=seed)
    tuned = tune(index, train, target=target, k=k, loss=loss, taus=numbers(tau), trials=trials, seed=seed)
    rows, limit = table_2(index, tuned, test, k=k, gold=gold, repeats=repeats, threads=threads)
    index.rule = tuned.rule
    say(f"{index.n:,} × {index.d}, {index.most:,} clusters, N = {tuned.lists}, {len(test):,} test queries")
    typer.echo(markdown(*as_table(rows, limit, k)))
    if save is not None:
        index.save(save)
    if output is not None:
        records = [dict(vars(row)) for row in rows]
        shape = {"vectors": [index.n, index.d], "clusters": index.most, "N": tuned.lists}
        write(output, {"machine": machine(), **shape, "limits": limit, "records": records})


Data = Annotated[Path, typer.Argument(help="A ZESHEL folder (documents, mentions) or a BEIR folder.")]
Start = Annotated[str, typer.Option(help="Model to start from, such as bert-base-uncased: a folder or a hub id.")]
Output = Annotated[Path, typer.Option(help="Folder of the finished model (model/).")]
Dev = Annotated[str | None, typer.Option(help="Split that picks the best checkpoint; else a tenth of the queries.")]
Epochs = Annotated[int, typer.Option(help="Passes over the train queries.")]
Rate = Annotated[float, typer.Option(help="Learning rate at its peak.")]
Batch = Annotated[int, typer.Option(help="Queries at a time.")]
Accumulate = Annotated[int, typer.Option(help="Batches whose gradients make a step.")]
Candidates = Annotated[int, typer.Option(help="Items a query: the right one and its negatives; of distill, k_d.")]
Tokens = Annotated[int, typer.Option(help="Most tokens a side; of two plain texts, of the pair.")]
Seed = Annotated[int, typer.Option(help="Of every draw.")]

train_app = typer.Typer(no_args_is_help=True, help="Train the papers' models by the papers' recipes.")


def collections_of(data: Path, split: str) -> list[Any]:
    """Return the judged queries of a split: every world of a ZESHEL folder that has some, or a BEIR folder."""
    from crosscut.datasets import read_beir
    from crosscut_lab.papers.zeshel import read_worlds

    if (data / "documents").is_dir():
        return read_worlds(data, split=split)
    return [read_beir(data, split=split)]


def finished(outcome: Any, output: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"model": str(output / "model"), **vars(outcome)}))
    else:
        say(f"{outcome.steps} steps, best validation {outcome.best:.3f}: {output / 'model'}")


@train_app.command("dual-encoder")
def dual_encoder(
    data: Data, start: Start, output: Output, dev: Dev = None, split: str = "train", epochs: Epochs = 4,
    learning_rate: Rate = 1e-5, batch: Batch = 8, accumulate: Accumulate = 1, candidates: Candidates = 64,
    tokens: Tokens = 128, device: Device = "cpu", seed: Seed = 0, as_json: Json = False,
) -> None:  # fmt: skip
    """DE_BASE of ANNCUR (app. A.1): two towers, hard negatives mined before every epoch.

    Example: crosscut-lab train dual-encoder zeshel/ --start bert-base-uncased --dev val --output de/ --device cuda
    """
    from crosscut_lab.papers.training import Recipe, train_towers

    recipe = Recipe(
        learning_rate, epochs=epochs, batch=batch, accumulate=accumulate, candidates=candidates, tokens=tokens,
        device=device, seed=seed,
    )  # fmt: skip
    judging = collections_of(data, dev) if dev else ()
    finished(train_towers(collections_of(data, split), start, output, recipe, dev=judging, report=say), output, as_json)


@train_app.command("cross-encoder")
def cross_encoder(
    data: Data, start: Start, output: Output,
    miner: Annotated[str, typer.Option(help="Miner of negatives: the dual encoder, de/model; or tfidf, or random.")],
    head: Annotated[Literal["emb", "cls"], typer.Option(help="Inner product of special tokens, or a layer.")] = "emb",
    dev: Dev = None, split: str = "train", epochs: Epochs = 4, learning_rate: Rate = 1e-5, batch: Batch = 4,
    accumulate: Accumulate = 1, candidates: Candidates = 64, tokens: Tokens = 128, device: Device = "cpu",
    seed: Seed = 0, as_json: Json = False,
) -> None:  # fmt: skip
    """[EMB]-CE or [CLS]-CE of ANNCUR (app. A.1): special tokens, 63 fixed negatives of a trained dual encoder.

    Example: crosscut-lab train cross-encoder zeshel/ --start bert-base-uncased --miner de/model --output ce/
    """
    from crosscut_lab.papers.training import Recipe, train_cross

    recipe = Recipe(
        learning_rate, epochs=epochs, batch=batch, accumulate=accumulate, candidates=candidates, tokens=tokens,
        device=device, seed=seed,
    )  # fmt: skip
    judging = collections_of(data, dev) if dev else ()
    outcome = train_cross(
        collections_of(data, split), start, output, recipe, miner=miner, head=head, dev=judging, report=say
    )
    finished(outcome, output, as_json)


@train_app.command("distill")
def distill(
    data: Annotated[Path, typer.Argument(help="A BEIR folder, or a ZESHEL folder with --world.")],
    start: Start, output: Output,
    scorer: Annotated[str, typer.Option(help="The teacher: a model folder, a hub id, an address.")],
    world: World = None, loss: Annotated[Literal["match", "pair"], typer.Option(help="L_match or L_pair.")] = "match",
    queries: Annotated[int, typer.Option(help="Train queries, drawn.")] = 500,
    k_d: Annotated[int | None, typer.Option(help="Items a query that are scored; every item if left out.")] = None,
    epochs: Epochs = 10, learning_rate: Rate = 1e-5, batch: Batch = 1, accumulate: Accumulate = 4,
    candidates: Candidates = 100, tokens: Tokens = 128, device: Device = "cpu", seed: Seed = 0, as_json: Json = False,
) -> None:  # fmt: skip
    """DE_BERT+CE, DE_BASE+CE (ANNCUR app. A.3) or DE_DSTL (AXN app. A.2.1), by what it starts from.

    An encoder gives DE_BERT+CE, towers of `train dual-encoder` DE_BASE+CE, a sentence-transformers model DE_DSTL.
    Without --k-d the scorer sees every item of every train query, as ANNCUR's does.

    Example: crosscut-lab train distill zeshel/ --world yugioh --scorer ce/model --start de/model --output dstl/
    """
    from crosscut.spaces.sparse import items_per_query
    from crosscut_lab.papers.data import Purchase, read_texts
    from crosscut_lab.papers.models import load_encoder, load_scorer, local_folder
    from crosscut_lab.papers.training import Recipe, distil, distil_sentences, nearest

    recipe = Recipe(
        learning_rate, epochs=epochs, batch=batch, accumulate=accumulate, candidates=candidates, tokens=tokens,
        device=device, seed=seed,
    )  # fmt: skip
    texts = read_texts(data, world, "full", train=queries, seed=seed)
    sentences = (local_folder(start) / "modules.json").is_file()
    purchase = Purchase(texts, load_scorer(scorer, device), None, output)
    n = len(texts.items)
    ranked = None
    if k_d is not None and k_d < n:
        encoder = load_encoder(start, device)
        ranked = nearest(encoder.encode_items(texts.items), encoder.encode_queries(texts.train), k_d)
    scores = purchase.pairs(items_per_query(min(k_d or n, n), (len(texts.train), n), ranked=ranked))
    if sentences:
        outcome = distil_sentences(texts.items, texts.train, scores, start, output, recipe)
    else:
        outcome = distil(texts.items, texts.train, scores, start, output, recipe, loss=loss, report=say)
    finished(outcome, output, as_json)


@train_app.command("student")
def student(
    data: Data, start: Start, output: Output,
    teacher: Annotated[list[str], typer.Option(help="A scorer whose scores are learned; several are averaged.")],
    split: str = "train", epochs: Epochs = 4, learning_rate: Rate = 7e-6, batch: Batch = 32,
    accumulate: Accumulate = 1, candidates: Candidates = 2, tokens: Tokens = 256, device: Device = "cpu",
    seed: Seed = 0, as_json: Json = False,
) -> None:  # fmt: skip
    """ADACUR's cross-encoder for BEIR (app. B.1.2): mean squared error to the mean score of several teachers.

    Example: crosscut-lab train student msmarco/ --start microsoft/MiniLM-L6 --teacher A --teacher B --output ce/
    """
    import numpy as np

    from crosscut.spaces.sparse import Pairs, SparseScores
    from crosscut_lab.papers.data import bm25_scores
    from crosscut_lab.papers.models import load_scorer
    from crosscut_lab.papers.training import Recipe, teach

    recipe = Recipe(
        learning_rate, warm_up=0.05, epochs=epochs, batch=batch, accumulate=accumulate, candidates=candidates,
        tokens=tokens, device=device, seed=seed,
    )  # fmt: skip
    if (data / "documents").is_dir():
        raise InputError("the student learns from plain queries and texts: give a BEIR folder")
    (collection,) = collections_of(data, split)
    judged = [query.text for query in collection.queries if collection.gold(query.id)]
    if not judged:
        raise InputError(f"no query of {str(data)!r} has a right item in the split {split!r}")
    order = np.argsort(-bm25_scores(collection.items, judged), axis=1, kind="stable")
    scorers = [load_scorer(name, device) for name in teacher]

    def scores(rows: Any, columns: Any) -> list[Any]:
        pairs = Pairs(rows, columns, (len(judged), len(collection.items)))
        store = output / "scores"
        return [
            SparseScores.from_scorer(one, judged, pairs, items=collection.items, store=store).scores for one in scorers
        ]

    ranked = order[:, : candidates + 20]
    finished(teach(collection, start, output, recipe, scores, ranked=ranked, report=say), output, as_json)
