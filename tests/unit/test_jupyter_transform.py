"""`%%gpu` as an input transformer: what IPython gets to compile for each kind of cell."""

from __future__ import annotations

import ast
import re

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from jupyter_gpupool.kernel.transform import transform


def compiled(cell: str) -> str:
    """The cell after all of IPython's transformers and ours, where the extension puts it."""
    manager = TransformerManager()
    manager.cleanup_transforms.append(transform)
    return manager.transform_cell(cell)


ENTER = "get_ipython().gpupool.enter"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%%gpu 0.2\nx = 1\n", f"{ENTER}('0.2')\nx = 1\n"),
        (
            "%%gpu 0.2 -n 2 --wait 30 --hold --for 5\nx = 1\n",
            f"{ENTER}('0.2 -n 2 --wait 30 --hold --for 5')\nx = 1\n",
        ),
        ("%%gpu\nx = 1\n", f"{ENTER}('')\nx = 1\n"),
        ("%%gpu", f"{ENTER}('')\n"),
        ("%%gpu 20%\nx = 1\n", f"{ENTER}('20%')\nx = 1\n"),
        ("%%gpu banana\nx = 1\n", f"{ENTER}('banana')\nx = 1\n"),
        ("%%gpu '); import os; ('\nx = 1\n", f"{ENTER}(\"'); import os; ('\")\nx = 1\n"),
        ("\n\n%%gpu 0.2\nx = 1\n", f"{ENTER}('0.2')\nx = 1\n"),
        ("%%gpu 0.2\n    x = 1\n    y = 2\n", f"{ENTER}('0.2')\nx = 1\ny = 2\n"),
        ("    %%gpu 0.2\n    x = 1\n", f"{ENTER}('0.2')\nx = 1\n"),
        ("%%gpu 0.2\nawait f()\n", f"{ENTER}('0.2')\nawait f()\n"),
        ("%%gpu 0.2\n!ls\n", f"{ENTER}('0.2')\nget_ipython().system('ls')\n"),
        (
            "%%gpu 0.2\n%%time -q\nx = 1\ny\n",
            f"{ENTER}('0.2')\nget_ipython().gpupool.cell_magic('time', '-q', 'x = 1\\ny\\n')\n",
        ),
        (
            "%%gpu 0.2\n\n%%time\nx\n",
            f"{ENTER}('0.2')\n\nget_ipython().gpupool.cell_magic('time', '', 'x\\n')\n",
        ),
        (
            "%%gpu 0.2\n# first\nfrom __future__ import annotations\nx: int = 1\n",
            f"\n# first\nfrom __future__ import annotations; {ENTER}('0.2')\nx: int = 1\n",
        ),
    ],
)
def test_the_first_line_becomes_one_call_and_the_rest_stays(cell: str, expected: str) -> None:
    assert re.sub(r"  # %%gpu.*", "", compiled(cell)) == expected


@pytest.mark.parametrize("typed", ["%%gpu 0.2 -n 2", "%%gpu", "%%gpu  0.2\t--hold"])
def test_a_traceback_shows_what_was_typed_in_a_comment(typed: str) -> None:
    first, rest = compiled(f"{typed}\nx = 1").split("\n", 1)
    assert first.endswith(f"  # {' '.join(typed.split())}")
    assert rest == "x = 1\n"


@pytest.mark.parametrize(
    "cell",
    [
        "x = 1\n",
        "# %%gpu 0.2\nx\n",
        "x = '''\n%%gpu 0.2\n'''\n",
        "",
        "%%gpux 0.2\nx\n",
        "%%gpu_like\nx\n",
        "%gpu status\n",
    ],
)
def test_other_cells_are_left_alone(cell: str) -> None:
    assert transform(cell.splitlines(keepends=True)) == cell.splitlines(keepends=True)


@pytest.mark.parametrize("question", ["%%gpu?", "%%gpu??"])
def test_help_is_asked_of_the_registered_magic(question: str) -> None:
    assert "pinfo" in compiled(question)
    assert ENTER not in compiled(question)


def test_line_numbers_stay_true() -> None:
    cell = "%%gpu 0.2\nx = 1\n\ny = 2\nraise ValueError\n"
    tree = ast.parse(compiled(cell))
    assert [node.lineno for node in tree.body] == [1, 2, 4, 5]


