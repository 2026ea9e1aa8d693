"""HTTP of the extension, below ``<base_url>/gpupool/``: who serves which route of `server.rest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jupyter_gpupool.server.handlers import (
    administration,
    catalogue,
    defaults,
    description,
    front_end,
    history,
    idle_choice,
    kernel_side,
    start_pool,
    undo,
)
from jupyter_gpupool.server.handlers.base import GpupoolHandler
from jupyter_gpupool.server.rest.route import pattern_of
from jupyter_gpupool.server.rest.routes import ROUTES

_HANDLERS: Final[Mapping[str, type[GpupoolHandler]]] = {
    "api/pool": front_end.PoolHandler,
    "api/pool/start": start_pool.StartPoolHandler,
    "api/defaults": defaults.DefaultsHandler,
    "api/catalogue": catalogue.CatalogueHandler,
    "api/kernels": front_end.KernelsHandler,
    "api/kernels/{kernel_id}/attach": front_end.AttachHandler,
    "api/kernels/{kernel_id}/detach": front_end.DetachHandler,
    "api/kernels/{kernel_id}/reset": front_end.ResetHandler,
    "api/kernels/{kernel_id}/keep": front_end.KeepHandler,
    "api/kernels/{kernel_id}/idle": idle_choice.IdleHandler,
    "api/kernels/{kernel_id}/undo": undo.UndoHandler,
    "api/kernels/{kernel_id}/resize": front_end.ResizeHandler,
    "api/kernels/{kernel_id}/queue": front_end.QueueHandler,
    "api/kernels/{kernel_id}/take": front_end.TakeHandler,
    "api/kernels/{kernel_id}/usage": front_end.UsageHandler,
    "api/history": history.HistoryHandler,
    "api/administration": administration.AdministrationHandler,
    "api/administration/drain": administration.DrainHandler,
    "api/administration/project": administration.ProjectHandler,
    "api/openapi.json": description.DescriptionHandler,
    "self/attach": kernel_side.AttachHandler,
    "self/release": kernel_side.ReleaseHandler,
    "self/detach": kernel_side.DetachHandler,
    "self/reset": kernel_side.ResetHandler,
    "self/report": kernel_side.ReportHandler,
    "self/resize": kernel_side.ResizeHandler,
    "self/keep": kernel_side.KeepHandler,
    "self/auto": kernel_side.AutoHandler,
    "self/status": kernel_side.StatusHandler,
    "self/pool": kernel_side.PoolHandler,
    "self/choices": kernel_side.ChoicesHandler,
}


def routes() -> list[tuple[str, type[GpupoolHandler]]]:
    """URL patterns and their handlers: only what is described is served."""
    paths = dict.fromkeys(route.path for route in ROUTES)
    return [(pattern_of(path), _HANDLERS[path]) for path in paths]
