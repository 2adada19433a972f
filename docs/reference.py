"""Writes the pages of the site that are made from the code: names, commands and settings.

Every build writes them again; they are not kept.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer

os.environ |= {"TYPER_USE_RICH": "0", "COLUMNS": "84"}  # help in plain text, without boxes

import typer
from blocks import markdown_table

import taskscape
from taskscape.cli import app
from taskscape.meta import LEARNERS
from taskscape.settings import settings_in, values_of
from taskscape.study import PRESETS, StudyConfig

PACKAGES = {
    "pools": "Data: classes and their samples",
    "tasks": "Lists of tasks",
    "themes": "Fitting task-themes",
    "embeddings": "Embedded tasks",
    "compare": "Distances, nearest tasks, difficulty",
    "similarity": "Other similarity measures",
    "select": "Choosing training tasks",
    "diagram": "The correlation diagram",
    "meta": "Meta-learners",
    "targets": "What to train on for a target",
    "forecast": "Forecasts of accuracy",
    "study": "Whole studies",
    "distributed": "Many devices and machines",
    "report": "The report",
    "statistics": "Intervals and correlations",
    "errors": "Errors",
}
SETTINGS = {
    "A fit: FitConfig": "taskscape.themes.FitConfig",
    "Preparation of features: PrepareConfig": "taskscape.themes.PrepareConfig",
    "Meta-training: TrainConfig": "taskscape.meta.TrainConfig",
    "Advice on targets: AdvisorSettings": "taskscape.targets.AdvisorSettings",
    "The probe network of Task2Vec: Task2VecConfig": "taskscape.similarity.Task2VecConfig",
    "Trials of rules: TrialOptions": "taskscape.select.TrialOptions",
}


def write(folder: Path) -> None:
    """Write all pages; one that says the same as before is left, so that builds stay quick."""
    pages = {"commands.md": commands(), "settings.md": settings(), "api.rst": overview()}
    pages |= {f"api-{name}.rst": package_page(name) for name in PACKAGES}
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def first_line(value: Any) -> str:
    """What a class or function is, in one line."""
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def heading(title: str, mark: str = "=") -> str:
    return f"{title}\n{mark * len(title)}\n\n"


# The names of Python


def documented(package: str) -> dict[str, Any]:
    """What the page of a package describes, by the path that a user imports it from.

    Names of ``taskscape`` itself that the package does not offer stand there too.
    """
    module = importlib.import_module(f"taskscape.{package}")
    here = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", [name for name in here if not name.startswith("_")])
    own = {f"taskscape.{package}.{name}": getattr(module, name) for name in names}
    listed = {id(value) for value in own.values()}
    top = {f"taskscape.{name}": getattr(taskscape, name) for name in taskscape.__all__}
    own |= {path: value for path, value in top.items() if id(value) not in listed}
    return {path: value for path, value in own.items() if package_of(path, value) == package}


def package_of(path: str, value: Any) -> str:
    """The package that describes it: where it was defined; values stand where they are offered."""
    defined = getattr(value, "__module__", path)
    return (defined if defined.startswith("taskscape.") else path).split(".")[1]


def overview() -> str:
    """The page that leads to all names."""
    lines = [heading("Python"), "The names that ``from taskscape import …`` gives:\n\n"]
    lines.append(".. list-table::\n   :widths: 30 70\n\n")
    paths = {id(v): path for package in PACKAGES for path, v in documented(package).items()}
    for name in taskscape.__all__:
        value = getattr(taskscape, name)
        if id(value) in paths:
            lines.append(f"   * - :py:obj:`{name} <{paths[id(value)]}>`\n")
            lines.append(f"     - {first_line(value)}\n")
    lines.append("\nAll public names, by package:\n\n.. toctree::\n   :maxdepth: 1\n\n")
    lines += [f"   api-{name}\n" for name in PACKAGES]
    return "".join(lines)


def package_page(package: str) -> str:
    """The page of one package, which autodoc fills."""
    module = importlib.import_module(f"taskscape.{package}")
    lines = [heading(f"taskscape.{package}"), f"**{PACKAGES[package]}.** "]
    lines.append(f"{inspect.getdoc(module)}\n\n.. py:module:: taskscape.{package}\n\n")
    for path, value in documented(package).items():
        if inspect.isclass(value) or inspect.isroutine(value):
            kind = "class" if inspect.isclass(value) else "function"
            lines.append(f".. auto{kind}:: {path}\n\n")
        else:
            lines.append(f".. py:data:: {path}\n\n   {meaning_of(path)}\n\n")
    return "".join(lines)


def meaning_of(path: str) -> str:
    """What is written below a value, in whichever module of its package defines it."""
    package, name = path.rsplit(".", 1)
    for module in [m for m in sys.modules if m == package or m.startswith(f"{package}.")]:
        words = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
        if words:
            return " ".join(words)
    return ""


# The commands


def commands() -> str:
    """The page of all commands: what ``--help`` says."""
    lines = ["# Commands\n\n", "What `--help` says, command by command.\n\n"]
    for words in every_command(typer.main.get_command(app), ()):
        lines.append(f"## {' '.join(('taskscape', *words))}\n\n")
        lines.append(f"```text\n{help_of(words)}\n```\n\n")
    return "".join(lines)


def every_command(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        typer.main.get_command(app).main([*words, "--help"], prog_name="taskscape")
    return said.getvalue().strip()


# The settings


def settings() -> str:
    """The page of all settings: fields of the dataclasses, their defaults and what they mean."""
    lines = ["# Settings\n\n## A whole study\n\n", STUDY_SETTINGS]
    lines += [markdown_table(("setting", *PRESETS, "meaning"), study_settings()), PART_SETTINGS]
    learners = {f"The learner {e.label}": e for e in LEARNERS.values()}
    paths = {title: f"taskscape.meta.{e.label}" for title, e in learners.items()}
    for title, path in {**SETTINGS, **paths}.items():
        module, name = path.rsplit(".", 1)
        config = getattr(importlib.import_module(module), name)
        lines.append(f"## {title}\n\n{first_line(config)}\n\n")
        if title in learners:
            for samples, values in learners[title].settings.items():
                own = ", ".join(f"`{k} = {v}`" for k, v in values.items())
                lines.append(f"Where `run` and `advise` start on {samples}: {own}.\n\n")
        meanings = ModuleAnalyzer.for_module(config.__module__).find_attr_docs()
        rows = []
        for f in dataclasses.fields(config):
            below = in_markdown(" ".join(meanings.get((name, f.name), [])))
            rows.append((f"`{f.name}`", default_of(f), f.metadata.get("help") or below))
        lines.append(markdown_table(("setting", "default", "meaning"), rows) + "\n")
    return "".join(lines)


STUDY_SETTINGS = """\
What [`taskscape run`](../run.md#settings) takes in `study.toml`, with its value in each preset.
`learners.settings` is below, learner by learner.

"""
PART_SETTINGS = """
The following are the settings of its parts, for use from Python.

"""


def study_settings() -> list[tuple[str, ...]]:
    """Every setting of a study by its full name, its value in each preset and its meaning."""
    presets, rows = [values_of(config) for config in PRESETS.values()], []
    for name, of in settings_in(StudyConfig).items():
        flag = f" (`{of.metadata['flag']}`)" if of.metadata["flag"] else ""
        values = (f"`{json.dumps(preset[name])}`" for preset in presets)
        rows.append((f"`{name}`", *values, of.metadata["help"] + flag))
    return rows


def default_of(field: dataclasses.Field[Any]) -> str:
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if default is dataclasses.MISSING:
        return ""
    return "its own" if dataclasses.is_dataclass(default) else f"`{default!r}`"


def in_markdown(docstring: str) -> str:
    """The few marks of reStructuredText that such lines hold, in Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring.replace("``", "`"))
    return text.replace("|", r"\|").strip()
