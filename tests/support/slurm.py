"""A Slurm cluster of a test's own, from Debian's packages: munge, one controller, one node that believes it has two GPUs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.patience import BUSY, until_late

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def why_not() -> str:
    """Why there can be no cluster here; empty: there can."""
    missing = [name for name in _PROGRAMS if program(name) is None]
    if missing:
        return f"{', '.join(missing)} is missing: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.geteuid() == 0 else "slurmd and munged of a cluster of one's own want root"


@dataclass
class SlurmCluster:
    """A running cluster."""

    folder: Path
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60 * BUSY, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def start(self, name: str, *arguments: str) -> None:
        path = program(name)
        assert path is not None
        with (self.folder / f"{name}.out").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [path, *arguments], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15 * BUSY)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_controller(self) -> None:
        self.start("slurmctld", "-D", "-i")

    def wait_idle(self) -> None:
        """Until the node takes jobs."""
        deadline = until_late(60)
        while True:
            with contextlib.suppress(RuntimeError):
                if self.run("sinfo", "--noheader", "--format=%T").strip() in ("idle", "mixed"):
                    return
            if time.monotonic() > deadline:
                said = {
                    log.name: log.read_text(errors="replace")[-1500:] for log in self.folder.glob("*.out")
                }
                raise TimeoutError(f"the Slurm node does not become idle: {said}")
            time.sleep(0.2)


@contextlib.contextmanager
def slurm_cluster(gpus: int = 2) -> Iterator[SlurmCluster]:
    """A cluster; nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gpsl-"))
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    conf = _write_configuration(folder, gpus)
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    cluster = SlurmCluster(folder, environment)
    try:
        cluster.start(
            "munged", "--foreground", "--force", f"--socket={folder / 'munge.sock'}", f"--key-file={key}",
            f"--pid-file={folder / 'munged.pid'}", f"--seed-file={folder / 'munge.seed'}",
            f"--log-file={folder / 'munged.log'}",
        )  # fmt: skip
        deadline = until_late(20)
        while not (folder / "munge.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.start_controller()
        cluster.start("slurmd", "-D", "-N", "node1")
        cluster.wait_idle()
        yield cluster
    finally:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            cluster.run("scancel", "--user=root", "--signal=KILL", "--full")
        for name in ("slurmd", "slurmctld", "munged"):
            if name in cluster.processes:
                cluster.stop(name)
        shutil.rmtree(folder, ignore_errors=True)


def _write_configuration(folder: Path, gpus: int) -> Path:
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    for index in range(gpus):
        # As devices are: Slurm numbers what stands in its table of devices.
        os.mknod(folder / f"gpu{index}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    (folder / "gres.conf").write_text(f"NodeName=node1 Name=gpu File={folder}/gpu[0-{gpus - 1}]\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    conf = folder / "slurm.conf"
    conf.write_text(
        f"""ClusterName=gpupooltest
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
CredType=cred/munge
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldParameters=idle_on_node_suspend
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=10
MinJobAge=300
SlurmdTimeout=60
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=16 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes=node1 Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
    )
    return conf


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
