"""What the commands have in common: options that mean the same everywhere."""

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup

from taskscape.distributed.engine import ENGINES
from taskscape.errors import DataError
from taskscape.io.files import Kind, check_output
from taskscape.meta.learners import LEARNERS
from taskscape.settings import assigned, flags_of, named, settings_in
from taskscape.similarity.known import SIMILARITIES, find_similarity

if TYPE_CHECKING:
    import taskscape

_MOST_BYTES = 1 << 31
"""Of a catalogue that is read into memory."""
Command = TypeVar("Command", bound=Callable[..., None])


class _PlainFlags:
    """Shows no kind of value in the help of flags, which take none."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class PlainCommand(_PlainFlags, TyperCommand):
    """A command."""


class PlainGroup(_PlainFlags, TyperGroup):
    """A group of commands."""


app = typer.Typer(
    name="taskscape",
    cls=PlainGroup,
    help="How similar are classification tasks? Embed, compare and select few-shot tasks.",
    epilog="Start with:  taskscape data  ·  taskscape data show glyphs",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def command(*typed: str, to: typer.Typer = app) -> Callable[[Command], Command]:
    """Add a function as a command, with examples of what to type after ``taskscape``."""
    examples = "  ·  ".join(f"taskscape {words}" for words in typed)
    return to.command(cls=PlainCommand, epilog=f"Example:  {examples}")


def takes_settings(config: type, *, every: bool = False) -> Callable[[Command], Command]:
    """Give a command an option for every setting that has a flag, before its ``--set``.

    With ``every``, for all of them, each of its kind.
    """

    settings = settings_in(config)
    by_flag = {_flag(name): [name] for name in settings} if every else flags_of(config)

    def with_options(function: Command) -> Command:
        takes = signature(function)
        *own, _ = (p.replace(kind=Parameter.KEYWORD_ONLY) for p in takes.parameters.values())
        flags, place = [], [p.name for p in own].index("set_values")
        for flag, names in by_flag.items():
            of = settings[names[0]]
            words = f"{of.metadata['help'][:1].upper()}{of.metadata['help'][1:]}"
            if len(names) == 1 and of.default != "" and not isinstance(of.default, tuple | bool):
                words += f"; default: {of.default}"
            typed: Any = type(of.default) if every else list[str]
            kind = Annotated[typed | None, Option(flag, help=f"{words}.", metavar="VALUE")]
            name = flag.strip("-").replace("-", "_")
            flags.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind))
        function.__signature__ = takes.replace(parameters=[*own[:place], *flags, *own[place:]])  # type: ignore[attr-defined]
        return function

    return with_options


def _flag(name: str) -> str:
    return f"{'-' if len(name) == 1 else '--'}{name.replace('_', '-')}"


def given_settings(
    config: type, flags: Mapping[str, Any], others: Sequence[str] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The values that flags and ``--set`` give, by section, and the words that were typed.

    >>> from taskscape.study import StudyConfig
    >>> given_settings(StudyConfig, {"data": ["glyphs", "omniglot"], "n_way": ["3"]}, ["seed=2"])[0]
    {'data': 'glyphs+omniglot', 'tasks': {'n_way': 3}, 'seed': 2}
    """
    texts: dict[str, str] = {}
    words: list[str] = []
    settings = settings_in(config)
    for flag, names in flags_of(config).items():
        typed = flags.get(flag.strip("-").replace("-", "_")) or []
        words += [word for value in typed for word in (flag, value)]
        for name in names if typed else ():
            texts[name] = typed[-1]
            if isinstance(settings[name].default, str):
                texts[name] = json.dumps(one_source(typed), ensure_ascii=False)
            elif len(typed) > 1:
                texts[name] = json.dumps(typed, ensure_ascii=False)
    words += [word for text in others or () for word in ("--set", text)]
    return assigned(texts | named(others or ())), words


def meanings(registry: Mapping[str, Any]) -> str:
    """The names of a registry and what they mean, for help texts."""
    return "; ".join(f"{name}: {getattr(k, 'meaning', k)}" for name, k in registry.items())


