"""Ridge regression and its errors on classes left out, against scikit-learn and plain loops."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as TheirRidge

from taskscape.errors import DataError
from taskscape.forecast.calibration import (
    PENALTIES,
    fit_ridge,
    hold_out_classes,
    moments,
    standardised,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3)) * [1, 5, 0.1] + [0, 2, 3]
Y = X @ [1.0, -0.2, 4.0] + RNG.normal(size=150)
CLASSES = np.array([RNG.choice(12, 3, replace=False) for _ in range(150)])
TRUST = np.array([1.0, 1.0, 0.3])


def test_the_fit_is_that_of_scikit_learn():
    result = fit_ridge(X, Y, TRUST, 0.1)
    Z = (X - X.mean(0)) / X.std(0) * TRUST
    theirs = TheirRidge(alpha=0.1 * len(X)).fit(Z, Y)
    np.testing.assert_allclose(result.weights, theirs.coef_)
    assert result.intercept == pytest.approx(theirs.intercept_)
    np.testing.assert_allclose(result.intercept + result.parts(X).sum(1), theirs.predict(Z))


def test_columns_that_are_constant_or_unknown_say_nothing():
    odd = X.copy()
    odd[:, 1] = 7.0
    odd[::2, 2] = np.nan
    result = fit_ridge(odd, Y, np.ones(3), 0.01)
    parts = result.parts(odd)
    assert (parts[:, 1] == 0).all()
    assert (parts[::2, 2] == 0).all()
    assert np.isfinite(parts).all()
    np.testing.assert_allclose(moments(odd, np.ones(3))[0][2], odd[1::2, 2].mean())


def test_every_task_is_predicted_without_its_classes():
    predicted, shared = hold_out_classes(X, Y, CLASSES, TRUST)
    assert shared == 0
    Z = standardised(X, *moments(X, TRUST))
    for i in range(0, 150, 29):
        apart = [j for j in range(150) if not set(CLASSES[i]) & set(CLASSES[j])]
        for k in (0, len(PENALTIES) - 1):
            theirs = TheirRidge(alpha=PENALTIES[k] * len(apart)).fit(Z[apart], Y[apart])
            assert predicted[k, i] == pytest.approx(theirs.predict(Z[i : i + 1])[0])


def test_with_few_classes_some_are_shared_and_it_says_so():
    few = np.array([RNG.choice(5, 3, replace=False) for _ in range(150)])
    assert hold_out_classes(X, Y, few, TRUST)[1] == 1


def test_too_few_tasks_are_refused():
    with pytest.raises(DataError, match=r"^10 calibration tasks over \d+ classes are too few: "):
        hold_out_classes(X[:10], Y[:10], CLASSES[:10], TRUST)


def test_padding_is_no_class_that_tasks_share():
    padded = np.pad(CLASSES, ((0, 0), (0, 2)), constant_values=-1)
    predicted, shared = hold_out_classes(X, Y, padded, TRUST)
    assert shared == 0
    np.testing.assert_array_equal(predicted, hold_out_classes(X, Y, CLASSES, TRUST)[0])
