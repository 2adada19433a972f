"""For ``taskscape fit``: what came out, in words or as JSON."""

import json
from pathlib import Path

import typer

from taskscape.themes.estimator import TaskThemes

__all__ = ["print_fit"]


def print_fit(model: TaskThemes, pool: str, out: Path, as_json: bool) -> None:
    last = model.fit_info_[-1]
    if as_json:
        outcome = {
            "model": str(out),
            "pool": pool,
            "tasks": last.tasks,
            "held_out_elbo": float(model.elbo_history_[:, 1].max()),
            "held_out": model.held_out_,
            "stopped": last.done,
            "preparation": model.preparation_.config.describe(),
            "health": model.health_.to_dict(),
        }
        typer.echo(json.dumps(outcome, indent=2))
        return
    typer.echo(f"prepared by: {model.preparation_.config.describe()}")
    typer.echo(
        f"learned from {last.tasks:,} tasks; bound {model.elbo_history_[:, 1].max():.4f} nats per "
        f"sample on {model.held_out_}; stopped: {last.done}"
    )
    typer.echo(model.health_.summary())
    typer.echo(f"model: {out}")
