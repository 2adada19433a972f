"""Figures: drawn in one style, and written atomically."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskscape.errors import DataError
from taskscape.io.files import Kind, PathLike, atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".png", ".svg", ".pdf")

PICTURE = Kind("a picture", lambda path: path.suffix.lower() in _ENDINGS)
"""Drawn again over any file that has such an ending."""


def save_picture(figure: "Figure", path: PathLike, **options: Any) -> None:
    """Write a figure: an atomic write."""
    ending = Path(path).suffix[1:].lower() or "png"
    if ending not in figure.canvas.get_supported_filetypes():
        raise DataError(
            f"{os.fspath(path)}: a picture cannot end in .{ending}. Use .png, .svg or .pdf."
        )
    undated = {"Date": None} if ending == "svg" else None  # the same figure gives the same file
    with atomic_write(path, PICTURE) as unfinished:
        figure.savefig(unfinished, format=ending, metadata=undated, **options)


@contextmanager
def picture(
    path: PathLike | None, width: float, height: float, *, dpi: int = 200
) -> Iterator["Figure"]:
    """A figure to draw into, of so many inches and in one style; then written, if to a ``path``."""
    from matplotlib import rc_context

    from taskscape.notebook import shown_figure

    style: Any = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "taskscape",
        "pdf.fonttype": 42,
    }
    with rc_context(style):
        figure = shown_figure(width, height)
        yield figure
        if path is not None:
            save_picture(figure, path, dpi=dpi)
