"""The local Lipschitz constant: tighter, and valid for one chain's strikes and maturities.

:func:`arbiter_lab.differentiable.operators.network.lipschitz.constant` multiplies norms, which
holds for every chain and is loose for each. For one geometry the densities, gains, steps and biases
are known numbers, and the operator is a composition of known matrices and activations whose slopes
lie within ``m ± r``. So split every activation into its middle and a rest, ``a(y) = m y + r ψ(y)``
with ψ 1-Lipschitz, and carry two things along: the matrix A of all that is linear, from every quote
to every state, and a bound ρ of how far the rest may move, slice by slice. Norms are then taken of
products, not the other way round, and what cancels in the linear part cancels in the bound.

Near given quotes more is known: within a radius of them a unit's input stays in an interval, whose
length follows from the same A and ρ, and the slopes of its activation in a shorter range. As the
radius shrinks the bound goes to the size of the derivative there, but for what the measure's
leaning adds (docs/notebook/first-design.md, theorem 9).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter_lab.differentiable.operators.network.geometry_stream import open_to_change
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.lipschitz import (
    MAX_ACTIVATION_SLOPE,
    MIN_ACTIVATION_SLOPE,
    ROUNDING,
    at_first,
    norm,
)
from arbiter_lab.differentiable.operators.network.maturity_pooling import pool, precision
from arbiter_lab.differentiable.operators.network.measure_gate import (
    MAX_MEASURE_PULL,
    MAX_MEASURE_VALUE,
    Sight,
)
from arbiter_lab.differentiable.operators.network.network import (
    SILU,
    Look,
    Network,
    Seen,
    activation,
)
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.stability import green_kernel

_TURN = 2.3993572805154  # where the slope of SiLU is largest, and at minus it smallest
_MANY = 2000  # quotes, above which Gram matrices are not formed


@torch.no_grad()
def constant_at(network: Network, chain: Scaled, radius: float = math.inf) -> Tensor:
    """``(B,)`` upper bounds of the Lipschitz constant, from log-volatilities to log-slopes.

    Held fixed: strikes, maturities, relative spreads, reference volatilities and, where there is
    kriging, the whole reference. It takes about L·d·N numbers, N the quotes of a chain.

    Args:
        network: In double precision.
        chain: From :func:`arbiter_lab.differentiable.operators.prior.reference_volatility.scaled`.
        radius: Any two sets of quotes whose ``u = log(iv/σ)`` are within it of the chain's own,
            each; the default is all that there are, ``|u| ≤ 2.5``.
    """
    each = [Scaled(*(part[i : i + 1] for part in chain)) for i in range(chain.u.shape[0])]
    return torch.stack([_one(network, alone, radius) for alone in each])


def reach(A: Tensor) -> Tensor:
    """Upper bound of ``sup ‖A u‖₂`` over ``|u| ≤ 1`` for ``(L, d, N)``.

    ``‖Au‖² = uᵀAᵀAu`` is at most the sum of the absolute entries of ``AᵀA``, which is at most the
    sum of squares of the rows' absolute sums.
    """
    if A.shape[-1] > _MANY:
        rows: Tensor = torch.linalg.vector_norm(A.abs().sum(-1), dim=-1)
        return rows
    return torch.stack([(one.T @ one).abs().sum().sqrt() for one in A])


class _Move(NamedTuple):
    """A state at the chain's own quotes, and how it moves: by ``A u`` and a rest of at most ρ."""

    value: Tensor  # (1, L, d)
    A: Tensor  # (L, d, N)
    rho: Tensor  # (L,)

    def slopes(self, radius: float) -> tuple[Tensor, Tensor]:
        """``(L, d)`` middle and half-width of the activation's slopes, this being its input."""
        sure = self.A.abs().sum(-1) + self.rho[:, None]
        away = torch.where(sure > 0.0, radius * sure, 0.0)
        low, high = self.value[0] - away, self.value[0] + away
        ends = torch.stack([_slope(low), _slope(high)])
        most, least = ends.amax(0), ends.amin(0)
        most = torch.where((low <= _TURN) & (high >= _TURN), MAX_ACTIVATION_SLOPE, most)
        least = torch.where((low <= -_TURN) & (high >= -_TURN), MIN_ACTIVATION_SLOPE, least)
        return 0.5 * (most + least), 0.5 * (most - least)


