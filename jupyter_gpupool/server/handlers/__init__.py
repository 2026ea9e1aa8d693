"""HTTP of the extension, below ``<base_url>/gpupool/``."""

from __future__ import annotations

from typing import Any

from jupyter_gpupool.server.handlers import (
    administration,
    catalogue,
    defaults,
    front_end,
    history,
    idle_choice,
    kernel_side,
    undo,
)

_KERNEL = r"(?P<kernel_id>[A-Za-z0-9_-]{1,128})"


def routes() -> list[tuple[str, type[Any]]]:
    """URL patterns and their handlers."""
    return [
        (r"/gpupool/api/pool", front_end.PoolHandler),
        (r"/gpupool/api/defaults", defaults.DefaultsHandler),
        (r"/gpupool/api/catalogue", catalogue.CatalogueHandler),
        (r"/gpupool/api/kernels", front_end.KernelsHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/attach", front_end.AttachHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/detach", front_end.DetachHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/reset", front_end.ResetHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/keep", front_end.KeepHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/idle", idle_choice.IdleHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/undo", undo.UndoHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/resize", front_end.ResizeHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/queue", front_end.QueueHandler),
        (rf"/gpupool/api/kernels/{_KERNEL}/usage", front_end.UsageHandler),
        (r"/gpupool/api/history", history.HistoryHandler),
        (r"/gpupool/api/administration", administration.AdministrationHandler),
        (r"/gpupool/api/administration/drain", administration.DrainHandler),
        (r"/gpupool/api/administration/project", administration.ProjectHandler),
        (r"/gpupool/self/attach", kernel_side.AttachHandler),
        (r"/gpupool/self/release", kernel_side.ReleaseHandler),
        (r"/gpupool/self/detach", kernel_side.DetachHandler),
        (r"/gpupool/self/reset", kernel_side.ResetHandler),
        (r"/gpupool/self/report", kernel_side.ReportHandler),
        (r"/gpupool/self/resize", kernel_side.ResizeHandler),
        (r"/gpupool/self/keep", kernel_side.KeepHandler),
        (r"/gpupool/self/auto", kernel_side.AutoHandler),
        (r"/gpupool/self/status", kernel_side.StatusHandler),
        (r"/gpupool/self/pool", kernel_side.PoolHandler),
        (r"/gpupool/self/choices", kernel_side.ChoicesHandler),
    ]
