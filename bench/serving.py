"""Throughput, latency, memory and robustness of the server under load on loopback."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

import textnuggets
from bench.measuring import record
from textnuggets.serve.loading import DECODER

CLIENTS = (1, 8, 16, 32)


@contextmanager
def served(model: str, *options: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server in its own process; yield its address and the process."""
    command = [sys.executable, "-m", "textnuggets", "serve", "--model", model, "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if found := re.match(r"(http://\S+)", line):
                address = found[1]
                break
        try:
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


async def load(address: str, clients: int, seconds: float, texts: list[str]) -> dict[str, Any]:
    """Measure clients that each send one short text after another."""
    times: list[float] = []
    errors = 0
    end = time.perf_counter() + seconds

    async def client(number: int, http: httpx.AsyncClient) -> None:
        nonlocal errors
        place = number
        while time.perf_counter() < end:
            body = {"input": texts[place % len(texts)]}
            started = time.perf_counter()
            answer = await http.post("/v1/embeddings", json=body)
            times.append(time.perf_counter() - started)
            errors += answer.status_code != 200
            place += clients

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as http:
        await asyncio.gather(*(client(number, http) for number in range(clients)))
    return {
        "clients": clients,
        "requests": len(times),
        "per_second": round(len(times) / seconds, 1),
        "p50_ms": round(1000 * statistics.median(times), 1),
        "p95_ms": round(1000 * float(np.percentile(times, 95)), 1),
        "errors": errors,
    }


def batching_under_load(model: str, texts: list[str], source: str, seconds: float = 15.0) -> None:
    """Compare throughput on short texts with and without batching, in the same run."""
    short = [" ".join(text.split()[:24]) for text in texts[:500]]
    rows: dict[str, list[dict[str, Any]]] = {"batching": [], "alone": []}
    with served(model) as (batching, _), served(model, "--batch-ms", "0") as (alone, _):
        for clients in CLIENTS:
            for name, address in (("batching", batching), ("alone", alone)):
                asyncio.run(load(address, clients, 2, short))  # warm up
                rows[name].append(asyncio.run(load(address, clients, seconds, short)))
                print(name, rows[name][-1])
    at_16 = {name: next(row for row in found if row["clients"] == 16) for name, found in rows.items()}
    settings = {"model": model, "source": source, "texts": len(short), "words": 24, "seconds": seconds}
    record(
        "serve-batching",
        "the throughput at 16 clients without batching",
        ">= 1.5",
        settings,
        {"ratio": round(at_16["batching"]["per_second"] / at_16["alone"]["per_second"], 3), "rows": rows},
    )


def endurance(model: str, texts: list[str], source: str, seconds: float = 600.0) -> None:
    """Measure errors and memory growth of the server over a long time at full load."""
    short = [" ".join(text.split()[:24]) for text in texts[:500]]
    with served(model) as (address, process):
        asyncio.run(load(address, 16, 30, short))
        before = process.memory_info().rss
        found = asyncio.run(load(address, 16, seconds, short))
        after = process.memory_info().rss
    record(
        "serve-memory",
        f"the memory of the server after {seconds:g} more seconds at full load",
        "<= 1.1",
        {"model": model, "source": source, "clients": 16, "seconds": seconds},
        {"ratio": round(after / before, 3), "bytes_before": before, "bytes_after": after, **found},
    )


CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def fuzz(model: str, texts: list[str], source: str, examples: int = 270, seed: int = 1) -> None:
    """Send requests that schemathesis generates from the OpenAPI description; none may give a 5xx or undocumented answer."""
    with tempfile.TemporaryDirectory() as folder:
        index = textnuggets.NuggetIndex.create(Path(folder) / "index", textnuggets.load(model))
        index.add([f"d{i}" for i in range(20)], texts[:20])
        index.close()
        # A model with a decoder is served as well, so that every endpoint can succeed.
        options = ("--model", DECODER, "--index", f"{folder}/index")
        with served(model, *options) as (address, process):
            command = ["schemathesis", "run", f"{address}/openapi.json", "--max-examples", str(examples)]
            # A request can take the server's own timeout, and longer if it is queued.
            command += ["--seed", str(seed), "--checks", CHECKS, "--request-timeout", "120"]
            done = subprocess.run(  # in the folder, since it leaves files behind
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=folder
            )
            is_up = process.is_running()
    print(done.stdout)
    found = re.search(r"([\d,]+) generated, ([\d,]+) passed(?:.*?([\d,]+) errored)?", done.stdout)
    assert found, "the output of schemathesis has no number of cases"
    # Cases without an answer are reported as errored.
    generated, passed, errored = (int((number or "0").replace(",", "")) for number in found.groups())
    generated += errored
    record(
        "serve-fuzz",
        "the share of generated requests answered as the schema describes, without a 5xx error",
        "1",
        {
            "model": model,
            "decoder": DECODER,
            "source": source,
            "checks": CHECKS,
            "examples": examples,
            "seed": seed,
            "schemathesis": version("schemathesis"),
        },
        {
            "ratio": round(passed / generated, 4),
            "cases": generated,
            "passed": passed,
            "without_answer": errored,
            "server_still_up": is_up,
        },
    )
