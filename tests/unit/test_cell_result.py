"""What a `%%gpu` cell leaves in the saved notebook: text, HTML that stands alone, and figures as JSON."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from gpupool.client.refused_memory import LargerShare, RefusedMemory
from gpupool.client.runtime import Counters, WorkerCounters
from nbconvert import HTMLExporter

from jupyter_gpupool.kernel.figures import MIME_TYPE, Figures, as_json, bundle, html_line
from jupyter_gpupool.kernel.out_of_memory import OutOfMemory

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "cell_result.json"
LACKING = SAMPLE.with_name("cell_without_memory.json")
TITLE = "0.2 GPU (1.55 GiB) of vm/0 <software GPU>"


def figures() -> Figures:
    before = Counters(calls=10, asks=5, asks_by_name={"cuInit": (5, 0.1)})
    after = Counters(
        calls=2010,
        asks=505,
        ask_seconds=1.25,
        bytes_to_device=3 << 20,
        bytes_from_device=4096,
        asks_by_name={"cuInit": (5, 0.1), "cuStreamSynchronize": (497, 1.2), "cuMemcpyDtoH_v2": (3, 0.05)},
        worker=WorkerCounters(0.75, 9, (0,), (640 << 20,)),
    )
    return Figures.between(before, after, wall_seconds=2.5)


REFUSED = RefusedMemory(3 << 30, 1587 << 20, 0, 1586 << 20, 3 << 30)
TROUBLE = OutOfMemory(REFUSED, LargerShare("0.5", 3968, True), "cell")


def without_memory() -> Figures:
    after = Counters(calls=12, worker=WorkerCounters(0.0, 0, (0,), (0,)), refused_memory=REFUSED)
    return Figures.between(Counters(calls=10), after, wall_seconds=2.5)


class Text(HTMLParser):
    """What is read of HTML when its styles are gone."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.rows.append(data)


def test_the_sample_that_the_front_end_is_tested_with_is_what_kernels_write() -> None:
    assert json.loads(SAMPLE.read_text()) == bundle(TITLE, figures(), "still attached")


def test_so_is_the_sample_of_a_cell_that_lacked_memory() -> None:
    assert json.loads(LACKING.read_text()) == bundle(TITLE, without_memory(), "", TROUBLE)


def test_what_was_lacking_is_said_in_each_form_and_a_peak_of_nothing_is_not() -> None:
    said = bundle(TITLE, without_memory(), "", TROUBLE)
    assert TROUBLE.text() in said["text/plain"].splitlines()
    assert TROUBLE.text() in Text(said["text/html"]).rows
    assert "peak memory" not in said["text/plain"] + said["text/html"]
    told = said[MIME_TYPE]
    assert told["figures"]["memory_peak_bytes"] is None
    assert told["out_of_memory"] == {
        "asked": 3 << 30,
        "share": 1587 << 20,
        "used": 0,
        "largest_free": 1586 << 20,
        "needed": 3 << 30,
        "device": 0,
        "larger_share": {"share": "0.5", "mib": 3968, "free": True, "count": 1},
        "way": "cell",
    }
    without_line = bundle("GPU", None, "", TROUBLE)
    assert TROUBLE.text() in without_line["text/plain"]
    assert TROUBLE.text() in Text(without_line["text/html"]).rows


def test_the_figures_are_plain_numbers_in_plain_units() -> None:
    told = as_json(TITLE, figures(), "")
    assert (told["version"], told["title"], told["note"]) == (1, TITLE, None)
    assert told["figures"] == {
        "wall_seconds": 2.5,
        "device_seconds": 0.75,
        "calls": 2000,
        "blocking_round_trips": 500,
        "blocking_seconds": 1.25,
        "round_trips_by_call": [
            {"call": "cuStreamSynchronize", "count": 497, "seconds": 1.2},
            {"call": "cuMemcpyDtoH_v2", "count": 3, "seconds": 0.05},
        ],
        "bytes_to_device": 3 << 20,
        "bytes_from_device": 4096,
        "memory_peak_bytes": 640 << 20,
    }
    assert "497 × cuStreamSynchronize" in told["hint"]


def test_what_the_worker_did_not_tell_is_null_and_a_cell_without_a_gpu_has_no_figures() -> None:
    told = as_json("", Figures.between(Counters(), Counters(calls=1), 1.0), "")
    assert (told["figures"]["device_seconds"], told["figures"]["memory_peak_bytes"]) == (None, None)
    assert as_json("GPU", None, "interrupted")["figures"] is None


def test_the_html_reads_well_without_its_styles() -> None:
    found = Text(html_line(TITLE, figures(), "still attached"))
    assert found.rows[0] == (
        f"{TITLE} · device time 750 ms of 2.50 s · peak memory 640 MiB · 500 waits for the GPU"
    )
    pairs = dict(zip(found.rows[1:-2:2], found.rows[2:-2:2], strict=True))
    assert (pairs["calls"], pairs["to device"], pairs["from device"]) == ("2,000", "3 MiB", "4 KiB")
    assert pairs["waited for cuStreamSynchronize"] == "497 × (1.20 s)"
    assert found.rows[-2] == "still attached"
    assert "each waits for the GPU" in found.rows[-1]
    assert found.tags == {"div", "details", "summary", "table", "tr", "th", "td"}


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_nothing_in_it_is_taken_for_html(text: str) -> None:
    for html in (html_line(text, None, text), html_line(text, figures(), text)):
        assert not {"script", "img"} & Text(html).tags


def test_nbconvert_shows_it_without_the_extension() -> None:
    output = nbformat.v4.new_output("display_data", data=bundle(TITLE, figures(), ""))
    cell = nbformat.v4.new_code_cell("%%gpu 0.2", outputs=[output])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.validate(notebook)
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    assert "device time 750 ms of 2.50 s" in re.sub(r"<[^>]*>", "", page)
    assert MIME_TYPE not in page
