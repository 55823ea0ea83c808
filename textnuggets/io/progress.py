"""Progress on standard error: a bar on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

QUIET_SECONDS = 2.0  # shorter tasks show nothing
LINE_SECONDS = 10.0  # between two plain lines


class Progress:
    """Counter of finished items: `with Progress("encode", total=100) as progress: progress.add(3)`."""

    def __init__(self, label: str, total: int | None = None, shown: bool = True) -> None:
        self.label, self.total, self.done = label, total, 0
        self._shown = shown
        self._started = self._last_line = time.monotonic()
        self._bar = None
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=label, total=total, delay=QUIET_SECONDS, leave=False)

    def add(self, count: int) -> None:
        """Count `count` more items as done."""
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif self._shown:
            now = time.monotonic()
            first = self._last_line == self._started and now - self._started > QUIET_SECONDS
            if first or now - self._last_line > LINE_SECONDS:
                self._last_line = now
                of = f"/{self.total:,}" if self.total is not None else ""
                rate = self.done / (now - self._started)
                print(f"{self.label}: {self.done:,}{of}, {rate:,.1f}/s", file=sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
