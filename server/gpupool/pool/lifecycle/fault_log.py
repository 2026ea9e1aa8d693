"""The pool's own mistakes, in its log."""

from __future__ import annotations

import structlog

from gpupool.model.instructions import Fault

logger = structlog.get_logger(__name__)


def log_fault(fault: Fault) -> None:
    """Writes what failed and whose request it was, with the traceback."""
    logger.error(fault.what, user=fault.user, request=fault.key, exc_info=fault.error)
