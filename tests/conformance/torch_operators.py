"""`make conformance-torch-operators`: a sample of PyTorch's operator database on the software GPU, beside the CPU.

Forward and backward in float32 with a fixed seed (``torch_operators_program.py``). An operator that ends the process, or does not
end, is a failure; one without a kernel in the pack is counted with its cause. GPUPOOL_TORCH_PYTHON is an interpreter with
PyTorch for CUDA, for which a kernel pack was built (`gpupool kernel-packs build --torch`), and with expecttest, which the
database imports.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from tests.conformance.torch_train import CAPABILITY, GPUPOOL, ROOT

PROGRAM: Final = Path(__file__).with_name("torch_operators_program.py")
RESULT: Final = ROOT / "build" / "conformance" / "torch-operators.json"
#: For one operator, on a busy machine; more is a hang.
SECONDS: Final = 300.0

#: What the software GPU says of a kernel that the pack does not have.
LACKS: Final = re.compile(r"the kernel pack of .* lacks (\S+?);")

Results = dict[str, dict[str, str]]


def run(python: str, step: int, first: str, results: Results) -> str:
    """Adds what ended; the operator that ended the process, empty when all were tried."""
    alone = [*GPUPOOL, "softgpu", "--compute-capability", CAPABILITY, "--"]
    process = subprocess.Popen(
        [*alone, python, str(PROGRAM), str(step), first], cwd=ROOT, env=dict(os.environ),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    current, lacking = "", ""
    late = threading.Event()

    def end_it() -> None:
        late.set()
        process.kill()

    try:
        while True:
            watch = threading.Timer(SECONDS, end_it)
            watch.start()
            line = process.stdout.readline()
            watch.cancel()
            if not line:
                break
            if found := LACKS.search(line):
                lacking = lacking or f"the pack lacks {found[1]}"
            if not line.startswith('{"'):
                continue
            said = json.loads(line)
            if "done" in said:
                return ""
            if "begin" in said:
                current, lacking = said["begin"], ""
            if "ended" in said:
                bad = said["ended"] in ("other", "error")
                ended = {name: said[name] for name in ("ended", "why")}
                # What follows from a kernel that is not there counts as that. The file is named once in a process.
                if bad and (lacking or "no kernel image" in said["why"]):
                    ended = {
                        "ended": "no kernel",
                        "why": lacking or "the pack lacks a file that was named before",
                    }
                results[current] = ended
                if bad:
                    print(f"{current}: {ended['ended']}: {ended['why']}", flush=True)
            if said.get("broken"):
                return current
    finally:
        process.kill()
        status = process.wait()
    if not current:
        raise RuntimeError(f"the program ended with {status} before its first operator")
    results[current] = {"ended": "hang" if late.is_set() else "crash", "why": f"exit status {status}"}
    print(f"{current}: {results[current]}", flush=True)
    return current


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=4, help="every so many operators [default: 4]")
    parser.add_argument("--first", default="", help="begin at this operator")
    options = parser.parse_args()
    python = os.environ.get("GPUPOOL_TORCH_PYTHON")
    if not python:
        print("skipped: GPUPOOL_TORCH_PYTHON names no Python with PyTorch for which a kernel pack was built")
        return 0
    results: Results = {}
    first = options.first
    while ended_at := run(python, options.step, first, results):
        first = f"{ended_at} "  # the next in order
    counts = collections.Counter(result["ended"] for result in results.values())
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(results, indent=1) + "\n")
    compared = sum(counts[ended] for ended in ("equal", "other", "error", "no kernel", "crash", "hang"))
    print(f"{counts['equal']} of {compared} operators are equal to the CPU's; {dict(counts)}")
    return 1 if counts["crash"] or counts["hang"] else 0


if __name__ == "__main__":
    sys.exit(main())
