"""``taskscape data`` and ``taskscape tasks``: from data sets to lists of tasks."""

import json
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from taskscape.cli import options as opt
from taskscape.errors import DataError
from taskscape.io.files import check_output
from taskscape.io.pictures import PICTURE

if TYPE_CHECKING:
    from typer import Context

    import taskscape
else:  # typer passes an instance of the base class, which a run-time type checker would refuse
    Context = typer.Context.__mro__[1]


data_app = typer.Typer(
    cls=opt.PlainGroup,
    help="List known data sets, look into one, download one, or keep your own as decided.",
    invoke_without_command=True,
    epilog="Example:  taskscape data show glyphs --out glyphs.png",
)
opt.app.add_typer(data_app, name="data")


@data_app.callback()
def list_known(context: Context, as_json: opt.AsJson = False) -> None:
    """List the known data sets and whether they are on this machine.

    Example:  taskscape data
    """
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    from taskscape.pools import POOLS, data_dir

    paths = {name: known.locate() for name, known in POOLS.items()}
    if as_json:
        rows = [
            {"name": n, "description": POOLS[n].description, "path": path and str(path)}
            for n, path in paths.items()
        ]
        typer.echo(json.dumps({"folder": str(data_dir()), "pools": rows}, indent=2))
        return
    table = Table("name", "what it is", "on this machine?")
    for name, path in paths.items():
        table.add_row(name, POOLS[name].description, "not found" if path is None else str(path))
    console = Console()
    console.print(table)
    console.print(
        f"Data sets are looked for in {data_dir()} (set TASKSCAPE_DATA to change it). Your own: "
        "a folder of class folders, .npz, .parquet, .arrow, .csv or .zip, given by its path.",
        soft_wrap=True,
    )


