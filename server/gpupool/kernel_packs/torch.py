"""PyTorch's own kernels: where their sources are, and how they are compiled.

The wheel has the headers (``torch/include``), NVIDIA's wheels beside it those of the math libraries. The user's copy of the
sources gives the ``.cu`` files and the few headers that the wheel leaves out.
"""

from __future__ import annotations

import lzma
import re
import subprocess
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.kernel_packs import cutlass
from gpupool.kernel_packs.build import Recipe
from gpupool.kernel_packs.errors import PackError

_KERNELS: Final = "aten/src/ATen/native/cuda"
#: Other folders whose kernels are in the same library. Sorts and scans, which many operators need, are in the first.
_MORE_KERNELS: Final = (
    "aten/src/ATen/cuda",
    "aten/src/ATen/cuda/detail",
    "aten/src/ATen/native/sparse/cuda",
    "aten/src/ATen/native/nested/cuda",
    "aten/src/ATen/native/quantized/cuda",
    "aten/src/ATen/native/transformers/cuda",
    "aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernels",
    "aten/src/ATen/native/transformers/cuda/flash_attn/kernels",
)
_OPTIONS: Final = (
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-DCUB_WRAPPED_NAMESPACE=at_cuda_detail",
    "-DAT_PER_OPERATOR_HEADERS",
    "-DTORCH_CUDA_BUILD_MAIN_LIB",
    "-DUSE_CUDA",
    "-w",
)
#: NVIDIA's wheels whose headers PyTorch's sources include. Not those of the toolkit: the compiler brings its own.
_HEADERS: Final = ("cublas", "cusparse", "cusolver", "cudnn", "cufft", "curand", "nccl", "cusparselt", "nvtx")

#: Bytes of an archive at a time.
_PIECE: Final = 1 << 20

