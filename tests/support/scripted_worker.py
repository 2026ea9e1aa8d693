#!/usr/bin/env python3
"""A worker that speaks the control protocol and executes nothing: for tests of who starts workers.

Run like `gpupool-worker`. Behaviour that a test wants comes by the environment:
SCRIPTED_WORKER=fail (prints an error), silent (never ready), deaf (ignores `stop` and SIGTERM),
mute (answers no command after it is ready), die-before-record.

SCRIPTED_KERNEL=NAME: a kernel of that name runs from the start on and never ends. When a lease ends it has
SCRIPTED_GRACE seconds (0.5); then it is stopped, or the worker ends itself (SCRIPTED_STOPS=0). While it runs the worker
hears no `stop`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time

SCRIPT = os.environ.get("SCRIPTED_WORKER", "")
KERNEL = os.environ.get("SCRIPTED_KERNEL", "")
GRACE_NS = int(float(os.environ.get("SCRIPTED_GRACE", "0.5")) * 1e9)
STOPS = os.environ.get("SCRIPTED_STOPS", "1") == "1"
#: A worker ends itself with this status where work runs on after its lease and nothing stops it.
RAN_ON = 11
DEVICES = int(os.environ.get("GPUPOOL_SOFTGPU_DEVICES", "2"))
MEMORY_MIB = int(os.environ.get("GPUPOOL_SOFTGPU_MEMORY_MIB", "8192"))


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def argument(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def probe() -> None:
    if DEVICES == 0:
        print("the scripted driver has no device", file=sys.stderr)
        sys.exit(3)
    print("driver_version 13000")
    for ordinal in range(DEVICES):
        print(f"device {ordinal}\nname Scripted GPU\nuuid {ordinal:032x}\nsoftware 1")
        print(f"total_mib {MEMORY_MIB}\npci 0000:00:0{ordinal}.0\nattribute 75 12\nend")


def start_record() -> dict[str, list[str]]:
    record: dict[str, list[str]] = {}
    for line in sys.stdin:
        if line == "\n":
            return record
        key, _, value = line.strip().partition(" ")
        record.setdefault(key, []).append(value)
    print("error the start record ended early", flush=True)
    sys.exit(1)


class Worker:
    def __init__(self, record: dict[str, list[str]]) -> None:
        self.epoch = int(record["epoch"][0])
        self.deadline = int(record["deadline_ns"][0])
        self.state = "attached"
        self.place = "device"
        self.leases = 0
        self.ran_ns, self.runs_since_ns, self.over_ns = 0, boottime_ns(), 0

    def work(self) -> str:
        if not KERNEL:
            return "none"
        if self.over_ns == 0:
            return "running"
        return "draining" if boottime_ns() < self.over_ns + GRACE_NS else "stopped"

    def work_ns(self) -> int:
        until = boottime_ns() if self.over_ns == 0 else min(boottime_ns(), self.over_ns + GRACE_NS)
        return self.ran_ns + until - self.runs_since_ns if KERNEL else 0

    def due(self) -> str | None:
        """The answer to a revocation, once nothing computes any more."""
        if self.over_ns == 0 or self.work() == "draining":
            return None
        if KERNEL and not STOPS:
            os._exit(RAN_ON)
        return f"ok epoch={self.epoch}"

    def answer(self, line: str) -> str | None:
        verb, _, rest = line.partition(" ")
        fields = dict(item.split("=", 1) for item in rest.split())
        if verb == "lease":
            if fields.get("device") and self.place == "device":
                return f"refused epoch={fields['epoch']} reason=resident"
            return self.lease(int(fields["epoch"]), int(fields["deadline_ns"]), fields.get("share", ""))
        if verb == "park":
            if self.state == "attached" and not self.fenced():
                return f"refused epoch={fields['epoch']} reason=attached"
            self.place = "host"
            return f"ok epoch={fields['epoch']} bytes=4096"
        if verb == "revoke":
            self.state, self.over_ns = "parked", self.over_ns or boottime_ns()
            return None if KERNEL else f"ok epoch={fields['epoch']}"
        if verb == "stats":
            return self.stats()
        if verb == "stop":
            if SCRIPT == "deaf":
                return "ok"
            if KERNEL and self.work() != "stopped":
                return None
            sys.exit(0)
        return "refused reason=unknown-command"

    def lease(self, epoch: int, deadline: int, share: str) -> str:
        if epoch < self.epoch or (epoch == self.epoch and self.state == "parked"):
            return f"refused epoch={epoch} reason=past-epoch"
        if epoch == self.epoch and self.fenced():
            return f"refused epoch={epoch} reason=fenced"
        if share.endswith(":1"):
            return f"refused epoch={epoch} reason=in-use used_mib=77"
        self.epoch, self.deadline, self.state = epoch, max(deadline, self.deadline), "attached"
        self.place = "device"
        if self.over_ns:
            self.ran_ns, self.runs_since_ns, self.over_ns = self.work_ns(), boottime_ns(), 0
        self.leases += 1
        return f"ok epoch={epoch}"

    def fenced(self) -> bool:
        return self.state == "attached" and boottime_ns() > self.deadline

    def stats(self) -> str:
        state = "fenced" if self.fenced() else self.state
        work_ns = self.work_ns()
        # `kernels` counts renewals, `calls` tells the deadline: a test reads them from the pool.
        return (
            f"stats epoch={self.epoch} state={state} client=0 device_ns={1500000000 + work_ns}"
            f" kernels={self.leases}"
            f" calls={self.deadline} posts=0 asks=0 ask_ns=0 bytes_in=10 bytes_out=20 mem=0:4096:8192"
            f" last_submit_ns=0 in_flight=0 place={self.place} park=ok move=other enforcement=soft"
            f" work={self.work()}"
            + (f" kernel={KERNEL} work_ms={work_ns // 1000000}" if KERNEL else "")
            + " failed=0"
        )


def serve(worker: Worker) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(argument("--control"))
    listener.listen()
    data = socket.create_server(("127.0.0.1", 0))
    print(f"ready port={data.getsockname()[1]} pid={os.getpid()}", flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    buffers: dict[socket.socket, bytes] = {}
    revoking: list[socket.socket] = []
    while True:
        if revoking and (confirmation := worker.due()) is not None:
            for connection in revoking:
                with contextlib.suppress(OSError):
                    connection.sendall(confirmation.encode() + b"\n")
            revoking.clear()
        for key, _ in selector.select(0.05 if revoking else 0.2):
            if key.fileobj is listener:
                connection, _ = listener.accept()
                selector.register(connection, selectors.EVENT_READ)
                buffers[connection] = b""
                continue
            connection = key.fileobj  # type: ignore[assignment]
            try:
                received = connection.recv(4096)
            except OSError:
                received = b""  # an agent that was killed
            if not received:
                selector.unregister(connection)
                connection.close()
                continue
            buffers[connection] += received
            while b"\n" in buffers[connection]:
                line, _, buffers[connection] = buffers[connection].partition(b"\n")
                said = None if SCRIPT == "mute" else worker.answer(line.decode())
                if said is None and line.startswith(b"revoke"):
                    revoking.append(connection)
                if said is not None:
                    with contextlib.suppress(OSError):
                        connection.sendall(said.encode() + b"\n")
        for connection in list(buffers):
            if connection.fileno() >= 0 and SCRIPT != "mute":
                try:
                    connection.sendall(worker.stats().encode() + b"\n")
                except OSError:
                    buffers.pop(connection)


def main() -> None:
    if "--probe" in sys.argv:
        probe()
        return
    if SCRIPT == "fail":
        print("error the scripted device is broken", flush=True)
        sys.exit(1)
    if SCRIPT == "die-before-record":
        os.kill(os.getpid(), signal.SIGKILL)
    if SCRIPT == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    record = start_record()
    if SCRIPT == "silent":
        time.sleep(60)
    serve(Worker(record))


if __name__ == "__main__":
    main()
