"""The session file: how a process learns that it has a share of a GPU.

``GPUPOOL_SESSION_FILE`` names it in the process's environment. The holder of the lease
writes it; the client runtime reads it when a CUDA call needs a worker. It is text, one
``key value`` per line, mode 0600 (it holds the worker's token), and is always replaced as a
whole, so a reader sees either the old or the new state.

A process with shares on several nodes has a worker on each. ``session epoch address token`` are the first one's; of
the others ``session.1 epoch.1 address.1 token.1`` and so on, and ``devices 2,1`` says how many devices each has, in
the order of the process's ordinals. All else is said of the whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpupool.client.types import Grant, GrantedShare
from gpupool.client.worker_address import WorkerAddress, WorkerAddressError

#: Environment variable that names the file.
SESSION_FILE_VARIABLE: Final = "GPUPOOL_SESSION_FILE"
#: Names the process that the session serves, once it is known; a child inherits both, and has no part in the session.
#: Not set under `gpupool run`, whose command may start the program in a child.
PROCESS_VARIABLE: Final = "GPUPOOL_SESSION_PROCESS"
#: A session file is a dozen short lines; anything larger is not one.
MAX_BYTES: Final = 64 * 1024
VERSION: Final = 1
STATES: Final = ("none", "queued", "attached", "waiting", "parked", "closed")
#: Reason of ``waiting`` while nobody can say whether the lease goes on.
SILENT: Final = "silent"
#: Workers that one process may have, the first included.
MAX_WORKERS: Final = 16
#: Devices that it may have on all of them.
MAX_DEVICES: Final = 64

_HEX = re.compile(r"[0-9a-f]{1,64}", re.ASCII)
_TOKEN = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SHARE = re.compile(r"[0-9]{1,4}:[0-9]{1,4}:[0-9]{1,13}(,[0-9]{1,4}:[0-9]{1,4}:[0-9]{1,13})*", re.ASCII)
_REASON = re.compile(r"[a-z][a-z-]{0,31}", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]{1,10}", re.ASCII)
_FURTHER = re.compile(r"(session|epoch|address|token)\.(.*)", re.ASCII | re.DOTALL)
_NUMBER = re.compile(r"[1-9][0-9]?", re.ASCII)
_DEVICES = re.compile(r"[1-9][0-9]?(,[1-9][0-9]?)*", re.ASCII)
_MAX_U32 = 2**32 - 1


class SessionFileError(ValueError):
    """The file is not a session file, or a value cannot be written into one."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker beside the first one. While nothing is attached, not all of it need be said."""

    session: str = ""
    epoch: int = 0
    address: str = ""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What one session file says.

    ``message`` is one line shown to the user on a refused call; ``reason`` is why the session has ended (an id, such as
    ``reset``); ``share`` is what NVML shows of each device.
    ``state`` is ``waiting`` where the lease was, or is about to be, taken back for another and the holder asks for
    one again, or where the pool is silent for so long that it may be over (``reason`` :data:`SILENT`): calls wait for it.
    ``resumes`` says of an attached session that its holder will do so.
    ``answered`` is the number of the latest wish for a lease that has its answer (:mod:`gpupool.client.wishes`).
    ``workers`` are those beside the first one; ``devices`` says how many devices each has, the first one included
    (empty: all are the first one's). ``told``: the holder has said ``message`` to the user itself.
    """

    state: str = "none"
    generation: int = 0
    session: str = ""
    epoch: int = 0
    address: str = ""
    token: str = field(default="", repr=False)
    message: str = ""
    software: bool = False
    profile: str = ""
    log: str = ""
    share: str = ""
    workers: tuple[WorkerRecord, ...] = ()
    devices: tuple[int, ...] = ()
    resumes: bool = False
    answered: int = 0
    reason: str = ""
    told: bool = False

    def encode(self) -> bytes:
        """The file's bytes. Raises SessionFileError for values that the format cannot hold."""
        _check(self)
        lines = [f"version {VERSION}", f"state {self.state}", f"generation {self.generation}"]
        if self.session:
            lines.append(f"session {self.session}")
        if self.epoch:
            lines.append(f"epoch {self.epoch}")
        for key in ("address", "token", "reason", "message", "profile", "log", "share"):
            value = getattr(self, key)
            if value:
                lines.append(f"{key} {value}")
        if self.devices:
            lines.append(f"devices {','.join(map(str, self.devices))}")
        for number, worker in enumerate(self.workers, start=1):
            lines += [
                f"{key}.{number} {value}"
                for key in ("session", "epoch", "address", "token")
                if (value := getattr(worker, key))
            ]
        lines += [f"{key} 1" for key in ("resumes", "told") if getattr(self, key)]
        if self.answered:
            lines.append(f"answered {self.answered}")
        lines.append(f"software {int(self.software)}")
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, raw: bytes) -> SessionRecord:
        """Reads the file's bytes. Unknown keys are skipped."""
        if len(raw) > MAX_BYTES:
            raise SessionFileError(f"a session file has at most {MAX_BYTES} bytes, this has {len(raw)}")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise SessionFileError("a session file is UTF-8 text") from error
        values: dict[str, str] = {}
        for line in text.split("\n"):
            key, _, value = line.partition(" ")
            if key in values:
                raise SessionFileError(f"the key {key!r} appears twice")
            if key:
                values[key] = value
        if values.get("version") != str(VERSION):
            raise SessionFileError(f"not a session file of version {VERSION}")
        record = cls(
            state=values.get("state", "none"),
            generation=_unsigned(values, "generation"),
            session=values.get("session", ""),
            epoch=_unsigned(values, "epoch"),
            address=values.get("address", ""),
            token=values.get("token", ""),
            message=values.get("message", ""),
            software=values.get("software", "0") == "1",
            profile=values.get("profile", ""),
            log=values.get("log", ""),
            share=values.get("share", ""),
            workers=_further_workers(values),
            devices=_device_counts(values.get("devices", "")),
            resumes=values.get("resumes", "0") == "1",
            answered=_unsigned(values, "answered"),
            reason=values.get("reason", ""),
            told=values.get("told", "0") == "1",
        )
        _check(record)
        return record


