"""Writes requirements.lock: exact versions of all that `make build` and `make test` put into .venv.

Ranges live in pyproject.toml; this file makes two builds alike. Run `make lock` after changing
them. Resolved from nothing, so what happens to be installed has no say.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = "jupyter,pool,examples,build,test,conformance"
# Parts of the environment itself, and this project.
LEFT_OUT = {"pip", "wheel", "jupyter-gpupool"}


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
                *("--no-build-isolation", "--report", str(report), "-e", f"{ROOT}[{EXTRAS}]"),
            ],
            check=True,
        )
        resolved = json.loads(report.read_text())["install"]
    versions = {
        package["metadata"]["name"].lower().replace("_", "-"): package["metadata"]["version"]
        for package in resolved
    }
    lines = [f"{name}=={version}" for name, version in sorted(versions.items()) if name not in LEFT_OUT]
    lock = ROOT / "requirements.lock"
    lock.write_text("# Written by `make lock` from the ranges in pyproject.toml.\n" + "\n".join(lines) + "\n")
    print(f"{lock.name}: {len(lines)} packages")


if __name__ == "__main__":
    main()
