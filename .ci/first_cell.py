"""How long a newcomer takes to the first GPU cell: `first_cell.py WHEEL [--browser]`. Prints JSON.

Two commands are given, as the documentation gives them, in a virtual environment with nothing in it and an empty folder:
`pip install WHEEL[lab]` and `gpupool lab`. Then the quickstart that it has copied is run, in a browser or over the kernel's
own channels, until its first `%%gpu` cell has ended. Run it with a Python that has Playwright and jupyter-client.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
import urllib.request
import venv
from pathlib import Path
from typing import Any

import psutil

CHROMIUM = os.environ.get("CHROMIUM_PATH", "/usr/bin/chromium")
START_SECONDS = 600.0
CELL_SECONDS = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--browser", action="store_true", help="run the cells in Chromium")
    options = parser.parse_args()
    # A short path: addresses of Unix sockets end at 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gpf-") as folder:
        print(json.dumps(measured(options.wheel.resolve(), Path(folder), browser=options.browser)))


def measured(wheel: Path, folder: Path, *, browser: bool) -> dict[str, Any]:
    """Seconds of each step, the load of the machine, and what was printed."""
    environment, notebooks, home = folder / "venv", folder / "work", folder / "home"
    venv.create(environment, with_pip=True)
    notebooks.mkdir()
    home.mkdir(mode=0o700)
    programs = environment / "bin"
    kept = ("PIP_", "SSL_", "http", "LANG", "XDG_CONFIG")
    variables = {name: value for name, value in os.environ.items() if name.startswith(kept)}
    variables |= {"PATH": f"{programs}:/usr/bin:/bin"}
    load = os.getloadavg()[0]

    began = time.monotonic()
    # pip's cache and settings are the user's own, as a newcomer's would be.
    run(
        [str(programs / "pip"), "install", "--quiet", f"{wheel}[lab]"],
        {**variables, "HOME": os.environ.get("HOME", str(home))},
    )
    installed = time.monotonic()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables |= {"HOME": str(home), "JUPYTER_PLATFORM_DIRS": "1"}
    output = folder / "lab.log"
    with output.open("w") as log:
        lab = subprocess.Popen(
            [str(programs / "gpupool"), "lab", "--no-browser", "--port", "0"],
            env=variables, cwd=notebooks, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        url = ready(lab, output)
        started = time.monotonic()
        said = in_browser(url) if browser else over_channels(url, notebooks, home)
        ended = time.monotonic()
        worked = processor_seconds(home)
    finally:
        lab.send_signal(signal.SIGINT)
        lab.wait(120)
    left = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True, check=False).stdout
    if left.strip():
        raise SystemExit(f"still running: {left.split()}")
    return {
        "commands": 2,
        "seconds": round(ended - began, 1),
        "install_seconds": round(installed - began, 1),
        "start_seconds": round(started - installed, 1),
        "cells_seconds": round(ended - started, 1),
        # What it would take at least where nothing else runs.
        "install_processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "rest_processor_seconds": round(worked, 1),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "cores": len(os.sched_getaffinity(0)),
        "browser": browser,
        "printed": output.read_text().splitlines()[:4],
        "cell": said.strip().splitlines()[-1][:200] if said.strip() else "",
    }


def processor_seconds(home: Path) -> float:
    """What pool, node, workers, JupyterLab and kernels have used so far; the browser is not among them."""
    total = 0.0
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home):
                total += sum(process.cpu_times()[:4])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def ready(lab: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        text = output.read_text()
        if found := re.search(r"^ready (\S+)$", text, re.MULTILINE):
            return found[1]
        if lab.poll() is not None:
            raise SystemExit(f"gpupool lab ended with {lab.returncode}:\n{text}")
        time.sleep(0.1)
    raise SystemExit(f"gpupool lab is not ready:\n{output.read_text()}")


def in_browser(url: str) -> str:
    """Run All Cells, as a person does it, until the cell with the training has its result line."""
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        page = chromium.new_page(viewport={"width": 1200, "height": 860})
        page.set_default_timeout(START_SECONDS * 1000)
        page.goto(url)
        expect(page.get_by_role("region", name="GPU pool")).to_be_visible(timeout=120_000)
        expect(page.get_by_text(re.compile(r"\| Idle$"))).to_be_visible(timeout=300_000)
        for item in ("Run", "Run All Cells"):
            page.get_by_role("menuitem", name=item, exact=True).click()
        result = page.locator(".jp-Notebook-cell").filter(has_text="epoch  40").last
        expect(result).to_contain_text("device time", timeout=CELL_SECONDS * 1000)
        said = result.inner_text()
        chromium.close()
    return said


def over_channels(url: str, notebooks: Path, home: Path) -> str:
    """The same cells without a page."""
    from jupyter_client.blocking.client import BlockingKernelClient

    address, token = re.fullmatch(r"(http://[^/]+)/.*[?&]token=(\w+)", url).groups()  # type: ignore[union-attr]
    asked = urllib.request.Request(
        f"{address}/api/kernels", method="POST", data=b"{}", headers={"Authorization": f"token {token}"}
    )
    with urllib.request.urlopen(asked, timeout=60) as reply:
        kernel = json.load(reply)["id"]
    (connection,) = home.rglob(f"kernel-{kernel}.json")
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    notebook = json.loads((notebooks / "quickstart.ipynb").read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            text: list[str] = []

            def shown(message: dict[str, Any], text: list[str] = text) -> None:
                content = message["content"]
                text.append(content.get("text", "") or content.get("data", {}).get("text/plain", ""))

            reply = client.execute_interactive(source, timeout=CELL_SECONDS, output_hook=shown)
            if reply["content"]["status"] != "ok":
                raise SystemExit(f"a cell failed: {reply['content']}")
            if source.startswith("%%gpu"):
                client.stop_channels()
                return "\n".join(text)
    raise SystemExit("the quickstart has no %%gpu cell")


def run(command: list[str], variables: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")


if __name__ == "__main__":
    main()
