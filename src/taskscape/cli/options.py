"""What the commands have in common: options that mean the same everywhere."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskscape.distributed.engine import ENGINES
from taskscape.errors import DataError
from taskscape.meta.learners import LEARNERS
from taskscape.similarity.known import SIMILARITIES, TASK_THEMES

if TYPE_CHECKING:
    import taskscape

__all__ = [
    "AsJson",
    "Engine",
    "ImageSize",
    "LearnerName",
    "MinSamples",
    "Model",
    "NQuery",
    "NShot",
    "NTasks",
    "NWay",
    "Seed",
    "SimilarityName",
    "SkipDamaged",
    "Source",
    "Split",
    "SplitFile",
    "TasksFile",
    "TestTasks",
    "TrainTasks",
    "checkpoint_beside",
    "get_tasks",
    "learners_in_words",
    "one_source",
    "parse_numbers",
    "parse_range",
    "parse_shots",
    "read_tasks_of",
    "refuse_given",
    "similarities_in_words",
]


def learners_in_words() -> str:
    """The learners of the registry and what they are, for help texts."""
    return "; ".join(f"{entry.name}: {entry.meaning}" for entry in LEARNERS.values())


def similarities_in_words() -> str:
    """The notions of similarity of the registry and what they are, for help texts."""
    return "; ".join(f"{name}: {known.meaning}" for name, known in SIMILARITIES.items())


_NEEDS_DATA = "All but the first need --data and no model."
Source = Annotated[
    str, typer.Argument(help="A known name, the path of your own data, or several joined by '+'.")
]
Model = Annotated[Path, typer.Argument(help="A model written by `taskscape fit`.")]
TasksFile = Annotated[
    Path | None,
    typer.Option(
        "--tasks", help="Tasks by `taskscape tasks`, or a CSV of your own: task, class, sample."
    ),
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
Engine = Annotated[
    str,
    typer.Option(help="Who does the work. " + "; ".join(f"{k}: {v}" for k, v in ENGINES.items())),
]
ImageSize = Annotated[
    int | None, typer.Option(help="Pixels to bring pictures to: height and width.")
]
MinSamples = Annotated[
    int | None, typer.Option(help="Leave out classes with fewer samples, and say which.")
]
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Leave out what cannot be read, and say what it was.")
]
SplitFile = Annotated[
    Path | None, typer.Option(help="A CSV with the columns class and split: train, val or test.")
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


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read ``8`` or ``4,8,16``."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise DataError(
            f"{option} {text!r}: use a number, or several joined by commas, such as 4,8,16."
        ) from None


def get_tasks(
    pool: "taskscape.ClassPool",
    tasks: Path | None,
    split: str | None,
    n_tasks: int,
    n_way: str,
    n_shot: str,
    seed: int,
    n_query: int = 0,
    stream: bool = False,
) -> Any:
    """The tasks of a file, or else tasks drawn as the other options say."""
    from taskscape.tasks import TaskSet, sample_tasks

    if tasks is not None:
        return TaskSet.load(tasks, pool)
    return sample_tasks(  # type: ignore[call-overload]
        pool, n_tasks, split=split, n_way=parse_range(n_way, "--n-way"), stream=stream,
        n_shot=parse_shots(n_shot, "--n-shot"), n_query=n_query, seed=seed,
    )  # fmt: skip


def read_tasks_of(similarity: str, data: str | None, test: Path, train: Path) -> tuple[Any, Any]:
    """Test and training tasks as a similarity measure takes them: embedded, or as task sets."""
    from taskscape.embeddings import Embeddings
    from taskscape.pools import load_pool
    from taskscape.tasks import TaskSet

    if similarity == TASK_THEMES:
        asked, known = Embeddings.load(test), Embeddings.load(train)
        asked.header.check_same_model(known.header, str(test), str(train))
        return asked, known
    if data is None:
        raise DataError(
            f"--similarity {similarity} looks at samples: give --data, what the tasks are from."
        )
    pool = load_pool(data)
    return TaskSet.load(test, pool), TaskSet.load(train, pool)


def one_source(data: list[str] | None) -> str | None:
    """What ``--data`` names, which may be given several times: all of it as one pool.

    >>> one_source(["glyphs", "omniglot"])
    'glyphs+omniglot'
    """
    return "+".join(data) if data else None


def refuse_given(command: Callable[..., Any], beside: str, **values: Any) -> None:
    """Raise an error if one of these options is not as usual: it would not be looked at."""
    for name, value in values.items():
        if value != signature(command).parameters[name].default:
            option = f"--{name.replace('_', '-')}"
            raise DataError(f"{option} plays no part beside {beside}. Leave it out.")


def checkpoint_beside(out: Path) -> Path:
    """Where the state of a fit or training is kept until it is finished."""
    if not out.name:
        raise DataError(
            f"--out {out} is a folder that is there already; name one to be made, such as model."
        )
    return out.with_name(f"{out.name}.checkpoint")
