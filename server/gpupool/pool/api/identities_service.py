"""The `Identities` service: who callers are, the pool's tokens, and short-lived ones for users of a JupyterHub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpupool.ledger.ledger import Ledger
from gpupool.pool.access import tokens
from gpupool.pool.access.auth import Identity, current_exchange, current_identity
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc


class IdentitiesService(pool_pb2_grpc.IdentitiesServicer):
    """The caller was found out, and may call what is called (`auth`). `revoked` is told the id of each revoked token."""

    def __init__(self, ledger: Ledger, revoked: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._revoked = revoked

    async def Exchange(self, request: pb.ExchangeRequest, context: Any) -> pb.ShortToken:
        short = current_exchange()
        return pb.ShortToken(token=short.token, seconds=short.seconds, caller=_caller(current_identity()))

    async def WhoAmI(self, request: pb.ListRequest, context: Any) -> pb.Caller:
        return _caller(current_identity())

    async def ListTokens(self, request: pb.ListRequest, context: Any) -> pb.TokenList:
        return pb.TokenList(
            tokens=[
                pb.Token(
                    id=token.id,
                    subject=token.subject,
                    role=token.role,
                    created_unix=token.created_unix,
                    revoked_unix=token.revoked_unix,
                )
                for token in tokens.list_tokens(self._ledger)
            ]
        )

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Any) -> pb.Removed:
        existed = tokens.revoke(self._ledger, request.id)
        self._revoked(request.id)
        return pb.Removed(existed=existed)


def _caller(identity: Identity) -> pb.Caller:
    return pb.Caller(name=identity.name, role=identity.role, groups=identity.groups)
