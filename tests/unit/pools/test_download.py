"""Downloads: checked, whole or not at all, and never without being asked for."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools import known, load
from taskscape.pools.known import fetch
from taskscape.pools.load import load_pool

HALVES = ("background", "evaluation")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which a server on this machine offers it."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _offer(served: tuple[Path, str]) -> dict[str, str]:
    folder, address = served
    offered = {}
    for half in HALVES:
        contents = {n: d for n, d in files.omniglot_files().items() if half in n}
        path = files.write_zip(folder / f"images_{half}.zip", contents)
        digest = hashlib.md5(path.read_bytes()).hexdigest()
        offered[f"{address}/{path.name}"] = f"md5:{digest}"
    return offered


def test_files_arrive_under_their_names(served: tuple[Path, str], tmp_path: Path) -> None:
    target = fetch(_offer(served), tmp_path / "data")
    assert sorted(p.name for p in target.iterdir()) == [
        "images_background.zip",
        "images_evaluation.zip",
    ]


def test_a_wrong_checksum_leaves_nothing(served: tuple[Path, str], tmp_path: Path) -> None:
    url = next(iter(_offer(served)))
    with pytest.raises(DataError) as raised:
        fetch({url: "md5:" + "0" * 32}, tmp_path / "data")
    message = str(raised.value)
    assert message.startswith(f"downloading {url} failed (ValueError: ")
    assert f"put it at {tmp_path / 'data' / 'images_background.zip'}" in message
    assert not (tmp_path / "data").exists()


def test_a_missing_page_leaves_nothing(served: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.zip failed \(HTTPError: 404"):
        fetch({f"{served[1]}/nothing.zip": "md5:" + "0" * 32}, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_no_connection_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Try again, or fetch it by other means"):
        fetch({"http://127.0.0.1:9/x.zip": "md5:" + "0" * 32}, tmp_path / "data")


def test_omniglot_is_fetched_on_request_only(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = _offer(served)
    omniglot = known.POOLS["omniglot"]
    monkeypatch.setenv("TASKSCAPE_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(
        load.POOLS,
        "omniglot",
        replace(omniglot, files=offered),
    )
    with pytest.raises(DataError, match=r"is not on this machine"):
        load_pool("omniglot")
    assert not (tmp_path / "data").exists()
    assert len(load_pool("omniglot", download=True)) == 6
    served[0].joinpath("images_background.zip").unlink()
    assert len(load_pool("omniglot", download=True)) == 6  # it is here, so nothing is fetched


def test_what_cannot_be_fetched_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKSCAPE_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=r"'mini_imagenet' cannot be downloaded automatically\. Put"
    ):
        load_pool("mini_imagenet", download=True)
    with pytest.raises(DataError, match=r"download=True is for known data sets"):
        load_pool(tmp_path, download=True)
