"""Arrow files that are written once and then memory-mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from textnuggets.io.files import replacing
from textnuggets.io.sealing import is_intact, seal


def cache_batches(
    folder: str, name: str, schema: pa.Schema, make: Callable[[], Iterable[pa.RecordBatch]]
) -> Path:
    """Return the path of a cached Arrow file; write it atomically if it does not exist or is damaged.

    Args:
        folder: Folder of the cache; created if necessary.
        name: Name of the file, which identifies its content.
        schema: Schema of the batches.
        make: Computes the batches; called only if the file has to be written.
    """
    path = Path(folder).expanduser() / name
    if not is_intact(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            replacing(path) as temporary,
            pa.OSFile(str(temporary), "wb") as sink,
            pa.ipc.new_file(sink, schema) as writer,
        ):
            for batch in make():
                writer.write_batch(batch)
        seal(path)
    return path


def map_table(path: Path) -> pa.Table:
    """Return the table of an Arrow file, memory-mapped."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()
