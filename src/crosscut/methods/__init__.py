"""The methods, one file each; a name or a value: `crosscut.methods.parse("axn@rounds=10")`, `AXN(rounds=10)`."""

from crosscut.methods.adacur import ADACUR
from crosscut.methods.anncur import ANNCUR
from crosscut.methods.axn import AXN
from crosscut.methods.base import First, InRounds, Method, Parts, methods, parse, parse_all, register
from crosscut.methods.crosscut import Crosscut
from crosscut.methods.exact import Exact
from crosscut.methods.rerank import Hybrid, Rerank

__all__ = [
    "ADACUR",
    "ANNCUR",
    "AXN",
    "Crosscut",
    "Exact",
    "First",
    "Hybrid",
    "InRounds",
    "Method",
    "Parts",
    "Rerank",
    "methods",
    "parse",
    "parse_all",
    "register",
]
