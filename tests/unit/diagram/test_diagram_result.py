import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taskscape.diagram import CorrelationDiagram, correlation_diagram, read_diagram_csv
from taskscape.errors import DataError

RNG = np.random.default_rng(0)
CLASSES = np.array([RNG.choice(12, 3, replace=False) for _ in range(300)])
EFFECT = RNG.normal(size=(2, 12))
HARD = EFFECT[1][CLASSES].mean(axis=1)
DISTANCE = np.exp(EFFECT[0][CLASSES].mean(axis=1))


def accuracy(n=4):
    base = 0.6 - 0.1 * DISTANCE + 0.05 * HARD
    return base[:, None] + 0.02 * RNG.normal(size=(300, n))


@pytest.fixture(scope="module")
def diagram():
    return correlation_diagram(
        DISTANCE,
        {"ProtoNet": accuracy(), "MAML": accuracy(1)[:, 0] - 0.05},
        classes=CLASSES,
        difficulty=HARD,
    )


def test_the_numbers_make_sense(diagram):
    first, second = diagram.curves
    assert -1 <= first.spearman.low < first.spearman.value < first.spearman.high <= 1
    assert first.spearman.value < -0.5
    assert first.partial.high < 0
    assert first.slope.value < -0.05
    assert 0.8 < first.ceiling < 1
    assert second.ceiling is None
    assert diagram.n_classes == 12


def test_the_summary_says_it_all(diagram):
    words = diagram.summary()
    assert "ProtoNet: Spearman -0." in words
    assert "noise ceiling unknown (give accuracies of several evaluations)" in words
    assert words.endswith("300 test tasks of 12 classes; 95 % intervals by leaving out classes.")


def test_without_intervals_the_summary_says_why():
    few = correlation_diagram(DISTANCE[:5], {"A": accuracy()[:5]}, classes=CLASSES[:5])
    words = few.summary()
    assert not few.has_intervals
    assert "nan" not in words
    assert words.endswith(" classes; no intervals: too few tasks remain when leaving out classes.")


def test_the_table_has_a_row_for_every_bin(diagram):
    rows = diagram.table()
    assert {row["learner"] for row in rows} == {"ProtoNet", "MAML"}
    assert sum(row["n_tasks"] for row in rows) == 600
    assert set(rows[0]) == {
        "learner", "low", "high", "n_tasks", "distance", "accuracy", "accuracy_low",
        "accuracy_high",
    }  # fmt: skip


def test_it_is_written_and_read(diagram, tmp_path):
    path = tmp_path / "diagram.json"
    diagram.save(path)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = CorrelationDiagram.load(path)
    assert back.to_dict() == diagram.to_dict()
    assert back.curves[0].spearman == diagram.curves[0].spearman
    diagram.save(path)  # one of ours is replaced
    for text in ("{}", "["):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(
            DataError, match=r"other\.json is not a correlation diagram written by taskscape\.$"
        ):
            CorrelationDiagram.load(tmp_path / "other.json")
        with pytest.raises(DataError):
            diagram.save(tmp_path / "other.json")
    with pytest.raises(DataError, match=r"^no such file: .*none\.json\.$"):
        CorrelationDiagram.load(tmp_path / "none.json")


def test_it_is_short_to_look_at(diagram):
    assert re.fullmatch(
        r"CorrelationDiagram\(300 tasks; Spearman: ProtoNet -0\.\d\d, MAML -0\.\d\d\)",
        repr(diagram),
    )
    assert re.fullmatch(r"Curve\('MAML', Spearman -0.*, \d+ bins\)", repr(diagram.curves[1]))


def test_it_is_drawn(diagram, tmp_path):
    for ending in ("png", "svg", "pdf"):
        diagram.plot(tmp_path / f"d.{ending}", title="A title")
    with Image.open(tmp_path / "d.png") as image:
        assert image.size[0] > 1000
        colours = {c for _, c in image.convert("RGB").getcolors(1 << 24)}
    assert {(0, 114, 178), (213, 94, 0)} <= colours
    assert "<svg" in (tmp_path / "d.svg").read_text()
    assert (tmp_path / "d.pdf").read_bytes().startswith(b"%PDF")
    diagram.plot(tmp_path / "again.svg", title="A title")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "d.svg").read_bytes()
    with pytest.raises(DataError, match=r"draw to \.png, \.svg, \.pdf, not '\.bmp'\.$"):
        diagram.plot(tmp_path / "d.bmp")


def test_names_are_drawn_as_they_are(diagram, tmp_path):
    odd = replace(
        diagram,
        curves=tuple(replace(c, learner=r"$\oops{$") for c in diagram.curves),
        distance_label="$ or $_",
    )
    odd.plot(tmp_path / "odd.png", title="5 $ and 6 $$^")
    assert (tmp_path / "odd.png").exists()


def test_it_reads_a_csv(tmp_path):
    path = tmp_path / "d.csv"
    accuracies = accuracy(2)
    lines = ["task,distance,classes,difficulty,ProtoNet/1,ProtoNet/2,MAML"]
    for i in range(300):
        words = "[" + ",".join(f'""c{c}""' for c in CLASSES[i]) + "]"
        both = f"{accuracies[i, 0]},{accuracies[i, 1]}"
        lines.append(f'{i},{DISTANCE[i]},"{words}",{HARD[i]},{both},0.{i:03d}')
    path.write_text("\n".join(lines))
    data = read_diagram_csv(path)
    assert {k: v.shape for k, v in data.accuracy.items()} == {
        "ProtoNet": (300, 2),
        "MAML": (300, 1),
    }
    np.testing.assert_allclose(data.distance, DISTANCE)
    np.testing.assert_allclose(data.difficulty[:, 0], HARD)
    assert data.classes.shape == (300, 3)
    assert len(np.unique(data.classes)) == 12
    chosen = read_diagram_csv(path, accuracy=["MAML"], classes="classes")
    assert list(chosen.accuracy) == ["MAML"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "has no column 'distance', but a, b; expected a header, and a row for each "
         "test task."),
        ("distance,x\n1,high\n", "line 2: 'high' in column 'x' is not a number; name the columns "
         "of accuracies if this is not one."),
        ("distance,x\n1\n", "line 2: 1 values for 2 columns."),
        ("distance,x\n", "has no rows below its header; expected a header, and a row for each "
         "test task."),
        ("distance\n1\n", "has no column of accuracies besides distance."),
        ("distance,classes,x\n1,sea lion cat,1\n", "line 2: 'sea lion cat' in column 'classes' "
         "does not say where a class ends and the next begins. Write a JSON list of names, such as "
         '["cat", "sea lion"], or plain ids, such as 3 14 15.'),
    ],
)  # fmt: skip
def test_a_csv_that_cannot_be_read_is_refused(tmp_path, text, message):
    path = Path(tmp_path / "d.csv")
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_diagram_csv(path)
    assert str(error.value).endswith(message)
