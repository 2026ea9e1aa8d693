"""Which kernels run a cell right now, known from the extension's own IOPub subscription.

The server's ``execution_state`` is not fit for this: comm messages travel over subshells, and
the ``idle`` that ends one of them overwrites the ``busy`` of a cell that still runs.
``last_activity`` moves with every printing thread. So open ``execute_request`` messages are
counted here: busy is a set of message ids, not a flag.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from jupyter_client.session import Session as MessageSession

logger = logging.getLogger(__name__)


class OpenRequests:
    """The ``execute_request`` messages of one kernel that have begun and not ended."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self.last_ended_at = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._open)

    @property
    def open(self) -> frozenset[str]:
        return frozenset(self._open)

    def status(self, parent: Mapping[str, Any], execution_state: str, now: float) -> None:
        """Takes one IOPub ``status`` message."""
        if parent.get("msg_type") != "execute_request":
            return
        message_id = str(parent.get("msg_id", ""))
        if execution_state == "busy":
            self._open.add(message_id)
        elif execution_state == "idle" and message_id in self._open:
            self._open.discard(message_id)
            self.last_ended_at = now


def _narrow(socket: Any, identities: list[bytes]) -> None:
    """From now on only what is published under the topic of this kernel's status messages.

    So a thread that prints for ever costs the server nothing here, and cannot fill the queue, from which
    the begin or the end of a cell would then be dropped. Kernels that name no topic of their own for it
    keep the whole stream.
    """
    topic = identities[0] if identities else b""
    if topic.endswith(b".status"):
        socket.subscribe(topic)
        socket.unsubscribe(b"")


class BusyTracker:
    """Subscriptions to the IOPub channels of kernels; one per kernel, renewed on restart."""

    def __init__(self, kernel_manager: Any) -> None:
        self._kernel_manager = kernel_manager
        self._requests: dict[str, OpenRequests] = {}
        self._streams: dict[str, Any] = {}

    def watch(self, kernel_id: str) -> None:
        """Subscribes anew: after a restart the ports may differ and open requests are gone."""
        self.forget(kernel_id)
        try:
            kernel = self._kernel_manager.get_kernel(kernel_id)
            stream = kernel.connect_iopub()
        except Exception as error:
            # A kernel that vanished meanwhile, or one behind a gateway without channels here.
            logger.debug("kernel %s cannot be watched: %s", kernel_id, error)
            return
        requests = OpenRequests()
        messages = MessageSession(config=kernel.session.config, key=kernel.session.key)

        narrowed = False

        def received(parts: list[bytes]) -> None:
            nonlocal narrowed
            try:
                identities, rest = messages.feed_identities(parts)
                message = messages.deserialize(rest, content=False)
                if message["header"]["msg_type"] != "status":
                    return
                if not narrowed:
                    narrowed = True
                    _narrow(stream.socket, identities)
                content = messages.unpack(message["content"])
                requests.status(message["parent_header"], content["execution_state"], time.monotonic())
            except Exception as error:
                # Bytes of a kernel: a malformed message is skipped, the subscription goes on.
                logger.debug("unreadable IOPub message of kernel %s: %s", kernel_id, error)

        stream.on_recv(received)
        self._requests[kernel_id] = requests
        self._streams[kernel_id] = stream

    def forget(self, kernel_id: str) -> None:
        """Ends the subscription."""
        self._requests.pop(kernel_id, None)
        stream = self._streams.pop(kernel_id, None)
        if stream is not None and not stream.closed():
            stream.close()

    def watched(self) -> set[str]:
        return set(self._streams)

    def busy(self, kernel_id: str) -> bool:
        requests = self._requests.get(kernel_id)
        return requests is not None and requests.busy

    def open_requests(self, kernel_id: str) -> frozenset[str]:
        """Ids of the cells that run now."""
        requests = self._requests.get(kernel_id)
        return requests.open if requests is not None else frozenset()

    def last_ended_at(self, kernel_id: str) -> float:
        """Monotonic time at which the last cell ended, 0 if none has."""
        requests = self._requests.get(kernel_id)
        return requests.last_ended_at if requests is not None else 0.0

    def close(self) -> None:
        for kernel_id in list(self._streams):
            self.forget(kernel_id)
