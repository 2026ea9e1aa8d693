"""Gives every kernel that the server starts its GPU environment.

The extension installs :class:`GpupoolProvisioner` as the default kernel provisioner, so stock
kernel specifications get it without a change. Kernels whose specification names another
provisioner are not touched.
"""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final

from gpupool.client.child_environment import CHOICE_OF_CARDS
from gpupool.client.errors import GpupoolError
from gpupool.client.session_file import PROCESS_VARIABLE
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from jupyter_gpupool.kernel.command import PROBLEM_VARIABLE, with_magics

if TYPE_CHECKING:
    from jupyter_gpupool.server.extension import GpuPoolExtension

PROVISIONER_NAME: Final = "gpupool-provisioner"
_STOCK_PROVISIONER: Final = "local-provisioner"

logger = logging.getLogger(__name__)


class GpupoolProvisioner(LocalProvisioner):
    """Starts local kernels with a session file, a capability and the client runtime."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Called before each launch, a restart's included."""
        kwargs = await super().pre_launch(**kwargs)
        extension = _extension_of(self)
        if extension is None or self.kernel_id is None:
            return kwargs
        environment = dict(kwargs.get("env") or {})
        # Where this server was started from a kernel: what that one was told is not for this one.
        for name in (PROCESS_VARIABLE, PROBLEM_VARIABLE, CHOICE_OF_CARDS):
            environment.pop(name, None)
        try:
            environment.update(await extension.kernel_environment(self.kernel_id, environment))
        except GpupoolError as error:
            logger.warning("kernel %s starts without GPU support: %s", self.kernel_id, error)
            environment[PROBLEM_VARIABLE] = str(error)
        except Exception as error:
            # A kernel without a GPU is better than no kernel.
            logger.exception("kernel %s starts without GPU support", self.kernel_id)
            environment[PROBLEM_VARIABLE] = (
                f"The Jupyter server failed ({type(error).__name__}: {error}); see its log."
            )
        # Also where no GPU can be had: the magics say why.
        kwargs["cmd"] = await with_magics(kwargs["cmd"], environment)
        kwargs["env"] = environment
        return kwargs

    async def post_launch(self, **kwargs: Any) -> None:
        await super().post_launch(**kwargs)
        extension = _extension_of(self)
        if extension is not None and self.kernel_id is not None:
            extension.kernel_launched(self.kernel_id, self.pid)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        extension = _extension_of(self)
        if extension is not None and self.kernel_id is not None and not restart:
            extension.kernel_gone(self.kernel_id)


def _extension_of(provisioner: GpupoolProvisioner) -> GpuPoolExtension | None:
    """The extension of the server that this kernel belongs to.

    Found over the chain kernel manager → multi-kernel manager → server, not over a global:
    two servers may live in one process, and a kernel may belong to none (``jupyter run``).
    """
    parent: Any = provisioner.parent
    while parent is not None:
        web_app = getattr(parent, "web_app", None)
        if web_app is not None:
            extension: GpuPoolExtension | None = web_app.settings.get("jupyter_gpupool")
            return extension
        parent = getattr(parent, "parent", None)
    return None


def install(parent: Any) -> bool:
    """Makes :class:`GpupoolProvisioner` the default; False when a site chose its own default."""
    factory = KernelProvisionerFactory.instance(parent=parent)
    if factory.default_provisioner_name not in (_STOCK_PROVISIONER, PROVISIONER_NAME):
        logger.warning(
            "the default kernel provisioner is %r; kernels get no GPU environment unless their "
            "specification names %r",
            factory.default_provisioner_name,
            PROVISIONER_NAME,
        )
        return False
    factory.provisioners.setdefault(
        PROVISIONER_NAME,
        EntryPoint(
            name=PROVISIONER_NAME,
            value=f"{GpupoolProvisioner.__module__}:{GpupoolProvisioner.__name__}",
            group=KernelProvisionerFactory.GROUP_NAME,
        ),
    )
    factory.default_provisioner_name = PROVISIONER_NAME
    return True


def uninstall() -> None:
    """Puts the stock default back."""
    if KernelProvisionerFactory.initialized():
        factory = KernelProvisionerFactory.instance()
        if factory.default_provisioner_name == PROVISIONER_NAME:
            factory.default_provisioner_name = _STOCK_PROVISIONER
