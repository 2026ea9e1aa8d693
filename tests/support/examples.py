"""Runs the notebooks in examples/ on a real stack, as a person would from top to bottom.

`python -m tests.support.examples` runs all that can run here and saves what they show in them
(`make examples`), so that who reads them elsewhere sees results. What needs PyTorch runs with the
interpreter that GPUPOOL_TORCH_PYTHON names, what needs TensorFlow or JAX with that of GPUPOOL_TENSORFLOW_PYTHON or
GPUPOOL_JAX_PYTHON, eager PyTorch with that of GPUPOOL_TORCH_PYTHON if a kernel pack was built for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, Final

import nbformat
from gpupool.kernel_packs.errors import PackError
from gpupool.kernel_packs.store import Store, default_folder
from gpupool.kernel_packs.torch import find_wheel

from tests.support.stack import ROOT, Kernel, Stack, wait_until

EXAMPLES = ROOT / "examples"
#: These import PyTorch and Triton.
NEED_TORCH = ("torch-compile", "torch-training", "triton")
#: PyTorch's own kernels run from a kernel pack.
NEED_PACKED_TORCH = ("torch-eager",)
NEED_TENSORFLOW = ("tensorflow",)
NEED_JAX = ("jax",)
#: Not on Jupyter's own kernel.
NEED_A_FRAMEWORK = NEED_TORCH + NEED_PACKED_TORCH + NEED_TENSORFLOW + NEED_JAX
#: How long a cell may take. Dozens of kernels are compiled in one of these, by Triton on the CPU.
SECONDS: Final[dict[str, float]] = {"torch-training": 900.0}
USUAL_SECONDS: Final = 240.0
#: A cell with this tag comes after the share has been given back for not being used.
PAUSE = "after-a-pause"
#: Idle release comes this early in the stack that examples run on.
HASTY = ("--idle-seconds", "12", "--warn-seconds", "4")
#: Views that only live pages can draw; the same outputs have a text or HTML as well.
_LIVE = "application/vnd.jupyter.widget-view+json"


def names() -> list[str]:
    """The examples, without their ending."""
    return sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))


def torch_python() -> str | None:
    """An interpreter with PyTorch for CUDA and Triton; None where there is none."""
    python = os.environ.get("GPUPOOL_TORCH_PYTHON", sys.executable)
    probe = "import sys, importlib.util as u, torch; sys.exit(torch.version.cuda is None or u.find_spec('triton') is None)"
    found = subprocess.run([python, "-c", probe], capture_output=True, check=False)
    return python if found.returncode == 0 else None


def packed_torch_python() -> str | None:
    """An interpreter with PyTorch for CUDA for which there is a kernel pack; None where there is none."""
    python = os.environ.get("GPUPOOL_TORCH_PYTHON", sys.executable)
    try:
        wheel = find_wheel(Path(python))
        products = {pack.product for pack in Store(default_folder(os.environ)).packs()}
    except PackError:
        return None
    return python if f"torch {wheel.version}" in products else None


def tensorflow_python() -> str | None:
    """An interpreter with TensorFlow; None where there is none."""
    return _python_with("tensorflow", "GPUPOOL_TENSORFLOW_PYTHON")


def jax_python() -> str | None:
    """An interpreter with JAX and its CUDA plug-in; None where there is none."""
    return _python_with("jax, jax_plugins.xla_cuda13", "GPUPOOL_JAX_PYTHON")


def _python_with(modules: str, variable: str) -> str | None:
    python = os.environ.get(variable, sys.executable)
    found = subprocess.run([python, "-c", f"import {modules}"], capture_output=True, check=False)
    return python if found.returncode == 0 else None


def needed_python(name: str) -> str | None:
    """The interpreter for an example; None: what it needs is not installed."""
    if name in NEED_TORCH:
        return torch_python()
    if name in NEED_PACKED_TORCH:
        return packed_torch_python()
    if name in NEED_JAX:
        return jax_python()
    return tensorflow_python() if name in NEED_TENSORFLOW else sys.executable


def what_is_missing(name: str) -> str:
    """What a person can do about an example that :func:`needed_python` has no interpreter for."""
    if name in NEED_PACKED_TORCH:
        return "there is no kernel pack for the PyTorch of GPUPOOL_TORCH_PYTHON: gpupool kernel-packs build"
    package, variable = (
        ("PyTorch for CUDA", "GPUPOOL_TORCH_PYTHON")
        if name in NEED_TORCH
        else ("JAX with its CUDA plug-in", "GPUPOOL_JAX_PYTHON")
        if name in NEED_JAX
        else ("TensorFlow", "GPUPOOL_TENSORFLOW_PYTHON")
    )
    return f"{package} is not installed; name a Python that has it in {variable}"


def kernel_for(stack: Stack, name: str, python: str) -> str:
    """The name of the stack's kernel that an example runs on; it is added where it is not Jupyter's own."""
    return _add_kernel(stack, python) if name in NEED_A_FRAMEWORK else "python3"


def _add_kernel(stack: Stack, python: str) -> str:
    folder = stack.home / "jd" / "kernels" / "framework"
    folder.mkdir(parents=True, exist_ok=True)
    path = [str(ROOT), str(ROOT / "server"), sysconfig.get_path("purelib")]
    environment = {
        "PYTHONPATH": os.pathsep.join(path),
        # Without a word on it Triton 3.9 prints that it will change its mind.
        "TRITON_DEFAULT_FP_FUSION": "1",
        # Where they are named, what was compiled before is used again.
        "TRITON_CACHE_DIR": os.environ.get("TRITON_CACHE_DIR", str(stack.home / "triton")),
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(stack.home / "inductor")),
    }
    command = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Framework", "language": "python", "env": environment}
    (folder / "kernel.json").write_text(json.dumps(spec))
    return "framework"


def execute(stack: Stack, name: str, kernel_name: str = "python3") -> Any:
    """Runs an example; the notebook with its outputs. Raises TimeoutError when a cell takes too long."""
    seconds = SECONDS.get(name, USUAL_SECONDS)
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", 4)
    started = stack.api("POST", "api/kernels", {"name": kernel_name})
    kernel = Kernel(stack, started["id"])
    try:
        count = 0
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            if PAUSE in cell.metadata.get("tags", []):
                _wait_for_release(kernel)
            count += 1
            cell.execution_count = count
            cell.outputs = _run(kernel, cell.source, seconds)
            if any(output.output_type == "error" for output in cell.outputs):
                break
        return notebook
    finally:
        kernel.client.stop_channels()
        stack.api("DELETE", f"api/kernels/{kernel.id}")


def _wait_for_release(kernel: Kernel) -> None:
    try:
        wait_until(lambda: not kernel.state()["held"], 60, "the share to go back")
    except TimeoutError as late:
        raise TimeoutError(f"{late}: {kernel.state()}") from None


def _run(kernel: Kernel, code: str, seconds: float) -> list[Any]:
    """What a front end would save of a cell."""
    message_id = kernel.start(code)
    outputs: list[Any] = []
    shown: dict[str, int] = {}
    clear = False
    deadline = time.monotonic() + seconds
    while True:
        message = kernel.client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") != message_id:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return [_saved(output) for output in outputs]
        if kind == "clear_output":
            clear = True
            continue
        if kind not in ("stream", "display_data", "execute_result", "update_display_data", "error"):
            continue
        if clear:
            outputs, shown, clear = [], {}, False
        display_id = content.get("transient", {}).get("display_id")
        if kind == "update_display_data":
            if display_id in shown:
                outputs[shown[display_id]].data = nbformat.from_dict(content["data"])
            continue
        output = nbformat.v4.output_from_msg(message)
        if (
            kind == "stream"
            and outputs
            and outputs[-1].output_type == "stream"
            and outputs[-1].name == output.name
        ):
            outputs[-1].text += output.text
            continue
        if display_id:
            shown[display_id] = len(outputs)
        outputs.append(output)


def _saved(output: Any) -> Any:
    if "data" in output:
        output.data.pop(_LIVE, None)
    return output


def errors(notebook: Any) -> list[str]:
    """The errors among a notebook's outputs."""
    return [
        f"{output.ename}: {output.evalue}"
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error"
    ]


def main(*chosen: str) -> int:
    failed = False
    with Stack(*HASTY) as stack:
        for name in chosen or names():
            python = needed_python(name)
            if python is None:
                print(f"{name}: left as it is, {what_is_missing(name)}")
                continue
            notebook = execute(stack, name, kernel_for(stack, name, python))
            found = errors(notebook)
            failed = failed or bool(found)
            print(f"{name}: {found or 'done'}", flush=True)
            if not found:
                nbformat.write(notebook, EXAMPLES / f"{name}.ipynb")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
