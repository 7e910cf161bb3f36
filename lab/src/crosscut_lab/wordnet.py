"""WordNet as entity-linking data sets, in the shape of ZESHEL.

Items are synsets (lemmas and definition), queries are the example sentences of the glosses with the lemma marked
`[START] … [END]`, one data set per lexicographer file: 117,659 items, about 48,000 labelled queries and 45 disjoint
domains from Debian's `wordnet-base` (file formats: wndb(5WN), lexnames(5WN)).

WordNet 3.0 Copyright 2006 by Princeton University; see `crosscut/data/WORDNET-LICENSE`.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from crosscut.datasets.records import MENTION_END, MENTION_START, Collection, Item, Query
from crosscut.errors import InputError

DEFAULT_FOLDER = Path("/usr/share/wordnet")
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}

WORLDS = (
    *("adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact"),
    *("noun.attribute", "noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling"),
    *("noun.food", "noun.group", "noun.location", "noun.motive", "noun.object", "noun.person"),
    *("noun.phenomenon", "noun.plant", "noun.possession", "noun.process", "noun.quantity", "noun.relation"),
    *("noun.shape", "noun.state", "noun.substance", "noun.time", "verb.body", "verb.change"),
    *("verb.cognition", "verb.communication", "verb.competition", "verb.consumption", "verb.contact"),
    *("verb.creation", "verb.emotion", "verb.motion", "verb.perception", "verb.possession", "verb.social"),
    *("verb.stative", "verb.weather", "adj.ppl"),
)
"""Names of the lexicographer files, by number (lexnames(5WN))."""


class Synset(NamedTuple):
    """One set of synonyms."""

    id: str
    world: str
    lemmas: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]

    @property
    def item(self) -> Item:
        return Item(self.id, ", ".join(self.lemmas), self.definition)


class WordNet:
    """The whole lexicon, read once.

    Parameters
    ----------
    folder : where `data.noun` and its sisters lie; Debian's `wordnet-base` puts them in /usr/share/wordnet.
    """

    def __init__(self, folder: str | Path = DEFAULT_FOLDER) -> None:
        self.folder = Path(folder)
        if not (self.folder / "data.noun").is_file():
            raise InputError(
                f"no WordNet in {str(self.folder)!r} (data.noun is missing); install Debian's wordnet-base "
                "or pass the folder that holds data.noun, data.verb, data.adj and data.adv"
            )

    @cached_property
    def synsets(self) -> list[Synset]:
        """Every synset, nouns first, in file order."""
        return [synset for part in PARTS for synset in self._read(part)]

    def world(self, name: str) -> Collection:
        """Return one lexicographer file as a collection; its queries are labelled with their synset."""
        if name not in WORLDS:
            raise InputError(
                f"there is no WordNet world {name!r}; one of the {len(WORLDS)} is {WORLDS[9]!r}, "
                "all are in crosscut_lab.wordnet.WORLDS"
            )
        members = [synset for synset in self.synsets if synset.world == name]
        queries, qrels = self.queries(members)
        return Collection(f"wordnet/{name}", [synset.item for synset in members], queries, qrels)

    def queries(self, members: Sequence[Synset]) -> tuple[list[Query], dict[str, dict[str, float]]]:
        """The marked examples of some synsets, and which synset each belongs to.

        The id of a query is `<synset id>.<number of the example>`.
        """
        queries = []
        qrels = {}
        for synset in members:
            for number, example in enumerate(synset.examples):
                marked = mark(example, synset.lemmas, self._irregular)
                if marked is not None:
                    id = f"{synset.id}.{number}"
                    queries.append(Query(id, marked))
                    qrels[id] = {synset.id: 1.0}
        return queries, qrels

    @cached_property
    def _irregular(self) -> dict[str, list[str]]:
        """Base form → irregular inflections, from the exception lists."""
        table: dict[str, list[str]] = {}
        for part in PARTS:
            path = self.folder / f"{part}.exc"
            if path.is_file():
                for line in path.read_text("utf-8").splitlines():
                    inflected, *bases = line.split()
                    for base in bases:
                        table.setdefault(base, []).append(inflected)
        return table

    def _read(self, part: str) -> Iterator[Synset]:
        path = self.folder / f"data.{part}"
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.startswith("  "):  # the licence
                    continue
                try:
                    yield parse(line, PARTS[part])
                except (ValueError, IndexError) as error:
                    raise InputError(
                        f"{path} line {number} is not a WordNet data line ({error}); the format is that of wndb(5WN)"
                    ) from error


def parse(line: str, part: str) -> Synset:
    """One line of a data file (wndb(5WN)); `part` is n, v, a or r."""
    data, _, gloss = line.partition("|")
    fields = data.split()
    count = int(fields[3], 16)
    words = [fields[4 + 2 * i] for i in range(count)]
    lemmas = [re.sub(r"\((a|p|ip)\)$", "", word).replace("_", " ") for word in words]
    definition, examples = split_gloss(gloss.strip())
    return Synset(
        id=f"{fields[0]}-{part}",
        world=WORLDS[int(fields[1])],
        lemmas=tuple(dict.fromkeys(lemmas)),
        definition=definition,
        examples=tuple(examples),
    )


def split_gloss(gloss: str) -> tuple[str, list[str]]:
    """A gloss is a definition, then examples in double quotes, separated by semicolons."""
    first = gloss.find('"')
    if first < 0:
        return gloss.strip(" ;"), []
    definition = gloss[:first].strip(" ;:")
    examples = [example.strip() for example in re.findall(r'"([^"]+)"', gloss[first:])]
    return definition or gloss, [example for example in examples if example]


def mark(sentence: str, lemmas: Sequence[str], irregular: dict[str, list[str]] | None = None) -> str | None:
    """The sentence with the first occurrence of one of the lemmas (inflected or not) marked, or None.

    Exact forms are tried before inflections, so that the mark lands on the lemma where both occur.
    """
    for forms in ([[lemma] for lemma in lemmas], [inflections(lemma, irregular or {}) for lemma in lemmas]):
        for alternatives in forms:
            pattern = "|".join(
                re.escape(form).replace(r"\ ", "[ -]") for form in sorted(alternatives, key=len, reverse=True)
            )
            found = re.search(rf"(?<!\w)({pattern})(?!\w)", sentence, flags=re.IGNORECASE)
            if found:
                before, after = sentence[: found.start()], sentence[found.end() :]
                return f"{before}{MENTION_START} {found.group(1)} {MENTION_END}{after}"
    return None


def inflections(lemma: str, irregular: dict[str, list[str]]) -> list[str]:
    """The regular English inflections of a lemma and the irregular ones known.

    In a phrase the first or the last word is inflected ("gave up", "heads of state", "test tubes").
    """
    words = lemma.split()
    forms = [lemma, *irregular.get(lemma.lower().replace(" ", "_"), [])]
    for place in {0, len(words) - 1}:
        word = words[place]
        endings = [word + ending for ending in ("s", "es", "ed", "d", "ing", "er", "est", "r", "st", "'s")]
        if word.endswith("e"):
            endings.append(word[:-1] + "ing")
        if word.endswith("y"):
            endings += [word[:-1] + ending for ending in ("ies", "ied", "ier", "iest")]
        if len(word) > 2 and word[-1].isalpha() and word[-1] not in "aeiouwxy":
            endings += [word + word[-1] + ending for ending in ("ed", "ing", "er", "est")]
        endings += irregular.get(word.lower(), [])
        forms += [" ".join([*words[:place], ending, *words[place + 1 :]]) for ending in endings]
    return [form.replace("_", " ") for form in dict.fromkeys(forms)]


def write(name: str, output: Path, source: Path = DEFAULT_FOLDER) -> Collection:
    """Write a data set as a BEIR folder, gzipped without time stamps."""
    found = WordNet(source).world(name)
    output.mkdir(parents=True, exist_ok=True)

    def pack(file: str, lines: list[str]) -> None:
        (output / file).write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))

    items = [{"_id": item.id, "title": item.title, "text": item.text} for item in found.items]
    pack("corpus.jsonl.gz", [json.dumps(item, ensure_ascii=False) for item in items])
    queries = [{"_id": query.id, "text": query.text} for query in found.queries]
    pack("queries.jsonl.gz", [json.dumps(query, ensure_ascii=False) for query in queries])
    judged = [f"{q}\t{i}\t{int(grade)}" for q, gold in found.qrels.items() for i, grade in gold.items()]
    pack("qrels.tsv.gz", ["query-id\tcorpus-id\tscore", *judged])
    return found
