"""What was left out of a pool, dealt out or changed, in words; notes that stay with it."""

from collections.abc import Sequence
from dataclasses import replace

from taskscape.pools.pool import ClassPool

_SHOWN = 5
PHOTOGRAPHS = (
    "The samples are colour pictures as they are. Distances between pixels say little about "
    "photographs: open them with encoder=, a network that makes features of them "
    "(docs/own-encoder.md)."
)
"""Of colour pictures that were opened without an encoder."""


def few_names(names: Sequence[str], most: int = 3) -> str:
    """The first names, quoted, for a message.

    >>> few_names(["a", "b", "c"], 2)
    "'a', 'b', …"
    """
    return (", ".join(map(repr, names[:most])) or "nothing") + (", …" if len(names) > most else "")


def left_out(names: Sequence[str], what: str) -> list[str]:
    """A note on what was left out, with a few of the names; none where nothing was.

    >>> left_out(["a.png", "b.png"], "of 30 pictures could not be read")
    ['2 of 30 pictures could not be read and were left out: a.png, b.png.']
    """
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    text = f"{len(names):,} {what} and were left out: {', '.join(names[:_SHOWN])}{more}."
    return [text] if names else []


def with_notes(pool: ClassPool, *notes: str) -> ClassPool:
    """The pool with more in ``info["notes"]``, which commands and reports show."""
    return replace(pool, info={**pool.info, "notes": [*pool.info.get("notes", ()), *notes]})
