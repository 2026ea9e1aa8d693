"""The `Identities` service: who callers are, and short-lived tokens for users of a JupyterHub."""

from __future__ import annotations

from typing import Any

from gpupool.pool.auth import Identity, current_exchange, current_identity
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc


class IdentitiesService(pool_pb2_grpc.IdentitiesServicer):
    """The caller was found out before (`auth`); this only says so."""

    async def Exchange(self, request: pb.ExchangeRequest, context: Any) -> pb.ShortToken:
        short = current_exchange()
        return pb.ShortToken(token=short.token, seconds=short.seconds, caller=_caller(current_identity()))

    async def WhoAmI(self, request: pb.ListRequest, context: Any) -> pb.Caller:
        return _caller(current_identity())


def _caller(identity: Identity) -> pb.Caller:
    return pb.Caller(name=identity.name, role=identity.role, groups=identity.groups)
