"""Fetching the files of a known data set, on request only, each checked against its checksum."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from taskscape.errors import DataError
from taskscape.progress import Advance, progress_bar


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch: where it is, and its checksum as ``algorithm:digest``."""

    url: str
    checksum: str

    @property
    def file_name(self) -> str:
        """What the file is called on disk."""
        return self.url.rsplit("/", 1)[-1]


class _Bar:
    """What pooch asks of a progress bar, given to ours."""

    def __init__(self, file_name: str) -> None:
        self.total = 0
        self._file_name = file_name
        self._stack = ExitStack()
        self._advance: Advance | None = None

    def update(self, steps: int) -> None:
        if self._advance is None:
            bar = progress_bar(f"downloading {self._file_name}", self.total or None)
            self._advance = self._stack.enter_context(bar)
        self._advance(int(steps))

    def close(self) -> None:
        self._stack.close()
        self._advance = lambda steps=1, /: None

    reset = close  # pooch winds its bar back before filling it once more; ours is full already


def fetch(files: Sequence[RemoteFile], folder: Path) -> Path:
    """Download files into a folder; those already there with the right checksum are kept.

    A file appears under its name only when it is complete and its checksum is right.
    """
    import pooch  # takes a while to import, and few runs download anything

    existed = folder.exists()
    pooch.get_logger().setLevel("WARNING")
    for file in files:
        downloader = pooch.HTTPDownloader(progressbar=_Bar(file.file_name), timeout=60)
        try:
            pooch.retrieve(
                file.url, file.checksum, file.file_name, path=folder, downloader=downloader
            )
        except Exception as error:  # no network, no such page, no space, a wrong checksum …
            if not existed and folder.exists() and not any(folder.iterdir()):
                folder.rmdir()
            raise DataError(
                f"downloading {file.url} failed ({type(error).__name__}: {error}). "
                f"Try again, or fetch it by other means and put it at {folder / file.file_name} "
                f"({file.checksum.replace(':', ' ')})."
            ) from error
    return folder
