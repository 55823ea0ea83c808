"""Digests, which name cached files and are stored on disk, so they must never change."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from textnuggets.io.documents import Document
from textnuggets.io.files import describe
from textnuggets.io.hashing import digest_bytes, digest_files, digest_json, digest_sparse, short_digest
from textnuggets.search.writing import _digest_document


@given(st.lists(st.binary()))
def test_parts_are_hashed_as_if_concatenated(parts):
    joined = b"".join(parts)
    assert digest_bytes(*parts) == hashlib.sha256(joined).hexdigest()
    assert short_digest(parts, 12) == hashlib.blake2b(joined, digest_size=12).hexdigest()


def test_stored_digests_stay_the_same(tmp_path):
    (tmp_path / "a.txt").write_bytes("One. Two é.\n".encode() * 3)
    (tmp_path / "b.txt").write_bytes(b"B")
    whole = "7fd9e18427b3088b1d06ac183be015c7c4366827f730c9775765ff0e3c020d4f"
    assert describe(tmp_path / "a.txt") == [39, whole]
    assert digest_files(tmp_path / "a.txt") == whole
    both = "e62b0c65f75dde5731f0491ca5cfa97014bd2114201451a1ce251982f0adf4ef"
    assert digest_files(tmp_path / "a.txt", tmp_path / "b.txt") == both
    assert _digest_document(Document("a", "text é", {"b": 1, "a": "ü"})) == "f4cb4f72d7ae2f0fdab8d875"


def test_the_digest_of_a_sparse_file_covers_every_byte_and_the_length(tmp_path):
    path = tmp_path / "file"
    block = 1 << 16
    digests = []
    for length in (0, 1, block, block + 1, 3 * block, 3 * block + 7):
        for position in {None, *range(0, length, block), length - 1} - {-1}:
            data = bytearray(length)
            if position is not None:
                data[position] = 1
            path.write_bytes(data)
            digests.append(digest_sparse(path))
    assert len(set(digests)) == len(digests) == 20
    path.write_bytes(b"B" + bytes(2 * block))
    assert digest_sparse(path) == "caea00f0c657fccc505ea77d2b9b022c06e7b14d1522ddc386f00ce2e3e283f0"


def test_json_is_hashed_without_regard_to_the_order_of_keys():
    assert digest_json({"a": 1, "b": ["é"]}) == digest_json({"b": ["é"], "a": 1})
    assert digest_json([1, "x"]) == hashlib.sha256(b'[1, "x"]').hexdigest()
