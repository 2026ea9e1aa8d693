"""One of two ranks of PyTorch's DDP, beside the same training in one process on the CPU. RANK and MASTER_PORT are set for it.

Imports nothing of this project. Prints the largest difference of ten losses as JSON.
"""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import torch  # type: ignore[import-not-found]  # too large to be a requirement
from torch import distributed, nn  # type: ignore[import-not-found]

RANKS = 2
STEPS = 10


def train(network: Any, x: Any, y: Any) -> list[Any]:
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    x, y = torch.randn(64, 20), torch.randint(0, 4, (64,))
    on_cpu = train(copy.deepcopy(network), x, y)
    where = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
    distributed.init_process_group("nccl", init_method=where, rank=rank, world_size=RANKS)
    network = nn.parallel.DistributedDataParallel(network.cuda(), device_ids=[0])
    mine = torch.stack(train(network, x[rank::RANKS].cuda(), y[rank::RANKS].cuda()))
    distributed.all_reduce(mine)  # each rank has the mean of its half
    apart = (mine.cpu() / RANKS - torch.stack(on_cpu)).abs().max()
    print(json.dumps({"rank": rank, "apart": float(apart)}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
