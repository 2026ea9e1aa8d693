"""Who may call which route of the extension: all routes that there are, so that a new one cannot be forgotten."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio
from jupyter_server.auth.authorizer import Authorizer
from tornado.web import RequestHandler

from jupyter_gpupool.server.handlers import routes
from jupyter_gpupool.server.handlers.base import GpupoolHandler
from jupyter_gpupool.server.handlers.kernel_side import KernelSideHandler
from jupyter_gpupool.server.session import capability
from jupyter_gpupool.server.session.session import KernelSession
from tests.support.jupyter import Cells, JupyterInProcess, jupyter_in_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

_METHODS = ("get", "post", "put", "patch", "delete")


def every_route(side: str) -> list[tuple[str, str]]:
    """(method, path) of all handlers of the front end (``api``) or of kernels (``self``)."""
    found = []
    for pattern, handler in routes():
        if issubclass(handler, KernelSideHandler) != (side == "self"):
            continue
        path = re.sub(r"\(\?P<\w+>[^()]*\)", "x", pattern).removeprefix("/gpupool/").replace("\\.", ".")
        assert not set(path) & set("()[]?*+"), f"{pattern}: say in this test what to put there"
        found += [
            (method.upper(), path)
            for method in _METHODS
            if getattr(handler, method) is not getattr(RequestHandler, method)
        ]
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JupyterInProcess]:
    async with jupyter_in_process(tmp_path_factory.mktemp("jupyter")) as running:
        yield running


async def answer(jupyter: JupyterInProcess, method: str, path: str, **more: Any) -> int:
    return (await jupyter.fetch(method, f"gpupool/{path}", {}, **more)).code


class DeniesOnly(Authorizer):
    """A site's own authorizer, which lets nobody do one thing, and notes what it was asked about."""

    denied = "gpupool"

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        self.asked = (action, resource)
        return resource != self.denied


async def test_there_are_routes_of_both_sides_and_all_have_our_base() -> None:
    assert len(every_route("api")) >= 8
    assert len(every_route("self")) >= 8
    for _, handler in routes():
        assert issubclass(handler, GpupoolHandler), handler


@pytest.mark.parametrize(("method", "path"), [*every_route("api"), *every_route("self")])
async def test_nothing_answers_without_credentials(server: JupyterInProcess, method: str, path: str) -> None:
    assert await answer(server, method, path, headers={}) == 403
    assert await answer(server, method, path, headers={"Authorization": "token wrong"}) == 403


@pytest.mark.parametrize(("method", "path"), every_route("api"))
async def test_who_is_logged_in_needs_the_permission_too(
    server: JupyterInProcess, method: str, path: str
) -> None:
    settings = server.app.web_app.settings
    denies = DeniesOnly(parent=server.app)
    with mock.patch.dict(settings, authorizer=denies):
        assert await answer(server, method, path) == 403
        assert denies.asked == ("read" if method == "GET" else "write", "gpupool")
        assert (await server.fetch("GET", "api/kernels")).code == 200
    assert await answer(server, method, path) != 403


@pytest.mark.parametrize(("method", "path"), every_route("self"))
async def test_a_person_is_no_kernel(server: JupyterInProcess, method: str, path: str) -> None:
    assert await answer(server, method, path) == 403


@pytest.mark.parametrize(("method", "path"), every_route("api"))
async def test_a_kernel_is_no_person(
    server: JupyterInProcess, one_kernel: Cells, method: str, path: str
) -> None:
    headers = server.kernel_headers(one_kernel.kernel_id)
    assert await answer(server, method, path, headers=headers) == 403


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_kernel(server: JupyterInProcess) -> Cells:
    return await server.start_kernel()


@pytest.mark.parametrize(("method", "path"), every_route("self"))
async def test_a_kernel_needs_the_capability_of_its_own_launch(
    server: JupyterInProcess, one_kernel: Cells, method: str, path: str
) -> None:
    sessions = await server.extension.sessions()
    own = server.kernel_headers(one_kernel.kernel_id)["Authorization"].rpartition(":")[2]
    # As good as another kernel's: the server knows it under that id only.
    other = await sessions.launch("another-kernel")
    try:
        for wrong in (
            f"gpupool-kernel another-kernel:{own}",
            f"gpupool-kernel {one_kernel.kernel_id}:{other.capability}",
            f"gpupool-kernel {one_kernel.kernel_id}:{own[:-1]}{'1' if own.endswith('0') else '0'}",
            f"gpupool-kernel {one_kernel.kernel_id}:",
            f"gpupool-kernel nobody:{own}",
            f"gpupool-kernel :{own}",
            f"token {own}",
            "gpupool-kernel",
            "gpupool-kernel \xff:\xff",
        ):
            assert await answer(server, method, path, headers={"Authorization": wrong}) == 403, wrong
        await sessions.kernel_ended("another-kernel")
        over = {"Authorization": f"gpupool-kernel another-kernel:{other.capability}"}
        assert await answer(server, method, path, headers=over) == 403
    finally:
        await sessions.kernel_ended("another-kernel")


def age(session: KernelSession, seconds: float) -> None:
    """Has its capability be so much older."""
    session._capability._since -= seconds
    session._capability._former_until -= seconds


async def test_the_capability_is_renewed_while_the_kernel_works(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    session = (await jupyter.extension.sessions()).get(kernel.kernel_id)
    assert session is not None
    former = jupyter.kernel_headers(kernel.kernel_id)
    age(session, capability.RENEW_SECONDS)
    async with asyncio.timeout(10):  # the watch does it, once a second
        while (renewed := jupyter.kernel_headers(kernel.kernel_id)) == former:
            await asyncio.sleep(0.05)
    for headers in (former, renewed):
        assert await answer(jupyter, "GET", "self/status", headers=headers) == 200
    age(session, capability.OVERLAP_SECONDS)
    assert await answer(jupyter, "GET", "self/status", headers=former) == 403
    assert await answer(jupyter, "GET", "self/status", headers=renewed) == 200
    reply = await kernel.run("%gpu status")
    assert (reply.status, "state: no GPU" in reply.text) == ("ok", True)


async def test_a_capability_that_cannot_be_written_stays_as_it_was(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    session = (await jupyter.extension.sessions()).get(kernel.kernel_id)
    assert session is not None
    with mock.patch(
        "jupyter_gpupool.server.session.kernel_files.write_private", side_effect=OSError(28, "No space left")
    ):
        age(session, capability.RENEW_SECONDS)
        session.renew_capability()
        headers = jupyter.kernel_headers(kernel.kernel_id)
        assert await answer(jupyter, "GET", "self/status", headers=headers) == 200


async def test_a_kernel_whose_launch_is_over_is_told_so(jupyter: JupyterInProcess, kernel: Cells) -> None:
    session = (await jupyter.extension.sessions()).get(kernel.kernel_id)
    assert session is not None
    session.files.capability.unlink()
    reply = await kernel.run("%gpu status")
    assert "has ended, or does not know the kernel any more" in reply.text + reply.evalue
