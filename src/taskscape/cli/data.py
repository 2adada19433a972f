"""``taskscape data``: what data is known, whether it is here, and what is in it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from taskscape.errors import DataError
from taskscape.files import PICTURE, check_output
from taskscape.pools import KNOWN, SPLITS, ClassPool, data_dir, load_pool
from taskscape.pools.sheet import contact_sheet

if TYPE_CHECKING:
    from typer import Context
else:  # typer passes an instance of the base class, which a run-time type checker would refuse
    Context = typer.Context.__mro__[1]

data_app = typer.Typer(
    help="List known data sets, look into one, or download one.",
    invoke_without_command=True,
    epilog="Example:  taskscape data show glyphs --out glyphs.png",
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.add_typer(data_app, name="data")


@data_app.callback()
def list_known(
    context: Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the known data sets and whether they are here.

    Example:  taskscape data
    """
    if context.invoked_subcommand is not None:
        return
    found = {name: known.locate() for name, known in KNOWN.items()}
    if as_json:
        rows = [
            {"name": n, "description": KNOWN[n].description, "path": path and str(path)}
            for n, path in found.items()
        ]
        typer.echo(json.dumps({"folder": str(data_dir()), "pools": rows}, indent=2))
        return
    table = Table("name", "what it is", "here?")
    for name, path in found.items():
        table.add_row(name, KNOWN[name].description, "not found" if path is None else str(path))
    console = Console()
    console.print(table)
    console.print(
        f"Data sets are looked for in {data_dir()} (set TASKSCAPE_DATA to change it). Your own: "
        "a folder of class folders, .npz, .parquet, .arrow or .zip, given by its path.",
        soft_wrap=True,
    )


@data_app.command(epilog="Example:  taskscape data show glyphs --split test --out glyphs.png")
def show(
    source: Annotated[str, typer.Argument(help="A known name, or the path of your own data.")],
    split: Annotated[str | None, typer.Option(help="Only train, val, test, or train+val.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write a contact sheet (PNG) here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show counts by split and group, sample sizes, and a contact sheet."""
    if out is not None:
        check_output(out, PICTURE)
    pool = load_pool(source, split=split)
    summary = summarise(pool)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        _print_summary(pool, summary)
    if out is not None:
        contact_sheet(pool, out)
        typer.echo(f"contact sheet: {out}", err=as_json)


@data_app.command(epilog="Example:  taskscape data get omniglot")
def get(name: Annotated[str, typer.Argument(help="The name of a known data set.")]) -> None:
    """Download a known data set into the data folder and check it."""
    if name not in KNOWN:
        raise DataError(f"no known data set {name!r}; known are {', '.join(KNOWN)}.")
    pool = load_pool(name, download=True)
    typer.echo(f"{pool!r}")


def summarise(pool: ClassPool) -> dict[str, object]:
    """What ``data show`` tells, as plain values."""
    groups = pool.groups or ("",) * len(pool)
    splits = pool.splits or ("",) * len(pool)
    rows: dict[tuple[str, str], list[int]] = {}
    for c, key in enumerate(zip(splits, groups, strict=True)):
        rows.setdefault(key, []).append(int(pool.counts[c]))
    order = {s: i for i, s in enumerate(SPLITS)}
    return {
        "name": pool.name,
        "classes": len(pool),
        "samples": pool.n_samples,
        "kind": "images" if pool.is_images else "features",
        "sample_shape": list(pool.sample_shape),
        "fewest_samples": int(pool.counts.min()),
        "most_samples": int(pool.counts.max()),
        "fingerprint": pool.fingerprint,
        "parts": [
            {"split": s, "group": g, "classes": len(counts), "samples": sum(counts)}
            for (s, g), counts in sorted(
                rows.items(), key=lambda row: (order.get(row[0][0], 9), row[0][1])
            )
        ],
    }


def _print_summary(pool: ClassPool, summary: dict[str, object]) -> None:
    console = Console()
    table = Table("split", "group", "classes", "samples")
    parts = summary["parts"]
    assert isinstance(parts, list)
    for part in parts:
        table.add_row(
            part["split"] or "–",
            part["group"] or "–",
            f"{part['classes']:,}",
            f"{part['samples']:,}",
        )
    console.print(table)
    per_class = (
        f"{pool.counts.min()}"
        if pool.counts.min() == pool.counts.max()
        else f"{pool.counts.min()} to {pool.counts.max()}"
    )
    console.print(f"{pool!r}; {per_class} samples per class", soft_wrap=True, highlight=False)
    console.print(f"fingerprint {pool.fingerprint}", highlight=False)
