"""What unmodified TensorFlow computes on the GPU, beside the CPU. Prints JSON: ``errors``, by the name of a check.

Run by an interpreter with TensorFlow; imports nothing of this project. Both sides are TensorFlow's own, from the same values
and seeds. An error is relative to the largest number of the CPU's results; what fails has TensorFlow's words in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found]  # too large to be a requirement
from tensorflow.python.ops.linalg.sparse import (  # type: ignore[import-not-found]
    sparse_csr_matrix_ops as csr,
)

GENERATOR = np.random.default_rng(0)
keras: Any = tf.keras
Check = tuple[str, Callable[[], Any]]


def draw(*shape: int, dtype: Any = "float32") -> Any:
    with tf.device("/CPU:0"):
        return tf.constant(GENERATOR.standard_normal(shape), dtype)


def differentiated(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The result, and the gradients of a sum that weighs each element of it."""
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        result = function(*arguments)
        total = tf.reduce_sum(result * tf.cos(result))
    return [result, *tape.gradient(total, list(arguments))]


def products() -> Iterator[Check]:
    a, b, words = draw(70, 90), draw(90, 50), draw(4, 9, 12)
    for dtype in ("float32", "float64", "float16", "bfloat16", "complex64"):
        yield f"matmul {dtype}", lambda dtype=dtype: tf.cast(a, dtype) @ tf.cast(b, dtype)
    yield "matmul transposed", lambda: tf.matmul(b, a, transpose_a=True, transpose_b=True)
    yield (
        "matmul of batches",
        lambda: differentiated(lambda x, y: tf.matmul(x, y), words, draw_once(4, 12, 7)),
    )
    yield "einsum", lambda: tf.einsum("bti,ij,btj->bt", words, a[:12, :12], words)
    yield "bias and activation", lambda: tf.nn.relu(tf.nn.bias_add(a @ b, b[0]))


def draw_once(*shape: int) -> Any:
    """The same numbers at each call."""
    with tf.device("/CPU:0"):
        return tf.constant(np.random.default_rng(1).standard_normal(shape), "float32")


def images() -> Iterator[Check]:
    image, filters, volume = draw(3, 17, 19, 8), draw(3, 3, 8, 16), draw(2, 7, 8, 9, 3)
    scale, shift = draw(8), draw(8)
    for name, options in (
        ("", {}),
        (" with strides", {"strides": 2}),
        (" without padding", {"padding": "VALID"}),
        (" dilated", {"dilations": 2}),
        (" padded by hand", {"padding": [[0, 0], [2, 1], [0, 3], [0, 0]]}),
    ):
        chosen = {"strides": 1, "padding": "SAME", **options}
        yield (
            f"conv2d{name}",
            lambda chosen=chosen: differentiated(lambda x, w: tf.nn.conv2d(x, w, **chosen), image, filters),
        )
    yield "conv2d of groups", lambda: tf.nn.conv2d(image, filters[:, :, :4], 1, "SAME")
    yield "depthwise", lambda: tf.nn.depthwise_conv2d(image, filters[..., :2], (1, 1, 1, 1), "SAME")
    yield (
        "conv2d_transpose",
        lambda: tf.nn.conv2d_transpose(image, draw_once(3, 3, 5, 8), (3, 34, 38, 5), 2, "SAME"),
    )
    yield "conv3d", lambda: differentiated(
        lambda x, w: tf.nn.conv3d(x, w, [1] * 5, "SAME"), volume, draw_once(3, 3, 3, 3, 4)
    )  # fmt: skip
    yield "max pool", lambda: differentiated(lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), image)
    yield "average pool", lambda: differentiated(lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), image)
    yield "pool of volumes", lambda: tf.nn.max_pool3d(volume, 2, 2, "SAME")

    def normalised(x: Any, factor: Any, offset: Any, training: bool) -> Any:
        known = {} if training else {"mean": shift, "variance": scale * scale + 0.5}
        return tf.compat.v1.nn.fused_batch_norm(x, factor, offset, is_training=training, **known)[0]

    for training in (True, False):
        yield (
            f"batch norm {'in training' if training else 'of known statistics'}",
            lambda training=training: differentiated(
                lambda x, factor, offset: normalised(x, factor, offset, training), image, scale, shift
            ),
        )
    yield "response normalisation", lambda: differentiated(
        lambda x: tf.nn.local_response_normalization(x, 1, bias=1.0, alpha=0.3, beta=0.6), image
    )  # fmt: skip
    yield "resize", lambda: [tf.image.resize(image, (30, 40)), tf.image.resize(image, (20, 20), "bicubic")]


