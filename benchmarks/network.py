"""Slower networks on one machine, for measurements and tests: no kernel support is needed.

Two ways. :func:`emulated` gives the environment with which the client runtime itself puts a
network between it and its worker. :class:`NetworkProxy` is a TCP proxy that does the same
between two ports, and can also stall and cut what passes through it.
"""

from __future__ import annotations

import selectors
import subprocess
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from gpupool.client.native import native_file

#: Read by the client runtime (src/wire/transport/dial.cpp).
EMULATE_VARIABLE: Final = "GPUPOOL_EMULATE"


@dataclass(frozen=True, slots=True)
class Network:
    """A network by its round-trip time and its bandwidth in each direction; 0: no limit."""

    round_trip_us: int
    mbit: int = 0

    @property
    def quality(self) -> str:
        """As the native parts read it: one direction."""
        return f"delay_us={self.round_trip_us // 2},mbit={self.mbit}"


#: Three networks that measurements speak of.
SAME_RACK: Final = Network(50, 10_000)
SAME_CITY: Final = Network(500, 10_000)
FAR_AWAY: Final = Network(30_000, 1_000)


def emulated(network: Network) -> dict[str, str]:
    """Environment for a process whose client runtime shall see that network."""
    return {EMULATE_VARIABLE: network.quality}


class ProxyError(RuntimeError):
    """The proxy did not start or gave no answer."""


class NetworkProxy:
    """A port that passes TCP connections on to another one, over a slower network; a context manager.

    Args:
        target: ``host:port`` to pass connections on to.
        network: what lies between; None: nothing.
        listen: ``host:port`` to listen on; port 0 lets the system choose.
        command: put before the program, for example to enter a network namespace.
    """

    def __init__(
        self,
        target: str,
        network: Network | None = None,
        *,
        listen: str = "127.0.0.1:0",
        command: tuple[str, ...] = (),
    ) -> None:
        self._arguments = [*command, str(native_file("bin", "gpupool-bench-proxy"))]
        self._arguments += ["--to", target, "--listen", listen]
        if network is not None:
            self._arguments += ["--network", network.quality]
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        try:
            self.port = int(self._line("ready port="))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def cut(self) -> None:
        """Ends all connections that are open now."""
        self._command("cut")

    def stall(self) -> None:
        """Lets nothing through until :meth:`resume`."""
        self._command("stall")

    def resume(self) -> None:
        """Goes on after :meth:`stall`."""
        self._command("resume")

    def _command(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._line("done " + word)

    def _line(self, beginning: str, timeout: float = 10.0) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline().strip() if selector.select(timeout) else ""
        if not line.startswith(beginning):
            raise ProxyError(f"the proxy said {line!r}")
        return line.removeprefix(beginning)

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
