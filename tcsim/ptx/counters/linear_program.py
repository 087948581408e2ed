"""A linear program in standard form, solved by an interior point method."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROUNDS, _CENTRE = 60, 0.03
"""Steps at most, and how far each aims at the middle of what is allowed."""


def minimum(
    matrix: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64], costs: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Numbers, none negative, with matrix @ numbers == wanted and the least costs @ numbers; the constraints have to have a solution.

    >>> minimum(np.array([[1.0, 1.0]]), np.array([3.0]), np.array([2.0, 1.0])).round(6).tolist()
    [0.0, 3.0]
    """

    def solved(weight: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        normal = (matrix * weight) @ matrix.T
        return np.asarray(np.linalg.solve(normal + np.diag(1e-13 * normal.diagonal() + 1e-16), right), np.float64)

    def step(now: npt.NDArray[np.float64], change: npt.NDArray[np.float64]) -> float:
        return min(1.0, 0.99 * float(np.min(np.where(change < 0, -now / np.where(change < 0, change, 1), np.inf))))

    found, dual = matrix.T @ solved(np.ones(len(costs)), wanted), solved(np.ones(len(costs)), matrix @ costs)
    slack = costs - matrix.T @ dual
    found, slack = found + max(-1.5 * found.min(), 0.0), slack + max(-1.5 * slack.min(), 0.0)
    product = found @ slack / 2
    found, slack = found + product / slack.sum(), slack + product / found.sum()
    for _ in range(_ROUNDS):
        primal, gap, mean = wanted - matrix @ found, costs - matrix.T @ dual - slack, found @ slack / len(costs)
        if (mean < 1e-10 and np.abs(primal).max() < 1e-8 * wanted.max()) or mean < 1e-14:
            break
        centre = found * slack - _CENTRE * mean
        turn = solved(found / slack, primal + matrix @ ((found * gap + centre) / slack))
        of_slack = gap - matrix.T @ turn
        change = -(centre + found * of_slack) / slack
        found, length = found + step(found, change) * change, step(slack, of_slack)
        slack, dual = slack + length * of_slack, dual + length * turn
    return found
