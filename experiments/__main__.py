"""One command line for all experiments.

    python -m experiments paper --figures fig3 --scale 0.02 --out reproduced/results.jsonl
    python -m experiments learning --pool mini_imagenet --tune --minutes 20 --out found.jsonl
    python -m experiments similarity --help

Every finished cell is one line of JSON in --out; the same command resumes where it stopped.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from experiments import (
    agreement,
    bad_tasks,
    choosing,
    explained,
    forecasting,
    learning,
    likeness,
    novel,
    paper,
    representation,
    retrieval,
    similarity,
    sources,
    targets,
)
from experiments.lab import Lab, OutOfTimeError
from taskscape.errors import TaskscapeError

__all__ = ["EXPERIMENTS", "main"]


EXPERIMENTS: Mapping[str, tuple[ModuleType, type]] = {
    "agreement": (agreement, agreement.AgreementSettings),
    "bad_tasks": (bad_tasks, bad_tasks.BadTasksSettings),
    "explained": (explained, explained.ExplainedSettings),
    "paper": (paper, paper.PaperSettings),
    "learning": (learning, learning.LearningSettings),
    "likeness": (likeness, likeness.LikenessSettings),
    "choosing": (choosing, choosing.ChoosingSettings),
    "forecasting": (forecasting, forecasting.ForecastingSettings),
    "novel": (novel, novel.NovelSettings),
    "representation": (representation, representation.RepresentationSettings),
    "retrieval": (retrieval, retrieval.RetrievalSettings),
    "similarity": (similarity, similarity.SimilaritySettings),
    "sources": (sources, sources.SourcesSettings),
    "targets": (targets, targets.TargetsSettings),
}
"""By name: a module with a docstring for the help and ``run(settings, lab)``, and a dataclass of
settings, whose fields are the options."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; see the module's docstring."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    study, settings = EXPERIMENTS[options.experiment]
    command = shlex.join(["python", "-m", "experiments", *given])
    lab = Lab(options.out, command, options.minutes)
    try:
        study.run(_settings(settings, options), lab)
    except TaskscapeError as error:
        sys.exit(f"error: {error}")
    except OutOfTimeError:
        print("the time is up; the same command resumes where this one stopped.", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("experiments", None, __doc__, formatter_class=plain)
    commands = parser.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for name, (study, settings) in EXPERIMENTS.items():
        about = study.__doc__ or ""
        first = about.partition("\n")[0]
        own = commands.add_parser(name, help=first, description=about, formatter_class=plain)
        own.add_argument(
            "--out", type=Path, required=True,
            help="file of JSON lines; finished cells in it are not run again",
        )  # fmt: skip
        own.add_argument("--minutes", type=float, help="start no new cell after this long")
        _add_options(own, settings)
    return parser


def _add_options(parser: argparse.ArgumentParser, settings: type) -> None:
    """An option for each field; those of a dataclass inside are options like the others."""
    kinds = get_type_hints(settings)
    for field in fields(settings):
        if is_dataclass(kinds[field.name]):
            _add_options(parser, kinds[field.name])
        else:
            flag = field.metadata.get("flag") or field.name.replace("_", "-")
            parser.add_argument(
                f"--{flag.removeprefix('--')}", dest=field.name, **_how(kinds[field.name], field)
            )


def _how(kind: Any, field: Field[Any]) -> dict[str, Any]:
    """How argparse reads a field."""
    required = field.default is MISSING and field.default_factory is MISSING
    default = None if field.default is MISSING else field.default
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    text = field.metadata.get("help", "")
    if shown not in (None, "", False):
        text = f"{text} (default: {shown})".strip()
    about: dict[str, Any] = {"help": text.replace("%", "%%"), "required": required}
    if choices := field.metadata.get("choices"):
        about |= {"choices": choices}
    if kind is bool:
        return {"action": "store_true", "help": text}
    if get_origin(kind) is tuple:
        one = get_args(kind)[0]
        if field.metadata.get("commas"):
            return {**about, "type": lambda words: tuple(words.split(",")), "metavar": "A,B"}
        return {**about, "type": one, "nargs": field.metadata.get("nargs", "+")}
    if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        return {**about, "nargs": "*", "metavar": "LEARNER.NAME=VALUE"}
    return {**about, "type": next((k for k in get_args(kind) if k is not type(None)), kind)}


def _settings(kind: type, options: argparse.Namespace) -> Any:
    """The dataclass of what was given; the rest keeps its default."""
    kinds = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        if is_dataclass(kinds[field.name]):
            values[field.name] = _settings(kinds[field.name], options)
            continue
        value = getattr(options, field.name)
        if value is not None:
            is_words = isinstance(value, list) and get_origin(kinds[field.name]) is not tuple
            as_tuple = tuple(value) if isinstance(value, list) else value
            values[field.name] = _by_learner(value) if is_words else as_tuple
    return kind(**values)


def _by_learner(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``["maml.inner_rate=0.1"]`` as ``{"maml": {"inner_rate": 0.1}}``."""
    values: dict[str, dict[str, Any]] = {}
    for word in words:
        where, _, value = word.partition("=")
        learner, _, setting = where.partition(".")
        values.setdefault(learner, {})[setting] = json.loads(value)
    return values


if __name__ == "__main__":
    main()
