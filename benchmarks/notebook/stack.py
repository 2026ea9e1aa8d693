"""A pool, a node with two software GPUs and JupyterLab of their own, for a measurement."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gpupool.client.native import native_directory
from jupyter_client.blocking.client import BlockingKernelClient

from benchmarks.notebook.problem import BenchError

#: Until JupyterLab answers, seconds; a loaded machine needs most of a minute.
START_SECONDS: Final = 180.0
#: Until a kernel answers, seconds.
KERNEL_SECONDS: Final = 90.0


class BenchStack:
    """`with BenchStack() as stack:`; what it started has ended afterwards."""

    def __enter__(self) -> Self:
        # A short path: addresses of Unix sockets end at 107 bytes.
        self.home = Path(tempfile.mkdtemp(prefix="gpb-"))
        self.folder = self.home / "notebooks"
        self.folder.mkdir()
        self.url = self.token = ""
        own = {
            "GPUPOOL_HOME": "",
            "GPUPOOL_NATIVE_DIR": "",
            "JUPYTER_RUNTIME_DIR": "jr",
            "JUPYTER_CONFIG_DIR": "jc",
            "JUPYTER_DATA_DIR": "jd",
            "JUPYTERLAB_SETTINGS_DIR": "js",
            "JUPYTERLAB_WORKSPACES_DIR": "jw",
            "IPYTHONDIR": "ip",
        }
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUPOOL_")}
        environment.pop("JUPYTER_TOKEN", None)
        environment |= {key: str(self.home / name) for key, name in own.items()}
        environment |= {"GPUPOOL_NATIVE_DIR": str(native_directory()), "PYTHONPATH": _python_path()}
        news = self.home / "js" / "@jupyterlab" / "apputils-extension"
        news.mkdir(parents=True)
        (news / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        command = [
            *(sys.executable, "-m", "gpupool.cli.main", "lab", "--no-browser", "--no-panel"),
            *("--home", str(self.home), "--driver", "software", "--port", "0"),
            *("--root-dir", str(self.folder), "--notebook", ""),
        ]
        self.log = self.home / "lab.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            said = self.log.read_text()
            if found := re.search(r"^ready (http://[^/]+)/\S*[?&]token=(\w+)", said, re.MULTILINE):
                self.url, self.token = found.groups()
                return
            if self.process.poll() is not None:
                raise BenchError(f"The stack did not start: {said[-400:].strip()}")
            time.sleep(0.2)
        raise BenchError(f"The stack was not ready within {START_SECONDS:g} s.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def server_pid(self) -> int:
        """Process id of the Jupyter server."""
        return int(json.loads((self.home / "lab.json").read_text())["pids"]["JupyterLab"])

    def page_url(self, path: str) -> str:
        separator = "&" if "?" in path else "?"
        return f"{self.url}/{path}{separator}token={self.token}"

    def api(self, method: str, path: str, body: object | None = None) -> Any:
        """A request to the Jupyter server; the decoded JSON. Raises BenchError when it is refused."""
        request = urllib.request.Request(  # noqa: S310 - our own loopback address
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
                text = reply.read()
        except urllib.error.HTTPError as error:
            raise BenchError(
                f"{method} {path}: {error.code} {error.read()[:300].decode(errors='replace')}"
            ) from None
        return json.loads(text) if text else None

    def write_notebook(self, name: str, *cells: str) -> None:
        """A notebook of code cells for the ``python3`` kernel."""
        spec = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        made: list[dict[str, Any]] = [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "metadata": {},
                "source": source,
                "outputs": [],
                "execution_count": None,
            }
            for number, source in enumerate(cells)
        ]
        (self.folder / name).write_text(
            json.dumps({"cells": made, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5})
        )

    def start_notebook_kernel(self, name: str) -> str:
        """A kernel for a notebook that no page has opened; its id, when it answers."""
        self.write_notebook(name)
        body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        kernel_id = str(self.api("POST", "api/sessions", body)["kernel"]["id"])
        self.client(kernel_id).stop_channels()
        return kernel_id

    def client(self, kernel_id: str) -> BlockingKernelClient:
        """The kernel's own channels, when it answers."""
        found = self.home / "jr" / f"kernel-{kernel_id}.json"
        deadline = time.monotonic() + KERNEL_SECONDS
        while not found.exists():
            if time.monotonic() > deadline:
                raise BenchError(f"A kernel did not start within {KERNEL_SECONDS:g} s.")
            time.sleep(0.05)
        while True:
            client = BlockingKernelClient(connection_file=str(found))
            client.load_connection_file()
            client.start_channels()
            try:
                client.wait_for_ready(timeout=KERNEL_SECONDS)
                return client
            except RuntimeError as error:
                # The client takes a kernel that is slow to start its heartbeat for dead.
                client.stop_channels()
                if time.monotonic() > deadline:
                    raise BenchError(f"A kernel did not answer: {error}.") from error
                time.sleep(1)


def _python_path() -> str:
    """The packages of this process, for its children too."""
    import gpupool

    import jupyter_gpupool

    roots = [str(Path(str(package.__file__)).parent.parent) for package in (jupyter_gpupool, gpupool)]
    return os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
