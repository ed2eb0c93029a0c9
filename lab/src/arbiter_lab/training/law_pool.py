"""A pool of exact surfaces on common maturities and moneyness, to draw training batches from.

Every parameter set is solved once and serves many states
(:mod:`arbiter.models.characteristic_function`). Volatilities are stored on log-spaced maturities
and strikes ``k = z·reference(T)·√T`` in deviations of the log contract. In these coordinates laws
are alike, and few nodes with polynomial interpolation suffice.

Glossary: N laws, M maturities, Z strikes, P parameter sets, D states of each, Q Fourier nodes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.models.characteristic_function import Transform, solve_index_transforms
from arbiter.models.fourier_pricing import Contour
from arbiter.models.parameters import Parameters
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.training.fourier_inversion import ContourBatch, pad_rows
from arbiter_lab.training.mixtures import draw_mixtures
from arbiter_lab.training.parameter_prior import draw_heston_sets, draw_sets
from arbiter_lab.training.resolved_strikes import mask_near_money
from arbiter_lab.training.shaped_laws import draw_shaped_laws
from arbiter_lab.training.variance_states import log_variance, simulate_states

Complex = NDArray[np.complex128]
Device = torch.device | str

DAY = 1.0 / DAYS_PER_YEAR
MIN_MATURITY, MAX_MATURITY = 0.8 * DAY, 6.2
MATURITY_COUNT, STRIKE_COUNT = 44, 92
MIN_STRIKE_DEVIATIONS, MAX_STRIKE_DEVIATIONS = -26.0, 6.5
EVEN_STRIKE_DEVIATIONS = 1.5  # strikes are sinh-spaced: even within it, growing beyond
MIN_RESOLVED_PRICE = 1e-10  # of the forward: no volatility is kept where the price is smaller
REFERENCE_RANGE = (0.025, 3.0)  # of the reference: laws that leave it at any maturity are left out
# volatility over reference near the money: below, variance is all but stuck at zero
MIN_RELATIVE_VOLATILITY = 0.2
SHAPED_SHARE = 0.35  # share of a pool that are transports with the term structure of another law
MIXTURE_SHARE = 0.3  # share of a pool that are mixtures of two laws
MODEL_SHARE = 0.45  # share of a pool, its first laws, that are neither
HESTON_SHARE = 0.12  # share of a pool, the first of these, that are Heston's own
_MAX_HESTON_STATES = 4  # states of each of their sets: sets of one factor are cheap

_FOURIER_STEP = 0.065
_RICCATI_STEP_GROWTH = 1.3
SETS_PER_CHUNK = 128  # parameter sets per Riccati solution: 8 GB on the device with twenty factors
_NODES_PER_BLOCK = 128  # Fourier nodes: sets with as many blocks are solved together
_STENCIL_NODES = 4
_OVERSAMPLING = 1.15  # laws made for each one asked for: some are left out
LOWER_WING_DEVIATIONS = -2.5  # start of the lower wing
WING_NODE_STRIDE = 3  # nodes of the wing between those that are evaluated

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Laws:
    """Exact surfaces of N laws on common maturities and moneyness.

    Attributes:
        T: ``(M,)`` maturities in years, log-spaced.
        z: ``(Z,)`` strikes in deviations, sinh-spaced.
        reference: ``(N, M)`` ``√(W(T)/T)``, the log contract's volatility.
        iv: ``(N, M, Z)`` volatility at ``k = z·reference·√T``, float32; NaN where not resolved.
    """

    T: Tensor
    z: Tensor
    reference: Tensor
    iv: Tensor

    def __len__(self) -> int:
        return self.reference.shape[0]

    @property
    def model_law_count(self) -> int:
        """Number of leading laws of a pool that come from a model: no shaped laws, no mixtures."""
        return round(MODEL_SHARE * len(self))

    @property
    def heston_law_count(self) -> int:
        """Number of leading laws of a pool that are Heston's."""
        return round(HESTON_SHARE * len(self))

    def reference_at(self, rows: Tensor, T: Tensor) -> Tensor:
        """``(B, L)`` the log contract's volatility at maturities ``(B, L)`` of laws ``(B,)``."""
        first, weight = self._maturity_stencil(T)
        columns = first[..., None] + torch.arange(_STENCIL_NODES, device=T.device)  # (B, L, 4)
        total = self.reference[rows[:, None, None], columns] * torch.sqrt(self.T)[columns]
        return torch.exp((torch.log(total) * weight).sum(-1)) / torch.sqrt(T)

    def volatility_at(self, rows: Tensor, T: Tensor, k: Tensor) -> Tensor:
        """Volatilities ``(B, L, S)`` at maturities ``(B, L)`` and log-strikes ``(B, L, S)``.

        Args:
            rows: ``(B,)`` which laws.
            T: Maturities in years; NaN results outside those of the pool.
            k: Log-strikes.

        Returns:
            NaN outside what the pool resolves.
        """
        reference = self.reference_at(rows, T)
        first, weight = self._maturity_stencil(T)
        y = _warp_strikes(k / (reference * torch.sqrt(T))[..., None])
        left, across = _lagrange(y, _warp_strikes(self.z))  # (B, L, S), (B, L, S, 4)
        M, Z = self.T.numel(), self.z.numel()
        flat = self.iv.reshape(-1)
        out = torch.zeros_like(y)
        for m in range(_STENCIL_NODES):
            node = rows[:, None] * M + first + m  # (B, L)
            ratio = torch.zeros_like(y)
            for j in range(_STENCIL_NODES):
                ratio += across[..., j] * torch.log(flat[node[..., None] * Z + left + j])
            base = torch.log(self.reference.reshape(-1)[node])
            out += weight[..., m, None] * (ratio - base[..., None])
        days = torch.log(T)[..., None]
        inside = _is_within_nodes(y, _warp_strikes(self.z)) & _is_within_nodes(
            days, torch.log(self.T)
        )
        return torch.where(inside, reference[..., None] * torch.exp(out), torch.nan)

    def lower_reach(self, rows: Tensor, T: Tensor, floor: Tensor) -> Tensor:
        """``(B, L)`` deviations down to which puts are worth more than a floor ``(B, 1)``.

        The answer is approximate, at a fraction of the cost of :meth:`volatility_at`: it is one of
        every :data:`WING_NODE_STRIDE` nodes, at the nearest maturity of the pool, and never above
        the start of the wing.
        """
        days = torch.log(self.T)
        step = (days[-1] - days[0]) / (days.numel() - 1)
        nearest = ((torch.log(T) - days[0]) / step).round().long().clamp(0, days.numel() - 1)
        node = rows[:, None] * days.numel() + nearest  # (B, L)
        wing = torch.arange(0, _WING_NODES, WING_NODE_STRIDE, device=T.device)
        z = self.z[wing]
        total = self.iv.reshape(-1)[node[..., None] * self.z.numel() + wing]
        total = total / self.reference.reshape(-1)[node][..., None]
        scale = (self.reference_at(rows, T) * torch.sqrt(T))[..., None]
        # a volatility that is not resolved gives NaN, which is worth nothing
        worth = black.otm(z * scale, total * scale) > floor[..., None]
        return torch.where(worth, z, z[-1]).amin(-1)

    def _maturity_stencil(self, T: Tensor) -> tuple[Tensor, Tensor]:
        return _lagrange(torch.log(T), torch.log(self.T))


