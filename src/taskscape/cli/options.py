"""What the commands have in common: options that mean the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from taskscape.errors import DataError
from taskscape.meta.learners import LEARNERS
from taskscape.similarity.known import SIMILARITIES

__all__ = [
    "AsJson",
    "LearnerName",
    "Model",
    "NQuery",
    "NShot",
    "NTasks",
    "NWay",
    "Seed",
    "SimilarityName",
    "Source",
    "Split",
    "TasksFile",
    "TestTasks",
    "TrainTasks",
    "learners_in_words",
    "parse_range",
    "parse_shots",
    "similarities_in_words",
]


def learners_in_words() -> str:
    """The learners of the registry and what they are, for help texts."""
    return "; ".join(f"{entry.name}: {entry.meaning}" for entry in LEARNERS.values())


def similarities_in_words() -> str:
    """The notions of similarity of the registry and what they are, for help texts."""
    return "; ".join(f"{name}: {known.meaning}" for name, known in SIMILARITIES.items())


_NEEDS_DATA = "All but the first need --data and no model."
Source = Annotated[str, typer.Argument(help="A known name, or the path of your own data.")]
Model = Annotated[Path, typer.Argument(help="A model written by `taskscape fit`.")]
TasksFile = Annotated[
    Path | None, typer.Option("--tasks", help="Tasks written by `taskscape tasks`.")
]
Split = Annotated[str | None, typer.Option(help="Else draw from: train, val, test, train+val.")]
NTasks = Annotated[int, typer.Option(help="How many tasks to draw.")]
NWay = Annotated[str, typer.Option(help="Classes per task: 5, or a range 5-10.")]
NShot = Annotated[str, typer.Option(help="Samples per class: 16, 1-5, or all.")]
NQuery = Annotated[int, typer.Option(help="Further samples per class, as queries.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
LearnerName = Annotated[
    str, typer.Option("--learner", help=f"The learner's name. {learners_in_words()}.")
]
TestTasks = Annotated[
    Path,
    typer.Argument(
        help="Test tasks, written by `taskscape embed`; with another --similarity, by "
        "`taskscape tasks`."
    ),
]
TrainTasks = Annotated[
    Path, typer.Argument(help="Training tasks: such a file, or a catalogue of embedded ones.")
]
SimilarityName = Annotated[
    str, typer.Option("--similarity", help=f"{similarities_in_words()}. {_NEEDS_DATA}")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]


def parse_range(text: str, option: str) -> int | tuple[int, int]:
    """Read ``5`` or ``5-10``.

    >>> parse_range("5-10", "--n-way")
    (5, 10)
    """
    low, dash, high = text.replace("–", "-").partition("-")
    try:
        return (int(low), int(high)) if dash else int(low)
    except ValueError:
        raise DataError(
            f"{option} {text!r}: use a number such as 5, or a range such as 5-10."
        ) from None


def parse_shots(text: str, option: str) -> int | tuple[int, int] | str:
    """Read ``16``, ``1-5`` or ``all``."""
    return text if text == "all" else parse_range(text, option)
