"""`helm`, where there is one: on the path, or from `make helm-check`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "containers" / "helm" / "gpupool"


def program(name: str = "helm") -> str | None:
    """Where it is."""
    own = ROOT / "build" / "helm" / name
    return str(own) if own.exists() else shutil.which(name)


def helm_is_missing() -> str:
    """Why the chart cannot be looked at; empty: it can."""
    return "" if program() else "needs helm; `make helm-check` fetches it"


def run(folder: Path, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`helm` with caches of its own below `folder`."""
    found = program()
    assert found is not None
    environment = {
        **os.environ,
        "HELM_CACHE_HOME": str(folder / "helm"),
        "HELM_CONFIG_HOME": str(folder / "helm"),
        "HELM_DATA_HOME": str(folder / "helm"),
        "KUBECONFIG": str(kubeconfig or folder / "none"),
    }
    return subprocess.run(
        [found, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def rendered(
    folder: Path, values: Mapping[str, Any], *more: str, release: str = "gpupool", namespace: str = "gp"
) -> list[dict[str, Any]]:
    """The objects of a release with these values."""
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    done = run(
        folder, "template", release, str(CHART), "--namespace", namespace, "--values", str(file), *more
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def pods_of(objects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The specifications of pods in workloads."""
    return [one["spec"]["template"]["spec"] for one in objects if "template" in one.get("spec", {})]
