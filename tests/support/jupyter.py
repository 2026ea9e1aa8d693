"""A real Jupyter server with the extension, in the test's own process and event loop.

Kernels are real processes; the pool behind it is whatever the test gives. (pytest-jupyter's
fixtures bring their own event loop for the whole test run, which the other asynchronous
tests here do not share.)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from traitlets.config import Config

from jupyter_gpupool.server.extension import GpuPoolExtension, connect
from jupyter_gpupool.server.pool.identity import PoolAccess
from jupyter_gpupool.server.pool.port import Pool
from tests.support.memory_pool import MemoryPool
from tests.support.patience import BUSY
from tests.support.rest_answers import compared

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Reply:
    """The end of a cell: `text` is all that a person would see, in order."""

    status: str = ""
    ename: str = ""
    evalue: str = ""
    text: str = ""
    outputs: list[dict[str, Any]] = field(default_factory=list)


class Cells:
    """A client of one kernel, as a notebook is one."""

    def __init__(self, client: Any, kernel_id: str) -> None:
        self.client = client
        self.kernel_id = kernel_id
        self._aside: dict[str, list[dict[str, Any]]] = {}
        self._replies: dict[str, dict[str, Any]] = {}

    def start(self, code: str, *, silent: bool = False) -> str:
        return str(self.client.execute(code, silent=silent, allow_stdin=False))

    async def finish(self, message_id: str, seconds: float = 30.0) -> Reply:
        """Collects outputs until the kernel is idle again after this message."""
        reply = Reply()
        deadline = asyncio.get_running_loop().time() + seconds * BUSY
        while True:
            left = deadline - asyncio.get_running_loop().time()
            message = await asyncio.wait_for(self._next_of(message_id), left)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                reply.text += content["text"]
            elif kind in ("display_data", "execute_result", "update_display_data"):
                reply.outputs.append(content)
                reply.text += content["data"].get("text/plain", "") + "\n"
            elif kind == "error":
                reply.text += "\n".join(content["traceback"]) + "\n"
            elif kind == "status" and content["execution_state"] == "idle":
                break
        while message_id not in self._replies:
            message = await self.client.get_shell_msg(timeout=seconds)
            self._replies[message["parent_header"].get("msg_id")] = message["content"]
        content = self._replies.pop(message_id)
        reply.status = content["status"]
        reply.ename, reply.evalue = content.get("ename", ""), content.get("evalue", "")
        return reply

    async def says(self, message_id: str, words: str, seconds: float = 15.0) -> None:
        """Waits for an output of a cell that runs; it is a part of what `finish` collects all the same."""
        heard: list[dict[str, Any]] = []
        async with asyncio.timeout(seconds):
            while not heard or words not in str(heard[-1]["content"]):
                heard.append(await self._next_of(message_id))
        self._aside.setdefault(message_id, [])[:0] = heard

    async def _next_of(self, message_id: str) -> dict[str, Any]:
        """The next output of one message; those of others that run meanwhile are put aside."""
        aside = self._aside.get(message_id)
        while not aside:
            message = await self.client.get_iopub_msg(timeout=600)
            self._aside.setdefault(message["parent_header"].get("msg_id", ""), []).append(message)
            aside = self._aside.get(message_id)
        return aside.pop(0)

    async def subshell(self) -> str:
        """A subshell of the kernel, ready: the first message to a fresh one waits for the main shell."""
        request = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(request)
        answer = await self.client.get_control_msg(timeout=10)
        subshell_id = str(answer["content"]["subshell_id"])
        await self.finish(self.send(subshell_id, "execute_request", {"code": "0", "silent": False}))
        return subshell_id

    def move(self, slider: str, value: int, subshell_id: str | None = None) -> None:
        """What a page sends when somebody moves the slider with this model id."""
        data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
        self.send(subshell_id, "comm_msg", {"comm_id": slider, "data": data})

    def send(self, subshell_id: str | None, kind: str, content: dict[str, Any]) -> str:
        """Sends a message over a subshell, as JupyterLab does for widgets."""
        message = self.client.session.msg(kind, content)
        if subshell_id is not None:
            message["header"]["subshell_id"] = subshell_id
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    async def run(self, code: str, seconds: float = 30.0) -> Reply:
        return await self.finish(self.start(code), seconds)


class JupyterInProcess:
    """The running server. `pool` is what the extension asks; `wrong`: answers that are not as they are described."""

    def __init__(
        self, app: ServerApp, extension: GpuPoolExtension, pool: MemoryPool, token: str, wrong: list[str]
    ) -> None:
        self.wrong = wrong
        self.app = app
        self.extension = extension
        self.pool = pool
        self.token = token
        self.url = f"http://127.0.0.1:{app.port}{app.base_url}"
        self._clients: list[Any] = []

    async def fetch(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> HTTPResponse:
        """One request; errors are answers, not exceptions. Authenticated unless headers are given."""
        payload = raw if raw is not None else (b"" if body is None else json.dumps(body).encode())
        return await AsyncHTTPClient().fetch(
            HTTPRequest(
                self.url + path,
                method=method,
                body=payload if method in ("POST", "PUT", "PATCH") else None,
                headers={"Authorization": f"token {self.token}"} if headers is None else headers,
                request_timeout=20,
                follow_redirects=False,
            ),
            raise_error=False,
        )

    async def json(self, method: str, path: str, body: object = None, **more: Any) -> tuple[int, Any]:
        response = await self.fetch(method, path, body, **more)
        return response.code, json.loads(response.body)

    async def start_kernel(self, name: str = "python3") -> Cells:
        kernel_id = await self.app.kernel_manager.start_kernel(kernel_name=name)
        return await self.client_of(kernel_id)

    async def client_of(self, kernel_id: str) -> Cells:
        client = self.app.kernel_manager.get_kernel(kernel_id).client()
        self._clients.append(client)
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        await _subscribed(client)
        return Cells(client, kernel_id)

    async def kernel(self, kernel_id: str) -> dict[str, Any]:
        """The kernel as the front end sees it."""
        _, answer = await self.json("GET", "gpupool/api/kernels")
        found: dict[str, Any] = next(k for k in answer["kernels"] if k["kernel_id"] == kernel_id)
        return found

    async def until(self, kernel_id: str, *states: str, seconds: float = 10.0) -> dict[str, Any]:
        """Waits for a state; the kernel then. Raises AssertionError with the last state."""
        deadline = asyncio.get_running_loop().time() + seconds * BUSY
        while (kernel := await self.kernel(kernel_id))["state"] not in states:
            assert asyncio.get_running_loop().time() < deadline, f"still {kernel['state']}, not {states}"
            await asyncio.sleep(0.05)
        return kernel

    async def clear(self) -> None:
        """Ends all kernels; afterwards the pool is as at the start, and nothing may be held in it."""
        for kernel_id in self.app.kernel_manager.list_kernel_ids():
            # One that has died may just be started again, and Jupyter cannot end it meanwhile.
            ready = self.app.kernel_manager.get_kernel(kernel_id).ready
            async with asyncio.timeout(30 * BUSY):
                while not ready.done():
                    await asyncio.sleep(0.05)
        await self.app.kernel_manager.shutdown_all()
        while self._clients:
            # Not left to the garbage collector: hundreds of tests would run out of descriptors.
            client = self._clients.pop()
            client.stop_channels()
            client.context.destroy(linger=0)
        sessions = await self.extension.sessions()
        while list(sessions) or sessions.ending:
            await asyncio.sleep(0.02)
        wrong = self.wrong.copy()
        self.wrong.clear()
        leaked = [lease for lease, held in self.pool.held.items() if held.state == "attached"]
        self.pool.reset()
        assert not leaked, "a share was leaked"
        assert not wrong, f"answers that are not as described: {wrong[:3]}"

    def environment_of(self, kernel_id: str) -> dict[str, str]:
        """The environment that the kernel process really has."""
        pid = self.app.kernel_manager.get_kernel(kernel_id).provisioner.pid
        raw = Path(f"/proc/{pid}/environ").read_bytes()
        pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
        return {key.decode(): value.decode() for key, _, value in pairs}

    def kernel_headers(self, kernel_id: str) -> dict[str, str]:
        """What a kernel sends to prove who it is."""
        capability = Path(self.environment_of(kernel_id)["GPUPOOL_CAPABILITY_FILE"]).read_text()
        return {"Authorization": f"gpupool-kernel {kernel_id}:{capability}"}


async def _subscribed(client: Any) -> None:
    """Waits until outputs arrive: the subscription may connect after the kernel answers requests.

    What a kernel publishes before is lost, so a cell run too early would never seem to end.
    """
    async with asyncio.timeout(60):
        while True:
            request = client.kernel_info()
            with contextlib.suppress(queue.Empty):
                while True:
                    message = await client.get_iopub_msg(timeout=1)
                    if message["parent_header"].get("msg_id") == request and message["content"] == {
                        "execution_state": "idle"
                    }:
                        return


@asynccontextmanager
async def jupyter_in_process(
    directory: Path, pool: MemoryPool | None = None, *, endpoint: str | None = None, **settings: object
) -> AsyncIterator[JupyterInProcess]:
    """Starts the server with `settings` of the extension, and ends it with all its kernels.

    With an `endpoint` the extension speaks to the real pool there, else to one in memory.
    """
    behind = pool if pool is not None else MemoryPool()

    async def in_memory(endpoint: str, access: PoolAccess) -> Pool:
        return behind

    factory = in_memory if endpoint is None else connect

    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "IPYTHONDIR": "ipython",
        "GPUPOOL_HOME": "gpupool",
        "HOME": "home",
    }
    environment = {name: str(directory / folder) for name, folder in folders.items()}
    for folder in environment.values():
        Path(folder).mkdir(exist_ok=True)
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), str(ROOT / "server"), os.environ.get("PYTHONPATH", "")]
    )
    token = secrets.token_hex(16)
    config = Config(
        {
            "ServerApp": {
                "jpserver_extensions": {"jupyter_gpupool": True},
                "ip": "127.0.0.1",
                "port": 0,
                "base_url": "/user/ann/",
                "open_browser": False,
                "allow_root": True,
                "root_dir": str(directory / "home"),
                "allow_unauthenticated_access": False,
                "log_level": 40,
            },
            "IdentityProvider": {"token": token},
            "GpuPoolExtension": {
                "user": "ann",
                "pool_endpoint": endpoint or "unix:/nowhere",
                "default_wait_seconds": 5.0,
                **settings,
            },
            "MappingKernelManager": {"kernel_info_timeout": 60},
            # A free port is chosen long before the kernel listens there; beside other tests somebody else may be first.
            "KernelManager": {"transport": "ipc"},
        }
    )
    ServerApp.clear_instance()
    KernelProvisionerFactory.clear_instance()
    with (
        # A short path: addresses of Unix sockets end at 107 bytes.
        tempfile.TemporaryDirectory(prefix="gpj-") as runtime,
        mock.patch.dict(os.environ, environment, JUPYTER_RUNTIME_DIR=runtime),
        mock.patch.object(GpuPoolExtension, "pool_factory", staticmethod(factory)),
        compared() as wrong,
    ):
        app = ServerApp.instance(config=config)
        app.init_signal = lambda: None
        app.initialize(argv=[])
        extension = app.extension_manager.extension_apps["jupyter_gpupool"].copy().pop()
        await extension._start_jupyter_server_extension(app)
        try:
            yield JupyterInProcess(app, extension, behind, token, wrong)
            assert not wrong, f"answers that are not as described: {wrong[:3]}"
        finally:
            await app.extension_manager.stop_all_extensions()
            await app.kernel_manager.shutdown_all()
            app.http_server.stop()
            # Its database cannot be closed from another thread, where a later test's rubbish may be collected.
            app.session_manager.close()
            app.kernel_manager.context.destroy(linger=0)
            ServerApp.clear_instance()
            KernelProvisionerFactory.clear_instance()


PYTHON = sys.executable
