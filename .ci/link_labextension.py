"""Links the built front end into .venv, so that a rebuild is seen without installing again.

JupyterLab finds prebuilt extensions in <prefix>/share/jupyter/labextensions; a wheel puts a copy
there, a checkout a link. `--remove` takes the link away before pip installs anew: pip would remove and write
files through it, in this tree.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def link(target: Path, at: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    if at.is_symlink() or at.is_file():
        at.unlink()
    elif at.exists():
        shutil.rmtree(at)
    at.symlink_to(target)


def main() -> None:
    name = json.loads((ROOT / "package.json").read_text())["name"]
    built = ROOT / "jupyter_gpupool" / "labextension"
    if not (built / "package.json").exists():
        sys.exit(f"{built} is not built")
    prefix = Path(sys.prefix)
    front_end = prefix / "share" / "jupyter" / "labextensions" / name
    if sys.argv[1:] == ["--remove"]:
        if front_end.is_symlink():
            front_end.unlink()
        # What pip has written through it before; the wheel has it from elsewhere.
        (built / "install.json").unlink(missing_ok=True)
        return
    link(built, front_end)
    config = "jupyter_server_config.d/jupyter_gpupool.json"
    link(
        ROOT / "jupyter_gpupool" / "jupyter-config" / "jupyter_gpupool.json",
        prefix / "etc" / "jupyter" / config,
    )


if __name__ == "__main__":
    main()