def elements() -> Iterator[Check]:
    a, logits, ids, table = draw(70, 90), draw(32, 10), tf.constant([[1, 5, 7], [3, 1, 0]]), draw(8, 6)
    labels = tf.constant(np.arange(32) % 10)
    small = tf.clip_by_value(tf.abs(a) * 0.3, 0.01, 0.95)
    for name in (
        "exp",
        "log1p",
        "sin",
        "tanh",
        "sigmoid",
        "erf",
        "lgamma",
        "rsqrt",
        "acos",
        "softplus",
        "round",
    ):
        yield name, lambda name=name: getattr(tf.math, name)(small)
    yield "softmax", lambda: differentiated(tf.nn.softmax, logits)
    yield "cross entropy", lambda: differentiated(
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x), logits
    )  # fmt: skip
    yield "reductions", lambda: [
        tf.reduce_sum(a), tf.reduce_mean(a, 0), tf.reduce_max(a, 1), tf.reduce_min(draw_once(4, 9, 12), (0, 2)),
        tf.cast(tf.argmax(a, 1), tf.float32), tf.reduce_logsumexp(a, 1),
    ]  # fmt: skip
    yield "cumulative sums", lambda: [tf.cumsum(a, 1), tf.cumsum(a, 0, exclusive=True, reverse=True)]
    yield "sort", lambda: [tf.sort(a, 1), tf.math.top_k(a, 5)[0]]
    yield "where", lambda: [tf.boolean_mask(a, a[:, 0] > 0), tf.cast(tf.where(a > 1.0), tf.float32)]
    yield "embeddings", lambda: [
        tf.convert_to_tensor(each) for each in differentiated(lambda t: tf.gather(t, ids), table)
    ]  # fmt: skip
    yield "segments", lambda: tf.math.unsorted_segment_sum(a, tf.range(70) % 9, 9)
    yield "dropout", lambda: tf.nn.experimental.stateless_dropout(a, 0.3, seed=[1, 2], rng_alg="philox")
    yield (
        "random numbers of a seed",
        lambda: [
            tf.random.stateless_normal((1000,), [1, 2], alg="philox"),
            tf.random.stateless_truncated_normal((1000,), [1, 2], alg="philox"),
            tf.random.Generator.from_seed(7, alg="philox").uniform((300,)),
        ],
    )


def sparse_square(square: Any) -> Any:
    sparse = csr.CSRSparseMatrix(tf.where(square > 1.0, square, 0.0))
    return csr.matmul(sparse, sparse).to_dense()


def algebra() -> Iterator[Check]:
    square, wide, signal = draw(40, 40), draw(30, 50), draw(4, 1000)
    definite = square @ tf.transpose(square) + 40 * tf.eye(40)
    plane = tf.complex(draw(3, 24, 36), draw(3, 24, 36))
    yield "solve", lambda: tf.linalg.solve(definite, square)
    yield (
        "solve batches",
        lambda: tf.linalg.solve(tf.stack([definite, definite * 2]), tf.stack([square, square])),
    )
    yield "cholesky", lambda: tf.linalg.cholesky(tf.stack([definite, definite * 2]))
    yield "triangular solve", lambda: tf.linalg.triangular_solve(definite, square)
    yield "inverse", lambda: tf.linalg.inv(definite)
    yield "determinant", lambda: tf.linalg.slogdet(definite)[1]
    yield "singular values", lambda: tf.linalg.svd(wide, compute_uv=False)

    def rebuilt() -> Any:
        values, left, right = tf.linalg.svd(wide)
        return (left * values) @ tf.transpose(right)

    yield "singular vectors", rebuilt
    yield "eigenvalues", lambda: tf.linalg.eigvalsh(definite)
    yield "qr", lambda: tf.abs(tf.linalg.qr(wide)[1])
    yield (
        "fft",
        lambda: [tf.signal.fft(tf.cast(signal, tf.complex64)), tf.signal.irfft(tf.signal.rfft(signal))],
    )
    yield "fft2d", lambda: [tf.signal.fft2d(plane), tf.signal.rfft2d(tf.math.real(plane))]
    bands, sides = draw(3, 60), draw(60, 5)
    for pivots in (True, False):
        yield (
            f"tridiagonal solve {'with' if pivots else 'without'} pivoting",
            lambda pivots=pivots: tf.linalg.tridiagonal_solve(
                tf.stack([bands[0], bands[1] + 6, bands[2]]), sides, "compact", partial_pivoting=pivots
            ),
        )
    yield "sparse product of sparse matrices", lambda: sparse_square(square)
    yield "sparse product", lambda: tf.sparse.sparse_dense_matmul(
        tf.sparse.from_dense(tf.where(square > 1.0, square, 0.0)), square
    )  # fmt: skip