class SessionFile:
    """One session file on disk; the writer is the only one that writes it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        #: Number of the latest wish that has its answer; told with whatever is written from now on.
        self.answered = 0

    def read(self) -> SessionRecord:
        """What the file says now; a file that does not exist says ``none``.

        Raises:
            SessionFileError: it exists and is not a session file.
        """
        try:
            with self.path.open("rb") as file:
                return SessionRecord.decode(file.read(MAX_BYTES + 1))
        except FileNotFoundError:
            return SessionRecord()

    def write(
        self,
        state: str,
        *,
        session: str = "",
        epoch: int = 0,
        address: str = "",
        token: str = "",
        message: str = "",
        software: bool = False,
        profile: str = "",
        log: str = "",
        share: str = "",
        workers: tuple[WorkerRecord, ...] = (),
        devices: tuple[int, ...] = (),
        resumes: bool = False,
        reason: str = "",
        told: bool = False,
    ) -> SessionRecord:
        """Replaces the file atomically and returns what it says; the generation grows by one."""
        try:
            generation = self.read().generation
        except SessionFileError:
            generation = 0
        record = SessionRecord(
            state=state,
            generation=generation + 1,
            session=session,
            epoch=epoch,
            address=address,
            token=token,
            message=" ".join(message.split()),
            software=software,
            profile=profile,
            log=log,
            share=share,
            workers=workers,
            devices=devices,
            resumes=resumes,
            answered=self.answered,
            reason=reason,
            told=told,
        )
        write_private(self.path, record.encode())
        return record

    def write_attached(
        self, grant: Grant, *, profile: str = "", log: str = "", resumes: bool = False
    ) -> SessionRecord:
        """Replaces the file by one that says how to reach the workers of ``grant``."""
        several = len(grant.workers) > 1
        further = grant.workers[1:]
        return self.write(
            "attached",
            session=grant.session_id,
            epoch=grant.epoch,
            address=grant.worker_address,
            token=grant.worker_token,
            software=grant.software,
            profile=profile,
            log=log,
            share=share_text(grant.shares),
            workers=tuple(WorkerRecord(w.session_id, w.epoch, w.address, w.token) for w in further),
            devices=tuple(worker.devices for worker in grant.workers) if several else (),
            resumes=resumes,
        )

    def settled(self, generation: int) -> bool:
        """Whether the process has said, of the file of this generation, that its work is done and none follows."""
        try:
            return self._settled.read_text().strip() == str(generation)
        except OSError:
            return False

    @property
    def _settled(self) -> Path:
        # Written by the client runtime (src/client/session/lease_wait.cpp).
        return self.path.with_name(f"{self.path.name}.settled")

    def remove(self) -> None:
        """Removes the file, if it exists."""
        self.path.unlink(missing_ok=True)
        self._settled.unlink(missing_ok=True)


def share_text(shares: Iterable[GrantedShare]) -> str:
    """``ordinal:milli:MiB`` of each share, in the order of the client's ordinals."""
    return ",".join(f"{ordinal}:{share.milli}:{share.mib}" for ordinal, share in enumerate(shares))