def _slope(y: Tensor) -> Tensor:
    """Return the slope of the activation; far out that of its asymptotes."""
    y = y.clamp(-50.0, 50.0)
    s = torch.sigmoid(y)
    return s * (1.0 + y * (1.0 - s)) / SILU


def _one(network: Network, chain: Scaled, radius: float) -> Tensor:
    first, *others = network.stages()
    sight: Sight = first.gate(chain)
    guess = network.guess(chain)
    context = network.context(chain, sight, first.gate.place, guess)
    move = _Looking(first, Seen(chain, sight, guess), context, radius).after(None)
    for look in others:
        seen = Seen(chain, look.gate(chain), guess)
        move = _Looking(look, seen, context, radius).after(move)
    gains = torch.tanh(2.0 + network.direct_gains(context))[0, :, None]  # (L, 1, 2H + 2)
    direct = network.direct.weight * gains  # (L, n, lines + 2)
    seen = Seen(chain, sight, guess)
    loud, most = at_first(guess is not None)
    left, moving = first.left(seen, None), torch.full_like(chain.total[0], loud)
    uncut, swing = _swing(left, moving, chain, radius, most)
    means = _means(sight, chain) * uncut[:, None, None]
    lines = torch.cat([first.gate.rows(sight, chain)[0], means], -2)
    view = _View.of(first, seen, direct)
    straight = view.matrix(loud * _from_quotes(lines, chain))
    linear = (network.last.weight @ move.A + straight).abs().sum(-1)  # (L, n)
    rest = torch.linalg.vector_norm(network.last.weight, dim=1) * move.rho[:, None]
    rest = rest + direct[..., -2:].abs().sum(-1) * swing[:, None]
    moved = linear + rest
    if guess is not None:
        moved = moved * open_to_change(guess, network.hats)[0]
    return torch.max(moved) * ROUNDING


class _View(NamedTuple):
    """A linear map of the lines of all slices: a slice's own lines and the pooled ones.

    Attributes:
        own: ``(L, o, 2H + 2)`` weights of a slice's own lines and means.
        around: ``(L, o, K, 2H)`` weights of its pooled lines, one set per span.
        shares: ``(L, L, K, 2H)`` what a pooled line of one slice takes of another's.
    """

    own: Tensor
    around: Tensor
    shares: Tensor

    @classmethod
    def of(cls, look: Look, seen: Seen, weights: Tensor) -> _View:
        """Build the map from weights ``(L, o, lines + 2)`` on a view."""
        chain, sight, _ = seen
        count, spans = 2 * look.gate.heads, len(look.spans)
        lines, means = weights[..., :-2], weights[..., -2:]
        own = torch.cat([lines[..., :count], means], -1)
        pooled = lines[..., count:]
        around = pooled.reshape(*pooled.shape[:-1], spans, count)
        deep = len(weights)
        shares = own.new_zeros(deep, deep, spans, count)
        if spans:
            # pooling is linear: what it makes of one slice at a time
            alone = Scaled(*(part.expand(deep, *part.shape[1:]) for part in chain))
            one = torch.eye(deep, dtype=own.dtype, device=own.device)[..., None].expand(
                -1, -1, count
            )
            known = precision(sight).expand(deep, -1, -1)
            pooled = pool(one, known, alone, look.spans, look.causal)  # (L from, L to, K·2H)
            shares = pooled.transpose(0, 1).unflatten(-1, (spans, count))
        return cls(own, around, shares)

    def matrix(self, lines: Tensor) -> Tensor:
        """``(L, o, N)`` from lines ``(L, 2H + 2, N)``."""
        found = self.own @ lines
        if not self.shares.shape[2]:
            return found
        flat = lines[:, :-2].flatten(0, 1)  # (L·2H, N)
        mixed = (
            torch.einsum("okh,skh->osh", *both)
            for both in zip(self.around, self.shares, strict=True)
        )
        return found + torch.stack([each.flatten(1) @ flat for each in mixed])

    def norms(self, lines: Tensor) -> Tensor:
        """``(L, L)`` norms of its blocks from slice s to slice ℓ, for lines ``(L, 2H + 2, r)``."""
        own = self.own @ lines  # (L, o, r)
        if not self.shares.shape[2]:
            return torch.diag(norm(own))
        found = []
        for i, both in enumerate(zip(self.around, self.shares, strict=True)):
            block = torch.einsum("okh,skh->soh", *both) @ lines[:, :-2]  # (L, o, r)
            block[i] += own[i]
            found.append(norm(block))
        return torch.stack(found)


