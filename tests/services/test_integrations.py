"""crosscut inside other stacks, each with the real package."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import FolderError, InputError, MissingDependency, install, needing
from crosscut.integrations.haystack import conditions_of
from crosscut.score_store.rerank import Reranker
from tests.served import score_words, small_index

ROOT = Path(__file__).parents[2]
QUERY = "bank river money"
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


@pytest.fixture(scope="module")
def index() -> crosscut.Index:
    return small_index()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with the bundled models, saved on disk."""
    path = tmp_path_factory.mktemp("indexes") / "my.index"
    texts = {"r": "a river runs to the sea", "b": "a bank lends money", "c": "a cat sleeps all day"}
    items = [
        {"id": id, "title": id.upper(), "text": text, "year": 2000 + j} for j, (id, text) in enumerate(texts.items())
    ]
    crosscut.Index.build(items, encoder=None, method="hybrid").save(path)
    return path


def exact(index: crosscut.Index, query: str, k: int) -> list[str]:
    """The true top k, by scoring everything outside of crosscut."""
    items = index.items
    scores = np.array(score_words(query, [f"{item.title}\n{item.text}" for item in items]))
    return [items[j].id for j in np.argsort(-scores, kind="stable")[:k]]


def test_langchain_retriever(index: crosscut.Index) -> None:
    from crosscut.integrations.langchain import CrosscutRetriever

    spent: list[int] = []
    retriever = CrosscutRetriever(index=index, k=5, budget=200, on_hits=lambda hits: spent.append(hits.calls))
    found = retriever.invoke(QUERY)
    assert [document.id for document in found] == exact(index, QUERY, 5)
    assert found[0].page_content == index[found[0].id].text
    assert found[0].metadata["title"] == index[found[0].id].title
    assert found[0].metadata["score"] == index.search(QUERY, 1, 200)[0].score
    assert asyncio.run(retriever.ainvoke(QUERY)) == found
    few = retriever.invoke(QUERY, k=2, budget=30, filter={"number": {"gte": 200}})
    assert len(few) == 2
    assert all(document.metadata["number"] >= 200 for document in few)
    assert spent[0] <= 200
    assert spent[-1] <= 30
    assert [len(many) for many in retriever.batch([QUERY, "cat dog"])] == [5, 5]


def test_langchain_compressor_keeps_a_budget_and_a_cache() -> None:
    from langchain_core.documents import Document

    from crosscut.integrations.langchain import CrosscutCompressor

    asked: list[int] = []

    def scorer(query: str, texts: Any) -> list[float]:
        asked.append(len(texts))
        return score_words(query, texts)

    texts = ["a cat", "a bank", "a bank by the river", "a river of money in a bank"]
    documents = [Document(page_content=text, metadata={"place": j}) for j, text in enumerate(texts)]
    whole = CrosscutCompressor(reranker=scorer, top_n=2)
    assert [one.metadata["place"] for one in whole.compress_documents(documents, QUERY)] == [3, 2]
    again = whole.compress_documents(documents[::-1], QUERY)
    assert [one.metadata["place"] for one in again] == [3, 2]
    assert asked == [4]  # the second time everything was known
    assert documents[0].metadata == {"place": 0}  # the caller's documents are as they were
    short = CrosscutCompressor(reranker=Reranker(scorer, budget=2), top_n=None)
    assert [one.metadata["place"] for one in short.compress_documents(documents, QUERY)] == [1, 0]
    assert [one.metadata["place"] for one in short.compress_documents(documents, QUERY)] == [3, 2, 1, 0]  # the rest
    assert asked == [4, 2, 2]
    assert asyncio.run(whole.acompress_documents([], QUERY)) == []


def test_a_reranker_with_a_store_knows_its_scores_after_a_restart(tmp_path: Path) -> None:
    asked: list[str] = []

    def scorer(query: str, texts: Any) -> list[float]:
        asked.extend(texts)
        return score_words(query, texts)

    first = Reranker(crosscut.TextScorer(scorer, fingerprint="words"), store=tmp_path / "scores")
    first.rank(QUERY, ["a bank", "a cat"])
    del first
    second = Reranker(crosscut.TextScorer(scorer, fingerprint="words"), store=tmp_path / "scores")
    ranking = second.rank(QUERY, ["a river", "a cat", "a bank"])
    assert (ranking.calls, ranking.cached) == (1, 2)
    assert asked == ["a bank", "a cat", "a river"]
    with pytest.raises(InputError, match="1 call or more; got 0"):
        Reranker(scorer, budget=0)


