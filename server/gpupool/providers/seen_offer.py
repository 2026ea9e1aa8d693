"""What a provider can bring after one of its nodes was seen: what its agent reports counts more than the settings."""

from __future__ import annotations

from dataclasses import replace

from gpupool.providers.elasticity import Scale
from gpupool.providers.pool import NodeStands


def as_seen(said: Scale, node: NodeStands) -> Scale:
    """`said`, as far as `node` keeps it: else one node after the other would be asked for by those that none of them serves.

    More than `said` is never promised: the next node need not have it.
    """
    offer, types = said.offer, node.types
    if not node.devices:
        return said
    return replace(
        said,
        device_mib=min(said.device_mib, node.mib) or said.device_mib,
        node_pool=node.pool,
        offer=replace(
            offer,
            type=offer.type if not offer.type or not types or offer.type in types else min(types),
            labels=dict(set(offer.labels.items()).intersection(node.labels)),
            sharing=node.sharing,
            software=node.software,
        ),
    )
