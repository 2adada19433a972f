"""CSV files of users: read in one way, and refused with the file and the line."""

from pathlib import Path

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.io.tables import read_csv, write_csv

EXPECTED = "expected the columns task and n"


def test_a_table_is_read_as_spreadsheets_write_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    # a byte order mark, line ends of Windows, an empty line, a cell of two lines, an unnamed column
    path.write_bytes('\ufeffTask, N ,\r\n"a, b", 1 ,x\r\n\r\n"c\nd",2.5,y\r\nzoë,3,z'.encode())
    table = read_csv(path, EXPECTED, "task", "n", any_case=True)
    assert table.columns == {"task": ["a, b", "c\nd", "zoë"], "n": ["1", "2.5", "3"]}
    assert table.place(2) == f"{path}, line 6"
    np.testing.assert_array_equal(table.numbers("n"), [1, 2.5, 3])
    assert list(read_csv(path, EXPECTED).columns) == ["Task", "N"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", {"name": ["a,b", 'say "c"'], "n": np.array([1, 2])})
    table = read_csv(tmp_path / "t.csv", EXPECTED, "name")
    assert table.columns == {"name": ["a,b", 'say "c"'], "n": ["1", "2"]}


def test_what_a_spreadsheet_would_compute_is_written_as_text(tmp_path: Path) -> None:
    names = ["=1+1", "+b", "-c", "@d", "'=e", "'f", "g=1"]
    write_csv(tmp_path / "t.csv", {"name": names, "n": np.arange(-3, 4)})
    written = (tmp_path / "t.csv").read_text().splitlines()
    assert written[1:6] == ["'=1+1,-3", "'+b,-2", "'-c,-1", "'@d,0", "''=e,1"]
    assert read_csv(tmp_path / "t.csv", EXPECTED, "name").columns["name"] == names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", " is empty or names no columns"),
        (b"\n\n", " is empty or names no columns"),
        (b",,\n1,2,3\n", " is empty or names no columns"),
        (b"task,n\n", " has no rows below its header"),
        (b"task;n\n1;2\n", " has no column 'task', but task;n"),
        (b"task,N\n1,2\n", " has no column 'n', but task, N"),
        (b"task,n,n\n1,2,3\n", " has two columns 'n'"),
        (b"task,n\n1,2\n\n3\n", ", line 4: 1 values for 2 columns."),
        (b"task,n\n1,2,3\n", ", line 2: 3 values for 2 columns."),
        (b"task,n\n1,\xff\n", " cannot be read ('utf-8' codec can't decode byte 0xff in position"),
        (b"task,n\n1," + b"9" * 200_000, ", line 2: field larger than field limit"),
        (b'task,n\n1,"2\n3,4\n', ", line 2: a quote is opened and never closed."),
        (b"1.5,2\n3,4\n", ", line 1: numbers in every column (1.5, 2, …). Is this the first row"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as raised:
        read_csv(path, EXPECTED, "task", "n")
    assert str(raised.value).startswith(f"{path}{message}")


def test_a_file_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^no such file: .*none\.csv; expected the columns task"):
        read_csv(tmp_path / "none.csv", EXPECTED)
    with pytest.raises(DataError, match=r"cannot be read \(.*directory.*\); expected the columns"):
        read_csv(tmp_path, EXPECTED)


def test_a_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n\n1\n\nhigh\n")
    with pytest.raises(DataError, match=r"line 4: 'high' in column 'n' .*; use another"):
        read_csv(path, EXPECTED).numbers("n", "; use another")