def test_a_cross_encoder_of_langchain_is_a_scorer() -> None:
    from langchain_core.cross_encoders import BaseCrossEncoder

    class Words(BaseCrossEncoder):
        model_name = "words"

        def score(self, text_pairs: list[tuple[str, str]]) -> list[float]:
            return [float(len({*query.split()} & {*text.split()})) for query, text in text_pairs]

    index = crosscut.Index.build(["a cat", "a bank", "bank river"], scorer=Words(), encoder=None, method="exact")
    assert index.search(QUERY, 2).ids == ["2", "1"]
    assert index.scorer is not None
    assert "words" in index.scorer.fingerprint


def test_a_model_of_rerankers_is_a_scorer(tmp_path: Path) -> None:
    import rerankers
    from sentence_transformers import CrossEncoder

    from tests.tiny_models import write_cross_encoder

    (tmp_path / "model").mkdir()
    write_cross_encoder(tmp_path / "model")
    texts = ["a cat sleeps", "a bank lends money", "the river runs"]
    ranker = rerankers.Reranker(
        str(tmp_path / "model"), model_type="cross-encoder", device="cpu", dtype="float32", verbose=0
    )
    index = crosscut.Index.build(texts, scorer=ranker, encoder=None, method="exact")
    logits = CrossEncoder(str(tmp_path / "model"), device="cpu").predict(
        [(QUERY, text) for text in texts], activation_fn=__import__("torch").nn.Identity()
    )
    found = {hit.id: hit.score for hit in index.search(QUERY, 3)}
    assert [found[str(j)] for j in range(3)] == pytest.approx(logits.tolist(), abs=1e-4)


def test_llama_index(index: crosscut.Index) -> None:
    from crosscut.integrations.llama_index import CrosscutPostprocessor, CrosscutRetriever

    retriever = CrosscutRetriever(index, k=5, budget=200)
    found = retriever.retrieve(QUERY)
    assert [one.node.node_id for one in found] == exact(index, QUERY, 5)
    assert found[0].score == index.search(QUERY, 1, 200)[0].score
    assert found[0].node.metadata["title"] == index[found[0].node.node_id].title
    assert [one.node.node_id for one in asyncio.run(retriever.aretrieve(QUERY))] == exact(index, QUERY, 5)
    ordered = CrosscutPostprocessor(score_words, top_n=2).postprocess_nodes(found[::-1], query_str=QUERY)
    best = sorted(found, key=lambda one: -score_words(QUERY, [one.node.text])[0])
    assert [one.node.node_id for one in ordered] == [one.node.node_id for one in best[:2]]


def test_haystack(index: crosscut.Index, folder: Path) -> None:
    from haystack import Document, Pipeline

    from crosscut.integrations.haystack import CrosscutRanker, CrosscutRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", CrosscutRetriever(index, top_k=5, budget=200))
    pipeline.add_component("ranker", CrosscutRanker(lambda query, texts: [-len(text) for text in texts], top_k=2))
    pipeline.connect("retriever.documents", "ranker.documents")
    done = pipeline.run({"retriever": {"query": QUERY}, "ranker": {"query": QUERY}}, include_outputs_from={"retriever"})
    found = done["retriever"]["documents"]
    assert [document.id for document in found] == exact(index, QUERY, 5)
    assert done["retriever"]["calls"] <= 200
    shortest = sorted(found, key=lambda document: len(document.content))
    assert [len(one.content) for one in done["ranker"]["documents"]] == [len(one.content) for one in shortest[:2]]
    wanted = {"field": "meta.number", "operator": ">=", "value": 300}
    some = asyncio.run(CrosscutRetriever(index, budget=50).run_async(QUERY, filters=wanted, top_k=3))["documents"]
    assert len(some) == 3
    assert all(document.meta["number"] >= 300 for document in some)
    with pytest.raises(InputError, match="k must be at least 1; got 0"):
        CrosscutRetriever(index).run(QUERY, top_k=0)

    saved = Pipeline()
    saved.add_component("retriever", CrosscutRetriever(str(folder), top_k=1, budget=3))
    again = Pipeline.loads(saved.dumps(), allowed_modules=["crosscut.integrations.haystack"])
    (best,) = again.run({"retriever": {"query": "who lends money"}})["retriever"]["documents"]
    assert isinstance(best, Document)
    assert best.id == "b"
    with pytest.raises(ValueError, match="the folder of its index"):
        CrosscutRetriever(index).to_dict()


