"""The kernel's part: ``%%gpu``, ``%gpu`` and what happens at the start and end of cells.

Loaded into every ipykernel that the server starts. Nothing here imports the Jupyter server,
and a failure must never keep a kernel from starting.
"""

from __future__ import annotations

import contextlib
from typing import Any

_ATTRIBUTE = "gpupool"
_SILENT_POOL = "gpupool_silent_pool"


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext jupyter_gpupool.kernel``; loading twice changes nothing."""
    if getattr(shell, _ATTRIBUTE, None) is not None:
        return
    from gpupool.client import lender
    from gpupool.client.keeper import KeeperRefusedError, keeper

    from jupyter_gpupool.kernel import broker, device
    from jupyter_gpupool.kernel.auto import AutoAttach
    from jupyter_gpupool.kernel.magics import GpuMagics
    from jupyter_gpupool.kernel.matcher import GpuMatcher, install
    from jupyter_gpupool.kernel.scope import Scopes
    from jupyter_gpupool.kernel.scope_lender import ScopeLender
    from jupyter_gpupool.kernel.silence import SilentPool
    from jupyter_gpupool.kernel.transform import transform

    scopes = Scopes()
    scopes.auto = AutoAttach(broker.connect)
    setattr(shell, _ATTRIBUTE, scopes)
    # Last of the cleanups: leading empty lines, indentation and prompts are gone by then.
    shell.input_transformers_cleanup.append(transform)
    shell.events.register("pre_run_cell", scopes.pre_run_cell)
    shell.events.register("post_run_cell", scopes.post_run_cell)
    # After the scopes: the end of a cell may wait as well.
    silent_pool = SilentPool()
    setattr(shell, _SILENT_POOL, silent_pool)
    shell.events.register("pre_run_cell", silent_pool.pre_run_cell)
    shell.events.register("post_run_cell", silent_pool.post_run_cell)
    shell.register_magics(GpuMagics(shell, scopes))
    install(shell, GpuMatcher(last_share=lambda: scopes.last_share[0] if scopes.last_share else None))
    lender.register(ScopeLender(scopes))
    broker.settle_environment()
    if broker.is_alone():
        # Compilers must know beforehand what kind of GPU it will be; whatever fails here is said by the first attach.
        with contextlib.suppress(KeeperRefusedError):
            keeper().start()
    device.prepare()


def unload_ipython_extension(shell: Any) -> None:
    """Takes the transformer and the events away; the magics stay registered, as IPython's do."""
    scopes = getattr(shell, _ATTRIBUTE, None)
    if scopes is None:
        return
    from gpupool.client import lender

    from jupyter_gpupool.kernel import device
    from jupyter_gpupool.kernel.matcher import uninstall
    from jupyter_gpupool.kernel.transform import transform

    lender.register(None)
    device.leave_refusals()
    uninstall(shell)
    if scopes.auto is not None:
        scopes.auto.off()
    setattr(shell, _ATTRIBUTE, None)
    shell.input_transformers_cleanup.remove(transform)
    shell.events.unregister("pre_run_cell", scopes.pre_run_cell)
    shell.events.unregister("post_run_cell", scopes.post_run_cell)
    silent_pool = getattr(shell, _SILENT_POOL)
    shell.events.unregister("pre_run_cell", silent_pool.pre_run_cell)
    shell.events.unregister("post_run_cell", silent_pool.post_run_cell)