def sequences() -> Iterator[Check]:
    words = draw(4, 9, 12)
    for name in ("LSTM", "GRU"):

        def run(name: str = name) -> list[Any]:
            layer = getattr(keras.layers, name)(6, return_sequences=True)
            layer.build(words.shape)
            layer.set_weights(
                [np.cos(np.arange(np.prod(w.shape)) * 0.7).reshape(w.shape) for w in layer.weights]
            )
            with tf.GradientTape() as tape:
                tape.watch(words)
                result = layer(words)
                total = tf.reduce_sum(result * result)
            return [result, *tape.gradient(total, [words, *layer.trainable_variables])]

        yield name, run


def compiled() -> Iterator[Check]:
    a, b, image, filters = draw(70, 90), draw(90, 50), draw(2, 8, 8, 3), draw(3, 3, 3, 4)
    convolved = tf.function(
        lambda x, w: differentiated(lambda i, f: tf.nn.conv2d(i, f, 1, "SAME"), x, w),
        jit_compile=True,
        autograph=False,
    )
    multiplied = tf.function(lambda x, y: tf.nn.relu(x @ y + 1.0), jit_compile=True, autograph=False)
    reduced = tf.function(
        lambda x: [tf.nn.softmax(tf.sin(x)), tf.reduce_sum(x), tf.sort(x, 1)],
        jit_compile=True,
        autograph=False,
    )

    @tf.function
    def loop(x: Any) -> Any:
        for _ in tf.range(5):
            x = tf.where(tf.reduce_sum(x) > 0.0, x * 0.5, x + 1.0)
        return x

    yield "tf.function", lambda: loop(a)
    yield "XLA element by element", lambda: reduced(a)
    yield "XLA matmul", lambda: multiplied(a, b)
    yield "XLA conv2d", lambda: convolved(image, filters)


def network(kind: str) -> Any:
    layers = keras.layers
    if kind == "MLP":
        return [layers.Flatten(), layers.Dense(32, "relu"), layers.Dropout(0.0), layers.Dense(10)]
    return [
        layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(),
        layers.Conv2D(16, 3, activation="relu", padding="same"), layers.GlobalAveragePooling2D(), layers.Dense(10),
    ]  # fmt: skip


def training() -> Iterator[Check]:
    """Losses of Keras's ``fit``."""
    generator = np.random.default_rng(2)
    inputs, labels = generator.standard_normal((128, 8, 8, 1)), generator.integers(0, 10, 128)
    inputs[np.arange(128), labels % 8] += 2

    for kind, jit in (("MLP", False), ("CNN", False), ("CNN", True)):

        def losses(kind: str = kind, jit: bool = jit) -> Any:
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.layers.Input((8, 8, 1)), *network(kind)])
            on_gpu = "GPU" in tf.zeros(()).device
            model.compile(
                keras.optimizers.Adam(1e-2),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=jit and on_gpu,
            )
            fitted = model.fit(inputs, labels, batch_size=32, epochs=2, verbose=0, shuffle=False)
            return tf.constant([*fitted.history["loss"], model.evaluate(inputs, labels, verbose=0)])

        yield f"fit {kind}{' with XLA' if jit else ''}", losses


def error(results: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest number, of all results."""
    worst = 0.0
    for result, right in zip(tf.nest.flatten(results), tf.nest.flatten(wanted), strict=True):
        ours, theirs = (np.asarray(each).astype(np.complex128) for each in (result, right))
        if ours.shape != theirs.shape:
            return float("inf")
        worst = max(worst, float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30)))
    return worst


def gibibyte() -> str:
    """Whether there is room for one: ``room``, or how TensorFlow refuses it."""
    try:
        with tf.device("/GPU:0"):
            tf.zeros((1 << 30,), tf.uint8).numpy()
    except tf.errors.ResourceExhaustedError:
        return "exhausted"
    return "room"


def main() -> None:
    device = tf.config.list_physical_devices("GPU")[0]
    tf.config.experimental.set_memory_growth(device, True)
    # Else XLA may choose a product in TensorFloat-32, by how long it takes.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    found: dict[str, Any] = {}
    groups = (products, images, elements, algebra, sequences, compiled, training)
    with tf.device("/CPU:0"):
        checks = [check for group in groups for check in group()]
    for name, function in checks:
        try:
            with tf.device("/CPU:0"):
                wanted = function()
            with tf.device("/GPU:0"):
                found[name] = error(function(), wanted)
        except (tf.errors.OpError, RuntimeError, ValueError) as failure:
            found[name] = str(failure)[:500]
    print(json.dumps({"errors": found, "gibibyte": gibibyte()}))


if __name__ == "__main__":
    main()