def _is_within_nodes(x: Tensor, nodes: Tensor) -> Tensor:
    edge = 1e-5  # rounding of float32
    return (x >= nodes[0] - edge) & (x <= nodes[-1] + edge)


def _warp_strikes(z: Tensor) -> Tensor:
    return torch.asinh(z / EVEN_STRIKE_DEVIATIONS)


def _lagrange(x: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """First node and weights ``(…, 4)`` of the cubic through the four even nodes around ``x``."""
    last = nodes.numel() - 1
    # from the whole range: neighbouring nodes differ by too little for a step in float32
    at = (x - nodes[0]) * (last / (nodes[-1] - nodes[0]))
    first = torch.clamp(torch.floor(at).long() - 1, 0, last + 1 - _STENCIL_NODES)
    t = at - first
    a, b, c, d = t, t - 1.0, t - 2.0, t - 3.0
    weights = (-b * c * d / 6.0, a * c * d / 2.0, -a * b * d / 2.0, a * b * c / 6.0)
    return first, torch.stack(weights, -1)


def even_strike_nodes() -> Array:
    """Return ``(Z,)`` strikes of a pool on the scale of :func:`_warp_strikes`, evenly spaced."""
    return np.linspace(
        np.arcsinh(MIN_STRIKE_DEVIATIONS / EVEN_STRIKE_DEVIATIONS),
        np.arcsinh(MAX_STRIKE_DEVIATIONS / EVEN_STRIKE_DEVIATIONS),
        STRIKE_COUNT,
    )


_WING_NODES = int(
    (EVEN_STRIKE_DEVIATIONS * np.sinh(even_strike_nodes()) < LOWER_WING_DEVIATIONS).sum()
)


def make_pool_grid(device: Device = "cpu") -> tuple[Tensor, Tensor]:
    """Return maturities ``(M,)`` in years and strikes ``(Z,)`` in deviations of a pool."""
    T = np.exp(np.linspace(np.log(MIN_MATURITY), np.log(MAX_MATURITY), MATURITY_COUNT))
    return (
        torch.as_tensor(T, dtype=torch.float64, device=device),
        torch.as_tensor(
            EVEN_STRIKE_DEVIATIONS * np.sinh(even_strike_nodes()),
            dtype=torch.float64,
            device=device,
        ),
    )


def make_laws(
    count: int,
    seed: int,
    device: Device = "cpu",
    states_per_set: int = 16,
    workers: int | None = None,
) -> Laws:
    """Make a pool of exact laws of the training prior.

    Args:
        count: Number of laws.
        seed: The same seed gives the same pool on the same machine.
        device: Device of the computation and of the pool.
        states_per_set: States of each parameter set: its start, and ends of paths. Sets of the
            leading Heston laws have a few at most.
        workers: Number of threads; one per processor, at most eight, if left out.
    """
    if min(count, states_per_set) < 1:
        raise ValueError(
            f"count = {count}, states_per_set = {states_per_set}: both must be positive"
        )
    rounds = np.random.SeedSequence(seed)
    shaped, classic = int(SHAPED_SHARE * count), round(HESTON_SHARE * count)
    solved: list[Laws] = []
    few = min(_MAX_HESTON_STATES, states_per_set)
    for wanted, draw, states in (
        (classic, draw_heston_sets, few),
        (count - shaped - classic, draw_sets, states_per_set),
    ):
        parts: list[Laws] = []
        missing = wanted
        while missing > 0:
            sets = draw(
                int(np.ceil(_OVERSAMPLING * missing / states)) + 1,
                np.random.default_rng(rounds.spawn(1)[0]),
            )
            parts.append(solve_laws(sets, rounds.spawn(1)[0], device, states, workers))
            missing -= len(parts[-1])
        if parts:
            solved.append(_take_first_laws(parts, wanted))
    laws = _take_first_laws(solved, count - shaped)
    if shaped:
        rng = np.random.default_rng(rounds.spawn(1)[0])
        laws = _take_first_laws(
            [laws, draw_shaped_laws(laws, shaped, rng, REFERENCE_RANGE, MIN_RELATIVE_VOLATILITY)],
            count,
        )
    rng = np.random.default_rng(rounds.spawn(1)[0])
    return draw_mixtures(
        laws, MIXTURE_SHARE, rng, MIN_RELATIVE_VOLATILITY, first=laws.model_law_count
    )


def _take_first_laws(parts: Sequence[Laws], count: int) -> Laws:
    reference, iv = torch.cat([p.reference for p in parts]), torch.cat([p.iv for p in parts])
    return replace(parts[0], reference=reference[:count], iv=iv[:count])


def solve_laws(
    sets: Sequence[Parameters],
    seed: int | np.random.SeedSequence,
    device: Device = "cpu",
    states_per_set: int = 16,
    workers: int | None = None,
) -> Laws:
    """Return the laws of parameter sets, each in its start and in states that paths reach.

    Laws that the oracle cannot solve, or whose reference leaves :data:`REFERENCE_RANGE`, are left
    out; their number is logged.
    """
    order = group_sets(sets)
    root = np.random.SeedSequence(seed) if isinstance(seed, int) else seed
    seeds = root.spawn(len(order))

    def work(i: int) -> tuple[NDArray[np.int64], Tensor, Tensor]:
        U = simulate_states(
            [sets[s] for s in order[i]], states_per_set, np.random.default_rng(seeds[i])
        )
        return _solve_chunk(np.array(order[i]), sets, U, device)

    with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
        found = list(pool.map(work, range(len(order))))
    owner = torch.as_tensor(np.concatenate([f[0] for f in found]), device=device)
    reference = torch.cat([f[1] for f in found])
    iv = torch.cat([f[2] for f in found])
    back = torch.argsort(owner, stable=True)
    T, z = make_pool_grid(device)
    dropped = len(sets) * states_per_set - len(back)
    if dropped:
        log.info("%d of %d laws left out", dropped, len(sets) * states_per_set)
    return Laws(T.float(), z.float(), reference[back], iv[back])


def group_sets(sets: Sequence[Parameters]) -> list[list[int]]:
    """Group sets with the same number of factors and similar numbers of Fourier nodes."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i, p in enumerate(sets):
        nodes = Contour.from_parameters(p, True, _FOURIER_STEP).xi.size
        groups.setdefault((p.factors, -(-nodes // _NODES_PER_BLOCK)), []).append(i)
    return [
        members[start : start + SETS_PER_CHUNK]
        for members in groups.values()
        for start in range(0, len(members), SETS_PER_CHUNK)
    ]


def _solve_chunk(
    which: NDArray[np.int64], sets: Sequence[Parameters], U: Array, device: Device
) -> tuple[NDArray[np.int64], Tensor, Tensor]:
    """Return owners ``(n,)``, references ``(n, M)`` and volatilities ``(n, M, Z)`` of the laws."""
    T, z = make_pool_grid(device)
    chosen = [sets[i] for i in which]
    contours = [
        [Contour.from_parameters(p, calls, _FOURIER_STEP) for p in chosen]
        for calls in (True, False)
    ]
    xi = np.concatenate([pad_rows([c.xi for c in side]) for side in contours], axis=1)
    try:
        found = solve_index_transforms(chosen, T.cpu().numpy(), xi, _RICCATI_STEP_GROWTH, device)
    except ArithmeticError:
        if len(chosen) == 1:
            log.warning("not solved, left out: %s", chosen[0])
            none = torch.empty(0, T.numel(), device=device)
            return which[:0], none, none[..., None].expand(-1, -1, z.numel())
        half = len(chosen) // 2
        parts = [
            _solve_chunk(which[s], sets, U[s], device) for s in (slice(half), slice(half, None))
        ]
        owners, references, volatilities = zip(*parts, strict=True)
        return np.concatenate(owners), torch.cat(references), torch.cat(volatilities)
    W = torch.as_tensor(log_variance(chosen, U, T.cpu().numpy()), device=device)  # (P, D, M)
    reference = torch.sqrt(W / T)
    iv = _invert_volatilities(found, contours, torch.as_tensor(U, device=device), reference)
    flat, own = iv.flatten(0, 1), reference.flatten(0, 1)
    good = (own > REFERENCE_RANGE[0]).all(1) & (own < REFERENCE_RANGE[1]).all(1)
    # the middle of every smile must be there: what is not resolved lies in the wings
    middle = flat[..., mask_near_money(z)] / own[..., None]
    good &= (middle > MIN_RELATIVE_VOLATILITY).flatten(1).all(1)  # false for NaN too
    owners = np.repeat(which, U.shape[1])[good.cpu().numpy()]
    return owners, own[good].float(), flat[good]


def _invert_volatilities(
    found: Sequence[Transform], contours: list[list[Contour]], U: Tensor, reference: Tensor
) -> Tensor:
    """Return volatilities ``(P, D, M, Z)``, float32, of states ``(P, D, n)``."""
    device = U.device
    T, z = make_pool_grid(device)
    slope = torch.stack([f.slope for f in found])  # (P, M, n, Q)
    constant = torch.stack([f.constant for f in found])  # (P, M, Q)
    sides = [ContourBatch.from_contours(side, device) for side in contours]
    split = max(c.xi.size for c in contours[0])
    drift = torch.tensor([c.drift for c in contours[0]], dtype=torch.float64, device=device)
    out = torch.empty(*reference.shape, z.numel(), dtype=torch.float32, device=device)
    for m in range(T.numel()):
        pairs = torch.view_as_real(slope[:, m]).flatten(-2)  # (P, n, 2Q)
        linear = torch.view_as_complex(torch.bmm(U, pairs).unflatten(-1, (-1, 2)))
        log_cf = linear + constant[:, m, None]  # (P, D, Q)
        scale = reference[..., m] * torch.sqrt(T[m])
        k = scale[..., None] * z  # (P, D, Z)
        center = (drift * T[m])[:, None, None].expand(*scale.shape, 1)
        near = center[..., 0] / scale
        price = torch.zeros_like(k)
        for side, part in zip(sides, (slice(split), slice(split, None)), strict=True):
            serves = k >= center if side.calls else k < center
            # strikes that no law of the chunk reads on this side are not computed
            edge = float(near.min() if side.calls else near.max())
            columns = z >= edge if side.calls else z < edge
            at = k[..., columns]
            integral = side.invert(log_cf[..., part], at)
            kappa = torch.exp(at)
            value = torch.where(at >= 0.0, 1.0 - kappa * integral, kappa * (1.0 - integral))
            price[..., columns] = torch.where(serves[..., columns], value, price[..., columns])
        price = _mask_unresolved(price, z)
        v = black.implied_total_volatility(price, k).volatility
        # a resolved price without a volatility spoils its law, which is then left out
        spoilt = (torch.isfinite(price) & ~torch.isfinite(v)).any(-1, keepdim=True)
        v = torch.where(spoilt, torch.nan, v)
        out[:, :, m] = (v / torch.sqrt(T[m])).float()
    return out


def _mask_unresolved(price: Tensor, z: Tensor) -> Tensor:
    """Return prices with NaN outwards from where they stop falling or are below the resolution."""
    middle = int((z < 0.0).sum())
    sides = (price[..., :middle].flip(-1), price[..., middle:])
    kept = []
    for side in sides:
        falls = torch.ones_like(side, dtype=torch.bool)
        falls[..., 1:] = side[..., 1:] < side[..., :-1]
        fine = torch.cumprod(((side > MIN_RESOLVED_PRICE) & falls).to(torch.int8), -1) > 0
        kept.append(torch.where(fine, side, torch.nan))
    return torch.cat([kept[0].flip(-1), kept[1]], -1)
