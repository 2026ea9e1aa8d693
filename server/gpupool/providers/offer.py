"""What the devices of a provider's jobs are like, as far as its table says: nobody has seen them yet."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: What a software GPU calls itself.
_SOFTWARE_GPU = "Software GPU (gpupool)"


@dataclass(frozen=True, slots=True)
class Offer:
    """One device, but for its memory and its node pool, which `elasticity.Scale` has.

    Attributes:
        type: its name, such as ``NVIDIA H100 80GB HBM3``; empty: nobody has said it, so no request for a type counts on it.
        labels: of its node.
        sharing: of its node, one of `scheduler.model.SHARING`.
        software: whether it is a software GPU.
    """

    type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    sharing: str = "isolated"
    software: bool = False


def offer_of(device_type: str, node_options: Sequence[str]) -> Offer:
    """The devices of agents that are started with `node_options`; options that are wrong are the agent's to refuse."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--label", action="append", default=[])
    parser.add_argument("--sharing", default="isolated")
    parser.add_argument("--driver", default="")
    try:
        found, _ = parser.parse_known_args(list(node_options))
    except argparse.ArgumentError:
        return Offer(device_type)
    labels = dict(label.split("=", 1) for label in found.label if "=" in label)
    software = found.driver == "software"
    return Offer(device_type or (_SOFTWARE_GPU if software else ""), labels, found.sharing, software)
