"""The mean of two stages of training: python scripts/average_weights.py WORK/second WORK/third WORK/ce

Two runs of which one continues the other lie in one valley; half way between them is often better balanced than either
end (here: the third stage knows WordNet better, the second the longer texts). Roles that the earlier stage did not have
count as copies of those they refine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from safetensors.torch import load_file, save_file
from train_default import with_new_roles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("later", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--share", type=float, default=0.5, help="of the later one")
    arguments = parser.parse_args()
    first = with_new_roles(load_file(arguments.earlier / "best.safetensors"))
    # the end of the later run, not its best validation: averaging is the choice that was validated
    saved = load_file(arguments.later / "checkpoint.safetensors")
    second = {name.removeprefix("weight/"): tensor for name, tensor in saved.items() if name.startswith("weight/")}
    share = arguments.share
    arguments.output.mkdir(parents=True, exist_ok=True)
    mean = {name: ((1 - share) * first[name] + share * second[name]).contiguous() for name in first}
    save_file(mean, arguments.output / "best.safetensors")


if __name__ == "__main__":
    main()
