"""JAX divides a batch among all GPUs, and computes the same on the CPU."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS, WIDTH, STEPS = 64, 16, 5
numbers = np.random.default_rng(3)
X = numbers.standard_normal((ROWS, WIDTH)).astype(np.float32)
W = numbers.standard_normal((WIDTH, WIDTH)).astype(np.float32)


@jax.jit
def step(w: Any, x: Any) -> Any:
    def loss_of(w: Any) -> Any:
        return jnp.mean((jnp.tanh(jnp.dot(x, w, precision="highest")) - x) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(w)
    return loss, w - 0.1 * gradient


def losses(w: Any, x: Any) -> list[float]:
    found = []
    for _ in range(STEPS):
        loss, w = step(w, x)
        found.append(float(loss))
    return found


def main() -> None:
    gpus = jax.devices("gpu")
    mesh = Mesh(np.array(gpus), ("rows",))
    rows, everywhere = (NamedSharding(mesh, PartitionSpec(*names)) for names in (("rows",), ()))
    cpu = jax.devices("cpu")[0]
    found = {
        "devices": len(gpus),
        "losses": losses(jax.device_put(W, everywhere), jax.device_put(X, rows)),
        "cpu": losses(jax.device_put(W, cpu), jax.device_put(X, cpu)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
