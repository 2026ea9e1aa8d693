"""Devices as a person would call them: ``GPU 0 on vm`` for ``vm/0``. Commands and APIs take and give the ids."""

from __future__ import annotations

from collections.abc import Iterable


def device_name(device_id: str) -> str:
    """``GPU 0 on vm``; an id that is not a node and a number stands for itself."""
    node, _, number = device_id.rpartition("/")
    return f"GPU {number} on {node}" if node and number.isdecimal() else device_id


def device_names(device_ids: Iterable[str]) -> str:
    """``GPU 0 and 1 on vm``; of several nodes ``GPU 0 on a, GPU 0 and 3 on b``."""
    by_node: dict[str, list[str]] = {}
    others = []
    for device_id in device_ids:
        node, _, number = device_id.rpartition("/")
        if node and number.isdecimal():
            by_node.setdefault(node, []).append(number)
        else:
            others.append(device_id)
    named = [f"GPU {' and '.join(numbers)} on {node}" for node, numbers in by_node.items()]
    return ", ".join([*named, *others])
