"""The way in: `gpupool lab` for somebody with an empty folder, and **Start a pool here** for somebody with a JupyterLab."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

from tests.support.stack import wait_until

#: The first page of a JupyterLab, on a machine that has other work, ms.
LOADING_MS = 120_000


class Newcomer(LabStack):
    """`gpupool lab` as it is typed: no notebook named, the panel where it is by default."""

    def __init__(self) -> None:
        super().__init__("--panel")
        self.stack._notebook = ()


@pytest.fixture
def newcomer() -> Iterator[LabStack]:
    with Newcomer() as lab:
        yield lab


@pytest.mark.slow
def test_an_empty_folder_opens_with_the_quickstart_and_the_panel(
    newcomer: LabStack, open_page: Callable[..., LabPage]
) -> None:
    said = newcomer.stack.output_text
    assert "It lends 2 software GPUs (8 GiB each)" in said
    assert (newcomer.folder / "quickstart.ipynb").exists()
    address = re.search(r"^ready (\S+)$", said, re.MULTILINE)
    assert address is not None
    page = open_page(newcomer)
    page.page.goto(address[1])
    # Nothing has been loaded before, neither by this browser nor from this disk.
    expect(page.sidebar).to_be_visible(timeout=LOADING_MS)
    expect(page.page.get_by_role("tab", name="quickstart.ipynb")).to_be_visible(timeout=LOADING_MS)
    expect(page.device(1)).to_be_visible()
    # Who closes it is not shown it again.
    page.page.get_by_role("tab", name="GPU pool").click()
    expect(page.sidebar).to_be_hidden()
    page.page.wait_for_timeout(1500)
    page.page.reload()
    expect(page.page.get_by_role("tab", name="quickstart.ipynb")).to_be_visible(timeout=LOADING_MS)
    page.page.wait_for_timeout(1500)
    expect(page.sidebar).to_be_hidden()


class PlainJupyter(LabStack):
    """A JupyterLab that somebody has, without any pool."""

    def __enter__(self) -> PlainJupyter:
        stack = self.stack
        stack.home.chmod(0o700)
        stack.environment["JUPYTER_TOKEN"] = stack.token
        self.log = stack.home / "jupyter.log"
        with self.log.open("w") as log:
            stack.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root",
                 f"--ServerApp.root_dir={self.folder}"],
                env=stack.environment, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        try:
            wait_until(self._listens, 120, "JupyterLab", failed=lambda: stack.process.poll() is not None)
        except BaseException as error:
            self.__exit__(None, None, None)
            raise RuntimeError(self.log.read_text()) from error
        return self

    def _listens(self) -> bool:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/lab", self.log.read_text())
        if found is None:
            return False
        self.stack.url = found[1]
        try:
            urllib.request.urlopen(f"{found[1]}/api", timeout=5).close()
        except OSError:
            return False
        return True


@pytest.fixture
def plain() -> Iterator[PlainJupyter]:
    with PlainJupyter() as lab:
        yield lab


def serving(home: Path) -> list[psutil.Process]:
    """The pool and the node of a home, and what keeps them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            words = process.info["cmdline"] or []
            if any(word in ("gpupool.embedded", "gpupool.cli.main") for word in words) and (
                process.environ().get("GPUPOOL_HOME") == str(home)
            ):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.slow
def test_a_pool_is_started_from_the_panel_and_ends_with_the_server(
    plain: PlainJupyter, open_page: Callable[..., LabPage]
) -> None:
    name = f"n{secrets.token_hex(2)}.ipynb"
    write_notebook(plain.folder / name, "%%gpu 0.5\nprint('on a', 'GPU')")
    page = open_page(plain)
    page.open(name)
    page.open_sidebar()
    offer = page.sidebar.get_by_role("group", name="No GPU pool")
    expect(offer).to_contain_text("No GPU pool is configured, and none runs here.")
    # The offer stands for the complaint.
    expect(page.sidebar).not_to_contain_text("cannot ask the pool")
    offer.get_by_role("button", name="Start a pool here").click()
    expect(offer.get_by_role("button", name="Starting a pool…")).to_be_visible()
    expect(page.device(1)).to_be_visible(timeout=180_000)
    expect(offer).to_be_hidden()
    page.run_and_wait(0, "on a GPU", milliseconds=120_000)
    assert len(serving(plain.stack.home)) == 3
    # Another program of this user finds it.
    listed = plain.stack.gpupool("gpu", "list")
    assert listed.stdout.count("software GPU") == 2
    # Also when it is killed.
    os.kill(plain.stack.process.pid, 9)
    wait_until(lambda: not serving(plain.stack.home), 60, "the pool to end with the server")
