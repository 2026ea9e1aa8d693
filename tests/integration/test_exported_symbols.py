"""What the native libraries show to the programs that load them: the API that they stand for, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from gpupool.client.native import native_directory

from tests.support.pool_node import native_worker_is_built

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)")

#: Names that belong to an API or are ours; `dlsym` is what the layer over NVRTC stands before.
OURS = re.compile(
    r"(cu|p?nccl|fftwf?_|pegasus|nvml|nvrtc|nvJitLink|_nvJitLink|__nvJitLink|__cuda|gpupool_)\w*|dlsym"
)


def libraries() -> list[Path]:
    return sorted(native_directory().rglob("*.so*")) if native_worker_is_built() else []


def exported(library: Path) -> list[str]:
    """The functions and variables that other libraries can be bound to."""
    said = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    symbols = (line.split() for line in said.stdout.splitlines())
    # A: the name of a version.
    return [name.partition("@")[0] for name, kind, *_ in symbols if kind != "A"]


@pytest.mark.parametrize("library", libraries(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_library_exports_its_api_and_nothing_that_was_linked_into_it(library: Path) -> None:
    """A C++ runtime that is exported takes exceptions away from the one that the program has."""
    assert [name for name in exported(library) if not OURS.fullmatch(name)] == []
