"""What is imported when: nothing slow for ``import taskscape``, and for no ``--help`` either."""

import importlib
import json
import subprocess
import sys
from types import FunctionType, ModuleType

import pytest

import taskscape
from taskscape.meta import LEARNERS
from taskscape.select import RULES
from taskscape.similarity import SIMILARITIES

SLOW = {
    "equinox", "jax", "jaxlib", "jaxtyping", "matplotlib", "numpy", "optax", "pandas", "PIL",
    "plotly", "pyarrow", "safetensors", "scipy", "sklearn",
}  # fmt: skip
LAZY = [
    "taskscape", "taskscape.distributed", "taskscape.meta", "taskscape.select",
    "taskscape.similarity", "taskscape.study", "taskscape.targets",
]  # fmt: skip
ALL_HELP = """
import os
import typer
from taskscape.cli import app

group = typer.main.get_command(app)
asked = [["--help"], ["--version"]]
for name, command in group.commands.items():
    asked.append([name, "--help"])
    asked += [[name, inner, "--help"] for inner in getattr(command, "commands", {})]
for words in asked:
    try:
        group.main(words, prog_name="taskscape")
    except SystemExit as end:
        assert not end.code, words
os.environ |= {"_TASKSCAPE_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
os.environ["COMP_WORDS"] = "taskscape r"
try:
    group.main([], prog_name="taskscape")
except SystemExit:
    pass
"""


def imported_by(code: str) -> tuple[str, set[str]]:
    """What a fresh Python prints, and the packages that it has imported in the end."""
    ending = "\nimport json, sys\nprint()\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code + ending], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *printed, modules = done.stdout.splitlines()
    return "\n".join(printed), {name.partition(".")[0] for name in json.loads(modules)}


def test_importing_taskscape_imports_nothing_slow() -> None:
    _, packages = imported_by("import taskscape; dir(taskscape); taskscape.DataError")
    assert not packages & SLOW


def test_neither_help_nor_completion_imports_anything_slow() -> None:
    printed, packages = imported_by(ALL_HELP)
    assert not packages & SLOW
    assert printed.count("Usage: taskscape") == 17
    flat = " ".join(printed.replace("│", " ").split())
    for name in (*LEARNERS, *SIMILARITIES, *RULES):
        assert f"{name}: " in flat  # the registries are read all the same
    assert printed.rstrip().endswith("run\nreport")  # what r completes to


@pytest.mark.parametrize("package", LAZY)
def test_all_that_a_package_offers_is_there(package: str) -> None:
    module = importlib.import_module(package)
    names = module.__all__
    assert names == sorted(set(names))
    assert set(names) <= set(dir(module))
    for name in names:
        assert not isinstance(getattr(module, name), ModuleType), name
    scope: dict[str, object] = {}
    exec(f"from {package} import *", scope)
    assert set(names) <= set(scope)


def test_submodules_are_there_without_importing_them() -> None:
    code = "import taskscape; print(taskscape.pools.SPLITS)"
    assert "'train'" in imported_by(code)[0]


def test_select_is_the_function_though_there_is_a_package_of_that_name() -> None:
    code = """
from taskscape.select import RULES
import taskscape.select.known
import taskscape.select as one
from taskscape import select as other
print(taskscape.select.__name__, taskscape.select is one is other, type(one))
"""
    assert imported_by(code)[0].strip() == "select True <class 'function'>"
    importlib.import_module("taskscape.select.rules")
    assert isinstance(taskscape.select, FunctionType)


def test_a_name_that_is_not_there_is_an_error_as_always() -> None:
    with pytest.raises(AttributeError) as error:
        _ = taskscape.nothing  # type: ignore[attr-defined]
    assert str(error.value) == "module 'taskscape' has no attribute 'nothing'"
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from taskscape.meta import nothing")
