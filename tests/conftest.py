"""Before anything is imported: the generated messages are those of this `pool.proto`, and gRPC is up for good."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, settings

from tests.support import postgres

# How long an example takes says how busy the machine is, and nothing about the product.
settings.register_profile("gpupool", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpupool")

#: While there is a channel, gRPC's core stays up. Without this one it ends with the last channel and server of each test
#: and begins again in the next, and a thread of a core that ended has brought a test process down (SIGSEGV, no Python
#: frame, under load). Nothing is sent through it.
CORE_STAYS_UP = grpc.insecure_channel("unix:/nonexistent/gpupool")

_PROTO = Path(__file__).parents[1] / "server" / "gpupool" / "proto"


def pytest_configure() -> None:
    """Makes Ctrl-C work, and the messages what they are to be.

    A shell starts commands in the background with SIGINT ignored, and so do their children: tests send it to programs.
    A tree that was moved to another commit may hold modules of an older contract.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    source = _PROTO / "gpupool" / "v1" / "pool.proto"
    made = source.with_name("pool_pb2.py")
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([sys.executable, str(_PROTO / "generate.py")], check=True)


def pytest_collection_finish() -> None:
    """Takes what is loaded out of the garbage collector's sight: each of its rounds walked over a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[postgres.Cluster]:
    """A PostgreSQL of this module's own; skips where there is none."""
    if why := postgres.why_not():
        pytest.skip(why)
    with postgres.cluster() as made:
        yield made
