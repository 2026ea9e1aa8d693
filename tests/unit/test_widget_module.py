"""The widget's JavaScript: several files that a page gets as one module."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from jupyter_gpupool.widget import page
from jupyter_gpupool.widget.page import FILES, module_text

FOLDER = Path(str(page.__file__)).parent


def imports(name: str) -> list[str]:
    return re.findall(r"from '\./([a-z_]+\.js)'", (FOLDER / name).read_text())


def test_every_file_is_in_it_after_those_that_it_imports() -> None:
    assert sorted(FILES) == sorted(path.name for path in FOLDER.glob("*.js"))
    for position, name in enumerate(FILES):
        assert set(imports(name)) <= set(FILES[:position]), name


def test_what_is_imported_is_exported_there() -> None:
    for name in FILES:
        text = (FOLDER / name).read_text()
        for names, source in re.findall(r"import \{([^}]*)\} from '\./([a-z_]+\.js)'", text):
            for wanted in filter(None, (part.strip() for part in names.split(","))):
                exported = rf"^export (?:async )?(?:function|class|const) {wanted}\b"
                assert re.search(exported, (FOLDER / source).read_text(), re.MULTILINE), (name, wanted)


def test_it_is_one_module_with_one_export_and_no_name_twice() -> None:
    text = module_text()
    assert re.findall(r"^(?:import|export)\b.*", text, re.MULTILINE) == ["export default { render };"]
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_it_takes_nothing_from_the_network_but_the_server() -> None:
    text = module_text()
    assert text.count("fetch(") == 1
    assert re.findall(r"https?://(?!www\.w3\.org)", text) == []
    assert "innerHTML" not in re.sub(r"//.*", "", text)
