"""Items, queries and qrels: readers, planted data."""

from crosscut.datasets.arrow import read_arrow, read_parquet
from crosscut.datasets.beir import is_test, read_beir
from crosscut.datasets.folder import read_folder
from crosscut.datasets.plain import read_csv, read_json, read_jsonl, read_tsv
from crosscut.datasets.planted import Planted, planted
from crosscut.datasets.reading import read_items, read_queries
from crosscut.datasets.records import Collection, Item, ItemList, Items, Judgement, Query

__all__ = [
    "Collection",
    "Item",
    "ItemList",
    "Items",
    "Judgement",
    "Planted",
    "Query",
    "is_test",
    "planted",
    "read_arrow",
    "read_beir",
    "read_csv",
    "read_folder",
    "read_items",
    "read_json",
    "read_jsonl",
    "read_parquet",
    "read_queries",
    "read_tsv",
]
