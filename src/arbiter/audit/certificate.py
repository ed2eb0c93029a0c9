"""Certificates: the checked inequalities and the violations found.

:func:`audit` checks a table of prices or volatilities. :func:`certify_surface` checks a surface
through its public methods and adds the structural proof on its stored numbers. Findings are data:
nothing here raises because of a finding.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from arbiter.audit import price_tables, sampling, vix_sampling
from arbiter.audit.audited_surface import AuditedSurface
from arbiter.audit.durrleman import tabulate_smallest_durrleman
from arbiter.audit.grid import EMPTY_GRID, Grid
from arbiter.audit.inequalities import (
    FAMILIES,
    ROUNDINGS_PER_LEG,
    Inequalities,
    static_inequalities,
)
from arbiter.audit.structural_proof import StructuralProof
from arbiter.pricing import black

logger = logging.getLogger(__name__)

# A finding of this size is worth a tick of an index option; smaller ones are real but cannot
# be traded. Information only.
MIN_MATERIAL_SIZE = 1e-5

# A volatility given beside a price may differ from the price's own by this, ten basis points,
# before the two are two statements.
MAX_VOLATILITY_DISAGREEMENT = 1e-3

_FINDING_SCHEMA: dict[str, type[pl.DataType]] = {
    "family": pl.String,
    "T": pl.Float64,
    "k": pl.Float64,
    "size": pl.Float64,
    "size_iv": pl.Float64,
    "material": pl.Boolean,
    "legs": pl.String,
}
_VIOLATION_SCHEMA: dict[str, type[pl.DataType]] = {
    **{name: _FINDING_SCHEMA[name] for name in ("family", "T", "k", "size")},
    "row": pl.Int64,
    "batch": pl.Int64,
}


@dataclass(frozen=True, eq=False)
class Certificate:
    """The result of an audit.

    Attributes:
        findings: One row per violation, largest first: ``family``, ``T`` and ``k`` of the short
            leg, ``size`` (price of the violating portfolio with long legs of weight one, in
            forward units; of the VIX, in units of its future or of the forward variance),
            ``size_iv`` (the same as a volatility, null where it has none),
            ``material`` (at least 1e-5 of the forward; information), ``legs`` in words.
        nas: No-arbitrage score in [0, 1]; one if and only if nothing was found.
        checked: How many inequalities of each family were checked.
        margins: Smallest value of a portfolio of each family over the cost of its long legs,
            at least −1. Near zero is tight, below minus rounding is a finding.
        slices: Per maturity with enough strikes, the smallest value of Durrleman's function
            on them and where; information.
        structural: The proof on the stored numbers; None for a table of prices.
    """

    findings: pl.DataFrame
    nas: float
    checked: dict[str, int]
    margins: dict[str, float]
    slices: pl.DataFrame
    structural: StructuralProof | None = None

    @property
    def passed(self) -> bool:
        """Whether no violation exceeds the rounding of the given numbers."""
        return self.findings.is_empty()

    def to_json(self, indent: int | None = None) -> str:
        """The certificate as strict JSON."""
        proof = None
        if self.structural is not None:
            proof = {
                "passed": self.structural.passed,
                "covers_prices": self.structural.covers_prices,
                "price_gap": self.structural.price_gap,
                "checks": [
                    {"name": check.name, "passed": check.passed, "detail": check.detail}
                    for check in self.structural.checks
                ],
            }
        content = {
            "passed": self.passed,
            "nas": self.nas,
            "checked": self.checked,
            "margins": self.margins,
            "findings": self.findings.to_dicts(),
            "slices": self.slices.to_dicts(),
            "structural": proof,
        }
        return json.dumps(_replace_non_finite(content), indent=indent, allow_nan=False)

    def __repr__(self) -> str:
        return f"Certificate(passed={self.passed}, nas={self.nas!r}, findings={len(self.findings)})"

    def __str__(self) -> str:
        total = sum(self.checked.values())
        counts = ", ".join(f"{name} {n:,}" for name, n in self.checked.items() if n)
        text = f"{'Passed' if self.passed else 'Failed'}: {total:,} inequalities ({counts})"
        if self.passed:
            text += ", none violated; NAS 1."
        else:
            worst = self.findings.row(0, named=True)
            text += (
                f", {len(self.findings):,} findings; NAS {self.nas:.12g}. "
                f"The first, {worst['family']}: {worst['legs']}"
            )
            text += "." if worst["size"] is None else f", worth {worst['size']:.3g} of the forward."
        if not self.slices.is_empty():
            flattest = self.slices.sort("min_g").row(0, named=True)
            text += (
                f" Smallest Durrleman g: {flattest['min_g']:.4f} "
                f"(T={flattest['T']:.4g}, k={flattest['k_at_min']:.3g})."
            )
        if self.structural is not None:
            held = sum(check.passed for check in self.structural.checks)
            text += f" Structural proof: {held} of {len(self.structural.checks)} checks hold"
            text += "." if self.structural.covers_prices is not False else (
                f", but public prices are {self.structural.price_gap:.1g} away from those of the "
                "stored slopes, so that it does not cover them."
            )  # fmt: skip
        return text


def audit(
    frame: object, *, tolerance: float | None = None, percent: bool | None = None
) -> Certificate:
    """Audit a grid of option prices or implied volatilities for static arbitrage.

    Args:
        frame: A polars or pandas frame, or a mapping of columns. Give ``T`` and ``k`` with
            prices in forward units, or ``T``, ``strike`` and ``forward`` with prices in
            currency. The latter are undiscounted unless there is a column ``discount``. At
            least one of ``iv``, ``call``, ``put`` is needed. Rows may have any order and any
            subset of strikes per maturity.
        tolerance: Sizes up to this, in forward units, are not findings. By default only what
            rounding of the given numbers can explain is let pass; prices rounded to cents
            need half a cent per leg, ``0.01/forward``.
        percent: Whether volatilities are in percent. If None they are decimals, and a table of
            which nine tenths are above 3 is refused.

    Returns:
        The certificate; findings never raise.

    Raises:
        ValueError: For a frame that cannot be read, with row, column, value and remedy.

    Example:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"T": [1.0] * 3, "k": [-0.1, 0.0, 0.1], "iv": [0.2, 0.2, 0.2]})
        >>> audit(frame).passed
        True
        >>> steep = frame.with_columns(iv=pl.Series([0.2, 0.5, 0.2]))
        >>> audit(steep).findings["family"].to_list()
        ['butterfly', 'vertical']
    """
    if tolerance is not None and not (math.isfinite(tolerance) and tolerance >= 0.0):
        raise ValueError(f"tolerance={tolerance} must be a finite number, zero or above")
    grid = price_tables.read(frame, percent)
    batches = chain(static_inequalities(grid), _volatility_disagreements(grid))
    certificate = _build_certificate(grid, batches, tolerance or 0.0, grid)
    logger.info("audited %d prices: %r", grid.T.size, certificate)
    return certificate


def certify_surface(surface: AuditedSurface, *, seed: int = 0) -> Certificate:
    """Certify a surface: numerical audit of its public prices, and the structural proof.

    Args:
        surface: Anything with the public methods of a Surface (``maturities``, ``forward``,
            ``discount``, ``call``, ``put``, ``variance_swap``). The structural proof is added
            where it also has ``knots``, ``slopes`` and ``weights``; the VIX is looked at where
            it has ``vix_slices``.
        seed: Seed of the random grid.

    Returns:
        The certificate. Neither findings nor what the surface's methods raise are raised: a part
        that could not be judged is a finding of the family ``unjudged``.
    """
    with np.errstate(all="ignore"):  # what is not a number becomes a finding
        certificate, unjudged = _audit_public_prices(surface, seed)
        try:
            proof = vix_sampling.extend_proof_to_vix(surface, sampling.prove_surface(surface))
        except Exception as error:  # noqa: BLE001 - the surface's own methods are called
            proof, unjudged = None, [*unjudged, f"the structural proof: {error}"]
        if proof is not None:
            certificate = _add_structural_proof(certificate, proof)
        certificate = _add_unjudged_parts(certificate, unjudged)
    logger.info("certified: %r", certificate)
    return certificate


def _audit_public_prices(surface: AuditedSurface, seed: int) -> tuple[Certificate, list[str]]:
    """The numerical audit, and what of it could not be judged."""
    unjudged: list[str] = []

    def judge(name: str, batches: Iterable[Inequalities]) -> Iterator[Inequalities]:
        try:
            yield from batches
        except Exception as error:  # noqa: BLE001 - the surface's own methods are called
            unjudged.append(f"{name}: {error}")

    try:
        seen = sampling.sample_surface(surface, seed)
    except Exception as error:  # noqa: BLE001
        unjudged.append(f"its prices: {error}")
        seen = sampling.SurfaceSample(EMPTY_GRID, (), EMPTY_GRID)
    # one batch after the other, so that each finds the memory of the last one in the cache
    batches = chain(
        judge("its prices", chain(static_inequalities(seen.grid), seen.extra)),
        judge("its VIX", vix_sampling.vix_inequalities(surface, seed)),
    )
    return _build_certificate(seen.grid, batches, 0.0, seen.smiles), unjudged


def _add_unjudged_parts(certificate: Certificate, unjudged: list[str]) -> Certificate:
    """Add what could not be judged as findings without a size."""
    if not unjudged:
        return certificate
    rows = [{"family": "unjudged", "legs": f"could not be judged, {part}"} for part in unjudged]
    total = sum(certificate.checked.values())
    return replace(
        certificate,
        findings=pl.concat([pl.DataFrame(rows, _FINDING_SCHEMA), certificate.findings]),
        nas=_no_arbitrage_score(
            (1.0 - certificate.nas) * total + len(rows), total + len(rows), False
        ),
        checked={**certificate.checked, "unjudged": len(rows)},
    )


def _volatility_disagreements(grid: Grid) -> Iterator[Inequalities]:
    """Inequalities between a price and the volatility given beside it.

    Only the price enters the other inequalities, so a volatility that contradicts it is reported
    here. Published volatilities are rounded, hence ``MAX_VOLATILITY_DISAGREEMENT``.
    """
    both = np.flatnonzero(np.isfinite(grid.iv))
    T, k, iv, price = grid.T[both], grid.k[both], grid.iv[both], grid.price[both]
    stated, vega = black.otm(k, iv * np.sqrt(T)), black.vega(k, iv * np.sqrt(T)) * np.sqrt(T)
    if np.array_equal(stated, price):  # volatilities were all there was
        return
    own = black.implied_total_volatility(price, k).volatility
    vega = np.fmax(vega, np.nan_to_num(black.vega(k, own)) * np.sqrt(T))
    yield Inequalities(
        "parity", T, k, -np.abs(stated - price),
        grid.error[both] + MAX_VOLATILITY_DISAGREEMENT / ROUNDINGS_PER_LEG * vega,
        np.fmax(stated, price),
        lambda i: f"the price at k={k[i]:.6g} T={T[i]:.6g} is {price[i]:.6g}, and {stated[i]:.6g} "
        f"by its volatility {iv[i]:.6g}",
    )  # fmt: skip


def _build_certificate(
    grid: Grid, batches: Iterable[Inequalities], tolerance: float, smiles: Grid
) -> Certificate:
    """Compare every inequality with its tolerance and collect the violations."""
    checked = dict.fromkeys(FAMILIES, 0)
    margins = dict.fromkeys(FAMILIES, math.inf)
    lost = 0.0
    kept: list[Inequalities] = []
    parts: list[pl.DataFrame] = []
    for batch in batches:
        if not batch.value.size:
            continue
        cost = np.maximum(batch.gross, np.finfo(np.float64).tiny)
        checked[batch.family] += batch.value.size
        margin = batch.value / np.maximum(cost, np.abs(batch.value))
        margins[batch.family] = float(np.fmin.reduce(margin, initial=margins[batch.family]))
        beyond = -batch.value - np.maximum(batch.tolerance, tolerance)
        found = np.flatnonzero(~(beyond <= 0.0))  # not a number is a finding too
        if not found.size:
            continue
        share = np.fmin(beyond[found], cost[found]) / cost[found]
        lost += float(np.nan_to_num(share, nan=1.0).sum())
        parts.append(
            pl.DataFrame(
                {
                    "family": [batch.family] * found.size,
                    "T": batch.T[found],
                    "k": batch.k[found],
                    "size": -batch.value[found],
                    "row": found,
                    "batch": np.full(found.size, len(kept)),
                },
                schema=_VIOLATION_SCHEMA,
                nan_to_null=True,
            )
        )
        kept.append(batch)
    # The same short leg often serves several portfolios: the most profitable one is reported.
    findings = (
        pl.concat([pl.DataFrame(schema=_VIOLATION_SCHEMA), *parts])
        .sort("size", descending=True, nulls_last=True, maintain_order=True)
        .unique(["family", "T", "k"], keep="first", maintain_order=True)
    )
    places = findings.select("batch", "row").iter_rows()
    findings = findings.with_columns(
        size_iv=_convert_sizes_to_volatility(grid, findings),
        material=pl.col("size") >= MIN_MATERIAL_SIZE,
        legs=pl.Series([kept[b].legs(row) for b, row in places], dtype=pl.String),
    )
    return Certificate(
        findings=findings.select(
            pl.col(name).cast(dtype) for name, dtype in _FINDING_SCHEMA.items()
        ),
        nas=_no_arbitrage_score(lost, sum(checked.values()), findings.is_empty()),
        checked={name: n for name, n in checked.items() if n or "vix" not in name},
        margins={name: margin for name, margin in margins.items() if checked[name]},
        slices=tabulate_smallest_durrleman(smiles),
    )


def _no_arbitrage_score(lost: float, total: int, passed: bool) -> float:
    """``1 − lost/total``; one if and only if passed, also when the loss is below rounding."""
    return 1.0 if passed else max(0.0, min(1.0 - lost / total, math.nextafter(1.0, 0.0)))


def _add_structural_proof(certificate: Certificate, proof: StructuralProof) -> Certificate:
    """Add the structural checks: each counts as one inequality, a failure as a finding."""
    total = sum(certificate.checked.values())
    failed = pl.DataFrame(
        [{"family": "structural", "legs": check.detail} for check in proof.failures],
        _FINDING_SCHEMA,
    )
    findings = pl.concat([failed, certificate.findings])
    lost = (1.0 - certificate.nas) * total + len(failed)
    return replace(
        certificate,
        findings=findings,
        nas=_no_arbitrage_score(lost, total + len(proof.checks), findings.is_empty()),
        checked={**certificate.checked, "structural": len(proof.checks)},
        structural=proof,
    )


def _convert_sizes_to_volatility(grid: Grid, findings: pl.DataFrame) -> pl.Series:
    """Sizes of findings in volatility: over the option's vega, or its maturity's median vega."""
    if findings.is_empty():
        return pl.Series([], dtype=pl.Float64)
    own = pl.DataFrame(
        {"T": grid.T, "k": grid.k, "iv": grid.implied_volatilities}, nan_to_null=True
    )
    typical = own.drop_nulls().group_by("T").median().sort("T")
    place = findings.join(own, on=["T", "k"], how="left", maintain_order="left")
    T, k, size, iv = (place[name].to_numpy() for name in ("T", "k", "size", "iv"))
    if len(typical):
        iv = np.where(np.isnan(iv), np.interp(T, typical["T"], typical["iv"]), iv)
    per_volatility = black.vega(k, iv * np.sqrt(T)) * np.sqrt(T)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        value = size / per_volatility
    value = np.where(findings["family"].str.contains("vix").to_numpy(), np.nan, value)
    return pl.Series(np.where(np.isfinite(value), value, np.nan), nan_to_null=True)


def _replace_non_finite(value: Any) -> Any:
    """``value`` with None in place of every NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _replace_non_finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