def _means(sight: Sight, chain: Scaled) -> Tensor:
    """``(L, 2, S)`` mean and slope under the measure as it is."""
    weight = (sight.measure * sight.width)[0]
    return torch.stack([weight, weight * torch.tanh(chain.zeta[0])], -2)


def _swing(
    left: Tensor, rest: Tensor, chain: Scaled, radius: float, most: float
) -> tuple[Tensor, Tensor]:
    """Return where no value can be clipped, ``(L,)``, and the nonlinear movement of the means.

    Args:
        left: ``(1, L, S)`` values that the measure takes means of.
        rest: ``(L,)`` how far they move when quotes move by one.
        chain: The quotes.
        radius: How far quotes may be from the chain's own.
        most: How large values count, at most.
    """
    away = torch.where(rest > 0.0, radius * rest, 0.0)
    farthest = MAX_LOG_VOLATILITY_RATIO if most == MAX_LOG_VOLATILITY_RATIO else math.inf
    # means under the measure are linear, but for its leaning, where no value is cut
    uncut = (left[0].abs().amax(-1) + away).clamp(max=farthest) <= MAX_MEASURE_VALUE
    swing = torch.where(uncut, _drift(radius), 1.0) * rest
    return uncut, swing + MAX_MEASURE_PULL * _half_range(left, chain, away, most)


def _drift(radius: float) -> float:
    """Return the largest share of the measure's mass that moves, for quotes within the radius."""
    return MAX_MEASURE_PULL * min(radius, 2.0 * MAX_LOG_VOLATILITY_RATIO)


def _from_quotes(by_strike: Tensor, chain: Scaled) -> Tensor:
    """Expand ``(L, d, S)`` to ``(L, d, N)``: a slice depends on its own quotes only."""
    slices, strikes = chain.quoted[0].nonzero(as_tuple=True)
    places = torch.arange(len(slices), device=by_strike.device)
    wide = by_strike.new_zeros(*by_strike.shape[:2], len(slices))
    wide[slices, :, places] = by_strike[slices, :, strikes]
    return wide


def _half_range(values: Tensor, chain: Scaled, away: Tensor | float, most: float) -> Tensor:
    """``(L,)`` half the range of a slice's values, when each moves by at most ``away``."""
    high = torch.where(chain.quoted, values, -torch.inf).amax(-1)[0]
    low = torch.where(chain.quoted, values, torch.inf).amin(-1)[0]
    half = torch.where(high >= low, 0.5 * (high - low), 0.0) + away
    return half.clamp(max=most)


def _each(chain: Scaled) -> Tensor:
    """``(L, S, N)`` every quote moving by itself."""
    return _from_quotes(torch.diag_embed(chain.quoted[0].to(chain.u.dtype)), chain)


