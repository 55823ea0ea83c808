"""Corpora packed into tokenized documents, cached on disk (the paper's section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from textnuggets.data.packing import Row, join_sides, pack
from textnuggets.errors import BackboneError, ConfigError, InputError
from textnuggets.io.arrow import cache_batches, map_table
from textnuggets.io.corpora import Passage, check_source, read_passages
from textnuggets.io.files import describe
from textnuggets.io.hashing import digest_bytes, digest_json
from textnuggets.io.progress import Progress
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.tokenization import build_marian_tokenizer, fetch

CACHE = "~/.cache/textnuggets/packed"
FORMAT = 2  # version of the cached files
ROWS = 5000  # approximate number of sentences tokenized together
UNSPACED = ("zh", "ja", "th", "lo", "km", "my")  # languages without spaces between sentences
SCHEMA = pa.schema(
    [
        ("input_ids", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),  # null if equal to the input
        ("sentence_ends", pa.list_(pa.int32())),  # index of the last token of every source sentence
        ("source", pa.string()),
        ("target", pa.string()),  # null if equal to the source
        ("is_cut", pa.bool_()),  # whether it is one sentence, truncated to the limit
        ("place", pa.string()),  # origin of the record: file and line
    ]
)

Tokenize = Callable[..., Any]  # a tokenizer call: texts and options -> BatchEncoding


@dataclass(frozen=True)
class PackingSettings:
    """Settings for packing corpora into documents."""

    languages: Sequence[str] = ("en",)
    """Language of the texts; for translation, source and target."""
    max_tokens: int = 128
    """Maximum number of tokens per document, special tokens included."""
    min_tokens: int = 2
    """Minimum number of tokens per document; shorter ones are dropped."""
    cache: str = CACHE
    """Folder of the cached packed documents."""
    source_language: str | None = None
    """Source language code of a multilingual tokenizer, such as "en_XX"."""
    target_language: str | None = None
    """Target language code."""
    translates: bool = False
    """Whether the target is a translation."""


class Group(NamedTuple):
    """Adjacent sentences that form one document."""

    place: str
    rows: list[Row]


class Example(NamedTuple):
    """One packed document."""

    input_ids: np.ndarray
    labels: np.ndarray
    sentence_ends: np.ndarray


class PackedCorpus:
    """Memory-mapped packed documents; `corpus[i]` is an Example."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = map_table(path)
        sizes = [len(chunk) for chunk in self.table.column("input_ids").chunks]
        self._starts = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, row: int) -> Example:
        inputs = self._list("input_ids", row)
        assert inputs is not None
        labels, ends = self._list("labels", row), self._list("sentence_ends", row)
        return Example(inputs, inputs if labels is None else labels, inputs[:0] if ends is None else ends)

    def _list(self, column: str, row: int) -> np.ndarray | None:
        """Return one list of a column without copying it."""
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        array = self.table.column(column).chunk(chunk)
        value = array[row - int(self._starts[chunk])].values
        return None if value is None else value.to_numpy()

    @cached_property
    def lengths(self) -> np.ndarray:
        """`(documents,)` number of tokens of each document, of its longer side."""
        inputs = pc.list_value_length(self.table.column("input_ids"))
        labels = pc.fill_null(pc.list_value_length(self.table.column("labels")), 0)
        lengths: np.ndarray = pc.max_element_wise(inputs, labels).to_numpy()
        return lengths

    @cached_property
    def records(self) -> np.ndarray:
        """`(documents,)` index of the record, such as an article, that each document comes from."""
        places = self.table.column("place").combine_chunks().dictionary_encode()
        records: np.ndarray = places.indices.to_numpy()
        return records

    def texts(self, rows: Sequence[int]) -> list[tuple[str, str]]:
        """Return the source and target texts of the given documents."""
        part = self.table.take(pa.array(rows, pa.int64())).select(["source", "target"]).to_pylist()
        return [(row["source"], row["target"] or row["source"]) for row in part]

    def __str__(self) -> str:
        tokens = int(pc.sum(pc.list_value_length(self.table.column("input_ids"))).as_py() or 0)
        cut = int(pc.sum(self.table.column("is_cut")).as_py() or 0)
        count = max(1, len(self))
        return (
            f"{len(self):,} documents, {tokens:,} tokens, {tokens / count:.1f} on average, "
            f"{cut / count:.2%} cut"
        )