@opt.command("data show glyphs --split test --out glyphs.png", to=data_app)
def show(
    source: opt.Source,
    split: Annotated[str | None, Option(help="Only train, val, test, or train+val.")] = None,
    out: Annotated[Path | None, Option(help="Also write a contact sheet (PNG) here.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show counts by split and group, sample sizes, and a contact sheet."""
    from taskscape.pools import load_pool
    from taskscape.pools.sheet import contact_sheet

    if out is not None:
        check_output(out, PICTURE)
    pool = load_pool(source, split=split)
    if as_json:
        typer.echo(json.dumps(_summarise(pool), indent=2))
    else:
        _print_summary(pool)
    if out is not None:
        contact_sheet(pool, out)
        typer.echo(f"contact sheet: {out}", err=as_json)


@opt.command(
    "data save images/ --image-size 32 --skip-damaged --out mine",
    "data save images/ --encoder my_network:encode --group-file groups.csv --out mine",
    "data save flowers.csv --option label_column=species --out mine",
    to=data_app,
)
def save(
    source: opt.Source,
    out: Annotated[Path, Option(help="The folder to write, for any command to open.")],
    image_size: opt.ImageSize = None,
    min_samples: opt.MinSamples = None,
    skip_damaged: opt.SkipDamaged = False,
    split_file: opt.SplitFile = None,
    group_file: opt.GroupFile = None,
    encoder: opt.Encoder = None,
    option: Annotated[
        list[str] | None,
        Option(
            help="NAME=VALUE, any other option of load_pool, such as label_column=species; may be "
            "repeated."
        ),
    ] = None,
    deal: Annotated[
        int | None,
        Option("--deal", min=0, help="Deal out missing splits by chance, with this seed."),
    ] = None,
) -> None:
    """Keep data with what was decided for them, so that every command sees the same.

    Lists of tasks and models belong to the data as they were opened: with other splits or sizes,
    they are other data.
    """
    from taskscape.pools import load_pool, split_classes
    from taskscape.pools.cache import POOL

    check_output(out, POOL)
    given: dict[str, Any] = {"min_samples": min_samples, "skip_damaged": skip_damaged or None}
    for name, _, value in (text.partition("=") for text in option or ()):
        if name not in signature(load_pool).parameters or not value:
            raise DataError(f"--option {name}={value}: expected label_column=species, for example.")
        given[name] = value.split(",") if name == "feature_columns" else value
    pool = load_pool(
        source, image_size=image_size, splits=split_file, groups=group_file, encoder=encoder,
        **given,
    )  # fmt: skip
    if deal is not None:
        pool = split_classes(pool, deal)
    pool.save(out)
    _print_summary(pool)
    typer.echo(f"written to {out}")


@opt.command("data get omniglot", to=data_app)
def get(name: Annotated[str, Argument(help="The name of a known data set.")]) -> None:
    """Download a known data set into the data folder and check it."""
    from taskscape.pools import POOLS, load_pool

    if name not in POOLS:
        raise DataError(f"no known data set {name!r}; known are {', '.join(POOLS)}.")
    typer.echo(repr(load_pool(name, download=True)))


@opt.command(
    "tasks glyphs --split train --n-tasks 20000 --n-way 5-10 --n-shot 16 --seed 0 "
    "--out train.parquet"
)
def tasks(
    source: opt.Source,
    out: Annotated[Path, Option(help="The Parquet file to write.")],
    n_tasks: Annotated[int, Option(help="How many tasks.")] = 1000,
    n_way: Annotated[str, Option(help="Classes per task: 5, or a range 5-10.")] = "5",
    n_shot: Annotated[str, Option(help="Samples per class: 5, 1-5, or all.")] = "5",
    n_query: opt.NQuery = 0,
    split: Annotated[str | None, Option(help="train, val, test, or train+val.")] = None,
    within_group: Annotated[
        bool, Option("--within-group", help="All classes of a task from one group.")
    ] = False,
    group_weights: Annotated[
        str,
        Option(
            help="With --within-group: each of groups or sources as likely, or by number of "
            "classes."
        ),
    ] = "groups",
    unique: Annotated[bool, Option("--unique", help="Each set of classes at most once.")] = False,
    every: Annotated[
        bool, Option("--all", help="Every combination of classes instead of a sample.")
    ] = False,
    seed: opt.Seed = 0,
) -> None:
    """Draw tasks, or list all of them, and write a manifest that can be published and re-used."""
    from taskscape.pools import load_pool
    from taskscape.tasks import TASKS, sample_tasks

    way, shot = opt.parse_range(n_way, "--n-way"), opt.parse_shots(n_shot)
    check_output(out, TASKS)
    if every:
        beside, weights = "--all, which lists every combination", group_weights
        opt.refuse_given(tasks, beside, n_tasks=n_tasks, unique=unique, group_weights=weights)
    drawn = sample_tasks(
        load_pool(source), "all" if every else n_tasks, n_way=way, n_shot=shot, n_query=n_query,
        split=split, within_group=within_group, group_weights=group_weights, unique=unique,
        seed=seed,
    )  # fmt: skip
    drawn.save(out)
    typer.echo(f"{drawn!r}\nwritten to {out}")


def _summarise(pool: "taskscape.ClassPool") -> dict[str, Any]:
    """What ``data show`` reports, as plain values."""
    return {
        "name": pool.name,
        "classes": len(pool),
        "samples": pool.n_samples,
        "kind": "images" if pool.is_images else "features",
        "sample_shape": list(pool.sample_shape),
        "fewest_samples": int(pool.counts.min()),
        "most_samples": int(pool.counts.max()),
        "fingerprint": pool.fingerprint,
        "parts": pool.parts(),
    }


def _print_summary(pool: "taskscape.ClassPool") -> None:
    from rich.console import Console
    from rich.table import Table

    from taskscape.plain_text import low_to_high

    console = Console()
    table = Table("split", "group", "classes", "samples")
    for part in pool.parts():
        counts = (f"{part[what]:,}" for what in ("classes", "samples"))
        table.add_row(part["split"] or "–", part["group"] or "–", *counts)
    console.print(table)
    per_class = low_to_high(pool.counts.tolist())
    console.print(f"{pool!r}; {per_class} samples per class", soft_wrap=True, highlight=False)
    console.print(f"fingerprint {pool.fingerprint}", highlight=False)
    for note in pool.info.get("notes", ()):
        console.print(note, soft_wrap=True, highlight=False)
