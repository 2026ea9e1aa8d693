"""The ways to a share: through a pool and a node, or, where packages of the pool are missing, to a worker by hand."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from gpupool.client.child_environment import environment as child_environment
from gpupool.client.native import native_directory
from gpupool.client.session_file import SessionFile

from benchmarks.client_process import write_attached
from benchmarks.worker_process import WorkerProcess, probe
from tests.gpu_check.programs_run import end_group
from tests.gpu_check.time_left import TimeLeft

#: The prefix that runs a command on a share, and the environment of it.
Command = tuple[list[str], dict[str, str]]
GPUPOOL: Final = (sys.executable, "-m", "gpupool.cli.main")
#: A cold driver takes its time.
_NODE_SECONDS: Final = 90.0


class Way(Protocol):
    """How a program gets a share.

    Attributes:
        pool: whether there is a pool, of which several programs can have a share at once.
    """

    @property
    def pool(self) -> bool: ...

    def share(self, share: str) -> AbstractContextManager[Command]:
        """A share of the first device."""
        ...

    def stop(self) -> None:
        """Ends all that runs between two programs; the next share starts it anew."""
        ...


@dataclass(slots=True)
class ThroughPool:
    """Pool and node on loopback, started for the first share, for all of them.

    Attributes:
        driver: that the node is told.
        home: a folder with a short path; gets a folder for each start.
        environment: of all processes.
        time: of the whole check.
    """

    driver: str
    home: Path
    environment: Mapping[str, str]
    time: TimeLeft
    pool: bool = True
    _services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _environment: dict[str, str] = field(default_factory=dict)
    _starts: int = 0

    @contextlib.contextmanager
    def share(self, share: str) -> Iterator[Command]:
        if not self._services or any(service.poll() is not None for service in self._services):
            self.stop()
            self._start()
        wait = f"{max(1, int(self.time.of(60)))}"
        yield [*GPUPOOL, "run", "-p", share, "--wait", wait, "--"], self._environment

    def stop(self) -> None:
        end_all(self._services[::-1])
        self._services = []

    def _start(self) -> None:
        self._starts += 1
        home = self.home / f"pool{self._starts}"
        home.mkdir(mode=0o700, parents=True)
        self._environment = {**self.environment, "GPUPOOL_HOME": str(home)}
        node = ["node", "start", "--driver", self.driver, "--name", "gpu-check", "--allow-host-access"]
        log = home / "services.log"
        with log.open("wb") as file:
            for arguments in (["pool", "serve"], node):
                self._services.append(
                    subprocess.Popen(
                        [*GPUPOOL, *arguments],
                        env=self._environment,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        process_group=0,
                    )
                )
        wait_for_node(GPUPOOL, self._environment, self._services, log, self.time.of(_NODE_SECONDS))


def wait_for_node(
    gpupool: Sequence[str],
    environment: Mapping[str, str],
    services: Sequence[subprocess.Popen[Any]],
    log: Path,
    seconds: float,
) -> None:
    """Returns when a node is connected.

    Raises:
        RuntimeError: a service ended, or the time is up; with the end of their log.
    """
    deadline = time.monotonic() + seconds
    why = f"no node was connected in {seconds:.3g} s"
    while (left := deadline - time.monotonic()) > 0:
        if any(service.poll() is not None for service in services):
            why = "pool or node ended"
            break
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
            listed = subprocess.run(
                [*gpupool, "node", "list", "--json"],
                env=dict(environment),
                capture_output=True,
                text=True,
                timeout=left,
                check=False,
            )
            if listed.returncode == 0 and any(
                node["connected"] for node in json.loads(listed.stdout)["nodes"]
            ):
                return
        time.sleep(0.2)
    raise RuntimeError(f"{why}: {log.read_text(errors='replace')[-1500:]}")


def end_all(processes: Sequence[subprocess.Popen[Any]], seconds: float = 15.0) -> None:
    """Tells all of them to end before it waits for one; by force after so many seconds, and then what they started too."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + seconds
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        end_group(process, 0.0)


@dataclass(slots=True)
class ToWorker:
    """A worker by hand for each share.

    Attributes:
        driver: the driver's library.
        home: a folder with a short path; gets a folder for each worker.
        environment: of programs.
        worker_environment: of workers, on top of this process's.
    """

    driver: Path
    home: Path
    environment: Mapping[str, str]
    worker_environment: Mapping[str, str]
    pool: bool = False
    _starts: int = 0

    @contextlib.contextmanager
    def share(self, share: str) -> Iterator[Command]:
        self._starts += 1
        home = self.home / f"worker{self._starts}"
        home.mkdir(mode=0o700, parents=True)
        text, devices = probe(self.driver, self.worker_environment)
        profile = home / "profile"
        profile.write_text(text)
        milli = int(float(share) * 1000)
        lent = [(devices[0], milli, devices[0].total_mib * milli // 1000)]
        with WorkerProcess(home, self.driver, lent, environment=self.worker_environment) as worker:
            session = SessionFile(home / "session")
            write_attached(session, worker, profile, home / "client.log")
            variables = child_environment(native_directory(), session.path, self.environment, preload=True)
            yield [], {**self.environment, **variables}

    def stop(self) -> None:
        """Nothing outlives its share."""
