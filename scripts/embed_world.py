"""Put the dual encoder's item vectors into a file of score_world.py: python scripts/embed_world.py COLLECTION FILE"""

from __future__ import annotations

import sys

import numpy as np
from score_world import read

from crosscut.encoders.dual import OnnxDualEncoder


def main() -> None:
    collection, path = read(sys.argv[1]), sys.argv[2]
    with np.load(path) as saved:
        arrays = dict(saved)
    texts = [item.full_text for item in collection.items]
    arrays["vectors"] = OnnxDualEncoder.load().encode_items(texts).astype(np.float16)
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main()
