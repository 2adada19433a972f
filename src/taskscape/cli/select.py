"""``taskscape select``: choose training tasks for test tasks."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from taskscape.cli import options as opt
from taskscape.errors import DataError
from taskscape.io.files import atomic_write
from taskscape.select.known import RULES
from taskscape.similarity.known import DEFAULT_SIMILARITY, find_similarity

_RULES = f"{opt.meanings(RULES)}; auto: the one that helps a learner on validation tasks"


@opt.command(
    "select test.parquet train.parquet --budget 500 --rule coverage --out selection.json "
    "--tasks train_tasks.parquet --out-tasks chosen.parquet",
    "select test_tasks.parquet train_tasks.parquet --budget 500 --data glyphs "
    "--similarity prototypes",
)
def select(
    test: opt.TestTasks,
    train: opt.TrainTasks,
    budget: Annotated[int, Option("--budget", "-n", help="How many tasks to choose.")],
    rule: Annotated[str, Option(help=f"{_RULES}.")] = "coverage",
    similarity: opt.SimilarityName = DEFAULT_SIMILARITY,
    seed: Annotated[int, Option(min=0, help="Settles ties and the order of turns.")] = 0,
    max_shared: Annotated[int | None, Option(help="Most classes two may share.")] = None,
    out: Annotated[Path | None, Option(help="Write the selection as JSON.")] = None,
    tasks: Annotated[Path | None, Option(help="The list of embedded tasks.")] = None,
    out_tasks: Annotated[
        Path | None,
        Option(help="With --tasks: write the chosen tasks; as .csv, with --data, their samples."),
    ] = None,
    learner: Annotated[str | None, Option(help="For --rule auto: such as maml.")] = None,
    model: Annotated[
        Path | None, Option(help="For --rule auto: the model that embedded the tasks.")
    ] = None,
    data: Annotated[
        list[str] | None,
        Option(help="The data of the tasks: for --similarity, --rule auto, --out-tasks *.csv."),
    ] = None,
    validation: Annotated[
        Path | None, Option(help="For --rule auto: tasks of validation classes, as TEST.")
    ] = None,
    validation_tasks: Annotated[
        Path | None, Option(help="For --rule auto: those tasks; they need queries.")
    ] = None,
    trials: Annotated[int, Option(help="For --rule auto: trainings of each rule.")] = 5,
    as_json: opt.AsJson = False,
) -> None:
    """Choose the training tasks that suit the test tasks best.

    --rule auto tries the rules first: it selects for validation tasks, trains the learner on what
    was chosen, and keeps the rule that beats random choice by more than the noise, if any does.
    """
    import pyarrow as pa

    from taskscape.io.tables import write_parquet
    from taskscape.pools import load_pool
    from taskscape.select import TrialOptions
    from taskscape.select import select as select_tasks
    from taskscape.select.choosing import SELECTION_FILE
    from taskscape.tasks import TASKS, TaskSet
    from taskscape.tasks.manifest import is_csv

    opt.check_out(out, SELECTION_FILE, out_tasks)
    opt.check_out(out_tasks, TASKS, tasks, validation_tasks, test, train)
    embedded = find_similarity(similarity).factor is not None
    lists_samples = out_tasks is not None and is_csv(out_tasks)
    if embedded and out_tasks is not None and tasks is None:
        raise DataError("--out-tasks needs --tasks, the tasks that were embedded.")
    if embedded and lists_samples and not data:
        raise DataError(f"--out-tasks {out_tasks} lists samples: give --data, what they are from.")
    source, by_rule = opt.one_source(data), rule != "auto" and f"--rule {rule}"
    opt.refuse_given(
        select, by_rule, learner=learner, model=model, validation=validation,
        validation_tasks=validation_tasks, trials=trials,
    )  # fmt: skip
    unread = by_rule and embedded and not lists_samples
    opt.refuse_given(select, unread and f"{by_rule} and --similarity {similarity}", data=data)
    beside = f"--similarity {similarity}, where TRAIN has them"
    opt.refuse_given(select, not embedded and beside, tasks=tasks)
    opt.refuse_given(select, by_rule and out_tasks is None and "no --out-tasks", tasks=tasks)
    asked, known = opt.read_tasks_of(similarity, source, test, train)
    listed = _read_embedded_tasks(tasks, known, train) if embedded and tasks is not None else None
    scorer: dict[str, Any] = {}
    if rule == "auto":
        if not embedded:  # nothing is embedded beforehand: the lists of tasks are all there is
            tasks, validation = train, validation or validation_tasks
        scorer = _scorer(known, learner, model, source, tasks, validation, validation_tasks, seed)
        scorer["trial"] = TrialOptions(trials=trials)
    chosen = select_tasks(
        asked, known, budget, rule, similarity=similarity, seed=seed,
        train_classes=known.classes if embedded else known, max_shared=max_shared, **scorer,
    )  # fmt: skip
    if out is not None:
        chosen.save(out)
    if out_tasks is not None and isinstance(known, TaskSet):
        known[chosen.indices].save(out_tasks)
    elif out_tasks is not None and tasks is not None and lists_samples:
        TaskSet.load(tasks, load_pool(source))[chosen.indices].save(out_tasks)
    elif out_tasks is not None and listed is not None:
        with atomic_write(out_tasks, TASKS) as file:
            write_parquet(file, listed.take(pa.array(chosen.indices)))
    opt.print_result(as_json, chosen.to_dict(), _words(chosen, known), out, out_tasks)


def _words(chosen: Any, known: Any) -> str:
    words = [chosen.summary()]
    if "auto" in chosen.settings:
        words.append(f"  {chosen.settings['auto']['why']}")
    for index, why in list(zip(chosen.indices.tolist(), chosen.why, strict=True))[:5]:
        name = known.ids[index] if hasattr(known, "ids") else index
        words.append(f"  task {name} ({', '.join(known.names(index))}): {why}")
    if len(chosen) > 5:
        words.append(f"  … and {len(chosen) - 5:,} more")
    return "\n".join(words)


def _scorer(
    train: Any, learner: str | None, model: Path | None, data: str | None, tasks: Path | None,
    validation: Path | None, validation_tasks: Path | None, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """For ``--rule auto``: validation tasks, and the learner that evaluates the choices."""
    from taskscape.embeddings import Embeddings
    from taskscape.meta import find_learner, learner_and_training, network_for
    from taskscape.pools import load_pool
    from taskscape.select import LearnerScorer
    from taskscape.tasks import TaskSet
    from taskscape.themes.prepare import prepared_pool
    from taskscape.themes.task_model import TaskModel

    if not (learner and model and data and tasks and validation and validation_tasks):
        raise DataError(
            "--rule auto trains a learner and needs --learner, --model, --data, --tasks, "
            "--validation and --validation-tasks; from Python: taskscape.select.LearnerScorer."
        )
    settings = find_learner(learner).start()
    kind, training = learner_and_training(learner, settings)
    embedded = isinstance(train, Embeddings)
    pool = load_pool(data) if embedded else train.pool
    features = prepared_pool(pool, TaskModel.load(model).preparation_, unit_length=True)
    given, asked = (
        replace(TaskSet.load(path, pool), pool=features) for path in (tasks, validation_tasks)
    )
    scorer = LearnerScorer(
        kind, network_for(features, settings), given, asked, training=training, seed=seed
    )
    held_out: Any = Embeddings.load(validation) if embedded else TaskSet.load(validation, pool)
    if embedded:
        held_out.header.check_same_model(train.header, str(validation), "the training tasks")
    return {"scorer": scorer, "validation": held_out}


def _read_embedded_tasks(path: Path, embedded: Any, source: Path) -> Any:
    """The table of tasks, verified to be those that were embedded, row by row."""
    from taskscape.io.tables import read_parquet
    from taskscape.tasks.manifest import read_header

    table = read_parquet(path)
    read_header(table.schema, str(path))
    classes = table["classes"].to_pylist()
    if classes != [[int(c) for c in row if c >= 0] for row in embedded.classes]:
        raise DataError(
            f"{path} has other tasks than {source}, row by row; give the tasks that were embedded."
        )
    return table
