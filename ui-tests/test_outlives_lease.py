"""A notebook gives its GPU back with arrays on it, others use all of that GPU, and it goes on with the same arrays.

`GPUPOOL_ARRAYS_MIB=1024 pytest ui-tests/test_outlives_lease.py` does it with a GiB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, wait_until, write_notebook

Open = Callable[..., LabPage]

MIB = int(os.environ.get("GPUPOOL_ARRAYS_MIB", "64"))
#: Random numbers are made, copied and digested; a second per GiB and step on a quiet machine.
PATIENCE_MS = 60_000 + 200 * MIB
FIRST, SECOND = "arrays.ipynb", "whole.ipynb"


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[LabStack]:
    """Two nodes with one device each."""
    with LabStack("--software-gpus", "1") as lab, lab.second_node("second"):
        yield lab


class OneGpuTwoNotebooks:
    """Both notebooks, open; the other node's device is taken by somebody until `free_other_node`."""

    def __init__(self, lab: LabStack, open_page: Open) -> None:
        self.lab = lab
        self._taken: str | None = lab.stack.gpupool("request", "-p", "1", "--label", "full").stdout.strip()
        write_notebook(lab.folder / FIRST, programs.ARRAYS.format(mib=MIB), programs.ARRAYS_AGAIN)
        write_notebook(lab.folder / SECOND, programs.WHOLE_DEVICE, programs.GIVE_UP)
        self.first = self._open(open_page, FIRST)
        self.second = self._open(open_page, SECOND)

    def _open(self, open_page: Open, notebook: str) -> LabPage:
        page = open_page(self.lab)
        page.open(notebook)
        page.open_sidebar()
        return page

    def device_of(self, notebook: str) -> str:
        kernels = self.lab.stack.api("GET", "gpupool/api/kernels")["kernels"]
        return str(next(kernel["device"] for kernel in kernels if kernel["label"] == notebook))

    def free_other_node(self) -> None:
        if self._taken is not None:
            self.lab.stack.gpupool("release", self._taken)
        self._taken = None

    # -- what the people do

    def make_arrays_and_detach(self) -> str:
        """The device that they were on."""
        self.first.attach(FIRST, "0.5")
        self.first.run_and_wait(0, f"made {MIB} MiB", milliseconds=PATIENCE_MS)
        device = self.device_of(FIRST)
        self.first.press(FIRST, "Detach")
        expect(self.first.state(FIRST)).to_have_text("parked")
        expect(self.notes(self.first, FIRST)).to_contain_text("Memory: on the device")
        return device

    def take_the_whole_device(self) -> str:
        self.second.share_input(SECOND).fill("1")
        self.second.press(SECOND, "Attach")
        expect(self.second.state(SECOND)).to_have_text("attached", timeout=PATIENCE_MS)
        self.second.run_and_wait(0, re.compile(r"has all but \d+ MiB of \d+"), milliseconds=PATIENCE_MS)
        expect(self.notes(self.first, FIRST)).to_contain_text("Memory: in host memory")
        return self.device_of(SECOND)

    def give_it_back(self) -> None:
        self.second.run_and_wait(1, "given up")
        self.second.press(SECOND, "Detach")
        expect(self.second.state(SECOND)).to_have_text("parked")

    def go_on(self) -> str:
        """The arrays, the kernel and its module are as before; the device that they are on now."""
        self.first.share_input(FIRST).fill("0.5")
        self.first.press(FIRST, "Attach")
        expect(self.first.state(FIRST)).to_have_text("attached", timeout=PATIENCE_MS)
        self.first.run_and_wait(1, f"identical True 2 {MIB} MiB", milliseconds=PATIENCE_MS)
        return self.device_of(FIRST)

    def notes(self, page: LabPage, notebook: str) -> object:
        return page.kernel(notebook).get_by_role("list", name=f"Session of {notebook}")


@pytest.fixture
def people(two_nodes: LabStack, open_page: Open) -> Iterator[OneGpuTwoNotebooks]:
    both = OneGpuTwoNotebooks(two_nodes, open_page)
    yield both
    both.free_other_node()
    two_nodes.shut_kernels_down()


def test_on_the_same_device(people: OneGpuTwoNotebooks) -> None:
    device = people.make_arrays_and_detach()
    assert people.take_the_whole_device() == device
    people.give_it_back()
    assert people.go_on() == device


def test_on_another_node(people: OneGpuTwoNotebooks) -> None:
    device = people.make_arrays_and_detach()
    assert people.take_the_whole_device() == device
    people.free_other_node()
    assert people.go_on() != device
    people.give_it_back()


def test_over_a_killed_pool(people: OneGpuTwoNotebooks) -> None:
    device = people.make_arrays_and_detach()
    people.lab.stack.kill("the pool")
    wait_until(lambda: people.lab.free_milli() == 1000, 60, "the pool to be back with both nodes")
    assert people.take_the_whole_device() == device
    people.lab.stack.kill("the pool")
    wait_until(lambda: people.lab.free_milli() == 0, 60, "the pool to be back with both leases")
    people.give_it_back()
    assert people.go_on() == device