def test_filters_of_haystack_become_ours() -> None:
    both = {
        "operator": "AND",
        "conditions": [
            {"field": "meta.year", "operator": ">=", "value": 2000},
            {"field": "meta.year", "operator": "<", "value": 2010},
            {"operator": "AND", "conditions": [{"field": "meta.topic", "operator": "in", "value": ["law", "tax"]}]},
            {"field": "language", "operator": "==", "value": "en"},
        ],
    }
    assert conditions_of(both) == {"year": {"gte": 2000, "lt": 2010}, "topic": ["law", "tax"], "language": "en"}
    assert conditions_of({"language": "en"}) == {"language": "en"}
    assert conditions_of({"operator": "Deutsche Bahn"}) == {"operator": "Deutsche Bahn"}  # a key of one's own
    for wrong, message in (
        ({"field": "a", "operator": "=="}, "has no 'value'"),
        ({"operator": "AND", "conditions": [{"operator": "AND"}]}, "has no 'conditions'"),
        ({"operator": "AND", "conditions": [{"field": "a"}]}, "has no 'operator' and no 'value'"),
        ({"field": "a", "operator": "in", "value": "en"}, "'in' takes a list of values; got 'en'"),
    ):
        with pytest.raises(InputError, match=message):
            conditions_of(wrong)
    with pytest.raises(InputError, match=r"joined by AND; an index has no 'OR'"):
        conditions_of({"operator": "OR", "conditions": []})
    with pytest.raises(InputError, match="got 'like' on 'a'"):
        conditions_of({"field": "a", "operator": "like", "value": "b"})
    with pytest.raises(InputError, match="two conditions on 'a'"):
        conditions_of({"operator": "AND", "conditions": [{"field": "a", "operator": "==", "value": 1}] * 2})


def test_pyterrier_columns_cutoff_and_first_stage(index: crosscut.Index) -> None:
    import pandas as pd
    import pyterrier as pt

    from crosscut.integrations.pyterrier import CrosscutRetriever

    searcher: Any = CrosscutRetriever(index, k=20, budget=200)
    topics = pd.DataFrame([["q1", QUERY], ["q2", "cat dog"]], columns=["qid", "query"])
    found = searcher(topics)
    assert list(found.columns) == ["qid", "query", "docno", "score", "rank", "iteration"]
    assert found[found.qid == "q2"].docno.tolist() == index.search("cat dog", 20, 200).ids
    assert found[found.qid == "q1"]["rank"].tolist() == list(range(20))
    cut = (searcher % 5).compile()
    assert isinstance(cut, CrosscutRetriever)
    assert cut.k == 5
    assert cut(topics).equals(found[found["rank"] < 5].reset_index(drop=True))
    assert (searcher % 50).compile() is searcher
    assert searcher.search(QUERY).docno.tolist()[:5] == exact(index, QUERY, 5)
    given = pd.DataFrame(
        [["q1", QUERY, "i7", 0.1, 1], ["q1", QUERY, "i3", 0.9, 0]], columns=["qid", "query", "docno", "score", "rank"]
    )
    adaptive = pt.Transformer.from_df(given) >> CrosscutRetriever(index, k=200, budget=20)
    asked = adaptive(topics[:1])
    assert {"i3", "i7"} <= {*asked[asked.iteration == 0].docno}
    assert len(asked) == 20
    assert not pt.java.started()


def test_pyterrier_artifact(folder: Path) -> None:
    import pyterrier as pt

    from crosscut.integrations import pyterrier as ours

    artifact = ours.CrosscutIndex.load(str(folder))
    assert isinstance(artifact, pt.Artifact)
    assert artifact.retriever(k=1, budget=3).search("who lends money").docno.tolist() == ["b"]
    kind = ours.metadata_adapter(str(folder), [path.name for path in folder.iterdir()])
    assert kind == {"type": artifact.ARTIFACT_TYPE, "format": artifact.ARTIFACT_FORMAT}
    assert ours.metadata_adapter("elsewhere", ["corpus.jsonl"]) is None
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert entries["pyterrier.artifact"] == {
        "expensive_index.crosscut": "crosscut.integrations.pyterrier:CrosscutIndex"
    }
    assert entries["pyterrier.artifact.metadata_adapter"] == {
        "crosscut": "crosscut.integrations.pyterrier:metadata_adapter"
    }


