"""The page about standby servers, followed from its first command to its last with a real PostgreSQL and real servers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.documentation.blocks import Block, all_blocks
from tests.documentation.test_commands import PROGRAM
from tests.support import postgres
from tests.support.patience import until_late
from tests.support.pool_node import ROOT, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
    pytest.mark.slow,
]

PAGE = "how-to/standby.md"


def blocks() -> Iterator[Block]:
    return (block for block in all_blocks() if block.page == PAGE and block.language == "console")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Reader:
    """Somebody who follows the page, with this machine's addresses in the place of the example's."""

    def __init__(self, folder: Path, ledger: str) -> None:
        self.folder = folder
        self.place = {
            "postgresql+psycopg://gpupool@db.example/gpupool": shlex.quote(ledger),
            "10.0.0.5:7460": f"127.0.0.1:{free_port()}",
            "10.0.0.7:7460": f"127.0.0.1:{free_port()}",
            "10.0.0.6": "127.0.0.1",
        }
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("GPUPOOL_")
        } | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "server"), os.environ.get("PYTHONPATH", "")]),
            "GPUPOOL_HOME": str(folder),
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def here(self, text: str) -> str:
        for there, here in self.place.items():
            text = text.replace(there, here)
        return text

    def run(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self.here(line)], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str, home: str, *more: str) -> subprocess.Popen[bytes]:
        (self.folder / home).mkdir(mode=0o700, exist_ok=True)
        with (self.folder / f"{home}.log").open("ab") as log:
            process = subprocess.Popen(
                [*shlex.split(self.here(line)), *more], cwd=self.folder, stdout=log, stderr=log,
                env=self.environment | {"GPUPOOL_HOME": str(self.folder / home)},
            )  # fmt: skip
        self.started.append(process)
        return process

    def log(self, home: str) -> str:
        return (self.folder / f"{home}.log").read_text()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = until_late(60)
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n" + "\n".join(
                f"--- {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log")
            )
            time.sleep(0.1)

    def end(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)


@pytest.fixture
def reader() -> Iterator[Reader]:
    if why := postgres.why_not():
        pytest.skip(why)
    with postgres.cluster() as cluster, tempfile.TemporaryDirectory(prefix="gpd-") as folder:
        made = Reader(Path(folder), cluster.database())
        try:
            yield made
        finally:
            made.end()


def test_what_the_page_says_is_what_happens(reader: Reader) -> None:
    serve, tokens, callers, program, kill, after = blocks()
    servers = {
        name: reader.start(line, name) for name, line in zip("ab", serve.text.splitlines(), strict=True)
    }
    leads = "this server leads"
    reader.wait(lambda: any(leads in reader.log(name) for name in servers), "a leader")

    reader.run(tokens.text)
    node, exported = callers.text.splitlines()
    reader.start(node, "gpu1", "--driver", "software")
    words = shlex.split(reader.here(exported))
    assert words[0] == "export"
    reader.environment |= dict(word.split("=", 1) for word in words[1:])
    reader.environment["GPUPOOL_TOKEN_FILE"] = str(reader.folder / reader.environment["GPUPOOL_TOKEN_FILE"])

    def statuses() -> dict[str, str]:
        done = subprocess.run(
            ["gpupool", "health", "--no-network", "--json"], env=reader.environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        found = json.loads(done.stdout or '{"checks": []}')["checks"]
        return {check["name"]: check["status"] for check in found}

    named = [f"server {address}" for address in reader.environment["GPUPOOL_ENDPOINT"].split(",")]
    wanted = dict.fromkeys((*named, "pool servers", "nodes", "devices"), "ok")
    reader.wait(
        lambda: {name: statuses().get(name) for name in wanted} == wanted, "both servers and the node"
    )

    # Long enough to see a server die: it computes, then waits to be told that it is dead, then computes again.
    (reader.folder / "train.py").write_text(
        f"import time, pathlib\n{PROGRAM}\nrun()\npathlib.Path('begun').touch()\n"
        "while not pathlib.Path('killed').exists():\n    time.sleep(0.1)\nrun()\n"
    )
    running = reader.start(program.text, "program")
    reader.wait((reader.folder / "begun").exists, "the program to compute")
    leader = next(name for name in servers if leads in reader.log(name))
    other = next(name for name in servers if name != leader)
    assert kill.text.startswith("pkill -KILL")  # all servers of the leader's machine; here both are on one
    servers[leader].kill()
    servers[leader].wait()
    reader.wait(lambda: leads in reader.log(other), "the standby to lead")
    (reader.folder / "killed").touch()
    assert running.wait(timeout=300) == 0, reader.log("program")
    reader.wait(lambda: statuses().get("nodes") == "ok", "the node to find the new leader")

    # One of the two is dead, which is a warning.
    health, listed = (reader.run(line) for line in after.text.splitlines())
    assert health
    assert "gpu1/0" in listed
