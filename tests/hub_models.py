"""Random models of hub architectures, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KINDS = ("bert", "electra", "roberta", "distilbert", "modernbert")


def write_bpe(path: Path, texts: list[str]) -> Path:
    """A byte-level BPE with RoBERTa's special tokens, trained on a few texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.save(str(path))
    return path


def add_pair_template(path: Path, first: str = "[CLS]", end: str = "[SEP]") -> None:
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {end}",
        pair=f"{first} $A {end} $B:1 {end}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, end)],
    )
    tokenizer.save(str(path))


def write_model(
    folder: Path,
    kind: str,
    *,
    layers: int = 3,
    width: int = 32,
    heads: int = 4,
    longest: int = 96,
    tokenizer: Path | None = None,
    head: bool = True,
    spread: float = 0.2,
    **settings: Any,
) -> Path:
    """A cross-encoder (or, without a head, an encoder) of an architecture, with random weights."""
    import torch
    import transformers

    from tests.tiny_models import sentences, write_tokenizer

    library: Any = transformers
    folder.mkdir(parents=True, exist_ok=True)
    roberta = kind == "roberta"
    file = folder / "tokenizer.json"
    if tokenizer is not None:
        file.write_bytes(tokenizer.read_bytes())
    elif roberta:
        write_bpe(file, sentences(200))
    else:
        add_pair_template(write_tokenizer(file))
    names = (
        {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
        if roberta and tokenizer is None
        else {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    )
    inputs = ["input_ids", "attention_mask"]
    if kind in ("bert", "electra"):
        inputs.insert(1, "token_type_ids")
    fast = library.PreTrainedTokenizerFast(
        tokenizer_file=str(file), model_max_length=longest, model_input_names=inputs, **names
    )
    fast.save_pretrained(folder)
    common = {"vocab_size": len(fast), "num_labels": 1, "pad_token_id": fast.pad_token_id, **settings}
    if kind == "distilbert":
        size = {"dim": width, "n_layers": layers, "n_heads": heads, "hidden_dim": 4 * width}
        config = library.DistilBertConfig(**common, **size, max_position_embeddings=longest)
    else:
        size = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        size["intermediate_size"] = 2 * width if kind == "modernbert" else 4 * width
        more = {"max_position_embeddings": longest + (fast.pad_token_id + 1 if roberta else 0)}
        if kind == "electra":
            more["embedding_size"] = width // 2
        if kind == "modernbert":
            more |= {
                "local_attention": 16 if longest < 128 else 128,
                "bos_token_id": fast.cls_token_id,
                "eos_token_id": fast.sep_token_id,
                "cls_token_id": fast.cls_token_id,
                "sep_token_id": fast.sep_token_id,
            }
        made = {"bert": "Bert", "electra": "Electra", "roberta": "Roberta", "modernbert": "ModernBert"}[kind]
        config = getattr(library, f"{made}Config")(**{**common, **size, **more, **settings})
    auto = library.AutoModelForSequenceClassification if head else library.AutoModel
    torch.manual_seed(0)
    model = auto.from_config(config)
    if spread:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" not in name.lower():
                    parameter.normal_(0, spread)
    model.save_pretrained(folder)
    return folder
