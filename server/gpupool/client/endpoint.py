"""Where the pool is, and how a caller shows who they are.

An endpoint is ``unix:/path``, ``tls:host:port`` or ``host:port``; of a pool with standby servers several, separated by
commas. On the Unix socket the file system says who
may call; on TCP a token is sent as ``authorization: Bearer …`` metadata. Tokens come from
files or the environment's file name, never from the command line, and are never logged.

With TLS the pool's certificate must be for the host that is named, and signed by an authority that the system
knows, or by one in the file ``GPUPOOL_CA_FILE``.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path

import grpc
import grpc.aio

from gpupool.client.agreement import PROTOCOL_KEY, PROTOCOL_VERSION
from gpupool.client.errors import DirectoryUnusableError, GpupoolError

HOME_VARIABLE = "GPUPOOL_HOME"
ENDPOINT_VARIABLE = "GPUPOOL_ENDPOINT"
TOKEN_FILE_VARIABLE = "GPUPOOL_TOKEN_FILE"  # noqa: S105 (the name of a variable)
CA_FILE_VARIABLE = "GPUPOOL_CA_FILE"
#: The ledger, where it isn't a file in the home.
LEDGER_VARIABLE = "GPUPOOL_LEDGER"

_TLS = "tls:"
_MOST_SERVERS = 16
_LARGEST_PORT = 65535
_MAX_TOKEN_BYTES = 4096
_CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    # A device list with profiles of a few hundred devices stays well below this.
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # A pool that restarts must be found again soon: the default backs off to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Finds a dead peer (half-open TCP) within 20 s; the pool allows a look every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A machine that is gone answers nothing at all: another server of the pool may have taken over.
    ("grpc.min_reconnect_backoff_ms", 3000),
    # Proxies of the environment are for the web, not for a pool socket.
    ("grpc.enable_http_proxy", 0),
]


class EndpointError(GpupoolError, ValueError):
    """What was given is no address of a pool; ``str()`` is one clause with it."""


def home() -> Path:
    """The directory of sockets, run files and the ledger (``GPUPOOL_HOME``), for workers and programs elsewhere, too."""
    named = os.environ.get(HOME_VARIABLE)
    return Path(named).absolute() if named else Path.home() / ".local" / "state" / "gpupool"


def private_home() -> Path:
    """:func:`home`, made private to its owner.

    Raises:
        DirectoryUnusableError: it cannot be made, or was named by the user and is open to others.
    """
    # The default is this program's own by its name; one that is named may be anything, such as /tmp.
    return private_directory(home(), tighten=not os.environ.get(HOME_VARIABLE))


def private_directory(path: Path, *, tighten: bool = False) -> Path:
    """Makes ``path``, and what is missing above it, for its owner only, and returns it.

    A directory that exists is never changed, because it may serve others too: closing /tmp breaks a
    machine.

    Args:
        path: where; missing parents are made too.
        tighten: ``path`` is nobody's but this program's, so close it when it is open to others.

    Raises:
        DirectoryUnusableError: it cannot be made, is open to others, or belongs to another user.
    """
    try:
        missing = []
        level = path.absolute()
        while not level.exists():
            missing.append(level)
            level = level.parent
        for directory in reversed(missing):
            directory.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISDIR(status.st_mode):
            raise DirectoryUnusableError(f"{path} is not a directory; choose another place.")
        if status.st_uid != os.geteuid():
            raise DirectoryUnusableError(
                f"The directory {path} belongs to another user; choose one of your own."
            )
        if mode & 0o077 and tighten:
            path.chmod(0o700)
        elif mode & 0o077:
            # What everybody writes to is not this program's alone.
            closing = "" if mode & 0o002 else f", or close this one: chmod 700 {path}"
            raise DirectoryUnusableError(
                f"The directory {path} is open to others (mode {mode:04o}); "
                f"choose one that only you may enter (mode 0700){closing}."
            )
    except DirectoryUnusableError:
        raise
    except OSError as error:
        raise DirectoryUnusableError(f"The directory {path} cannot be used ({error.strerror}).") from error
    return path


def resolve_endpoint(endpoint: str | None = None) -> str:
    """The endpoint named, or that of the environment, or the socket in :func:`home`.

    Raises:
        EndpointError: that of the environment is none, see :func:`parse_endpoints`.
    """
    named = os.environ.get(ENDPOINT_VARIABLE)
    if endpoint or not named:
        return endpoint or f"unix:{home() / 'pool.sock'}"
    try:
        return ",".join(parse_endpoints(named))
    except EndpointError as error:
        raise EndpointError(f"{ENDPOINT_VARIABLE}: {error}") from None


def parse_endpoints(text: str) -> tuple[str, ...]:
    """The servers of a pool: one address, or several that are separated by commas.

    gRPC would look for a name without a port for half a minute, and then say something else.

    Raises:
        EndpointError: one of them is none, they are too many, or one is named twice.
    """
    found = tuple(_endpoint(part.strip(), text) for part in text.split(","))
    if len(found) > _MOST_SERVERS:
        raise EndpointError(f"{len(found)} servers are named; a pool has at most {_MOST_SERVERS}")
    twice = next((one for number, one in enumerate(found) if one in found[:number]), None)
    if twice is not None:
        raise EndpointError(f"{twice[:200]!r} is named twice in {text[:400]!r}")
    return found


def _endpoint(text: str, whole: str) -> str:
    if not text:
        raise EndpointError(f"{whole[:400]!r} has an empty address; write HOST:PORT,HOST:PORT or unix:/path")
    host, colon, port = text.removeprefix(_TLS).rpartition(":")
    if text.startswith(("unix:", "unix-abstract:")):
        return text
    if host and colon and port.isascii() and port.isdigit():
        if len(port) > 5 or int(port) > _LARGEST_PORT:
            raise EndpointError(f"{text[:200]!r} has a port above {_LARGEST_PORT}")
        if _is_ipv6(host):
            raise EndpointError(
                f"{text[:200]!r} is not clear: write an IPv6 address in brackets, such as [{host[:200]}]:{port}"
            )
        return text
    if text.startswith(("/", "./", "~")):
        raise EndpointError(f"{text[:200]!r} is a path; write unix:{text[:200]}")
    host = host if colon and not port else text.removeprefix(_TLS)
    way = f"{_TLS if text.startswith(_TLS) else ''}{host[:200] or 'HOST'}:7460"
    raise EndpointError(f"{text[:200]!r} names no port; write host:port, such as {way}, or unix:/path")


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def is_open_to_others(status: os.stat_result) -> bool:
    """Whether a secret's file can be read or changed by anybody but this process's user.

    A file of root that this process may only read, through its group, was put there for it: so do Kubernetes and service managers
    hand out secrets.
    """
    mode = stat.S_IMODE(status.st_mode)
    for_us = status.st_uid == 0 != os.geteuid() and status.st_gid in {os.getegid(), *os.getgroups()}
    return bool(mode & (0o037 if for_us else 0o077))


def read_token(token_file: Path | None = None) -> str | None:
    """The caller's token, or None when no file is named.

    Raises:
        GpupoolError: the file is named but unreadable, readable by others, or not a token.
    """
    named = token_file or (
        Path(os.environ[TOKEN_FILE_VARIABLE]) if os.environ.get(TOKEN_FILE_VARIABLE) else None
    )
    if named is None:
        return None
    try:
        with named.open("rb") as file:
            if is_open_to_others(os.fstat(file.fileno())):
                raise GpupoolError(f"The token file {named} is open to others; run: chmod 600 {named}")
            raw = file.read(_MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise GpupoolError(f"The token file {named} cannot be read ({error.strerror}).") from error
    try:
        token = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or len(raw) > _MAX_TOKEN_BYTES or any(c.isspace() or not c.isprintable() for c in token):
        raise GpupoolError(f"The file {named} holds no token.")
    return token


def metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """What every call carries: the protocol that the caller speaks, and its token."""
    protocol = (PROTOCOL_KEY, str(PROTOCOL_VERSION))
    return (protocol, ("authorization", f"Bearer {token}")) if token else (protocol,)


def is_secure(endpoint: str) -> bool:
    """Whether nobody else can hear what is said at any of the servers, nor answer in the pool's place."""
    return all(one.startswith((_TLS, "unix:")) for one in parse_endpoints(endpoint))


