"""Options that have no effect beside others are refused, before anything is read."""

import pytest
from typer.testing import CliRunner

from taskscape.cli import app
from taskscape.errors import DataError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit data --out m --tasks t.csv --split nosuch", "--split has no effect with --tasks"),
        ("fit data --out m --tasks t.csv --paper --n-shot 3", "--n-shot has no effect with --tas"),
        ("embed m data --out e --tasks t.csv --n-way 99", "--n-way has no effect with --tasks"),
        ("embed m data --out e --tasks t.csv --seed 1", "--seed has no effect with --tasks"),
        ("embed m data --out e.parquet --engine ray", "--engine has no effect with --out e.parq"),
        ("forecast m data --tasks t.csv --split val", "--split has no effect with --tasks"),
        ("forecast m data --calibration c --n-query 3", "--n-query has no effect with --calibrat"),
        ("forecast m data --accuracy a --episodes 3", "--episodes has no effect with --accuracy"),
        ("forecast m data --forecaster f --tasks t --n-way 9", "--n-way has no effect with --tas"),
        ("forecast m data --forecaster f --tasks t --seed 1", "--seed has no effect with --tasks"),
        ("diagram d.csv --similarity x", "--similarity has no effect with a table that has dist"),
        ("select a b -n 3 --learner maml", "--learner has no effect with --rule coverage"),
        ("select a b -n 3 --data d", "--data has no effect with --rule coverage and --similarity"),
        ("select a b -n 3 --tasks t", "--tasks has no effect with no --out-tasks"),
        ("compare --retrieval --data d -k 3", "-k has no effect with --retrieval"),
        ("select a b -n 3 --similarity prototypes --tasks t", "--tasks has no effect with --simi"),
        ("compare a b --n-way 3", "--n-way has no effect with TEST and TRAIN"),
        ("compare a b --seed 1", "--seed has no effect with TEST and TRAIN alone"),
        ("advise --data d --target t --way random --experience own", "--experience has no effect"),
    ],
)
def test_an_option_without_effect_is_refused(words: str, message: str) -> None:
    with pytest.raises(DataError, match=f"^{message}"):
        CliRunner().invoke(app, words.split(), catch_exceptions=False)
