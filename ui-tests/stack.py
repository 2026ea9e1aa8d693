"""The running product for browser tests and screenshots: what `make lab` starts, on a folder of notebooks.

`python ui-tests/stack.py --idle-seconds 20 …` starts one for tests that are not written in Python: a line of JSON says
where it is, and it ends when standard input does.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jupyterlab  # noqa: E402

from tests.support.stack import Stack, wait_until  # noqa: E402

__all__ = ["ROOT", "LabStack", "read_notebook", "wait_until", "write_notebook"]


def read_notebook(path: Path) -> Any:
    """What is on disk of a notebook now. While Jupyter writes it, that is not yet a notebook."""
    found: list[Any] = []

    def whole() -> bool:
        with contextlib.suppress(ValueError):
            found.append(json.loads(path.read_text()))
        return bool(found)

    wait_until(whole, 5, "a whole notebook")
    return found[0]


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of code cells for the `python3` kernel."""
    path.write_text(
        json.dumps(
            {
                "cells": [
                    {
                        "cell_type": "code",
                        "id": f"cell-{number}",
                        "metadata": {},
                        "source": source,
                        "outputs": [],
                        "execution_count": None,
                    }
                    for number, source in enumerate(cells)
                ],
                "metadata": {
                    "kernelspec": {
                        "name": "python3",
                        "display_name": "Python 3 (ipykernel)",
                        "language": "python",
                    }
                },
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        )
    )


class LabStack:
    """`with LabStack("--warn-seconds", "5") as lab:` — a `Stack` whose root folder is empty and its own."""

    def __init__(self, *arguments: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpnb-"))
        self.stack = Stack(*arguments, root_dir=self.folder)

    def __enter__(self) -> LabStack:
        self.stack.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.__exit__(kind, error, trace)
        shutil.rmtree(self.folder, ignore_errors=True)

    def show_application(self) -> None:
        """Before it is started: pages expose their application to Galata's helpers."""
        exposed = {"expose_app_in_browser": True}
        helpers = str(Path(jupyterlab.__file__).parent / "galata")
        folder = self.stack.home / "jc"
        folder.mkdir(parents=True)
        (folder / "jupyter_server_config.json").write_text(
            json.dumps(
                {
                    "LabServerApp": {"extra_labextensions_path": [helpers]},
                    "LabApp": exposed,
                    "JupyterNotebookApp": exposed,
                }
            )
        )

    def url(self, path: str) -> str:
        separator = "&" if "?" in path else "?"
        return f"{self.stack.url}/{path}{separator}token={self.stack.token}"

    def settings(self, plugin: str, values: dict[str, object]) -> None:
        """What a person would have set in the settings editor."""
        package, _, name = plugin.partition(":")
        folder = self.stack.home / "js" / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jupyterlab-settings").write_text(json.dumps(values))

    @contextlib.contextmanager
    def second_node(self, name: str, memory_mib: int, gpus: int = 1) -> Iterator[None]:
        """Another node of the pool, with software GPUs; it waits until the pool has it."""
        home = self.stack.home / name
        home.mkdir(mode=0o700)
        command = [
            *(sys.executable, "-m", "gpupool.cli.main", "node", "start", "--name", name),
            *("--driver", "software", "--memory-mib", str(memory_mib), "--heartbeat-seconds", "1"),
            *("--software-gpus", str(gpus)),
            *("--pool", f"unix:{self.stack.home / 'pool.sock'}"),
        ]
        with (home / "node.log").open("w") as log:
            node = subprocess.Popen(
                command,
                env=dict(self.stack.environment, GPUPOOL_HOME=str(home)),
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        try:
            wait_until(
                lambda: any(device["node"] == name and device["healthy"] for device in self.devices()),
                60,
                f"node {name}",
                failed=lambda: node.poll() is not None,
            )
            yield
        finally:
            node.terminate()
            node.wait(30)

    def start_notebook(self, name: str, share: str = "") -> str:
        """Starts the kernel of a notebook that no page shows; with a share it returns when that is attached. Its id."""
        write_notebook(self.folder / name, "pass")
        started = self.stack.api(
            "POST",
            "api/sessions",
            {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}},
        )
        kernel = str(started["kernel"]["id"])
        if share:
            self.stack.api("POST", f"gpupool/api/kernels/{kernel}/attach", {"share": share})
            try:
                wait_until(lambda: self.kernel_view(kernel)["state"] == "attached", 60, "the share")
            except TimeoutError:
                raise AssertionError(f"{name} has no share: {self.kernel_view(kernel)}") from None
        return kernel

    def kernel_view(self, kernel: str) -> dict[str, Any]:
        """As the sidebar is told of it."""
        listed = self.stack.api("GET", "gpupool/api/kernels")["kernels"]
        return next(dict(one) for one in listed if one["kernel_id"] == kernel)

    def reserve(self, share: str, user: str, label: str) -> None:
        """A share that somebody else holds for the next hour."""
        self.stack.gpupool("lease", "request", "-p", share, "--user", user, "--label", label, "--for", "1h")

    def devices(self) -> list[dict[str, Any]]:
        """As the sidebar is told of them."""
        return list(self.stack.api("GET", "gpupool/api/pool")["devices"])

    def free_milli(self) -> int:
        """What the pool has left of its two devices, in thousandths of one; -1: it does not answer."""
        pool = self.stack.api("GET", "gpupool/api/pool")
        return int(pool["totals"]["free_milli"]) if pool["ok"] else -1

    def shut_kernels_down(self) -> None:
        """Ends every kernel and waits until the pool has all shares back."""
        for kernel in self.stack.api("GET", "api/kernels"):
            self.stack.api("DELETE", f"api/kernels/{kernel['id']}")
        wait_until(lambda: self.free_milli() == 2000, 35, "every share to be free", interval=0.2)


def main() -> None:
    lab = LabStack(*sys.argv[1:])
    lab.show_application()
    with lab:
        started = {
            "url": lab.stack.url,
            "token": lab.stack.token,
            "folder": str(lab.folder),
            "environment": lab.stack.environment,
        }
        print(json.dumps(started), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
