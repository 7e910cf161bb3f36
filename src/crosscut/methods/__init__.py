"""The methods, one file each; a name or a value: `crosscut.methods.parse("axn@rounds=10")`, `AXN(rounds=10)`."""

from crosscut.methods.adacur import ADACUR
from crosscut.methods.anncur import ANNCUR
from crosscut.methods.axn import AXN
from crosscut.methods.base import First, InRounds, Method, Parts, methods, parse, parse_all, register
from crosscut.methods.crosscut import Crosscut
from crosscut.methods.exact import Exact
from crosscut.methods.gar import GAR
from crosscut.methods.gp import GP
from crosscut.methods.item_scores import FixedItem, ItemCUR
from crosscut.methods.qdrant_feedback import QdrantFeedback
from crosscut.methods.rerank import Hybrid, Rerank
from crosscut.methods.rgs import RGS
from crosscut.methods.tour import TOUR

__all__ = [
    "ADACUR",
    "ANNCUR",
    "AXN",
    "GAR",
    "GP",
    "RGS",
    "TOUR",
    "Crosscut",
    "Exact",
    "First",
    "FixedItem",
    "Hybrid",
    "InRounds",
    "ItemCUR",
    "Method",
    "Parts",
    "QdrantFeedback",
    "Rerank",
    "methods",
    "parse",
    "parse_all",
    "register",
]
