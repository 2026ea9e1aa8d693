"""``gpupool bench notebook``: from a click to a GPU, what ``%%gpu`` adds, and what the pages cost."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final

from gpupool.client.errors import GpupoolError

from benchmarks.notebook.problem import BenchError
from benchmarks.notebook.stack import BenchStack
from benchmarks.results import Figures, Target, beside_bounds, machine, publish

#: The figure, what it is, and the bound that the project set itself.
TARGETS: Final[tuple[Target, ...]] = (
    ("attach_click_ms", "click on Attach -> kernel attached, a new session, ms", "<=", 300.0),
    ("attach_again_click_ms", "the same for a parked session, ms", "<=", 300.0),
    ("cell_overhead_ms", "%%gpu adds to a warm cell, ms", "<=", 30.0),
    ("server_percent", "server: a page polls ten kernels, % of a core", "<=", 2.0),
    ("browser_hidden_percent", "browser: that page while hidden, % of a core", "<=", 2.0),
    ("bundle_kb", "front end without the chart library, kB", "<=", 180.0),
    ("scroll_ratio", "frame time with twenty widgets / without, median", "<=", 1.1),
)
KERNELS: Final = 10
SHARE: Final = "0.1"


def measure(rounds: int = 2, again: int = 20, cells: int = 40, seconds: float = 20.0) -> Figures:
    """Runs the measurement on the software GPU.

    Args:
        rounds: how often ten kernels without a session are attached, and the polls are measured.
        again: how often a parked session is attached again.
        cells: how often the cell is run, with ``%%gpu`` and without.
        seconds: how long each look at the processor time is.

    Raises:
        BenchError: something that is measured did not happen.
    """
    from benchmarks.notebook import bundle, clicks, page, polling, scrolling
    from benchmarks.notebook import cells as cell_bench

    bundle.bundle([])  # A front end that is not built is said now, not in five minutes.
    labels = [f"kernel-{number}.ipynb" for number in range(KERNELS)]
    with BenchStack() as stack, page.browser() as running:
        kernels = [stack.start_notebook_kernel(label) for label in labels]
        stack.write_notebook("open.ipynb", "1")
        loaded: list[str] = []
        tab = page.LabTab(running, stack, labels[0])
        loaded = tab.page.evaluate(
            "performance.getEntriesByType('resource').map(entry => entry.name)"
            ".filter(name => name.includes('/jupyter-gpupool/static/'))"
        )
        new: list[float] = []
        for number in range(rounds):
            if number:
                for kernel in kernels:
                    stack.api("POST", f"api/kernels/{kernel}/restart")
                for kernel in kernels:
                    stack.client(kernel).stop_channels()
                _wait_states(stack, "none")
            for label in labels:
                tab.set_share(label, SHARE)
            new += clicks.attach_new(tab, labels)
        _say("new sessions", new)
        attaches, detaches = clicks.attach_again(tab, labels[0], again)
        _say("sessions again", attaches)
        polls = polling.server_percent(tab, stack, seconds, rounds)
        _say("server", polls)
        hidden = polling.hidden_percent(running, tab, stack, seconds, rounds)
        _say("browser", hidden)
        tab.close()
        for kernel in kernels:
            stack.api("DELETE", f"api/kernels/{kernel}")
        alone = stack.start_notebook_kernel("cells.ipynb")
        client = stack.client(alone)
        without, with_ = cell_bench.plain_and_magic(client, "0.2", cells)
        _say("cells", [without, with_])
        client.stop_channels()
        stack.api("DELETE", f"api/kernels/{alone}")
        frames = scrolling.scrolling(running, stack, seconds / 2, rounds)
    sizes = bundle.bundle([PurePosixPath(name.partition("?")[0]).name for name in loaded])
    return {
        "attach_click_ms": statistics.median(new),
        "attach_again_click_ms": statistics.median(attaches),
        "cell_overhead_ms": statistics.median(with_) - statistics.median(without),
        "server_percent": statistics.median(polls["with"]) - statistics.median(polls["without"]),
        "browser_hidden_percent": statistics.median(hidden["hidden"]),
        "bundle_kb": sizes["own_kb"],
        "scroll_ratio": frames["with"]["median_ms"] / frames["without"]["median_ms"],
        "attach_click": _spread(new),
        "attach_again_click": _spread(attaches),
        "detach_click": _spread(detaches),
        "cell_without": _spread(without),
        "cell_with": _spread(with_),
        "server": polls,
        "browser": hidden,
        "bundle": sizes,
        "scroll": frames,
        "machine": {**machine(), "load": os.getloadavg()},
    }


def _say(what: str, values: object) -> None:
    """It takes minutes: what is known so far goes to standard error."""
    sys.stderr.write(f"{what}: {values}\n")
    sys.stderr.flush()


def _wait_states(stack: BenchStack, wanted: str) -> None:
    deadline = time.monotonic() + 30
    while any(kernel["state"] != wanted for kernel in stack.api("GET", "gpupool/api/kernels")["kernels"]):
        if time.monotonic() > deadline:
            raise BenchError(f"The kernels did not all become {wanted} within 30 s.")
        time.sleep(0.2)


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median_ms": statistics.median(values),
        "p95_ms": statistics.quantiles(values, n=20)[-1],
        "least_ms": min(values),
        "most_ms": max(values),
        "count": len(values),
    }


def report(figures: Figures) -> str:
    """The figures beside their bounds, as text."""
    scroll = figures["scroll"]
    lines = [
        *beside_bounds(TARGETS, figures, digits=1),
        "",
        *(
            f"frames {name} widgets: median {scroll[name]['median_ms']:.1f} ms, p95 {scroll[name]['p95_ms']:.1f} ms, "
            f"{scroll[name]['longer_than_25_ms_percent']:.1f} % longer than 25 ms"
            for name in ("with", "without")
        ),
    ]
    return "\n".join(lines) + "\n"


def main(json: bool) -> int:
    """The command: 0, or 1 with one sentence on standard error."""
    return publish("notebook", _measured(measure), report, json=json)


def _measured(run: Callable[[], Figures]) -> Callable[[], Figures]:
    """A browser that fails is a sentence, too."""

    def measured() -> Any:
        try:
            return run()
        except ImportError as error:
            raise BenchError(
                f"This measurement needs {error.name}: pip install 'jupyter-gpupool[jupyter,test]'."
            ) from error
        except GpupoolError:
            raise
        except Exception as error:
            if type(error).__module__.startswith("playwright"):
                raise BenchError(f"The browser: {str(error).splitlines()[0]}") from error
            raise

    return measured


if __name__ == "__main__":
    raise SystemExit(main(json="--json" in sys.argv[1:]))
