"""What all handlers share: the extension, and errors as JSON with an id and one sentence."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError
from gpupool.request.gpu_request import GpuRequest
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from jupyter_gpupool.server.handlers.asked import BadRequestError, body_of, request_of
from jupyter_gpupool.server.rest.errors import Refusal
from jupyter_gpupool.server.rest.routes import Answer
from jupyter_gpupool.server.session.session import AttachRefusedError

if TYPE_CHECKING:
    from jupyter_gpupool.server.extension import GpuPoolExtension

_STATUS_OF_REASON: Final = {
    "bad-share": HTTPStatus.BAD_REQUEST,
    "bad-request": HTTPStatus.BAD_REQUEST,
    "not-allowed": HTTPStatus.BAD_REQUEST,
    "unknown-kernel": HTTPStatus.NOT_FOUND,
    "no-environment": HTTPStatus.CONFLICT,
    "forbidden": HTTPStatus.FORBIDDEN,
    "pool-down": HTTPStatus.SERVICE_UNAVAILABLE,
    "hub-down": HTTPStatus.SERVICE_UNAVAILABLE,
    "hub-busy": HTTPStatus.SERVICE_UNAVAILABLE,
}


class RefusalError(Exception):
    """Ends a request with an error that the user understands."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class GpupoolHandler(ExtensionHandlerMixin, APIHandler):
    """Base of all handlers."""

    auth_resource = "gpupool"

    @property
    def extension(self) -> GpuPoolExtension:
        app: GpuPoolExtension = self.settings["jupyter_gpupool"]
        return app

    def asked(self) -> dict[str, Any]:
        return body_of(self.request.body)

    def request_of(self, body: dict[str, Any]) -> GpuRequest:
        """The request for a GPU in a body, complete: what it leaves out is as the server's settings have it."""
        extension = self.extension
        return request_of(
            body,
            default_share=extension.default_share,
            default_wait=extension.default_wait_seconds,
            default_project=extension.default_project,
        )

    async def notebook_paths(self) -> dict[str, str]:
        """Kernel id → path of its notebook, of several the first; a kernel of none (a console's, say) is absent.

        A notebook that joins a kernel later does not take its name. The order of the sessions does not tell: a
        notebook that changes its kernel keeps its session. So the session that names a kernel is remembered.
        """
        sessions: Any = self.session_manager
        models = sessions.list_sessions()
        models = await models if isinstance(models, Awaitable) else models
        joined: dict[str, dict[str, str]] = {}
        for model in models:
            if model.get("kernel") and model.get("type") == "notebook":
                joined.setdefault(model["kernel"]["id"], {})[model["id"]] = str(model.get("path") or "")
        before = self.extension.named_by
        named_by = {
            kernel_id: before[kernel_id] if before.get(kernel_id) in notebooks else next(iter(notebooks))
            for kernel_id, notebooks in joined.items()
        }
        self.extension.named_by = named_by
        return {kernel_id: joined[kernel_id][session_id] for kernel_id, session_id in named_by.items()}

    def answer(self, value: Answer, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(value))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        reason, message = reason_of(error)
        if reason is None:
            super().write_error(status_code, **kwargs)
            return
        # A body that makes no sense may be refused with the id by which the pool refuses it.
        bad = isinstance(error, BadRequestError)
        self.set_status(HTTPStatus.BAD_REQUEST if bad else _STATUS_OF_REASON.get(reason, HTTPStatus.CONFLICT))
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(Refusal(message=message, reason=reason)))

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """A refusal is an answer, not a fault of the server: no traceback in its log."""
        reason, message = reason_of(error)
        if reason is None:
            super().log_exception(kind, error, trace)
        else:
            self.log.info("gpupool %s: %s", reason, message)


def reason_of(error: BaseException | None) -> tuple[str | None, str]:
    """Id and sentence of an error that is an answer; (None, "") for a fault."""
    match error:
        case AttachRefusedError() | BadRequestError() | RefusalError() | PoolRefusedError():
            return error.reason, str(error)
        case PoolUnavailableError():
            return "pool-down", str(error)
        case GpupoolError():
            return "pool-error", str(error)
        case _:
            return None, ""


__all__ = ["GpupoolHandler", "RefusalError", "reason_of", "web"]
