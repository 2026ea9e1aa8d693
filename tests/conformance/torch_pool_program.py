"""Eager training with PyTorch that is disturbed from outside, or attaches and detaches by itself.

Run by an interpreter with PyTorch; ``torch_pool.py`` starts it. Only ``blocks`` knows of gpupool: the other ways are ordinary
training. The last line is JSON: the loss of every step and a digest of all parameters, so a single lost or repeated launch shows.

    steps 40           trains so many steps
    until-told         trains until a line comes on standard input; says "training" after the first steps
    blocks 3 8         imports PyTorch first, then trains 3 times 8 steps, each in a block of its own that attaches a share
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading

if sys.argv[1] == "blocks":
    import gpupool

    gpupool.prepare()

import torch
from torch.nn import functional
from torch_train_program import CLASSES, image_network

#: By then every kernel of a step has been loaded.
WARM_STEPS = 3


class Training:
    """A network, its optimiser, and a second stream that brings every batch from page-locked memory."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        model, images, labels = image_network()
        self.model = model.to("cuda")
        self.images, self.labels = images.pin_memory(), labels.pin_memory()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.stream = torch.cuda.Stream()
        self.losses: list[float] = []

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        """With noise, so that the state of PyTorch's random numbers counts as well."""
        order = torch.randperm(len(self.labels))[:32]
        with torch.cuda.stream(self.stream):
            images = self.images[order].pin_memory().to("cuda", non_blocking=True)
            labels = self.labels[order].pin_memory().to("cuda", non_blocking=True)
            arrived = self.stream.record_event()
        torch.cuda.current_stream().wait_event(arrived)
        images.record_stream(torch.cuda.current_stream())
        labels.record_stream(torch.cuda.current_stream())
        images = images + 0.1 * torch.randn_like(images)
        self.optimizer.zero_grad()
        scores = functional.dropout(self.model(images), 0.1)
        loss = functional.cross_entropy(scores.view(-1, CLASSES), labels)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def digest(self) -> str:
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            found.update(parameter.detach().cpu().numpy().tobytes())
        return found.hexdigest()

    def result(self) -> dict[str, object]:
        return {"losses": self.losses, "digest": self.digest()}


def until_told() -> dict[str, object]:
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
    training = Training()
    training.steps(WARM_STEPS)
    print("training", flush=True)
    while not told.is_set():
        training.step()
    return training.result()


def blocks(count: int, each: int) -> dict[str, object]:
    training = None
    for number in range(count):
        with gpupool.attach(0.4 + 0.1 * number, wait="120"):
            training = training or Training()
            training.steps(each)
        try:
            training.model[0].weight.sum().item()
        except RuntimeError as refused:
            print("refused:", str(refused).splitlines()[0], flush=True)
        else:
            raise AssertionError("a sum was taken without a share")
    with gpupool.attach(0.5, wait="120"):
        return training.result()


if __name__ == "__main__":
    way, numbers = sys.argv[1], [int(number) for number in sys.argv[2:]]
    if way == "steps":
        undisturbed = Training()
        undisturbed.steps(*numbers)
        found = undisturbed.result()
    else:
        found = blocks(*numbers) if way == "blocks" else until_told()
    print(json.dumps(found), flush=True)