class _Looking(NamedTuple):
    """One look of the network at one chain."""

    look: Look
    seen: Seen
    context: Tensor
    radius: float

    @property
    def chain(self) -> Scaled:
        return self.seen.chain

    def after(self, before: _Move | None) -> _Move:
        """Return the movement of the state after this look."""
        entered = self._entered(before)
        middle, half = entered.slopes(self.radius)
        seen = self.chain.quoted[0].any(-1)
        rho = (middle.abs() + half).amax(-1) * entered.rho + reach(half[..., None] * entered.A)
        value = activation(entered.value) * seen[:, None]
        x = _Move(value, (middle * seen[:, None])[..., None] * entered.A, rho * seen)
        moved = self._spread(x)
        v = moved if before is None else _Move(*(a + b for a, b in zip(before, moved, strict=True)))
        return self._mixed(v)

    def _entered(self, before: _Move | None) -> _Move:
        """Inputs of the first activation: what is left of the quotes, under every head."""
        look, chain = self.look, self.chain
        loud, most = at_first(self.seen.guess is not None)
        moves, drawn = loud * _each(chain), torch.zeros_like(chain.u[0])  # (L, S, N), (L, S)
        left = look.left(self.seen, None if before is None else before.value)
        if look.read is not None and before is not None:
            smile, most = self._smile(look.read.weight), MAX_MEASURE_VALUE  # (L, S, d)
            moves = moves - smile @ before.A
            drawn = torch.linalg.vector_norm(smile, dim=-1) * before.rho[:, None]
        rest = (moves.abs().sum(-1) + drawn).amax(-1)  # (L,)
        uncut, swing = _swing(left, rest, chain, self.radius, most)
        gains = torch.tanh(1.0 + look.gains(self.context))[0, :, None]  # (L, 1, lines + 2)
        enter, sight = look.enter.weight * gains, self.seen.sight
        means = _means(sight, chain) * uncut[:, None, None]
        lines = torch.cat([look.gate.rows(sight, chain)[0], means], -2)  # (L, 2H + 2, S)
        view = _View.of(look, self.seen, enter)
        rho = norm(enter[..., -2:]) * swing * math.sqrt(2.0)
        if look.read is not None and before is not None:
            # of a product with the reading map, norms need its triangular factor alone
            short = self._smile(torch.linalg.qr(look.read.weight.T).R.T)
            rho = rho + view.norms(lines @ short) @ before.rho
        value = look.embedded(self.context, look.view(self.seen, left))
        return _Move(value, view.matrix(lines @ moves), rho)

    def _smile(self, rows: Tensor) -> Tensor:
        """``(L, S, …)`` nodes' rows between which the quotes lie; zero where nothing is quoted."""
        left, share = self.look.gate.between(self.chain.zeta[0])
        smile = torch.lerp(rows[left], rows[left + 1], share[..., None])
        return smile * self.chain.quoted[0, ..., None]

    def _spread(self, x: _Move) -> _Move:
        """Return the movement that reaches a slice: its own, and through the scans the others'."""
        look, chain, known = self.look, self.chain, self.context[0]
        within = look.across.weight.expand(len(x.rho), -1, -1)
        A, rho = within @ x.A, torch.zeros_like(x.rho)
        ways = [_Way(look.forth, look.from_forth.weight, chain.gap[0], known, x.A, x.rho)]
        if look.back is not None and look.from_back is not None:
            turned = (part.flip(0) for part in (chain.ahead[0], known, x.A, x.rho))
            ways.append(_Way(look.back, look.from_back.weight, *turned))
        for i, way in enumerate(ways):
            own, moved, others = (part.flip(0) if i == 1 else part for part in way.walked())
            within, A, rho = within + own, A + moved, rho + others
        value = look.spread(chain, self.context, x.value)
        return _Move(value, A, rho + norm(within) * x.rho)

    def _mixed(self, v: _Move) -> _Move:
        """``v + down · a(up · v)``."""
        look = self.look
        down, up = look.down.weight, look.up.weight
        value = look.up(v.value) + look.up_bias(self.context)
        lifted = _Move(value, up @ v.A, norm(up) * v.rho)
        middle, half = lifted.slopes(self.radius)
        one = torch.eye(len(down), dtype=down.dtype, device=down.device)
        both = one + (down * middle[:, None]) @ up  # (L, d, d)
        rest = norm(down * half[:, None]) * lifted.rho + norm(down) * reach(
            half[..., None] * lifted.A
        )
        after = v.value + look.down(activation(value))
        return _Move(after, both @ v.A, norm(both) * v.rho + rest)


class _Way(NamedTuple):
    """A scan, what reads its states, and what it is given, in its own order of maturities."""

    scan: GreenScan
    out: Tensor
    gap: Tensor
    context: Tensor
    A: Tensor
    rho: Tensor

    def walked(self) -> tuple[Tensor, Tensor, Tensor]:
        """A slice's own block, the linear part, and how far the rests of others move it."""
        step, gate = self.scan.steps(self.gap, self.context)
        carriers, W = self.scan.carriers(step), self.scan.enter.weight
        entering = gate[..., None] * W  # (L, m, d)
        states = [entering[0] @ self.A[0]]
        for R, B, A in zip(carriers[1:], entering[1:], self.A[1:], strict=True):
            states.append(R @ states[-1] + B @ A)
        # norms of out·R⋯R·B need only the triangular factors of out and W
        left, right = torch.linalg.qr(self.out).R, torch.linalg.qr(W.T).R.T
        norms = norm(left @ green_kernel.products(carriers) @ (gate[..., None] * right)).tril(-1)
        return self.out @ entering, self.out @ torch.stack(states), norms @ self.rho
