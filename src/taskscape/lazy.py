"""Packages whose public names are imported when they are first used.

``import taskscape`` would otherwise wait seconds for JAX and others, and so would every ``--help``.
What a package offers, and from which module, is written once: in the stub ``__init__.pyi`` beside
its ``__init__.py``, where type checkers and editors read it too. This is PEP 562, used as SPEC 1 of
Scientific Python recommends.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def attach_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package, as its stub says.

    Its submodules are imported on first use too.
    """
    module = sys.modules[package]
    module.__class__ = _KeepsItsNames
    assert module.__file__ is not None
    home, own = _read_stub(Path(module.__file__).with_suffix(".pyi"))
    names = sorted([*home, *own])

    def get_attribute(name: str) -> Any:
        if name in home:
            value = getattr(importlib.import_module(home[name]), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        vars(module)[name] = value  # from now on found without this function
        return value

    def list_names() -> list[str]:
        return sorted({*vars(module), *names})

    return get_attribute, list_names, names


class _KeepsItsNames(ModuleType):
    """A package in which a public name goes before a submodule of the same name.

    Python sets a submodule on its package when it is imported. ``taskscape.select`` is to be the
    function all the same, whatever was imported before.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        is_submodule = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if not (is_submodule and name in vars(self).get("__all__", ())):
            super().__setattr__(name, value)


def _read_stub(path: Path) -> tuple[dict[str, str], list[str]]:
    """The module of every name that the stub imports, and the names that it only declares."""
    home: dict[str, str] = {}
    own: list[str] = []
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and statement.module is not None:
            home |= {alias.name: statement.module for alias in statement.names}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            own.append(statement.target.id)
    return home, own
