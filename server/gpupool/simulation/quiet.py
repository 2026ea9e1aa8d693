"""The log of a simulated pool."""

from __future__ import annotations


def only_warnings() -> None:
    """Nobody wants to read that a simulated node came or went."""
    import logging

    import structlog  # takes its time to load

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
