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
from taskscape.settings import changed
from taskscape.study.config import SourceSettings

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

    rows: list[dict[str, Any]] = [
        {"name": name, "description": known.description, "path": known.locate()}
        for name, known in POOLS.items()
    ]
    if as_json:
        typer.echo(json.dumps({"folder": data_dir(), "pools": rows}, indent=2, default=str))
        return
    table = Table("name", "what it is", "on this machine?")
    for row in rows:
        table.add_row(row["name"], row["description"], str(row["path"] or "not found"))
    Console().print(table)
    typer.echo(
        f"Data sets are looked for in {data_dir()} (set TASKSCAPE_DATA to change it). Your own: "
        "a folder of class folders, .npz, .parquet, .arrow, .csv or .zip, given by its path."
    )


@opt.command("data show glyphs --split test --out glyphs.png", to=data_app)
def show(
    source: opt.Source,
    split: Annotated[str | None, Option(help="Only train, val, test, or train+val.")] = None,
    out: Annotated[Path | None, Option(help="Also write a contact sheet (PNG) here.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show counts by split and group, sample sizes, and a contact sheet."""
    from taskscape.io.values import plain
    from taskscape.pools import load_pool
    from taskscape.pools.sheet import contact_sheet

    opt.check_out(out, PICTURE)
    pool = load_pool(source, split=split)
    if as_json:
        typer.echo(json.dumps(plain(pool.to_dict()), indent=2))
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
@opt.takes_settings(SourceSettings, every=True)
def save(
    source: opt.Source,
    out: Annotated[Path, Option(help="The folder to write, for any command to open.")],
    set_values: Annotated[
        list[str] | None,
        Option("--option", metavar="NAME=VALUE", help="Any other option of load_pool."),
    ] = None,
    deal: Annotated[
        int | None, Option(min=0, help="Deal out missing splits by chance, with this seed.")
    ] = None,
    **flags: Any,
) -> None:
    """Keep data with what was decided for them, so that every command sees the same.

    Lists of tasks and models belong to the data as they were opened: with other splits or sizes,
    they are other data.
    """
    from taskscape.pools import load_pool, split_classes
    from taskscape.pools.cache import POOL

    check_output(out, POOL)
    chosen = {name: value for name, value in flags.items() if value is not None}
    given = changed(SourceSettings(), chosen).options()
    for name, _, value in (text.partition("=") for text in set_values or ()):
        if name not in signature(load_pool).parameters or not value:
            raise DataError(f"--option {name}={value}: expected label_column=species, for example.")
        given[name] = value.split(",") if name == "feature_columns" else value
    pool = load_pool(source, **given)
    if deal is not None:
        pool = split_classes(pool, deal)
    pool.save(out)
    _print_summary(pool)
    typer.echo(f"written to {out}")


@opt.command("data get omniglot", to=data_app)
def get(name: Annotated[str, Argument(help="The name of a known data set.")]) -> None:
    """Download a known data set into the data folder and check it."""
    from taskscape.pools import load_pool

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
    within_group: Annotated[bool, Option("--within-group", help="Of one group each.")] = False,
    unique: Annotated[bool, Option("--unique", help="Each set of classes at most once.")] = False,
    every: Annotated[bool, Option("--all", help="Every combination of classes.")] = False,
    seed: opt.Seed = 0,
) -> None:
    """Draw tasks, or list all of them, and write a manifest that can be published and re-used."""
    from taskscape.pools import load_pool
    from taskscape.tasks import TASKS, sample_tasks

    way, shot = opt.parse_range(n_way, "--n-way"), opt.parse_shots(n_shot)
    check_output(out, TASKS)
    beside = "--all, which lists every combination"
    opt.refuse_given(tasks, every and beside, n_tasks=n_tasks, unique=unique)
    drawn = sample_tasks(
        load_pool(source), "all" if every else n_tasks, n_way=way, n_shot=shot, n_query=n_query,
        split=split, within_group=within_group, unique=unique, seed=seed,
    )  # fmt: skip
    drawn.save(out)
    typer.echo(f"{drawn!r}\nwritten to {out}")


def _print_summary(pool: "taskscape.ClassPool") -> None:
    from rich.console import Console
    from rich.table import Table

    from taskscape.plain_text import low_to_high

    table = Table("split", "group", "classes", "samples")
    for part in pool.parts():
        counts = (f"{part[what]:,}" for what in ("classes", "samples"))
        table.add_row(part["split"] or "–", part["group"] or "–", *counts)
    Console().print(table)
    typer.echo(f"{pool!r}; {low_to_high(pool.counts.tolist())} samples per class")
    typer.echo("\n".join([f"fingerprint {pool.fingerprint}", *pool.info.get("notes", ())]))
