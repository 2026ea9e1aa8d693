"""What commands that run parts of a server do with its log."""

from __future__ import annotations


def only_warnings() -> None:
    """Of a simulated pool nobody wants to read that a node came or went."""
    import logging

    import structlog  # takes its time to load

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
