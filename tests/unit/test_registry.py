"""A method is a value, and its repr is its name; methods of one's own join by a decorator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crosscut
from crosscut import names
from crosscut.errors import InputError
from crosscut.methods import ADACUR, AXN, Crosscut, Method, Parts, methods, parse, parse_all, register
from crosscut.methods import base as registry
from crosscut.search.loop import Plan
from tests.worlds import Planted


@pytest.mark.parametrize("name", list(methods()))
def test_a_name_alone_is_the_method_as_usual(name: str) -> None:
    method = methods()[name]()
    assert repr(method) == str(method) == name
    assert parse(name) == method
    assert parse(method) is method


@given(
    rounds=st.integers(1, 50),
    mix=st.floats(0, 1),
    explore=st.sampled_from([0.0, 0.25, 0.9]),
    first=st.sampled_from(["auto", "dense", "lexical", "union", "random"]),
    rcond=st.none() | st.floats(1e-12, 0.1),
    shortlist=st.none() | st.integers(1, 9),
)
def test_repr_and_parse_are_inverse(
    rounds: int, mix: float, explore: float, first: str, rcond: float | None, shortlist: int | None
) -> None:
    method = AXN(rounds=rounds, mix=mix, explore=explore, first=first, rcond=rcond, shortlist=shortlist)  # type: ignore[arg-type]
    assert parse(repr(method)) == method
    assert hash(parse(repr(method))) == hash(method)


def test_several_methods_in_one_line() -> None:
    assert parse_all("rerank,axn@rounds=10,mix=0.8,adacur") == [parse("rerank"), AXN(rounds=10, mix=0.8), ADACUR()]
    assert parse_all("crosscut@rounds=5, adacur@select=softmax") == [Crosscut(rounds=5), ADACUR(select="softmax")]
    assert repr(AXN(rounds=10, mix=0.8)) == "axn@rounds=10,mix=0.8"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("magic", "unknown method 'magic': choose one of adacur, anncur"),
        ("axn@rounds", "settings are written name=value, and 'rounds' has no '='"),
        ("axn@speed=3", "axn has no setting 'speed': it takes rounds, first"),
        ("axn@rounds=2.5", "rounds of axn is a whole number; got '2.5'"),
        ("axn@rounds=0", "at least 1 round; got 0"),
        ("axn@mix=2", "0 … 1; got 2"),
        ("axn@first=best", "first of axn is one of auto, dense, lexical, union, random; got 'best'"),
        ("adacur@explore=much", "explore of adacur is a number; got 'much'"),
        ("anncur@split=1.5", "0 … 1; got 1.5"),
    ],
)
def test_wrong_names_are_sentences(label: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(label)


def test_values_are_checked_too() -> None:
    with pytest.raises(InputError, match="rounds of axn is a whole number; got True"):
        AXN(rounds=True)
    with pytest.raises(InputError, match="a method is a name such as"):
        parse(3)  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        AXN().rounds = 3


def test_what_is_missing_fits_the_caller() -> None:
    assert parse("adacur").missing(Parts(n=3)) == (
        "needs scores of anchor queries and has none: pass space=CUR(anchor_scores)"
    )
    index = crosscut.Index.build(["a b", "c d", "e f"], scorer=lambda query, texts: [0.0] * len(texts))
    for method in ("adacur", "anncur", "axn@space=factors"):
        with pytest.raises(InputError, match="needs") as caught:
            index.search("a", 1, 2, method=method)
        assert "space=CUR" not in str(caught.value)
        assert "build the index" in str(caught.value) or "crosscut.Searcher" in str(caught.value)


@pytest.fixture
def backwards() -> Iterator[Method]:
    @register
    @dataclass(frozen=True, repr=False)
    class Backwards(Method):
        """The last items first."""

        name: ClassVar[str] = "backwards"
        step: int = 1

        def plan(self, parts: Parts) -> Plan:
            from crosscut.search.stages import Fixed

            return parts.one_round(Fixed(np.arange(parts.size)[:: -self.step]))

    yield Backwards()
    del registry._METHODS._known["backwards"]


def test_a_method_of_ones_own_works_by_name(world: Planted, backwards: Method) -> None:
    label = "backwards@step=2"
    hits = crosscut.Searcher(crosscut.MatrixScorer(world.test), method=label).search(0, 3, 4)
    assert hits.scored.tolist() == [199, 197, 195, 193]
    record = crosscut.replay(world.test, methods=[label], budgets=[4], k=[1], seeds=1).records[0]
    assert (record.method, record.calls, record.settings) == (label, 4, {"step": 2})
    index = crosscut.Index.build([f"text {j}" for j in range(9)], scorer=lambda q, texts: [len(t) for t in texts])
    assert index.search("q", 2, 3, method=label).calls == 3
    assert backwards.missing(index.corpus.parts) is None
    with pytest.raises(InputError, match="not a frozen dataclass"):
        register(int)


class Packages:
    """Entry points of other people's packages."""

    def __init__(self, **made: Any) -> None:
        self.made = made

    def select(self, group: str) -> list[Any]:
        return [Entry(name, loads) for name, loads in self.made.items() if group == "crosscut.methods"]


@dataclass
class Entry:
    name: str
    loads: Any
    value: str = "theirs:Method"

    def load(self) -> Any:
        return self.loads()


def test_a_plugin_that_fails_breaks_nothing(monkeypatch: pytest.MonkeyPatch, backwards: Method) -> None:
    def raises(error: BaseException) -> Any:
        def load() -> Any:
            raise error

        return load

    @dataclass(frozen=True)
    class Theirs(Crosscut):
        name: ClassVar[str] = "crosscut"

    theirs = Packages(
        broken=raises(ZeroDivisionError("theirs")),
        leaving=raises(SystemExit(3)),
        thing=lambda: 7,
        taken=lambda: Theirs,
    )
    fresh = type(registry._METHODS)(registry._METHODS.kind, registry._METHODS.example)
    fresh._known = dict(registry._METHODS._known)
    monkeypatch.setattr(names, "_entry_points", lambda: theirs)
    with pytest.warns(UserWarning, match=r"'(broken|leaving|thing|taken)' is left out") as caught:
        assert isinstance(fresh.parse("crosscut"), Crosscut)
    assert len(caught) == 4
    assert type(fresh.parse("crosscut")) is Crosscut
    with pytest.raises(InputError, match=r"'broken' \(theirs:Method failed \(ZeroDivisionError: theirs\)\)"):
        fresh.parse("broken")


def test_a_module_that_was_asked_for_and_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "failing_plugin.py").write_text("raise ZeroDivisionError('mine')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CROSSCUT_PLUGINS", "failing_plugin")
    fresh = type(registry._METHODS)(registry._METHODS.kind, registry._METHODS.example)
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"names 'failing_plugin', which cannot be imported \(ZeroDivisionError: mine"
        ):
            fresh.parse("crosscut")
