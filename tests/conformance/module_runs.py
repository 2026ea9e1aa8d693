"""Runs the modules of a pytest suite, each as a process of its own, and collects what became of each test.

A crash costs one test: the module is started again behind it.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TEST_SECONDS = int(os.environ.get("CONFORMANCE_TEST_SECONDS", "90"))
MODULE_SECONDS = 10 * TEST_SECONDS
RESTARTS = 8

#: Outcome (passed, failed, skipped, crashed, …) and detail by test id.
Outcomes = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Module:
    """One process of a suite."""

    name: str
    command: tuple[str, ...]  # pytest with the plugin outcome_log


def run_module(module: Module, environment: dict[str, str], folder: Path, work: Path) -> Outcomes:
    """Runs one module to its end, going on behind a test that crashed the process."""
    outcomes: Outcomes = {}
    for attempt in range(RESTARTS):
        log = work / f"{module.name.replace('/', '-')}-{attempt}.jsonl"
        command = [*module.command, *(f"--deselect={test}" for test in outcomes)]
        with log.with_suffix(".txt").open("w") as output:
            try:
                subprocess.run(
                    command,
                    env=dict(environment, CONFORMANCE_LOG=str(log)),
                    cwd=folder,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    timeout=MODULE_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                output.write(f"\nended after {MODULE_SECONDS} s\n")
        collected: list[str] = []
        running: str | None = None
        for line in log.read_text().splitlines() if log.exists() else []:
            record = json.loads(line)
            if record["event"] == "collected":
                collected = record["tests"]
            elif record["event"] == "started":
                running = record["test"]
            else:
                before = outcomes.get(record["test"], ("passed", ""))[0]
                if before not in ("failed", "crashed"):
                    outcomes[record["test"]] = (record["outcome"], record["detail"])
        if running is not None and running not in outcomes:
            outcomes[running] = ("crashed", "the process ended in this test")
        elif not collected or all(test in outcomes for test in collected) or running is None:
            break
    return outcomes


def run_suite(
    modules: Sequence[Module],
    environment: dict[str, str],
    folder: Path,
    work: Path,
    jobs: int,
    test_id: Callable[[Module, str], str],
) -> Outcomes:
    """Runs all modules in `folder`, leaving their logs in `work`."""
    outcomes: Outcomes = {}
    work.mkdir(parents=True, exist_ok=True)
    for old in work.iterdir():
        old.unlink()
    started = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        runs = pool.map(lambda module: run_module(module, environment, folder, work), modules)
        for number, (module, found) in enumerate(zip(modules, runs, strict=True), 1):
            outcomes.update({test_id(module, test): result for test, result in found.items()})
            counts = collections.Counter(result for result, _ in found.values())
            shown = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            print(
                f"[{work.name} {number}/{len(modules)} {time.monotonic() - started:4.0f} s] {module.name}: {shown}",
                flush=True,
            )
    return outcomes


def cause(outcome: str, detail: str) -> str:
    """A short reason to group by: the CUDA error, else the exception, else what happened."""
    if outcome == "crashed":
        return "the process crashed or hung"
    found = re.findall(r"CUDA_ERROR_[A-Z_]+", detail)
    if found:
        return str(found[-1])
    if re.search(r"Timeout \(?>", detail):  # as pytest-timeout says it; tracebacks may name TimeoutExpired
        return f"longer than {TEST_SECONDS} s"
    lines = [line for line in detail.splitlines() if line.startswith("E ")]
    return re.sub(r"[0-9]+", "N", lines[-1][1:].strip())[:120] if lines else "no detail"