def test_mteb_evaluates_it(index: crosscut.Index) -> None:
    import datasets
    import mteb
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.models_protocols import SearchProtocol

    from crosscut.integrations.mteb import CrosscutSearch

    items = index.items[:60]
    queries = {"q1": "bank river", "q2": "cat dog"}
    best = {id: exact_of(items, text) for id, text in queries.items()}

    class Words(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Words", description="words", reference=None, type="Retrieval", category="t2t", modalities=["text"],
            eval_splits=["test"], eval_langs=["eng-Latn"], main_score="ndcg_at_10", date=None, domains=None,
            task_subtypes=None, license=None, annotations_creators=None, dialect=None, sample_creation=None,
            bibtex_citation=None, dataset={"path": "none", "revision": "1"},
        )  # fmt: skip

        def load_data(self, **options: Any) -> None:
            corpus = [{"id": item.id, "title": item.title, "text": item.text} for item in items]
            self.dataset = {
                "default": {
                    "test": {
                        "corpus": datasets.Dataset.from_list(corpus),
                        "queries": datasets.Dataset.from_list(
                            [{"id": id, "text": text} for id, text in queries.items()]
                        ),
                        "relevant_docs": {id: dict.fromkeys(ids[:3], 1) for id, ids in best.items()},
                        "top_ranked": None,
                    }
                }
            }
            self.data_loaded = True

    model = CrosscutSearch(budget=60, scorer=score_words, encoder=None, method="hybrid")
    assert isinstance(model, SearchProtocol)
    result = mteb.evaluate(model, Words(), cache=None, show_progress_bar=False, co2_tracker=False)
    assert result.task_results[0].get_score() > 0.95  # two items with the same score may change places
    assert 0 < model.calls <= 120
    among = model.search([{"id": "q1", "text": "bank river"}], top_k=5, top_ranked={"q1": ["i3", "i4"]})
    assert {*among["q1"]} == {"i3", "i4"}


def exact_of(items: list[Any], query: str) -> list[str]:
    scores = np.array(score_words(query, [f"{item.title}\n{item.text}" for item in items]))
    return [items[j].id for j in np.argsort(-scores, kind="stable")]


def test_mcp_over_stdio(folder: Path) -> None:
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from crosscut.cli import main; main()", "mcp", str(folder), "--max-budget", "3", "--budget", "3"],
        env={"PYTHONPATH": str(ROOT / "src")},
    )

    async def talk() -> None:
        async with Client(stdio_client(command)) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["search", "item", "cost"]
            found = await called(client, "search", query="who lends money", k=2)
            assert found["hits"][0]["id"] == "b"
            assert found["calls"] <= 3
            assert (await called(client, "item", id="c"))["metadata"] == {"year": 2002}
            assert (await called(client, "search", query="cats", filter={"year": {"gte": 2002}}))["calls"] <= 1
            assert await called(client, "cost") == {
                "searches": 2, "calls": found["calls"], "cached": 0, "default_budget": 3, "max_budget": 3,
            }  # fmt: skip
            over = await client.call_tool("search", {"query": "cats", "budget": 4})
            assert over.is_error
            assert "budget 1 to 3; got 10 and 4" in over.content[0].text
            assert (await client.call_tool("item", {"id": "none"})).is_error

    async def called(client: Any, tool: str, **given: Any) -> Any:
        answer = await client.call_tool(tool, given)
        assert not answer.is_error, answer
        return answer.structured_content or json.loads(answer.content[0].text)

    asyncio.run(talk())


def test_mcp_counts_what_a_failed_search_has_paid_and_does_not_quote_its_scorer() -> None:
    from mcp.client import Client

    from crosscut.errors import ScorerError
    from crosscut.integrations.mcp import make_server

    seen = 0

    def score(query: str, texts: Any) -> list[float]:
        nonlocal seen
        seen += len(texts)
        if seen > 20:
            raise ScorerError("https://secret.example did not like 'a private text'")
        return score_words(query, texts)

    async def talk() -> None:
        async with Client(make_server(small_index(score), budget=50, max_budget=50)) as client:
            failed = await client.call_tool("search", {"query": "cat", "k": 3})
            assert failed.is_error
            assert "ScorerError" in failed.content[0].text
            assert not re.search("secret|private", failed.content[0].text)
            cost = await client.call_tool("cost", {})
            assert (cost.structured_content or json.loads(cost.content[0].text))["calls"] == seen > 20

    asyncio.run(talk())


def test_mcp_default_number_of_hits_is_within_the_cap() -> None:
    from mcp.client import Client

    from crosscut.integrations.mcp import make_server

    async def talk() -> None:
        async with Client(make_server(small_index(), max_k=5)) as client:
            answer = await client.call_tool("search", {"query": "cat"})
            assert not answer.is_error
            assert len((answer.structured_content or json.loads(answer.content[0].text))["hits"]) == 5

    asyncio.run(talk())


