"""``taskscape compare``, ``nearest`` and ``diagram``: distances, and what they explain."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from taskscape.cli import options as opt
from taskscape.errors import DataError
from taskscape.io.files import check_output
from taskscape.io.pictures import PICTURE
from taskscape.similarity.known import DEFAULT_SIMILARITY, find_similarity


@opt.command(
    "compare test.parquet train.parquet --data glyphs --out distances.csv",
    "compare --retrieval --data glyphs --out retrieval.png",
)
def compare(
    test: opt.MaybeTestTasks = None,
    train: opt.MaybeTrainTasks = None,
    similarity: opt.SimilarityName = DEFAULT_SIMILARITY,
    data: Annotated[
        list[str] | None,
        Option(help="The data that the tasks are from, to tell whether they are alike."),
    ] = None,
    retrieval: Annotated[
        bool,
        Option("--retrieval", help="Instead: how often tasks of new groups find their own."),
    ] = False,
    k: Annotated[int, Option("-k", help="How many nearest training tasks to look at.")] = 10,
    n_way: Annotated[int, Option(help="With --retrieval: classes per task.")] = 5,
    n_shot: Annotated[int, Option(help="With --retrieval: samples per class.")] = 5,
    seed: opt.Seed = 0,
    out: Annotated[
        Path | None, Option(help="A CSV with a row for every test task; or the groups' picture.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Mean distance from each test task to the training tasks, and whether the sets are alike."""
    from taskscape.cli.file_distances import TABLE, compare_files
    from taskscape.pools import load_pool
    from taskscape.similarity import retrieval as find_each_other

    find_similarity(similarity)
    source = opt.one_source(data)
    if retrieval:
        beside = "--retrieval, which draws its own tasks"
        if test is not None:
            raise DataError(f"TEST and TRAIN have no effect with {beside}. Leave them out.")
        opt.refuse_given(compare, beside, k=k)
        if source is None:
            raise DataError("--retrieval needs --data, what tasks are drawn from.")
        opt.check_out(out, PICTURE)
        found = find_each_other(
            load_pool(source), similarity, n_way=n_way, n_shot=n_shot, seed=seed
        )
        if out is not None:
            found.measure.plot(out)
        opt.print_result(as_json, found.to_dict(), found.summary(), out)
        return
    opt.refuse_given(compare, "TEST and TRAIN, which have sizes", n_way=n_way, n_shot=n_shot)
    if test is None or train is None:
        raise DataError("give TEST and TRAIN, files of tasks; or --retrieval and --data.")
    beside = "TEST and TRAIN alone, without --data"
    opt.refuse_given(compare, data is None and beside, seed=seed)
    opt.check_out(out, TABLE)
    plain, words = compare_files(similarity, source, test, train, k, seed, out)
    opt.print_result(as_json, plain, words, out)


@opt.command(
    "nearest --catalogue train.parquet --query test.parquet --task 17",
    "nearest --catalogue train.parquet --model model --data glyphs --task Greek/alpha,Greek/beta",
)
def nearest(
    catalogue: Annotated[Path, Option(help="Where to look: a catalogue, or one file of it.")],
    task: Annotated[
        str,
        Option(help='The id of a task in --query; with --model, classes: a,b,c or ["a, b", "c"].'),
    ],
    query: Annotated[Path | None, Option(help="Embedded tasks; default: CATALOGUE.")] = None,
    model: Annotated[Path | None, Option(help="Embeds a task given by its classes.")] = None,
    data: Annotated[
        list[str] | None,
        Option(help="The data of the classes: for --model, or to put the most alike first."),
    ] = None,
    k: Annotated[int, Option("-k", help="How many tasks.")] = 10,
    any_class: Annotated[list[str] | None, Option(help="Only tasks with this class.")] = None,
    group: Annotated[str | None, Option(help="Only tasks within this group.")] = None,
    n_way: Annotated[str | None, Option(help="Only tasks of so many classes: 5-10.")] = None,
    similarity: opt.SimilarityName = DEFAULT_SIMILARITY,
    as_json: opt.AsJson = False,
) -> None:
    """The tasks of a catalogue that are nearest to one task."""
    from taskscape.cli.file_distances import find_nearest
    from taskscape.embeddings import TaskFilter

    ways = None if n_way is None else opt.parse_range(n_way, "--n-way")
    only = TaskFilter(any_class=any_class or None, group=group, n_way=ways)
    source = opt.one_source(data)
    opt.print_result(
        as_json, *find_nearest(catalogue, task, query, model, source, k, only, similarity)
    )


