"""Writes requirements.lock: exact versions of all that `make build` and `make test` put into .venv.

Ranges live in pyproject.toml; this file makes two builds alike. Run `make lock` after changing
them. Resolved from nothing, so what happens to be installed has no say, and for the oldest Python
that is supported, so that newer ones and that one get the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("jupyter", "pool", "examples", "build", "test", "conformance", "kubernetes", "postgresql")
#: Debian 12's; some packages refuse the first patch releases of 3.11.
OLDEST_PYTHON = "3.11.2"
# Parts of the environment itself, and this project.
LEFT_OUT = {"pip", "wheel", "jupyter-gpupool"}


def wanted() -> list[str]:
    """The ranges of the base and of all extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(item for extra in EXTRAS for item in optional[extra])]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
                *("--python-version", OLDEST_PYTHON, "--only-binary=:all:", "--target", temporary),
                *("--report", str(report), *wanted()),
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
