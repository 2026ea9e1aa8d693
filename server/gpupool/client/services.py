"""What the typed classes of a pool's services need of the connection to it."""

from __future__ import annotations

from typing import Any, Final, Protocol

#: Deadline of one ordinary call, seconds.
CALL_SECONDS: Final = 10.0


class Services(Protocol):
    """A connection to a pool, such as :class:`gpupool.client.pool.PoolClient`."""

    async def call(self, service: str, name: str, message: Any, seconds: float = CALL_SECONDS) -> Any:
        """One call of a service of ``gpupool.v1``, for the classes that know its messages.

        Args:
            service: its name in the proto file, such as ``Pool``.
            name: the method.
            message: its request.
            seconds: deadline of the call.

        Raises:
            PoolRefusedError: the pool says no.
            PoolUnavailableError: the pool cannot be reached.
        """
