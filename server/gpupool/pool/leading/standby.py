"""A server that waits: it looks whether the lead is free, and refuses all calls except those for who leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import servers
from gpupool.ledger.lines import Deadline
from gpupool.ledger.servers import ServerIdentity, ServerRow
from gpupool.pool.access.auth import AuthInterceptor, refuse
from gpupool.pool.leading.lead_times import LeadTimes, now
from gpupool.pool.leading.leader_watch import EndConnection, LeaderWatch, TakeOver
from gpupool.pool.leading.leadership import NOT_LEADER
from gpupool.pool.leading.servers_service import listed
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc

logger = structlog.get_logger(__name__)

#: What probes ask for: whether the pool is served here, not only whether the process lives.
POOL_SERVICE: Final = "gpupool.v1.Pool"
_ANSWERED: Final = ("/gpupool.v1.Servers/", "/grpc.health.v1.Health/")
_REFUSAL: Final = "this pool server is a standby; ask the one that leads"


class Standby:
    """Looks at the database until this server may take over.

    Args:
        url: of the ledger in PostgreSQL.
        fault: what of this server's settings would be wrong if it led now; empty: nothing. Called in a thread.

    Raises:
        ValueError: the URL is of another kind, has a password in it, or psycopg is not installed.
    """

    def __init__(
        self, url: str, me: ServerIdentity, times: LeadTimes, fault: Callable[[], str] = str
    ) -> None:
        from gpupool.ledger.postgresql import PostgresDatabase  # a ledger in a file does without it

        self._me = me
        self._times = times
        self._fault = fault
        self._faulty = ""
        self.database = PostgresDatabase(url, name=me.waits_as)
        self._watch = LeaderWatch(times)
        # A connection that has stalled would stay so; the next look goes over another one.
        self._deadline = Deadline(times.give_up, self.database.break_off)
        self._beat_at = float("-inf")
        self._said = ""
        self.servers: tuple[ServerRow, ...] = ()
        #: Why it cannot take over now, or only in part; empty: nothing but that another leads.
        self.problem = ""

    @property
    def me(self) -> ServerIdentity:
        return self._me

    async def wait(self) -> None:
        """Returns when the lead is free, or was made free; others may be faster."""
        while True:
            try:
                verdict = await asyncio.to_thread(self._look)
            except SQLAlchemyError as error:
                self.problem = f"the database does not answer: {_first_line(error)}"
                self._say("the database does not answer", problem=_first_line(error))
            else:
                self.problem = await asyncio.to_thread(self._look_at_settings)
                if isinstance(verdict, TakeOver):
                    return
                if isinstance(verdict, EndConnection):
                    self._say("the leader is silent; its connection to the database is ended",
                              seconds=round(verdict.silent_seconds, 1))  # fmt: skip
                else:
                    self._say("waiting to take over", why=verdict.why)
            await asyncio.sleep(self._times.look)

    def _look_at_settings(self) -> str:
        """They may be changed while it waits; what is wrong is said before it matters."""
        fault = self._fault()
        if fault and fault != self._faulty:
            logger.error("this standby could not lead with all of its settings", problem=fault)
        self._faulty = fault
        return fault

    def _look(self) -> Any:
        with self._deadline.work(), self.database.engine.begin() as connection:
            holder = servers.lock_holder(connection)
            self.servers = tuple(self._rows(connection))
            leader = next((row for row in self.servers if row.epoch > 0), None)
            verdict = self._watch.look(holder, leader, now())
            if isinstance(verdict, EndConnection):
                servers.end_connection(connection, verdict.pid)
        return verdict

    def _rows(self, connection: Any) -> list[ServerRow]:
        """Says as often as a leader does that it is there. Of an empty database nothing can be said yet."""
        if not servers.are_kept(connection):
            return []
        if now() - self._beat_at >= self._times.beat:
            self._beat_at = now()
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            servers.beat(connection, self._me, 0)
        return servers.rows(connection)

    def _say(self, what: str, **more: Any) -> None:
        """Once for each change."""
        if what + str(more.get("why", "")) != self._said:
            self._said = what + str(more.get("why", ""))
            logger.info(what, **more)

    def close(self) -> None:
        """Goes away as a standby."""
        try:
            with self._deadline.work(), self.database.engine.begin() as connection:
                if servers.are_kept(connection):
                    servers.left(connection, self._me)
        except SQLAlchemyError:
            logger.info("the database does not hear that this standby ends")
        self._deadline.close()
        self.database.close()


class StandbyService(pool_pb2_grpc.ServersServicer):
    """Who leads."""

    def __init__(self, standby: Standby) -> None:
        self._standby = standby

    async def Describe(self, request: pb.ListRequest, context: Any) -> pb.ServerList:
        standby = self._standby
        return listed(standby.servers, standby.me.id, leads=False, problem=standby.problem)


class _RefuseOthers(grpc.aio.ServerInterceptor):
    """Refuses before anybody looks who calls: a standby need not know the callers of the pool."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        if str(handler_call_details.method).startswith(_ANSWERED):
            return await continuation(handler_call_details)

        async def not_here(_: Any, context: Any) -> None:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, NOT_LEADER, _REFUSAL)

        return grpc.stream_stream_rpc_method_handler(not_here)


async def standby_server(standby: Standby, options: Any) -> grpc.aio.Server:
    """A gRPC server that refuses everything but who leads; it is bound and started by the caller. `options`: of gRPC."""
    server = grpc.aio.server(
        interceptors=[_RefuseOthers(), AuthInterceptor(standby.database)], options=options
    )
    pool_pb2_grpc.add_ServersServicer_to_server(StandbyService(standby), server)
    health = health_aio.HealthServicer()
    await health.set(POOL_SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    return server


def _first_line(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).partition("\n")[0]