@pytest.mark.parametrize(
    "head",
    [
        "from __future__ import annotations  # lazy\n",
        "from __future__ import (annotations)\n",
        "from __future__ import (  # both\n    annotations,\n    division,\n)  # of them\n",
        "from __future__ import \\\n    annotations\n",
        "from __future__ import annotations;\n",
        '"""What it does."""\nfrom __future__ import annotations\n',
        "'''What it does,\nin two lines.'''; from __future__ import annotations\n\n# and\nfrom __future__ import division\n",
        "from __future__ import annotations; from __future__ import division  # lazy\n",
    ],
)
def test_a_future_import_stays_above_the_call(head: str) -> None:
    text = compiled(f"%%gpu 0.2\n{head}x: int = 1\nraise ValueError\n")
    compile(text, "cell", "exec")
    tree = ast.parse(text)
    *above, enter, x, error = [ast.unparse(node) for node in tree.body]
    assert above[-1].startswith("from __future__ import")
    assert (enter, x, error) == (f"{ENTER}('0.2')", "x: int = 1", "raise ValueError")
    assert [node.lineno for node in tree.body[-2:]] == [head.count("\n") + 2, head.count("\n") + 3]


def test_what_else_is_on_the_line_of_a_future_import_runs_with_the_gpu() -> None:
    text = compiled("%%gpu 0.2\nfrom __future__ import annotations; x = '''a\nb'''\n")
    _, enter, x = [ast.unparse(node) for node in ast.parse(text).body]
    assert (enter, x) == (f"{ENTER}('0.2')", "x = 'a\\nb'")


def test_a_string_that_begins_on_the_line_of_a_future_import_keeps_its_blanks() -> None:
    text = compiled("%%gpu 0.2\nfrom __future__ import annotations; x = '''a   \nb'''\n")
    assert ast.unparse(ast.parse(text).body[-1]) == "x = 'a   \\nb'"


@pytest.mark.parametrize(
    "head",
    [
        "\f\nfrom __future__ import annotations\n",
        "'One page,\fand another.'\nfrom __future__ import annotations\n",
        "'''One line,\x0banother,\x85\u2028and more.'''\nfrom __future__ import annotations\n",
        "from __future__ import annotations  # one page,\fand another\n",
        "from __future__ import (  # \u2028\n    annotations,\n)\n",
        "from __future__ import annotations\r\n",
    ],
)
def test_lines_end_where_those_of_python_do(head: str) -> None:
    tree = ast.parse(compiled(f"%%gpu 0.2\n{head}x = 1\n"))
    *_, future, enter, x = [ast.unparse(node) for node in tree.body]
    assert (future, enter, x) == ("from __future__ import annotations", f"{ENTER}('0.2')", "x = 1")


@pytest.mark.parametrize("rest", ["!ls\n", "%matplotlib inline\n", "x?\n", "'''never ended\n"])
def test_what_is_no_python_below_a_future_import_changes_nothing_about_it(rest: str) -> None:
    lines = ["%%gpu 0.2\n", "from __future__ import annotations\n", rest]
    _, enter, below = transform(lines)
    assert enter.startswith(f"from __future__ import annotations; {ENTER}('0.2')")
    assert below == rest


def test_a_string_above_anything_else_is_no_reason_to_wait_with_the_call() -> None:
    lines = ["%%gpu 0.2\n", '"""What it does."""\n', "x = 1\n"]
    assert transform(lines)[0].startswith(ENTER)
    assert transform(lines)[1:] == lines[1:]


def test_a_syntax_error_spoils_the_whole_cell_so_it_never_attaches() -> None:
    with pytest.raises(SyntaxError) as error:
        compile(compiled("%%gpu 0.2\nx = 1\nfor for in\n"), "cell", "exec")
    assert error.value.lineno == 3


def test_two_gpu_lines_are_an_error_that_says_so() -> None:
    with pytest.raises(SyntaxError, match="one %%gpu line"):
        exec(compiled("%%gpu 0.2\n%%gpu 0.3\nx\n"))


def test_it_is_pure_and_stable() -> None:
    lines = ["%%gpu 0.2\n", "x = 1\n"]
    once = transform(lines)
    assert lines == ["%%gpu 0.2\n", "x = 1\n"]
    assert transform(lines) == once
    assert transform(once) == once
