"""The commands and the cells of tutorials and how-to guides do what the pages say, on a real pool of software GPUs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.documentation.blocks import all_blocks, is_cell
from tests.support.patience import BUSY
from tests.support.pool_node import ROOT, PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
    pytest.mark.slow,
]

#: A CUDA program that ends by itself: the `train.py` and `program.py` of the pages.
PROGRAM = """
import numpy as np
from numba import cuda

@cuda.jit
def double(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] *= 2

def run():
    a = cuda.to_device(np.ones(64, np.float32))
    double[1, 64](a)
    assert a.copy_to_host().sum() == 128
"""

#: What the cells of the pages use and do not define.
NAMES = """
import gpupool
%load_ext jupyter_gpupool
import numpy as np
from numba import cuda

@cuda.jit
def double(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] *= 2

x = np.ones(64, np.float32)

def model(given):
    on_device = cuda.to_device(given)
    double[1, 64](on_device)
    return on_device.copy_to_host()

def train(model):
    assert model(x).sum() == 128
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, node_arguments=("--name", "gpu1")) as running:
        running.environment |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), running.environment["PYTHONPATH"]]),
            "HOME": str(running.home),
            "IPYTHONDIR": str(running.home / "ip"),
            "JUPYTER_RUNTIME_DIR": str(running.home / "jr"),
            "JUPYTER_CONFIG_DIR": str(running.home / "jc"),
            "JUPYTER_PLATFORM_DIRS": "1",
        }
        # Pages speak of a pool with a past.
        running.gpupool("run", "-p", "0.2", "--", "true")
        yield running


@pytest.fixture(autouse=True)
def as_before(pool: PoolAndNode) -> Iterator[None]:
    """What a page makes and leaves is removed: the next one begins with a pool in which nobody has made anything."""
    yield
    pool.wait_free()
    pool.close_sessions()
    listed = json.loads(pool.gpupool("project", "list", "--json").stdout)["projects"]
    for path in sorted((one["path"] for one in listed if one["path"] != "default"), reverse=True):
        pool.gpupool("project", "remove", path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the pages name."""
    (tmp_path / "train.py").write_text(f"{PROGRAM}\nrun()\n")
    (tmp_path / "program.py").write_text(f"{PROGRAM}\nrun()\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_double.py").write_text(f"{PROGRAM}\n\ndef test_double():\n    run()\n")
    cells = [
        "%load_ext jupyter_gpupool",
        NAMES.replace("%load_ext jupyter_gpupool\n", ""),
        "%%gpu 0.2\ntrain(model)",
    ]
    write_notebook(tmp_path / "in.ipynb", cells)
    return tmp_path


def write_notebook(path: Path, cells: list[str]) -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python", "language": "python"}
    nbformat.write(made, path)


def run(pool: PoolAndNode, folder: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=pool.environment,
        capture_output=True,
        text=True,
        timeout=120 * BUSY,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", sorted({block.page for block in all_blocks() if block.language == "sh"}))
def test_the_commands_of_a_page(pool: PoolAndNode, folder: Path, page: str) -> None:
    """All of a page's blocks in one shell: later ones use what earlier ones have made."""
    blocks = [block for block in all_blocks() if block.page == page and block.language == "sh"]
    if "jq" in " ".join(block.text for block in blocks) and shutil.which("jq") is None:
        pytest.skip("needs jq")
    run(pool, folder, "bash", "-euxo", "pipefail", "-c", "\n".join(block.text for block in blocks))


@pytest.mark.parametrize("page", sorted({block.page for block in all_blocks() if is_cell(block)}))
def test_the_cells_of_a_page(pool: PoolAndNode, folder: Path, page: str) -> None:
    """Each block is a cell of one notebook, in a kernel that holds a share of its own."""
    pool.gpupool("project", "set", "research", "--deserved", "1")
    pool.gpupool("project", "set", "research/vision", "--deserved", "1")
    cells = [block.text for block in all_blocks() if block.page == page and is_cell(block)]
    # Two devices without a name of NVIDIA's: what the examples of filters name is not there.
    write_notebook(folder / "page.ipynb", [NAMES, *cells])
    run(
        pool, folder, sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute",
        "--ExecutePreprocessor.timeout=120", "page.ipynb", "--output", "executed.ipynb",
    )  # fmt: skip
    executed = nbformat.read(folder / "executed.ipynb", 4)
    ran = [cell for cell in executed.cells if cell.source.startswith("%%gpu")]
    for cell in ran:
        shown = [str(output.get("data", {}).get("text/plain", "")) for output in cell.outputs]
        assert any("device time" in text for text in shown), f"{cell.source}\n{cell.outputs}"