def tokenizers_of(model: NuggetModel, settings: PackingSettings) -> tuple[Tokenize, Tokenize]:
    """Return the tokenizers of source and target texts.

    They differ for multilingual tokenizers, which depend on the language, and for Marian, which has a
    SentencePiece model for each side.
    """
    tokenizer = model.tokenizer
    source, target = settings.source_language, settings.target_language
    if source or target:
        if not hasattr(tokenizer, "tgt_lang"):
            raise BackboneError(
                f"{type(tokenizer).__name__} is not multilingual: omit model.source_language and "
                f"model.target_language."
            )
        known = tokenizer.get_vocab()
        for code in (source, target):
            if code is not None and code not in known:
                raise BackboneError(f"{type(tokenizer).__name__} has no language code {code!r}.")
        tokenizer.src_lang = source or target
        tokenizer.tgt_lang = target or source
        model.backbone.generation_config.forced_bos_token_id = known[tokenizer.tgt_lang]
        return tokenizer, lambda texts, **options: tokenizer(text_target=texts, **options)
    if settings.translates and getattr(tokenizer, "tgt_lang", None) is not None:
        raise ConfigError(
            "the tokenizer is multilingual: set model.source_language and model.target_language, such as en_XX."
        )
    if settings.translates and model.adapter.config.model_type == "marian":
        name = str(model.config.backbone_name)
        spm, vocabulary = fetch(name, "target.spm"), fetch(name, "vocab.json")
        if spm is None or vocabulary is None:
            raise BackboneError(
                f"{name!r} lacks target.spm or vocab.json, which are needed to tokenize the target texts."
            )
        return tokenizer, build_marian_tokenizer(spm, vocabulary)
    return tokenizer, tokenizer


def load_corpus(
    sources: Sequence[str], settings: PackingSettings, tokenizers: tuple[Tokenize, Tokenize]
) -> PackedCorpus:
    """Return the packed documents of corpora, from the cache if possible."""
    name = f"{_key(sources, settings, tokenizers)}.arrow"
    path = cache_batches(settings.cache, name, SCHEMA, lambda: pack_documents(sources, settings, tokenizers))
    corpus = PackedCorpus(path)
    if not len(corpus):
        raise InputError(
            f"{', '.join(sources)}: no document of at least data.min_tokens = {settings.min_tokens} tokens."
        )
    return corpus


def _key(sources: Sequence[str], settings: PackingSettings, tokenizers: tuple[Tokenize, Tokenize]) -> str:
    """Return a cache key that changes whenever the packed documents would."""
    files = [describe(file) for source in sources for file in check_source(source) or []]
    probe = "The probe, naïve: 12.5% of déjà vu?"
    meaning = {
        "format": FORMAT,
        "sources": list(sources),
        "files": files,
        "languages": list(settings.languages),
        "codes": [settings.source_language, settings.target_language],
        "tokens": [settings.min_tokens, settings.max_tokens],
        "tokenizers": [_fingerprint(tokenize, probe) for tokenize in tokenizers],
    }
    return digest_json(meaning)[:32]


def _fingerprint(tokenize: Any, probe: str) -> str:
    """Return a digest of a tokenizer and of its encoding of `probe`."""
    backend = getattr(tokenize, "backend_tokenizer", None)
    whole = backend.to_str() if backend is not None else ""
    return digest_bytes(f"{whole}{tokenize([probe]).input_ids}".encode())


def pack_documents(
    sources: Sequence[str], settings: PackingSettings, tokenizers: tuple[Tokenize, Tokenize]
) -> Iterator[pa.RecordBatch]:
    """Join sentences into documents and tokenize them, one batch of passages at a time."""
    languages = settings.languages
    joiners = tuple("" if language[:2] in UNSPACED else " " for language in languages)
    passages = read_passages(sources, languages)
    with Progress("pack") as progress:
        while part := _take(passages, ROWS):
            groups = _group(part, tokenizers[: len(languages)], settings.max_tokens)
            rows = list(_documents(groups, joiners, settings, tokenizers))
            progress.add(len(rows))
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _take(passages: Iterator[Passage], rows: int) -> list[Passage]:
    """Return the next passages that together have at least `rows` rows."""
    taken: list[Passage] = []
    while rows > 0 and (passage := next(passages, None)) is not None:
        taken.append(passage)
        rows -= len(passage.rows)
    return taken