def write_private(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replaces ``path`` by ``data`` atomically, mode 0600; ``sync`` also survives a power cut."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if sync:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _unsigned(values: dict[str, str], key: str) -> int:
    text = values.get(key, "0")
    if not _UNSIGNED.fullmatch(text) or int(text) > _MAX_U32:
        raise SessionFileError(f"{key} is not a number below 2^32")
    return int(text)


def _further_workers(values: dict[str, str]) -> tuple[WorkerRecord, ...]:
    """What is said of workers beside the first one; none between them is left out."""
    said: dict[int, dict[str, str]] = {}
    for key, value in values.items():
        match = _FURTHER.fullmatch(key)
        if match is None:
            continue
        if not _NUMBER.fullmatch(match[2]) or int(match[2]) >= MAX_WORKERS:
            raise SessionFileError(
                f"{match[1]} is said of a worker that is not numbered from 1 to {MAX_WORKERS - 1}"
            )
        if not value or (match[1] == "epoch" and value == "0"):
            raise SessionFileError(f"{match[1]}.{match[2]} says nothing")
        said.setdefault(int(match[2]), {})[match[1]] = value
    if sorted(said) != list(range(1, len(said) + 1)):
        raise SessionFileError(f"of {len(said)} further workers one is left out")
    return tuple(
        WorkerRecord(
            session=said[number].get("session", ""),
            epoch=_unsigned(said[number], "epoch"),
            address=said[number].get("address", ""),
            token=said[number].get("token", ""),
        )
        for number in sorted(said)
    )


def _device_counts(text: str) -> tuple[int, ...]:
    if text and not _DEVICES.fullmatch(text):
        raise SessionFileError("devices is not a list of numbers such as 2,1")
    return tuple(int(number) for number in text.split(",")) if text else ()


def _check(record: SessionRecord) -> None:
    if record.state not in STATES:
        raise SessionFileError(f"{record.state!r} is not one of {', '.join(STATES)}")
    attached = record.state == "attached"
    if not 0 <= record.generation <= _MAX_U32:
        raise SessionFileError("generation is not a number below 2^32")
    _check_worker(record)
    if attached and not (record.session and record.address and record.token):
        raise SessionFileError("an attached session has a session id, an address and a token")
    _check_workers(record, attached=attached)
    if record.share and not _SHARE.fullmatch(record.share):
        raise SessionFileError("the share is not ordinal:milli:MiB,...")
    if record.reason and not _REASON.fullmatch(record.reason):
        raise SessionFileError(f"{record.reason[:40]!r} is no reason")
    for name in ("message", "profile", "log"):
        value = getattr(record, name)
        if any(ord(character) < 32 for character in value):
            raise SessionFileError(f"the {name} is not one line of text")
        if len(value.encode()) > MAX_BYTES // 8:
            raise SessionFileError(f"the {name} is too long")


def _check_workers(record: SessionRecord, *, attached: bool) -> None:
    """What the others need to be reached, and whose each device is."""
    if len(record.workers) >= MAX_WORKERS:
        raise SessionFileError(f"a session has at most {MAX_WORKERS} workers")
    for worker in record.workers:
        _check_worker(worker)
        if attached and not (worker.session and worker.epoch and worker.address and worker.token):
            raise SessionFileError(
                "every worker of an attached session has a session id, an epoch, an address and a token"
            )
        if worker == WorkerRecord():
            raise SessionFileError("of a further worker something must be said")
    if not record.workers and not record.devices:
        return
    if any(count < 1 for count in record.devices) or sum(record.devices) > MAX_DEVICES:
        raise SessionFileError(f"a session has from 1 to {MAX_DEVICES} devices, each worker at least one")
    named = 1 + len(record.workers)
    # Of a session that is parked the file need not say where its workers are.
    if (
        len(record.devices) > MAX_WORKERS
        or len(record.devices) < named
        or (attached and len(record.devices) != named)
    ):
        raise SessionFileError("devices does not say how many devices each worker has")


def _check_worker(record: SessionRecord | WorkerRecord) -> None:
    if not 0 <= record.epoch <= _MAX_U32:
        raise SessionFileError("epoch is not a number below 2^32")
    if record.session and not _HEX.fullmatch(record.session):
        raise SessionFileError("the session is not a hexadecimal id")
    if record.token and not _TOKEN.fullmatch(record.token):
        raise SessionFileError("the token is not 64 hexadecimal characters")
    if record.address:
        try:
            WorkerAddress.parse(record.address)
        except WorkerAddressError as error:
            raise SessionFileError(str(error)) from error


_last = ("", SessionRecord())


def session_now() -> SessionRecord:
    """What the session file of this process says now, ``none`` where there is no file.

    If the file can't be read now, what it said last: a process without descriptors, or a home that does not answer, has not
    lost its session, and its arrays must not be forgotten.
    """
    global _last
    path = os.environ.get(SESSION_FILE_VARIABLE, "")
    if not path:
        return SessionRecord()
    try:
        found = SessionFile(path).read()
    except (SessionFileError, OSError):
        last_path, last = _last
        return last if last_path == path else SessionRecord()
    _last = (path, found)
    return found
