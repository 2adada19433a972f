"""How far tasks of classes that nobody has seen may fall from a ridge fit.

Tasks that share classes share their luck, so that hundreds of tasks of 16 classes are 16 draws of a
class and not hundreds of a task. The errors of a fit are therefore split into what comes with the
classes and what each task has to itself; a task of other classes has new draws of both, and the
coefficients carry the draws of the calibration classes.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Spread", "class_shares", "fit_spread"]


@dataclass(frozen=True, eq=False)
class Spread:
    r"""Where the log-odds of tasks vary about a ridge fit.

    .. math:: y_t = f(z_t) + \frac{1}{C_t} \sum_{c \in t} u_c + e_t, \quad
        \mathrm{var}\, u_c = \tau^2, \quad \mathrm{var}\, e_t = \sigma^2
    """

    of_classes: float
    r"""τ², of the effect of a class."""
    of_tasks: float
    r"""σ², of what a task has to itself: its set of classes, its samples, its finite queries."""
    of_coefficients: Float[np.ndarray, "coefficients coefficients"]
    r"""S, the covariance of intercept and weights over draws of classes and tasks."""

    def variance(
        self, Z: Float[np.ndarray, "tasks columns"], n_way: Int[np.ndarray, "tasks"]
    ) -> Float[np.ndarray, "tasks"]:
        r"""Expected squared error of the fit for tasks of new classes.

        .. math:: v = \tau^2 / C + \sigma^2 + (1, z)\, S\, (1, z)^\top
        """
        A = _with_intercept(Z)
        fit = ((A @ self.of_coefficients) * A).sum(axis=1)
        return np.asarray(self.of_classes / n_way + self.of_tasks + fit)


def class_shares(classes: Int[np.ndarray, "tasks way"]) -> Float[np.ndarray, "tasks classes"]:
    """The weight of each class in the mean over a task's classes; padding (-1) has none."""
    ids = np.unique(classes[classes >= 0])
    M = np.zeros((len(classes), len(ids)))
    row, place = np.nonzero(classes >= 0)
    M[row, np.searchsorted(ids, classes[row, place])] = 1
    return M / M.sum(axis=1, keepdims=True)


def fit_spread(
    Z: Float[np.ndarray, "tasks columns"],
    y: Float[np.ndarray, "tasks"],
    classes: Int[np.ndarray, "tasks way"],
    penalty: float,
) -> Spread:
    r"""The variances about the ridge fit that make its residuals as large as they are.

    With :math:`A = (1, Z)` and M the weights of classes in tasks, two sums of squares are set to
    their expectations:

    .. math::
        B &= (A^\top A + n\,\text{penalty}\,\mathrm{diag}(0, 1, \dots, 1))^{-1} A^\top, \quad
        R = I - A B, \quad r = R y \\
        \|r\|^2 &= \tau^2 \|R M\|^2 + \sigma^2 \|R\|^2 \\
        \|M^\top r\|^2 &= \tau^2 \|M^\top R M\|^2 + \sigma^2 \|R M\|^2 \\
        S &= B\, (\tau^2 M M^\top + \sigma^2 I)\, B^\top

    R holds what the fit has taken up of the classes' effects, so that these are not underrated.
    """
    n = len(Z)
    A, M = _with_intercept(Z), class_shares(classes)
    ridge = penalty * n * np.diag(np.r_[0.0, np.ones(Z.shape[1])])
    B = np.linalg.solve(A.T @ A + ridge, A.T)
    BA, BM = B @ A, B @ M
    r, RM = y - A @ (B @ y), M - A @ BM
    squared_R = n - 2 * np.trace(BA) + (BA * BA.T).sum()
    squared_RM = (RM**2).sum()
    expected = np.array([[squared_RM, squared_R], [((M.T @ RM) ** 2).sum(), squared_RM]])
    tau2, sigma2 = _not_negative(expected, np.array([(r**2).sum(), ((M.T @ r) ** 2).sum()]))
    return Spread(tau2, sigma2, tau2 * BM @ BM.T + sigma2 * B @ B.T)


def _not_negative(
    expected: Float[np.ndarray, "2 2"], seen: Float[np.ndarray, "2"]
) -> tuple[float, float]:
    """The two variances; where one would be negative it is 0, and the other explains all of r."""
    tau2, sigma2 = np.linalg.solve(expected, seen)
    if tau2 < 0:
        return 0.0, float(seen[0] / expected[0, 1])
    if sigma2 < 0:
        return float(seen[0] / expected[0, 0]), 0.0
    return float(tau2), float(sigma2)


def _with_intercept(
    Z: Float[np.ndarray, "tasks columns"],
) -> Float[np.ndarray, "tasks coefficients"]:
    return np.concatenate([np.ones((len(Z), 1)), Z], axis=1)
