"""A notebook gives its GPU back with arrays on it, others use all of that GPU, and it goes on with the same arrays.

`make test-browser-gib` does it with a GiB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import BrowserContext, expect
from stack import LabStack, wait_until, write_notebook

MIB = int(os.environ.get("GPUPOOL_ARRAYS_MIB", "64"))
#: Random numbers are made, copied and digested; a second per GiB and step on a quiet machine.
PATIENCE_MS = 60_000 + 200 * MIB
FIRST, SECOND = "arrays.ipynb", "whole.ipynb"


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[LabStack]:
    """Two nodes with one device each."""
    memory_mib = max(1024, 3 * MIB)
    with (
        LabStack("--software-gpus", "1", "--memory-mib", str(memory_mib)) as lab,
        lab.second_node("second", memory_mib),
    ):
        yield lab


class OneGpuTwoNotebooks:
    """Both notebooks, open; the other node's device is taken by somebody until `free_other_node`."""

    def __init__(self, lab: LabStack, context: BrowserContext) -> None:
        self.lab = lab
        self._taken: str | None = lab.stack.gpupool(
            "lease", "request", "-p", "1", "--label", "full"
        ).stdout.strip()
        write_notebook(lab.folder / FIRST, programs.ARRAYS.format(mib=MIB), programs.ARRAYS_AGAIN)
        write_notebook(lab.folder / SECOND, programs.WHOLE_DEVICE)
        self.first = LabPage(context, lab)
        self.second = LabPage(context, lab)
        for page, notebook in ((self.first, FIRST), (self.second, SECOND)):
            page.open(notebook)
            page.open_sidebar()

    @property
    def as_at_the_start(self) -> bool:
        """Neither has a GPU, and there is one for them: the next test may begin."""
        kernels = self.lab.stack.api("GET", "gpupool/api/kernels")["kernels"]
        return self._taken is not None and {kernel["state"] for kernel in kernels} <= {"none", "parked"}

    def close(self) -> None:
        for page in (self.first, self.second):
            page.page.close()
        self.free_other_node()
        self.lab.shut_kernels_down()
        for page in (self.first, self.second):
            page.no_errors()

    def device_of(self, notebook: str) -> str:
        kernels = self.lab.stack.api("GET", "gpupool/api/kernels")["kernels"]
        return str(next(kernel["device"] for kernel in kernels if kernel["label"] == notebook))

    def free_other_node(self) -> None:
        if self._taken is not None:
            self.lab.stack.gpupool("lease", "release", self._taken)
        self._taken = None

    # -- what the people do

    def make_arrays_and_detach(self) -> str:
        """The device that they were on."""
        self.first.attach(FIRST, "0.5")
        self.first.run_and_wait(0, f"made {MIB} MiB", milliseconds=PATIENCE_MS)
        device = self.device_of(FIRST)
        self.first.press(FIRST, "Detach")
        expect(self.first.state(FIRST)).to_have_text("no GPU, memory kept")
        expect(self.first.kernel(FIRST)).to_contain_text(re.compile("kept in GPU memory|Memory: on the GPU"))
        return device

    def take_the_whole_device(self) -> str:
        self.second.share_input(SECOND).fill("1")
        self.second.press(SECOND, "Attach")
        expect(self.second.state(SECOND)).to_have_text("attached", timeout=PATIENCE_MS)
        self.second.run_and_wait(0, re.compile(r"has all but \d+ MiB of \d+"), milliseconds=PATIENCE_MS)
        expect(self.first.kernel(FIRST)).to_contain_text(
            re.compile("kept in host memory|Memory: in host memory")
        )
        return self.device_of(SECOND)

    def give_it_back(self) -> None:
        """All that it has in memory stays in memory, so the next owner of the device needs the room."""
        self.second.press(SECOND, "Detach")
        expect(self.second.state(SECOND)).to_have_text("no GPU, memory kept")

    def go_on(self) -> str:
        """The arrays, the kernel and its module are as before; the device that they are on now."""
        self.first.share_input(FIRST).fill("0.5")
        self.first.press(FIRST, "Attach")
        expect(self.first.state(FIRST)).to_have_text("attached", timeout=PATIENCE_MS)
        self.first.run_and_wait(1, f"identical True 2 {MIB} MiB", milliseconds=PATIENCE_MS)
        device = self.device_of(FIRST)
        self.first.press(FIRST, "Detach")
        expect(self.first.state(FIRST)).to_have_text("no GPU, memory kept")
        return device


@pytest.fixture(scope="module")
def opened() -> Iterator[list[OneGpuTwoNotebooks]]:
    """What is open; pages and kernels serve several tests, because opening them takes the longest."""
    opened: list[OneGpuTwoNotebooks] = []
    yield opened
    for people in opened:
        people.close()


@pytest.fixture
def people(
    two_nodes: LabStack,
    context: BrowserContext,
    opened: list[OneGpuTwoNotebooks],
    request: pytest.FixtureRequest,
) -> Iterator[OneGpuTwoNotebooks]:
    if not opened:
        opened.append(OneGpuTwoNotebooks(two_nodes, context))
    [both] = opened
    for page in (both.first, both.second):
        # What an earlier test printed is no result of this one.
        page.menu("Edit", "Clear Outputs of All Cells")
    request.node.opened_pages = [both.first, both.second]
    yield both
    if not both.as_at_the_start:
        opened.clear()
        both.close()


def test_on_the_same_device(people: OneGpuTwoNotebooks) -> None:
    device = people.make_arrays_and_detach()
    assert people.take_the_whole_device() == device
    people.give_it_back()
    assert people.go_on() == device


def test_over_a_killed_pool(people: OneGpuTwoNotebooks) -> None:
    device = people.make_arrays_and_detach()
    people.lab.stack.kill("the pool")
    wait_until(lambda: people.lab.free_milli() == 1000, 60, "the pool to be back with both nodes")
    assert people.take_the_whole_device() == device
    people.lab.stack.kill("the pool")
    wait_until(lambda: people.lab.free_milli() == 0, 60, "the pool to be back with both leases")
    people.give_it_back()
    assert people.go_on() == device


def test_on_another_node(people: OneGpuTwoNotebooks) -> None:
    device = people.make_arrays_and_detach()
    assert people.take_the_whole_device() == device
    people.free_other_node()
    assert people.go_on() != device
    people.give_it_back()
