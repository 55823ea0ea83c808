"""Tokenized texts cut into segments, and the nuggets of segments, both computed once and cached on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from textnuggets.errors import InputError
from textnuggets.io.arrow import cache_batches, map_table
from textnuggets.io.batching import batches
from textnuggets.io.corpora import check_source, read_passages
from textnuggets.io.disk import make_folder
from textnuggets.io.documents import decode_utf8, raise_bad_line, read_lines
from textnuggets.io.files import describe, replacing
from textnuggets.io.hashing import digest_bytes, digest_json
from textnuggets.io.progress import Progress
from textnuggets.io.sealing import is_intact, seal
from textnuggets.io.wikitext import LongText, read_wikitext, split_words
from textnuggets.lm.decoder import SegmentDecoder
from textnuggets.lm.memory import SegmentMemory
from textnuggets.model.fingerprint import fingerprint

SCHEMA = pa.schema([("ids", pa.list_(pa.int32()))])
TEXTS = 64  # texts tokenized together


class Place(NamedTuple):
    """Position of a segment: the index of its text, and its index within the text."""

    text: int
    segment: int


class TokenStreams:
    """Memory-mapped token ids of long texts, without special tokens, cut into segments of `size` tokens."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.column = map_table(path).column("ids")

    def __len__(self) -> int:
        return len(self.column)

    def text(self, number: int) -> NDArray[np.int32]:
        """Return all tokens of a text."""
        ids: NDArray[np.int32] = self.column[number].values.to_numpy()
        return ids

    def segment(self, place: Place) -> NDArray[np.int32]:
        """Return the tokens of a segment; the last segment of a text may be shorter."""
        start = place.segment * self.size
        return self.text(place.text)[start : start + self.size]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """`(texts,)` number of segments of each text, including a shorter last one."""
        lengths = np.array([len(self.column[i].values) for i in range(len(self))], dtype=np.int64)
        return -(-lengths // self.size)

    def __str__(self) -> str:
        return f"{len(self):,} texts, {int(self.counts.sum()):,} segments of {self.size} tokens"


def load_streams(
    sources: Sequence[str], tokenizer: Any, size: int, cache: str, language: str = "en"
) -> TokenStreams:
    """Return the tokenized texts of corpora, one text per record; tokenize them only if they are not in the cache."""
    files = [describe(file) for source in sources for file in check_source(source) or []]
    meaning = [3, list(sources), files, language, tokenizer.backend_tokenizer.to_str()]
    name = f"stream-{digest_json(meaning)[:32]}.arrow"
    path = cache_batches(cache, name, SCHEMA, lambda: _tokenize(sources, language, tokenizer))
    streams = TokenStreams(path, size)
    if not len(streams):
        raise InputError(f"{', '.join(sources)}: no text found.")
    return streams


def read_long_texts(sources: Sequence[str], language: str = "en") -> Iterator[LongText]:
    """Yield whole texts: the records of a corpus, or the articles of a .txt file.

    Articles start with headings as in WikiText; a file without headings is one text.
    """
    for source in sources:
        files = check_source(source)
        for file in [source] if files is None else map(str, files):
            if file.removesuffix(".gz").endswith(".txt"):
                lines = read_lines(Path(file), lambda line, _: decode_utf8(line), raise_bad_line)
                yield from read_wikitext(lines)
                continue
            for _, parts in groupby(read_passages([file], [language]), key=lambda passage: passage.name):
                yield split_words(" ".join(row[0] for passage in parts for row in passage.rows))


def _tokenize(sources: Sequence[str], language: str, tokenizer: Any) -> Iterator[pa.RecordBatch]:
    """Yield the token ids of long texts, without special tokens."""
    options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
    with Progress("tokenize") as progress:
        for batch in batches(read_long_texts(sources, language), TEXTS):
            ids = tokenizer([text.text for text in batch], **options).input_ids
            yield pa.RecordBatch.from_pydict({"ids": ids}, schema=SCHEMA)
            progress.add(len(batch))


class SegmentCache:
    """Nuggets of full segments on disk, `(segments, k, d)` in float16, so that a frozen encoder runs once."""

    def __init__(self, folder: Path, places: Sequence[Place]) -> None:
        self.vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.scores = np.load(folder / "scores.npy", mmap_mode="r")
        self.rows = {place: row for row, place in enumerate(places)}

    def get(self, place: Place) -> SegmentMemory:
        """Return the memory of one segment."""
        row = self.rows[place]
        return SegmentMemory(
            torch.from_numpy(self.vectors[row].astype(np.float32)), torch.from_numpy(self.scores[row].copy())
        )


def cache_segments(
    lm: SegmentDecoder, streams: TokenStreams, places: Sequence[Place], ratio: float, cache: str
) -> SegmentCache:
    """Return the nuggets of full segments, from the cache if the same weights encoded them at the same ratio."""
    # The first number is a version: raise it when segments are encoded differently.
    meaning = f"1 {streams.path.name} {streams.size} {ratio} {fingerprint(lm.nugget)}"
    digest = digest_bytes(np.array(places, dtype=np.int64).tobytes(), meaning.encode())
    folder = Path(cache).expanduser() / f"nuggets-{digest[:32]}"
    files = [folder / "vectors.npy", folder / "scores.npy"]
    if not all(map(is_intact, files)):
        make_folder(folder)
        (example,) = _remember(lm, streams, places[:1], ratio)
        k, d = example.vectors.shape
        scores = np.zeros((len(places), k), dtype=np.float32)
        with replacing(folder / "vectors.npy") as temporary:
            vectors = np.lib.format.open_memmap(temporary, "w+", np.float16, (len(places), k, d))
            with Progress("nuggets", len(places)) as progress:
                for start in range(0, len(places), 32):
                    for row, memory in enumerate(
                        _remember(lm, streams, places[start : start + 32], ratio), start
                    ):
                        vectors[row], scores[row] = memory.vectors.cpu().numpy(), memory.scores.cpu().numpy()
                        progress.add(1)
            vectors.flush()
            del vectors
        with replacing(folder / "scores.npy") as temporary, temporary.open("wb") as stream:
            np.save(stream, scores)
        for file in files:
            seal(file)
    return SegmentCache(folder, places)


def _remember(
    lm: SegmentDecoder, streams: TokenStreams, places: Sequence[Place], ratio: float
) -> list[SegmentMemory]:
    with lm.evaluating(), torch.inference_mode():
        return lm.remember([streams.segment(place).tolist() for place in places], ratio)
