"""Where tasks stand on the map: their mean theme mixtures, in the simplex or flattened."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["Places", "place_tasks"]

_SPREAD = 0.03
"""Tasks with equal mixtures are moved apart by this part of the simplex's edge at most."""
_TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
_TETRAHEDRON = np.array(
    [[0, 0, 0], [1, 0, 0], [0.5, np.sqrt(3) / 2, 0], [0.5, np.sqrt(3) / 6, np.sqrt(2 / 3)]]
)


@dataclass(frozen=True, eq=False)
class Places:
    """Coordinates of tasks and of the pure themes, flat and, for four themes, in space."""

    flat: Float[np.ndarray, "tasks 2"]
    flat_corners: Float[np.ndarray, "L 2"]
    kind: str
    """``"line"``, ``"triangle"`` or ``"projection"``."""
    axes: tuple[str, str]
    solid: Float[np.ndarray, "tasks 3"] | None
    solid_corners: Float[np.ndarray, "L 3"] | None


def place_tasks(mixture: Float[np.ndarray, "tasks L"], seed: int) -> Places:
    """Two themes make a line, three a triangle, four a tetrahedron; more are projected."""
    rng = np.random.default_rng(seed)
    L = mixture.shape[1]
    if L <= 2:
        flat, corners, kind = _line(mixture, rng)
        axes = (f"share of theme {L}", "")
    elif L == 3:
        flat, corners, kind, axes = mixture @ _TRIANGLE, _TRIANGLE, "triangle", ("", "")
    else:
        flat, corners, shares = _project(mixture)
        first, second = (f"{100 * share:.0f} % of the variance" for share in shares)
        kind, axes = "projection", (f"first direction ({first})", f"second direction ({second})")
    if kind != "line":
        flat = flat + _moved(rng, flat.shape)
    if L != 4:
        return Places(flat, corners, kind, axes, None, None)
    solid = mixture @ _TETRAHEDRON
    return Places(flat, corners, kind, axes, solid + _moved(rng, solid.shape), _TETRAHEDRON)


def _line(
    mixture: Float[np.ndarray, "tasks L"], rng: np.random.Generator
) -> tuple[Float[np.ndarray, "tasks 2"], Float[np.ndarray, "L 2"], str]:
    height = rng.uniform(-1, 1, len(mixture))
    corners = np.array([[float(i), 0.0] for i in range(mixture.shape[1])])
    return np.stack([mixture[:, -1], height], axis=1), corners, "line"


def _project(
    mixture: Float[np.ndarray, "tasks L"],
) -> tuple[Float[np.ndarray, "tasks 2"], Float[np.ndarray, "L 2"], Float[np.ndarray, "2"]]:
    """The plane in which the tasks vary most, and where the pure themes fall in it."""
    mean = mixture.mean(axis=0)
    _, sizes, directions = np.linalg.svd(mixture - mean, full_matrices=False)
    plane = np.zeros((mixture.shape[1], 2))
    plane[:, : len(directions[:2])] = directions[:2].T
    signs = np.where(plane[np.abs(plane).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    plane *= signs  # which way round a direction points is otherwise chance
    variance = np.pad(sizes**2, (0, 2))
    shares = variance[:2] / max(variance.sum(), np.finfo(np.float64).tiny)
    return (mixture - mean) @ plane, (np.eye(len(mean)) - mean) @ plane, shares


def _moved(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "tasks axes"]:
    direction = rng.normal(size=shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return direction * (_SPREAD * rng.uniform(0, 1, (shape[0], 1)) ** (1 / shape[1]))