def _group(passages: Sequence[Passage], tokenizers: Sequence[Tokenize], max_tokens: int) -> list[Group]:
    """Group the sentences of each passage into documents of at most `max_tokens` tokens."""
    counts: list[list[int]] = []
    special = 0
    for side, tokenize in enumerate(tokenizers):
        sentences = [row[side] for passage in passages for row in passage.rows]
        encoded = tokenize(sentences, add_special_tokens=False, return_attention_mask=False, verbose=False)
        counts.append([len(ids) for ids in encoded.input_ids])
        special = max(special, len(tokenize([""]).input_ids[0]))
    tokens = iter(zip(*counts, strict=True))
    groups: list[Group] = []
    for passage in passages:
        rows = [Row(row, next(tokens)) for row in passage.rows]
        groups += [Group(passage.name, part) for part in pack(rows, max_tokens - special)]
    return groups


def _documents(
    groups: list[Group],
    joiners: tuple[str, ...],
    settings: PackingSettings,
    tokenizers: tuple[Tokenize, Tokenize],
) -> Iterator[dict[str, Any]]:
    """Tokenize each group as one text, as at inference."""
    same = len(joiners) == 1 and tokenizers[0] is tokenizers[1]
    texts = [join_sides(group.rows, joiners) for group in groups]
    encoded = [
        tokenizers[side]([text[min(side, len(text) - 1)] for text in texts], verbose=False).encodings
        for side in range(1 if same else 2)
    ]
    for number, group in enumerate(groups):
        sides = [encodings[number] for encodings in encoded]
        is_cut = max(map(len, sides)) > settings.max_tokens
        if is_cut and len(group.rows) > 1:  # joined sentences may take more tokens than separate ones
            middle = len(group.rows) // 2
            halves = [Group(group.place, part) for part in (group.rows[:middle], group.rows[middle:])]
            yield from _documents(halves, joiners, settings, tokenizers)
            continue
        kept = [_cut(encoding, settings.max_tokens) for encoding in sides]
        if len(kept[0][0]) < settings.min_tokens:
            continue
        source, target = texts[number][0], texts[number][-1]
        yield {
            "input_ids": kept[0][0],
            "labels": None if same else kept[1][0],
            "sentence_ends": _sentence_ends(sides[0], source, group.rows, joiners[0], len(kept[0][0])),
            "source": source[: kept[0][1]] if is_cut else source,
            "target": None if len(joiners) == 1 else (target[: kept[1][1]] if is_cut else target),
            "is_cut": is_cut,
            "place": group.place,
        }


def _cut(encoding: Any, limit: int) -> tuple[list[int], int]:
    """Return at most `limit` ids, keeping special tokens, and the character at which the kept text ends."""
    ids, special = encoding.ids, encoding.special_tokens_mask
    over = len(ids) - limit
    last = max((i for i, s in enumerate(special) if not s), default=len(ids) - 1)
    stop = last + 1 - max(0, over)
    end = max((stop_at for _, stop_at in encoding.offsets[:stop]), default=0)
    return [*ids[:stop], *ids[last + 1 :]], end


def _sentence_ends(encoding: Any, text: str, group: list[Row], joiner: str, count: int) -> list[int]:
    """Return the index of the last token of every sentence in a document of `count` tokens."""
    starts, at = [], 0  # start offsets of all sentences but the first
    for row in group[:-1]:
        at += len(row.sides[0]) + len(joiner)
        starts.append(at)
    ends: list[int] = []
    previous = -1
    for position, ((start, end), special) in enumerate(
        zip(encoding.offsets[:count], encoding.special_tokens_mask, strict=False)
    ):
        if special or end <= start or text[start:end].isspace():
            continue
        # A token may begin with the space before its word.
        while starts and end > starts[0]:
            ends.append(previous)
            starts.pop(0)
        previous = position
    return [end for end in [*ends, previous] if end >= 0]
