"""Files and folders that appear in one piece or not at all."""

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["folder_in_one_piece", "written_in_one_piece"]


_ABANDONED_SECONDS = 24 * 3600


@contextmanager
def written_in_one_piece(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file that becomes ``path`` if the block succeeds and vanishes if it fails."""
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep_abandoned(final)
    descriptor, name = tempfile.mkstemp(dir=final.parent, prefix=_prefix(final))
    os.close(descriptor)
    made = Path(name)
    try:
        yield made
        _as_any_other(made, 0o666)
        made.replace(final)
    finally:
        made.unlink(missing_ok=True)


@contextmanager
def folder_in_one_piece(path: str | os.PathLike[str], *, replace: bool = True) -> Iterator[Path]:
    """A temporary folder that takes the place of ``path`` if the block succeeds.

    Without ``replace``, a folder that stands there by then is kept. With it, that folder is moved
    aside first and deleted last, so that at any moment either the old or the new one is whole under
    some name.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep_abandoned(final)
    made = Path(tempfile.mkdtemp(dir=final.parent, prefix=_prefix(final)))
    try:
        yield made
        _as_any_other(made, 0o777)
        if final.exists() and not replace:
            return  # somebody else finished the same folder first: keep theirs
        if final.exists():
            _take_the_place(made, final)
        else:
            made.rename(final)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _take_the_place(made: Path, final: Path) -> None:
    aside = Path(tempfile.mkdtemp(dir=final.parent, prefix=_prefix(final)))
    try:
        final.rename(aside / final.name)
        made.rename(final)
    finally:
        if not final.exists():
            (aside / final.name).rename(final)
        shutil.rmtree(aside, ignore_errors=True)


def _prefix(final: Path) -> str:
    return f".{final.name}-unfinished-"


def _as_any_other(made: Path, mode: int) -> None:
    """Temporary files are private; what they become should be as readable as any other file."""
    mask = os.umask(0)
    os.umask(mask)
    made.chmod(mode & ~mask)


def _sweep_abandoned(final: Path) -> None:
    """Remove what a killed process left beside ``final`` a day or more ago."""
    for left in final.parent.glob(f"{glob.escape(_prefix(final))}*"):
        with suppress(FileNotFoundError):  # another process sweeps too
            if time.time() - left.stat().st_mtime < _ABANDONED_SECONDS:
                continue
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink()