Source = Annotated[
    str, Argument(help="A known name, the path of your own data, or several joined by '+'.")
]
Model = Annotated[Path, Argument(help="A model written by `taskscape fit`.")]
TasksFile = Annotated[
    Path | None,
    Option("--tasks", help="Tasks by `taskscape tasks`, or CSV: task, class, sample."),
]
Split = Annotated[str | None, Option(help="Draw from this split: train, val, test, train+val.")]
NTasks = Annotated[int, Option(help="How many tasks to draw.")]
NWay = Annotated[str, Option(help="Classes per task: 5, or a range 5-10.")]
NShot = Annotated[str, Option(help="Samples per class: 16, 1-5, or all.")]
NQuery = Annotated[int, Option(help="Further samples per class, as queries.")]
Seed = Annotated[int, Option(min=0, help="The same seed gives the same result.")]
LearnerName = Annotated[str, Option("--learner", help=f"The learner's name. {meanings(LEARNERS)}.")]
_TEST = Argument(
    help="Test tasks, by `taskscape embed`; with another --similarity, by `taskscape tasks`."
)
_TRAIN = Argument(help="Training tasks: such a file, or a catalogue of embedded ones.")
TestTasks = Annotated[Path, _TEST]
MaybeTestTasks = Annotated[Path | None, _TEST]
TrainTasks = Annotated[Path, _TRAIN]
MaybeTrainTasks = Annotated[Path | None, _TRAIN]
SimilarityName = Annotated[
    str,
    Option(
        "--similarity",
        help=f"{meanings(SIMILARITIES)}. The first four compare embedded tasks, by KL or by "
        "another divergence, as in themes:jeffreys; the others need --data and no model.",
    ),
]
Engine = Annotated[str, Option(help=f"Who does the work. {meanings(ENGINES)}")]
SetValues = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="NAME=VALUE", help="Any other setting; a wrong name is answered with all."
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of words.")]


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


def parse_shots(text: str) -> int | tuple[int, int] | str:
    """Read ``16``, ``1-5`` or ``all``."""
    return text if text == "all" else parse_range(text, "--n-shot")


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
        n_shot=parse_shots(n_shot), n_query=n_query, seed=seed,
    )  # fmt: skip


def read_tasks_of(
    similarity: str, data: str | None, test: Path, train: Path, stream: bool = False
) -> tuple[Any, Any]:
    """Test and training tasks as a similarity measure takes them: embedded, or as task sets.

    With ``stream``, embedded training tasks that are very many are read as they are needed.
    """
    from taskscape.embeddings import Catalogue, Embeddings
    from taskscape.pools import load_pool
    from taskscape.tasks import TaskSet

    factor = find_similarity(similarity).factor
    if factor is not None:
        asked, known = Embeddings.load(test), Catalogue(train)
        asked.header.check_same_model(known.header, str(test), str(train))
        many = 4 * len(known) * asked.values.shape[1] > _MOST_BYTES
        trains: Any = known.posteriors() if stream and many else Embeddings.load(train)
        return (asked.factor(factor), trains.factor(factor)) if factor else (asked, trains)
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


def refuse_given(command: Callable[..., Any], beside: Any, **values: Any) -> None:
    """Raise an error if an option is not as usual where ``beside`` leaves it no effect."""
    for name, value in values.items() if beside else ():
        if value != signature(command).parameters[name].default:
            raise DataError(f"{_flag(name)} has no effect with {beside}. Leave it out.")


def check_out(path: Path | None, kind: Kind, *others: Path | None) -> None:
    """Raise an error, before long work begins, if an output that is asked for cannot be written."""
    if path is not None:
        check_output(path, kind, *others)


def print_result(as_json: bool, plain: Any, words: str, *written: Path | None) -> None:
    """Print a result as JSON, or in words with the files that were written."""
    typer.echo(json.dumps(plain) if as_json else words)
    for path in written:
        if path is not None and not as_json:
            typer.echo(f"written to {path}")
