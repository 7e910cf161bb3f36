"""Setup of the blocks of docs/guides/scorers.md: a model, and a small cross-encoder in a folder of a hub name."""

import os
from pathlib import Path

from tests.tiny_models import write_cross_encoder

os.environ["COHERE_API_KEY"] = "none"  # nothing is sent
hub = Path("cross-encoder/ms-marco-MiniLM-L6-v2")
hub.mkdir(parents=True)
write_cross_encoder(hub)


def my_model(query: str, text: str) -> float:
    return float(len(set(query) & set(text)))
