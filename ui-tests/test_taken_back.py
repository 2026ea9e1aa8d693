"""A GPU that is taken back for another project: what the person at the notebook sees, and that the cell goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]


@pytest.fixture(scope="module")
def shared() -> Iterator[LabStack]:
    """Two devices that project `owner` deserves; kernels have what they have above what they deserve."""
    with LabStack("--notice-seconds", "9") as lab:
        lab.stack.gpupool("project", "set", "owner", "--deserved", "2")
        lab.stack.gpupool("project", "set", "guest", "--min-run", "0")
        lab.settings("jupyter-gpupool:plugin", {"defaultProject": "guest"})
        yield lab


def test_it_is_said_for_whom_and_the_running_cell_goes_on_afterwards(
    shared: LabStack, open_page: Open
) -> None:
    write_notebook(shared.folder / "guest.ipynb", programs.ADD, programs.USE_FOR.format(seconds=12))
    page = open_page(shared)
    page.open("guest.ipynb")
    page.open_sidebar()
    page.attach("guest.ipynb", "1")
    page.run_and_wait(0, "sum 768.0")
    output = page.run_cell(1)

    asked = ("lease", "request", "-n", "2", "-p", "1", "--project", "owner", "--wait", "60")
    owner = subprocess.Popen(
        [sys.executable, "-m", "gpupool.cli.main", *asked],
        env=shared.stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        row = page.kernel("guest.ipynb")
        expect(page.state("guest.ipynb")).to_have_text("goes back soon")
        expect(page.notification("The GPU of guest.ipynb is asked back")).to_contain_text("project owner")
        expect(row.get_by_role("timer", name=re.compile("taken back"))).to_be_visible()
        expect(row).to_contain_text("calls wait until the GPU comes again")

        waiting = page.notification("guest.ipynb: Taken back for a project that is entitled to it.")
        expect(waiting).to_be_visible()
        expect(page.state("guest.ipynb")).to_have_text("queued")
        expect(row).to_contain_text(re.compile(r"Taken back .* Place 1"))
        expect(row.get_by_role("button", name="Cancel")).to_be_visible()
        lease = owner.communicate(timeout=60)[0].strip()
    finally:
        owner.kill()

    shared.stack.gpupool("lease", "release", lease)
    expect(page.state("guest.ipynb")).to_have_text("attached")
    expect(waiting).to_have_count(0)
    expect(output).to_contain_text("used")
    shared.shut_kernels_down()
