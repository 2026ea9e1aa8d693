"""What Attach asks for when a person says nothing, and which projects there are to choose from."""

from __future__ import annotations

import asyncio
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from gpupool.client.errors import GpupoolError
from gpupool.client.projects import ProjectsClient
from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers.front_end import PollHandler
from jupyter_gpupool.server.handlers.project_choice import choices
from jupyter_gpupool.server.rest.pool import Defaults, Projects, ServerDefaults

if TYPE_CHECKING:
    from jupyter_gpupool.server.extension import GpuPoolExtension

#: A pool that takes longer to list its projects leaves the list empty, seconds.
_POOL_SECONDS: Final = 5.0


class DefaultsHandler(PollHandler):
    """``GET api/defaults``: the server's defaults and limits, and the user's projects.

    A pool that does not answer leaves ``projects`` empty and says why in ``error``; all else is the server's own.
    """

    @web.authenticated
    @authorized
    async def get(self) -> None:
        extension = self.extension
        # Asks the pool who the user is besides, if it has not said so yet.
        projects = await _projects_view(extension)
        answer: Defaults = {**defaults_view(extension), **projects}
        self.answer(answer)


def defaults_view(extension: GpuPoolExtension) -> ServerDefaults:
    """What the server knows by itself; minutes and seconds as their names say."""
    limits = extension.idle_limits
    return {
        "share": extension.default_share,
        "wait_seconds": extension.default_wait_seconds,
        "idle_minutes": limits.default_seconds / 60,
        "idle_minutes_most": limits.longest / 60,
        "never_allowed": limits.never,
        "warn_seconds": limits.warn_seconds,
        "user": extension.known_user,
        "admin": extension.is_admin,
        "version": package_version(),
    }


async def _projects_view(extension: GpuPoolExtension) -> Projects:
    """``project``: what a request without a project counts against; empty: one must be named."""
    error = None
    try:
        await extension.caller()
        pool = (await extension.sessions()).pool
        async with asyncio.timeout(_POOL_SECONDS):
            listed = await ProjectsClient(pool).projects(await extension.pool_user())
    except GpupoolError as refused:
        error = str(refused)
    except TimeoutError:
        error = f"The GPU pool does not answer at {extension.pool_endpoint} (within {_POOL_SECONDS:g} s)."
    else:
        return {
            "project": extension.default_project or listed.default_path,
            "projects": choices(listed),
            "error": None,
        }
    return {"project": extension.default_project, "projects": [], "error": error}


def package_version() -> str:
    """Of the installed distribution; empty where the code runs from a source tree that was not installed."""
    try:
        return version("jupyter-gpupool")
    except PackageNotFoundError:
        return ""