@opt.command(
    "diagram test.parquet train.parquet --accuracies mine.csv --out diagram.png",
    "diagram results.csv --out diagram.png",
)
def diagram(
    table: Annotated[
        Path, Argument(help="A CSV with a row for every test task; or embedded test tasks.")
    ],
    train: Annotated[
        Path | None, Argument(help="Embedded training tasks: distances are then computed.")
    ] = None,
    accuracies: Annotated[
        Path | None,
        Option(help="With TRAIN: a CSV with a column for each learner, and task or classes."),
    ] = None,
    distance: Annotated[str, Option(help="The column of distances.")] = "distance",
    accuracy: Annotated[
        list[str] | None, Option(help="A column of accuracies; default: all that is left.")
    ] = None,
    difficulty: Annotated[
        list[str] | None, Option(help="A column of difficulties; default: those called difficulty…")
    ] = None,
    classes: Annotated[str | None, Option(help="The column of classes: JSON, or ids.")] = None,
    similarity: opt.SimilarityName = DEFAULT_SIMILARITY,
    n_bins: Annotated[int, Option(help="How many bins.")] = 10,
    bins: Annotated[str, Option(help="paper: of equal width; quantile: equal counts.")] = ("paper"),
    seed: opt.Seed = 0,
    out: Annotated[list[Path] | None, Option(help="Write .png, .svg, .pdf or .json.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Does distance to the training tasks explain accuracy? Numbers, and a picture."""
    from taskscape import diagram as diagrams
    from taskscape.diagram.plot import FORMATS

    as_data = [path for path in out or () if path.suffix.lower() == ".json"]
    pictures = [path for path in out or () if path not in as_data]
    for path in (*as_data, *pictures):
        if path.suffix.lower() not in (*FORMATS, ".json"):
            raise DataError(f"--out {path}: expected .json, {', '.join(FORMATS)}.")
        check_output(path, diagrams.DIAGRAM_FILE if path in as_data else PICTURE)
    if (train is None) != (accuracies is None):
        raise DataError(
            "give TEST and TRAIN with --accuracies, such as: taskscape diagram test.parquet "
            "train.parquet --accuracies mine.csv; or one CSV that has distances and accuracies."
        )
    if train is not None and accuracies is not None:
        from taskscape.cli.file_distances import mean_distances

        beside = "TRAIN: distances and classes are those of the tasks"
        opt.refuse_given(diagram, beside, distance=distance, classes=classes)
        tested, distances = mean_distances(table, train, similarity)
        data, how = diagrams.join_accuracies(
            accuracies, tested, distances, accuracy=accuracy, difficulty=difficulty
        )
        typer.echo(how, err=True)
    else:
        opt.refuse_given(diagram, "a table that has distances", similarity=similarity)
        data = diagrams.read_diagram_csv(
            table, distance=distance, accuracy=accuracy, difficulty=difficulty, classes=classes
        )
    drawn = diagrams.correlation_diagram(
        data.distance, data.accuracy, classes=data.classes, difficulty=data.difficulty,
        n_bins=n_bins, bins=bins, seed=seed,
    )  # fmt: skip
    for path in as_data:
        drawn.save(path)
    for path in pictures:
        drawn.plot(path)
    opt.print_result(as_json, drawn.to_dict(), drawn.summary(), *out or ())