def test_mcp_bounds_what_an_agent_asks_for_and_counts_what_is_called_off(tmp_path: Path) -> None:
    from mcp.client import Client

    from crosscut.integrations.mcp import make_server

    seen: list[int] = []
    inside = threading.Event()

    def score(query: str, texts: Any) -> list[float]:
        seen.append(len(texts))
        if query == "slow":
            inside.set()
            time.sleep(0.3)
        return score_words(query, texts)

    index = small_index(score)

    async def talk() -> None:
        async with Client(make_server(index, budget=50, max_budget=50)) as client:

            async def refused(tool: str, **given: Any) -> str:
                answer = await client.call_tool(tool, given)
                assert answer.is_error
                return str(answer.content[0].text)

            assert "4000 characters" in await refused("search", query="a" * 5000)
            assert "64 conditions" in await refused("search", query="a", filter={str(j): j for j in range(65)})
            assert "1000 characters" in await refused("search", query="a", filter={"k" * 1001: 1})
            assert "100,000 values" in await refused("search", query="a", filter={"number": [1] * 100_001})
            assert "is a text, number" in await refused("search", query="a", filter={"number": [[]] * 1000})
            assert "is empty" in await refused("search", query=" ")
            assert len(await refused("item", id="x" * 100_000)) < 300
            assert seen == []
            search = asyncio.ensure_future(client.call_tool("search", {"query": "slow"}))
            await asyncio.to_thread(inside.wait, 30)
            search.cancel()
            with pytest.raises(asyncio.CancelledError):
                await search
            for _ in range(100):
                answer = await client.call_tool("cost", {})
                cost = answer.structured_content or json.loads(answer.content[0].text)
                if cost["calls"]:
                    break
                await asyncio.sleep(0.1)
            assert cost["calls"] == sum(seen) < 50  # it made no further calls, and those it had made are counted
            index.corpus = Damaged(tmp_path / "secret-place")  # type: ignore[assignment]
            for tool, given in (("search", {"query": "a"}), ("item", {"id": "i3"})):
                assert "secret-place" not in await refused(tool, **given)

    asyncio.run(talk())


class Damaged:
    """In the place of an index's state: whatever is read of it is damaged."""

    def __init__(self, path: Path) -> None:
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Any:
        raise FolderError(f"the index at {str(self._path)!r} is damaged: {name} does not match its checksum")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("haystack", "haystack", "haystack"),
        ("pyterrier", "pyterrier", "pyterrier"),
        ("mteb", "mteb", "mteb"),
        ("mcp", "mcp", "mcp"),
    ],
)
def test_what_is_missing_is_said(module: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nimport crosscut.integrations.{module}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert MissingDependency.__name__ in run.stderr
    assert re.search(f"pip install '.*{extra}", run.stderr)


def test_hints_name_packages_not_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["numpy>=1", "fastapi>=0.110; extra == 'serve'", 'uvicorn; extra == "serve"', "ray>=2.9; extra == 'ray'"]
    needs.append("crosscut[serve]; extra == 'test'")
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needs)
    assert install("serve") == "pip install 'fastapi>=0.110' 'uvicorn'"
    assert str(MissingDependency("it needs Ray", "ray")) == "it needs Ray: pip install 'ray>=2.9'"
    assert install("unheard-of") == "pip install 'crosscut[unheard-of]'"


def test_what_is_missing_is_named_unless_it_is_our_own() -> None:
    with pytest.raises(MissingDependency, match="it needs nowhere: pip install"), needing("it needs {}", "serve"):
        importlib.import_module("nowhere.at_all")
    with pytest.raises(ImportError) as raised, needing("it needs {}", "serve"):
        importlib.import_module("crosscut.nowhere")
    assert not isinstance(raised.value, MissingDependency)


def test_every_adapter_has_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for path in (ROOT / "src/crosscut/integrations").glob("*.py"):
        if path.stem != "__init__":
            assert path.stem.replace("_", "-") in project["optional-dependencies"]


def test_a_misspelt_option_is_refused_and_a_threshold_drops() -> None:
    from langchain_core.documents import Document

    from crosscut.integrations.langchain import CrosscutCompressor, CrosscutRetriever

    with pytest.raises(ValueError, match="budjet"):
        CrosscutRetriever(index=small_index(n=20), budjet=3)
    documents = [Document(page_content=text) for text in ("red red cat", "stone")]
    kept = CrosscutCompressor(reranker=Reranker(score_words), threshold=0.8).compress_documents(documents, "red cat")
    assert [one.page_content for one in kept] == ["red red cat"]
    assert kept[0].metadata["probability"] >= 0.8