def connection_advice(endpoint: str, details: str) -> str:
    """What to do about a connection that failed with gRPC's ``details``, where TLS is the reason; else empty."""
    if "CERTIFICATE_VERIFY" in details:
        return f"Its certificate is not trusted here: name the file of its authority in {CA_FILE_VARIABLE}."
    if "WRONG_VERSION_NUMBER" in details:
        return f"It does not speak TLS: write {endpoint.removeprefix(_TLS)} without tls:."
    if "Socket closed" in details and not endpoint.startswith((_TLS, "unix:")):
        return f"If it speaks TLS, write tls:{endpoint}, with the host that its certificate names."
    return ""


def open_channel(endpoint: str, ca_file: Path | None = None) -> grpc.aio.Channel:
    """A lazily connecting channel to ``endpoint``, which names one server. ``ca_file``: of a TLS pool, see above.

    Raises:
        GpupoolError: the file of authorities cannot be used.
    """
    if not endpoint.startswith(_TLS):
        return grpc.aio.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
    named = os.environ.get(CA_FILE_VARIABLE)
    path = ca_file or (Path(named) if named else None)
    roots = None
    if path is not None:
        try:
            roots = path.read_bytes()
        except OSError as error:
            raise GpupoolError(
                f"The file of authorities {path} cannot be read ({error.strerror})."
            ) from error
        if b"-----BEGIN CERTIFICATE-----" not in roots:
            raise GpupoolError(f"The file {path} holds no certificate in PEM.")
    credentials = grpc.ssl_channel_credentials(root_certificates=roots)
    return grpc.aio.secure_channel(endpoint.removeprefix(_TLS), credentials, options=_CHANNEL_OPTIONS)
