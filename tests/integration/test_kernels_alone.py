"""Kernels that no Jupyter server of ours started: papermill, nbconvert, consoles. They hold a share of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.support.attaching_program import PRELUDE
from tests.support.pool_node import PoolAndNode, native_worker_is_built

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)")


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1) as running:
        running.environment |= {
            "PYTHONPATH": os.pathsep.join([str(ROOT), running.environment["PYTHONPATH"]]),
            "IPYTHONDIR": str(running.home / "ip"),
            "JUPYTER_RUNTIME_DIR": str(running.home / "jr"),
            "JUPYTER_CONFIG_DIR": str(running.home / "jc"),
            "JUPYTER_PLATFORM_DIRS": "1",
        }
        yield running


@pytest.fixture(autouse=True)
def everything_goes_back(pool: PoolAndNode) -> Iterator[None]:
    yield
    pool.wait_free()
    pool.wait(lambda: not pool.worker_pids(), 10, "the end of the sessions")


def notebook(path: Path, *cells: str) -> Path:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python", "language": "python"}
    nbformat.write(made, path)
    return path


def texts(path: Path) -> list[str]:
    """What each cell of an executed notebook shows, as text."""
    cells: list[Any] = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    return [
        "".join(
            output.get("text")
            or output.get("data", {}).get("text/plain")
            or f"{output['ename']}: {output['evalue']}"
            for output in cell.outputs
        )
        for cell in cells
    ]


def run(pool: PoolAndNode, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        env=pool.environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_nbconvert_executes_a_notebook_with_everything_that_stands_above_cells(
    pool: PoolAndNode, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        "import gpupool\nwith gpupool.attach(0.1): print('script', read(at))\n"
    )
    source = notebook(
        tmp_path / "source.ipynb",
        "%load_ext jupyter_gpupool",
        PRELUDE,
        "%%gpu 0.2\nat = make(6)",
        "%%time\n%%gpu 0.2\nprint('timed', read(at))",
        "%%gpu 0.2\n%%capture shown\nprint('captured', read(at))",
        "print(shown.stdout)",
        "%%gpu 0.2 --hold\nawait asyncio.sleep(0)\nprint('awaited', read(at))",
        "print('held', read(at), len(leases()))\n%gpu resize 0.4",
        "%gpu status",
        "%gpu detach",
        "%%gpu 0.3\nwith gpupool.attach(0.2): print('inside', read(at), leases()[0]['milli'])",
        f"%run -i {tmp_path / 'script.py'}",
        "try: read(at)\nexcept OSError as refused: print('refused', refused.errno)",
        "%gpu keep",
        "%gpu auto on 0.2",
        "print('by itself', read(at))",
        "%gpu auto off\n%gpu detach",
        "try: read(at)\nexcept OSError as refused: print('refused', refused.errno)",
    )
    done = run(
        pool, "nbconvert", "--to", "notebook", "--execute", "--allow-errors", "--output", "done", str(source)
    )
    assert done.returncode == 0, done.stderr
    shown = texts(tmp_path / "done.ipynb")
    for at, words in [
        (2, "0.2 software GPU (1587 MiB), GPU 0 on n1"),
        (2, "waits for the GPU"),
        (3, "timed 6"),
        (5, "captured 6"),
        (6, "awaited 6"),
        (7, "held 6 1"),
        (7, "Now attached: 0.4 software GPU"),
        (8, "state: attached"),
        (9, "Detached; what is in GPU memory is kept."),
        (10, "inside 6 300"),
        (11, "script 6"),
        (12, "refused 46"),
        (13, "does not go back when it is idle"),
        (15, "by itself 6"),
        (15, "Attached by itself (%gpu auto): 0.2 software GPU"),
        (17, "refused 46"),
    ]:  # fmt: skip
        assert words in shown[at], f"cell {at}: {shown[at]}"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("papermill") is None, reason="needs papermill")
def test_a_cell_that_fails_stops_papermill_and_the_share_goes_back(pool: PoolAndNode, tmp_path: Path) -> None:
    source = notebook(
        tmp_path / "source.ipynb",
        "%load_ext jupyter_gpupool",
        PRELUDE,
        "%%gpu 0.2 --hold\nprint('read', read(make(4)))",
        "%%gpu 0.2\n%%capture\nraise LookupError('of the cell')",
        "print('nev' + 'er')",
    )
    target = tmp_path / "done.ipynb"
    done = run(pool, "papermill", "--no-progress-bar", str(source), str(target))
    assert done.returncode != 0
    assert "LookupError" in done.stderr
    shown = "".join(texts(target))
    assert "read 4" in shown
    assert "LookupError: of the cell" in shown
    assert "never" not in shown


@pytest.mark.slow
def test_a_console(pool: PoolAndNode) -> None:
    program = "jupyter_console" if find_spec("jupyter_console") else "IPython"
    cells = "%load_ext jupyter_gpupool\n%gpu attach 0.2\n%gpu status\nimport gpupool\n%gpu banana\nexit\n"
    done = run(pool, program, "--simple-prompt", text=cells)
    assert "Attached: 0.2 software GPU" in done.stdout, done.stderr
    assert "state: attached" in done.stdout
    assert "'banana' is not a command of %gpu" in done.stdout + done.stderr


def test_a_kernel_that_a_kernel_started_has_nothing_of_its_parent() -> None:
    """papermill in a cell: the child inherits the environment, the parent's capability included."""
    code = (
        "import os\n"
        "from jupyter_gpupool.kernel import broker\n"
        "broker.settle_environment()\n"
        "print(broker.has_server(), sorted(name for name in os.environ if name.startswith('GPUPOOL_')))\n"
    )
    given = {"GPUPOOL_SERVER_URL": "http://x", "GPUPOOL_KERNEL_ID": "k", "GPUPOOL_CAPABILITY_FILE": "c"}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GPUPOOL_")}

    def said(**more: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**plain, **given, **more},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    assert said().startswith("True ")
    assert said(GPUPOOL_SESSION_PROCESS="1") == "False ['GPUPOOL_SESSION_PROCESS']"
