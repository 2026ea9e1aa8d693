"""The whole product as `gpupool lab` starts it, for tests: real pool, node, workers, Jupyter server, kernels."""

from __future__ import annotations

import io
import json
import os
import queue
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
from gpupool.client import convert
from gpupool.proto import pool_pb2, pool_pb2_grpc
from jupyter_client.blocking.client import BlockingKernelClient

from tests.support import forked_cli
from tests.support.patience import BUSY, until_late

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class CellResult:
    """What a cell left behind; `text` is everything that a person would see."""

    status: str
    ename: str = ""
    evalue: str = ""
    text: str = ""
    outputs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    #: Execution count, as the front end shows it beside the cell.
    number: int = 0


class Kernel:
    """A kernel started by the Jupyter server, driven over its own channels as a front end would."""

    def __init__(self, stack: Stack, kernel_id: str) -> None:
        self.stack = stack
        self.id = kernel_id
        self.client = self._connect()
        self._results: dict[str, CellResult] = {}  # of cells whose end has not been waited for

    def _connect(self) -> BlockingKernelClient:
        found = self.stack.runtime / f"kernel-{self.id}.json"
        wait_until(found.exists, 20, f"the connection file of kernel {self.id}")
        client = BlockingKernelClient(connection_file=str(found))
        client.load_connection_file()
        client.start_channels()
        # The client takes a kernel that is slow to start its heartbeat for dead.
        for attempt in range(5):
            try:
                client.wait_for_ready(timeout=60)
                return client
            except RuntimeError:
                if attempt == 4:
                    raise
                time.sleep(1)
        raise AssertionError("unreachable")

    def reconnect(self) -> None:
        self.leave()
        self.client = self._connect()

    def leave(self) -> None:
        """Else its threads look for the kernel for as long as the tests run."""
        self.client.stop_channels()
        self.client.context.destroy(linger=0)

    def start(self, code: str) -> str:
        """Sends a cell without waiting for it."""
        return str(self.client.execute(code, allow_stdin=False))

    def await_text(self, message_id: str, text: str, seconds: float) -> None:
        """Returns when a started cell has shown `text`. Raises TimeoutError when it does not in time."""
        result = self._results.setdefault(message_id, CellResult("unknown"))
        deadline = until_late(seconds)
        while text not in result.text:
            self._take(message_id, result, deadline)

    def _take(self, message_id: str, result: CellResult, deadline: float) -> bool:
        """Adds the next message of the cell to its result; whether it was the last."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the cell was not done in time; so far: {result.text[-800:]}")
        try:
            message = self.client.get_iopub_msg(timeout=min(left, 1.0))
        except queue.Empty:
            return False
        if message["parent_header"].get("msg_id") != message_id:
            return False
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            result.text += content["text"]
        elif kind in ("display_data", "execute_result", "update_display_data"):
            result.outputs.append(content["data"])
            result.text += content["data"].get("text/plain", "") + "\n"
        elif kind == "error":
            result.text += "\n".join(content["traceback"]) + "\n"
        return bool(kind == "status" and content["execution_state"] == "idle")

    def finish(self, message_id: str, seconds: float = 60.0) -> CellResult:
        """Collects a started cell. Raises TimeoutError when it is not done in time."""
        started = time.monotonic()
        result = self._results.pop(message_id, CellResult("unknown"))
        deadline = until_late(seconds)
        while not self._take(message_id, result, deadline):
            pass
        while True:
            left = max(1.0, deadline - time.monotonic())
            reply = self.client.get_shell_msg(timeout=left)
            if reply["parent_header"].get("msg_id") == message_id:
                break
        result.status = reply["content"]["status"]
        result.number = reply["content"]["execution_count"]
        result.ename = reply["content"].get("ename", "")
        result.evalue = reply["content"].get("evalue", "")
        result.text = re.sub(r"\x1b\[[0-9;]*m", "", result.text)
        result.seconds = time.monotonic() - started
        return result

    def run(self, code: str, seconds: float = 60.0) -> CellResult:
        return self.finish(self.start(code), seconds)

    def pid(self) -> int:
        return int(self.run("import os; print(os.getpid())").text)

    def interrupt(self) -> None:
        self.stack.api("POST", f"api/kernels/{self.id}/interrupt")

    def detach(self) -> None:
        """As the sidebar's button. The server hears of a cell's end a moment after whoever ran it, and refuses until then."""
        wait_until(lambda: not self.state()["busy"], 20, "the end of the cell")
        self.stack.api("POST", f"gpupool/api/kernels/{self.id}/detach")

    def state(self) -> dict[str, Any]:
        """This kernel as the sidebar sees it."""
        kernels = self.stack.api("GET", "gpupool/api/kernels")["kernels"]
        return next(kernel for kernel in kernels if kernel["kernel_id"] == self.id)


class Stack:
    """`with Stack(...) as stack:`; everything it started has ended afterwards, whatever a test killed."""

    def __init__(self, *arguments: str, root_dir: Path | None = None) -> None:
        # A short path: addresses of Unix sockets end at 107 bytes.
        self.home = Path(tempfile.mkdtemp(prefix="gp-"))
        self.runtime = self.home / "jr"
        self.token = secrets.token_hex(16)
        self.url = ""
        self._arguments = arguments
        #: Before it is started; none for a pool that it does not start.
        self.pool_options: tuple[str, ...] = ("--driver", "software")
        self._notebook = ("--notebook", "" if root_dir else "examples/quickstart.ipynb")
        self._root_dir = root_dir or ROOT
        self._kernels: list[Kernel] = []
        self.environment = dict(
            os.environ,
            GPUPOOL_HOME=str(self.home),
            JUPYTER_RUNTIME_DIR=str(self.runtime),
            JUPYTER_CONFIG_DIR=str(self.home / "jc"),
            JUPYTER_DATA_DIR=str(self.home / "jd"),
            JUPYTERLAB_SETTINGS_DIR=str(self.home / "js"),
            JUPYTERLAB_WORKSPACES_DIR=str(self.home / "jw"),
            IPYTHONDIR=str(self.home / "ip"),
            JUPYTER_PLATFORM_DIRS="1",
        )
        for name in ("JUPYTER_TOKEN", "GPUPOOL_SESSION_FILE", "GPUPOOL_TOKEN_FILE", "GPUPOOL_ENDPOINT"):
            self.environment.pop(name, None)
        # With it, ipykernel does not show what a library writes to standard error.
        self.environment.pop("PYTEST_CURRENT_TEST", None)

    def __enter__(self) -> Stack:
        settings = self.home / "js" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        command = [
            sys.executable, "-m", "gpupool.cli.main", "lab", "--no-browser", "--no-panel", "--home", str(self.home),
            "--token", self.token, "--port", "0", "--root-dir", str(self._root_dir),
            *self.pool_options, *self._notebook, *self._arguments,
        ]  # fmt: skip
        self.output = self.home / "lab.log"
        with self.output.open("w") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=ROOT)
        try:
            wait_until(
                self._ready, 120, "gpupool lab to be ready", failed=lambda: self.process.poll() is not None
            )
        except BaseException as error:
            self.__exit__()
            raise RuntimeError(f"{error}\n{self.output_text}") from None
        return self

    def _ready(self) -> bool:
        self.output_text = self.output.read_text()
        found = re.search(r"^ready (http://[^/]+)/", self.output_text, re.MULTILINE)
        if found:
            self.url = found.group(1)
        return bool(found)

    def __exit__(self, *_: object) -> None:
        for kernel in self._kernels:
            kernel.leave()
        children = (
            psutil.Process(self.process.pid).children(recursive=True)
            if psutil.pid_exists(self.process.pid)
            else []
        )
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        # Workers outlive a killed agent by design; these are ours.
        for worker in self.workers():
            worker.kill()
        keep = os.environ.get("GPUPOOL_KEEP_STACKS")
        if not keep:
            shutil.rmtree(self.home, ignore_errors=True)

    # -- what runs

    def pid(self, service: str) -> int:
        """`service` is "the pool", "the node" or "JupyterLab"."""
        return int(json.loads((self.home / "lab.json").read_text())["pids"][service])

    def kill(self, service: str) -> None:
        os.kill(self.pid(service), signal.SIGKILL)

    def workers(self) -> list[psutil.Process]:
        """Worker processes of this stack, known by their control socket or their environment."""
        found = []
        for process in psutil.process_iter(["name", "cmdline"]):
            try:
                if process.info["name"] == "gpupool-worker" and (
                    any(str(self.home) in part for part in process.info["cmdline"] or [])
                    or process.environ().get("GPUPOOL_HOME") == str(self.home)
                ):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    # -- what people use

    def api(self, method: str, path: str, body: object | None = None) -> Any:
        """A request to the Jupyter server as a logged-in user; the decoded JSON. Raises HTTPError."""
        request = urllib.request.Request(
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60 * BUSY) as reply:
                text = reply.read()
        except urllib.error.HTTPError as error:
            said = error.read()
            error.read = io.BytesIO(said).read  # type: ignore[method-assign]  # for whoever reads it, too
            error.add_note(said.decode(errors="replace")[:2000])
            raise
        return json.loads(text) if text else None

    def api_error(self, method: str, path: str, body: object | None = None) -> tuple[int, dict[str, Any]]:
        """Status and body of a request that is expected to fail."""
        try:
            answer = self.api(method, path, body)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        raise AssertionError(f"{method} {path} succeeded: {answer}")

    def kernel(self) -> Kernel:
        started = self.api("POST", "api/kernels", {"name": "python3"})
        self._kernels.append(Kernel(self, started["id"]))
        return self._kernels[-1]

    def gpupool(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = forked_cli.gpupool(*arguments, environment=self.environment, seconds=90 * BUSY)
        if check:
            done.check_returncode()
        return done

    def devices(self) -> list[dict[str, Any]]:
        """What `gpupool gpu list --json` lists, without starting a program each time.

        Raises grpc.RpcError when the pool does not answer.
        """
        with grpc.insecure_channel(f"unix:{self.home}/pool.sock") as channel:
            stub: Any = pool_pb2_grpc.PoolStub
            answer = stub(channel).ListDevices(pool_pb2.ListRequest(), timeout=5)
        return [asdict(convert.device(device)) for device in answer.devices]

    def free_milli(self) -> int:
        return sum(device["free_milli"] for device in self.devices())

    def wait_free(self, seconds: float = 35.0) -> float:
        """Waits until the pool lists all shares as free; the seconds it took."""
        started = time.monotonic()

        def free() -> bool:
            try:
                devices = self.devices()
            except grpc.RpcError:
                return False
            return bool(devices) and all(device["free_milli"] == 1000 for device in devices)

        wait_until(free, seconds, "every share to be free", interval=0.1)
        return time.monotonic() - started


def wait_until(
    condition: Callable[[], Any],
    seconds: float,
    what: str,
    *,
    failed: Callable[[], bool] = lambda: False,
    interval: float = 0.1,
) -> None:
    """Raises TimeoutError naming `what` when `condition` does not come true, RuntimeError when it cannot."""
    deadline = until_late(seconds)
    while not condition():
        if failed():
            raise RuntimeError(f"gave up waiting for {what}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(interval)