#: Files by which the usual networks train: layers, attention written out, losses, optimisers, mixed precision.
TRAIN: Final = (
    "FillKernel.cu",
    "Copy.cu",
    "BinaryMulKernel.cu",
    "UfuncCUDA_add.cu",
    "BinaryDivTrueKernel.cu",
    "ActivationThresholdKernel.cu",
    "ActivationGeluKernel.cu",
    "ActivationSiluKernel.cu",
    "UnaryOpsKernel.cu",
    "UnaryGeometricTanhKernel.cu",
    "PointwiseOpsKernel.cu",
    "PowKernel.cu",
    "CompareKernels.cu",
    "CompareEQKernel.cu",
    "TensorCompare.cu",
    "SoftMax.cu",
    "Loss.cu",
    "NLLLoss2d.cu",
    "Reduce.cu",
    "ReduceSumProdKernel.cu",
    "ReduceMomentKernel.cu",
    "ReduceNormKernel.cu",
    "ReduceArgMaxKernel.cu",
    "ReduceMaxValuesKernel.cu",
    "ReduceLogicKernel.cu",
    "Shape.cu",
    "IndexKernel.cu",
    "Indexing.cu",
    "ScatterGatherKernel.cu",
    "Embedding.cu",
    "EmbeddingBackwardKernel.cu",
    "cub.cu",
    "cub-RadixSortKeys.cu",
    "cub-RadixSortPairs.cu",
    "layer_norm_kernel.cu",
    "Normalization.cu",
    "Dropout.cu",
    "DistributionUniform.cu",
    "DistributionNormal.cu",
    "DistributionBernoulli.cu",
    "RangeFactories.cu",
    "TriangularOps.cu",
    "Im2Col.cu",
    "ConvolutionMM2d.cu",
    "DilatedMaxPool2d.cu",
    "AveragePool2d.cu",
    "AdaptiveAveragePooling.cu",
    "fused_adam_impl.cu",
    "fused_adamw_impl.cu",
    "FusedSgdKernel.cu",
    "ForeachBinaryOpScalar.cu",
    "ForeachBinaryOpList.cu",
    "ForeachBinaryOpScalarList.cu",
    "ForeachBinaryOpScalarTensor.cu",
    "ForeachPointwiseOp.cu",
    "ForeachTernaryOp.cu",
    "ForeachUnaryOp.cu",
    "ForeachReduceOp.cu",
    "AmpKernels.cu",
    "attention.cu",
    "attention_backward.cu",
    *(
        f"cutlassF_{kind}.cu"
        for kind in ("f32_aligned", "f32_notaligned", "f16_aligned", "f16_notaligned", "bf16_aligned")
    ),
    *(
        f"cutlassB_{kind}_aligned_k{width}{dropout}.cu"
        for kind in ("f32", "f16", "bf16")
        for width in (32, 64, 96, 128, 65536)
        for dropout in ("", "_dropout")
    ),
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """An installed PyTorch.

    Attributes:
        version: as ``2.6.0+cu124``.
        commit: of its sources.
    """

    python: Path
    folder: Path
    version: str
    commit: str

    @property
    def library(self) -> Path:
        """The library with its kernels."""
        return self.folder / "lib" / "libtorch_cuda.so"


def find_wheel(python: Path) -> Wheel:
    """The PyTorch of an interpreter.

    Raises:
        PackError: it has none, or none for CUDA.
    """
    program = "import importlib.util; found = importlib.util.find_spec('torch'); print(found.origin if found else '')"
    try:
        ended = subprocess.run([python, "-I", "-c", program], capture_output=True, check=False, text=True)
    except OSError as error:
        raise PackError(f"{python}: {error.strerror}") from None
    if ended.returncode != 0 or not ended.stdout.strip():
        raise PackError(f"{python} has no PyTorch")
    folder = Path(ended.stdout.strip()).parent
    text = (folder / "version.py").read_text()
    version = re.search(r"__version__ = '([^']+)'", text)
    commit = re.search(r"git_version = '([0-9a-f]+)'", text)
    if version is None or commit is None:
        raise PackError(f"{folder}/version.py does not say which PyTorch this is")
    wheel = Wheel(python, folder, version[1], commit[1])
    if not wheel.library.is_file():
        raise PackError(
            f"PyTorch {wheel.version} of {python} is a build without CUDA: it has no {wheel.library.name}"
        )
    return wheel


def open_sources(source: Path, work: Path) -> Path:
    """The folder with PyTorch's sources; an archive is unpacked below ``work``, as far as it is needed.

    Raises:
        PackError: there are no such sources.
    """
    if source.is_file():
        source = _unpack(source, work)
    if not (source / _KERNELS).is_dir():
        raise PackError(f"{source} holds no sources of PyTorch: there is no {_KERNELS}")
    return source


def check_version(source: Path, wheel: Wheel) -> None:
    """Refuses sources of another version than the wheel: their kernels could have the same names and do something else.

    Raises:
        PackError: they are.
    """
    commit = _commit_of(source)
    if commit is not None:
        if commit != wheel.commit:
            raise PackError(
                f"{source} is at commit {commit[:12]}, PyTorch {wheel.version} was made from {wheel.commit[:12]}: "
                f"git checkout {wheel.commit}"
            )
        return
    try:
        said = (source / "version.txt").read_text().strip()
    except OSError:
        raise PackError(f"{source} does not say which version it is: there is no version.txt") from None
    if _release(said) != _release(wheel.version):
        raise PackError(
            f"{source} is PyTorch {said}, the wheel is {wheel.version}: take the sources of that release"
        )


def recipe(wheel: Wheel, source: Path, work: Path) -> Recipe:
    """How the wheel's kernels are compiled.

    Raises:
        PackError: files that PyTorch generates cannot be generated.
    """
    sources = kernel_sources(source)
    sources |= {path.name: path for path in _generated(wheel, work)}
    packages = wheel.folder.parent / "nvidia"
    folders = [
        wheel.folder / "include",
        wheel.folder / "include" / "torch" / "csrc" / "api" / "include",
        # CUDA 12's wheels have a folder each, CUDA 13's one for all.
        *(packages / name / "include" for name in _HEADERS),
        *(folder / "include" for folder in sorted(packages.glob("cu[0-9]*"))),
        source / "aten" / "src",
        source,
    ]
    include = tuple(f"-I{folder}" for folder in folders if folder.is_dir())
    major, minor = (int(part) for part in wheel.version.split(".")[:2])
    standard = "c++17" if (major, minor) < (2, 10) else "c++20"
    options = (f"-std={standard}", *_OPTIONS, *include)
    headers = cutlass.folders(source, wheel.python)
    return Recipe(
        f"torch {wheel.version}",
        sources,
        options,
        headers=tuple(map(str, headers)),
        headers_version=cutlass.version_of(headers),
        made_from_headers=frozenset(name for name, path in sources.items() if cutlass.needs(path)),
        without_headers=cutlass.MISSING,
        work=str(work),
    )


def kernel_sources(source: Path) -> dict[str, Path]:
    """The files with kernels by the names that users say.

    Where two folders have the same name, the second's is ``sparse-SoftMax.cu``.
    """
    found = {path.name: path for path in sorted((source / _KERNELS).glob("*.cu"))}
    for folder in _MORE_KERNELS:
        for path in sorted((source / folder).glob("*.cu")):
            name = f"{path.parent.parent.name}-{path.name}" if path.name in found else path.name
            found[name] = path
    return found


def chosen(found: Recipe, wanted: str) -> list[str]:
    """The files of a set: ``train`` or ``all``."""
    return sorted(found.sources) if wanted == "all" else [name for name in TRAIN if name in found.sources]


def _generated(wheel: Wheel, work: Path) -> list[Path]:
    """Sources that PyTorch's own generator, which comes with the wheel, writes."""
    to = work / "generated"
    to.mkdir(exist_ok=True)
    templates = wheel.folder.parent / "torchgen" / "packaged" / "ATen"
    command: list[str | Path] = [
        wheel.python,
        "-m",
        "torchgen.gen",
        "-s",
        templates,
        "-d",
        to,
        "--per-operator-headers",
    ]
    command += ["--aoti-install-dir", to / "aoti", "--generate", "sources"]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    made = sorted(to.glob("Ufunc*.cu"))
    # It ends with an error for files of other parts, after it has written these.
    if not made:
        # The wheel does not ask for what its generator imports.
        if "No module named 'yaml'" in ended.stderr:
            raise PackError(
                f"PyTorch's generator, which writes the file for add, needs PyYAML: {wheel.python} -m pip install pyyaml"
            )
        lines = ended.stderr.strip().splitlines()
        raise PackError(
            f"PyTorch's generator made no file for add: {lines[-1] if lines else 'it said nothing'}"
        )
    return made


def _unpack(archive: Path, work: Path) -> Path:
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                _, _, inside = member.name.partition("/")
                if inside == "version.txt" or inside.startswith("aten/src/") or cutlass.is_part(inside):
                    opened.extract(member, work, filter="data")
            # Only what was read to its end has been compared with its checksum.
            while opened.fileobj is not None and opened.fileobj.read(_PIECE):
                pass
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise PackError(f"{archive} cannot be unpacked: {error}") from None
    folders = [path for path in work.iterdir() if (path / "aten").is_dir()]
    if len(folders) != 1:
        raise PackError(f"{archive} holds no sources of PyTorch: there is no {_KERNELS}")
    return folders[0]


def _commit_of(source: Path) -> str | None:
    if not (source / ".git").exists():
        return None
    ended = subprocess.run(
        ["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, check=False, text=True
    )
    if ended.returncode:
        raise PackError(f"git cannot tell the commit of {source}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def _release(version: str) -> str:
    match = re.match(r"\d+\.\d+(\.\d+)?", version)
    return match[0] if match else version
