"""Keras trains with `tf.distribute` on all GPUs, their gradients added by NCCL, and on the CPU."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import numpy as np
import tensorflow as tf

X = np.random.default_rng(3).standard_normal((64, 8)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def losses(scope: Any) -> list[float]:
    tf.keras.utils.set_random_seed(3)
    with scope:
        model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return [float(loss) for loss in model.fit(X, Y, 16, 5, verbose=0, shuffle=False).history["loss"]]


def main() -> None:
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    together = tf.distribute.MirroredStrategy(gpus, cross_device_ops=tf.distribute.NcclAllReduce())
    found = {
        "devices": len(gpus),
        "losses": losses(together.scope()),
        "cpu": losses(tf.distribute.OneDeviceStrategy("/CPU:0").scope()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
