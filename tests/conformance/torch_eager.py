"""PyTorch in eager mode through client, wire, worker and null driver: ``make conformance-torch``.

Needs an interpreter with PyTorch (CUDA): this one, or the one that GPUPOOL_TORCH_PYTHON names. Nothing is
computed; what is checked is everything around the kernels (``torch_program.py``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from gpupool.client.child_environment import environment

from benchmarks.lone_session import lone_session, null_driver
from benchmarks.roundtrips import NoPyTorchError, torch_python

PROGRAM: Final = Path(__file__).with_name("torch_program.py")
SHARE_MIB: Final = 1024
#: What is known not to work yet, and why. It may begin to work at any time.
NOT_YET: Final[dict[str, str]] = {}


def run(python: str, *checks: str) -> tuple[list[dict[str, Any]], str]:
    """One line per check, and what client and worker logged."""
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-torch-") as name,
        lone_session(Path(name), null_driver(), SHARE_MIB) as session,
    ):
        variables = {**os.environ, "SHARE_MIB": str(SHARE_MIB)}
        variables |= environment(None, session.file.path, variables, software=False, preload=True)
        done = subprocess.run(
            [python, str(PROGRAM), *checks],
            env=variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return results, done.stderr + session.log()


def main() -> int:
    try:
        python = torch_python()
    except NoPyTorchError as error:
        print(f"skipped: {error}")
        return 0
    results, log = run(python)
    failed = 0
    for result in results:
        name = result["check"]
        known = not result["ok"] and name in NOT_YET
        failed += not result["ok"] and not known
        word = "ok" if result["ok"] else "not yet" if known else "FAILED"
        said = NOT_YET[name] if known else json.dumps(result["detail"]) if result["detail"] else ""
        print(f"{word:8}{name:52}{result['seconds']:7.2f} s  {said}")
        if not result["ok"] and not known:
            print(result["error"])
    if failed or not results:
        print(log)
    print(f"{sum(result['ok'] for result in results)} of {len(results)} checks passed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
