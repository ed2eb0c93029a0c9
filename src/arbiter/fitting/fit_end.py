"""Where a fit ended: what its surface, its result and its standard errors are made from."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from arbiter.conventions import Array
from arbiter.fitting.fitted_surface import Optimum, VixResult
from arbiter.fitting.interior_point import InteriorPoint, Status
from arbiter.fitting.objective import FitPoint
from arbiter.fitting.options import FitOptions
from arbiter.inputs import freeze_array
from arbiter.pricing.vix_slices import VixSlices

# The rim comes once a step promises less than this share of the objective: far out it hinders.
RIM_TOLERANCE = 0.1
MAX_INNER_STEPS = 3  # near the end constraints block the steps, and following them is cheap


class FitEnd(NamedTuple):
    """The last iterate of a fit, seen from the SPX side.

    Attributes:
        point: The objective of the SPX quotes there, of whose loss the rim is left out.
        matrix: The Gauss-Newton matrix without the rim, with the stiffness of the constraints and
            of asks without a bid, banded.
        value: The objective of all quotes.
        iterations: Steps of all stages.
        status: How the last stage ended.
        slices: Shapes of the VIX, after a joint fit.
        vix: Residuals of VIX options and futures, after a joint fit.
        warnings: What a reader of the surface should know, as sentences.
        optimum: The forces there, after a fit of one component.
        coupling: ``(p, r)`` columns U whose ``U Uᵀ`` is the VIX quotes' part of the information.
    """

    point: FitPoint
    matrix: Array
    value: float
    iterations: int
    status: Status
    slices: VixSlices | None = None
    vix: VixResult | None = None
    warnings: tuple[str, ...] = ()
    optimum: Optimum | None = None
    coupling: Array | None = None

    @classmethod
    def from_iterate(cls, interior: InteriorPoint[FitPoint], status: Status) -> FitEnd:
        """The end of a fit to SPX quotes alone."""
        point = interior.point
        layout, optimum = point.objective.layout, None
        if layout.components == 1:  # the star order comes first among the constraints
            n, links = layout.knot_count, layout.size - layout.knot_count
            duals = interior.duals[:links].reshape(-1, n)
            barrier = duals / interior.slacks[:links].reshape(-1, n)
            reach, losses = point.misfit.misfit.smiles.quoted_range, point.misfit.sum_by_expiry()
            optimum = Optimum(*(freeze_array(a) for a in (duals, barrier, reach, losses)))
        ended = leave_out_rim(point, interior.matrix())
        return cls(*ended, point.value, interior.iterations, status, optimum=optimum)


def run_last_steps(
    interior: InteriorPoint[FitPoint], options: FitOptions
) -> tuple[InteriorPoint[FitPoint], Status]:
    """The steps with the rim and the bounds, from where the loss without them has led."""
    objective = interior.point.objective.while_choosing(False)
    interior = interior.with_objective(objective, objective.evaluate(interior.z))
    interior = interior.with_inner_steps(MAX_INNER_STEPS)
    return interior.run(options.tolerance, options.iterations - interior.iterations)


def leave_out_rim(point: FitPoint, matrix: Array) -> tuple[FitPoint, Array]:
    """A point and its matrix as they are without the rim, which says nothing about noise."""
    misfit = point.misfit.while_choosing()
    change = misfit.of_quotes.band - point.misfit.of_quotes.band
    return replace(point, misfit=misfit), matrix + change
