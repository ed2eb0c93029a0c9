"""The slices of :class:`arbiter.pricing.transport.Transport` on tensors, with gradients.

Shapes: slopes are ``(…, n)``, one slice per leading index; points are ``(…, m)`` with the same
leading shape. The glossary is that of the library's module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.pricing.slice_integrals import MAX_LEFT_TAIL_LOG_STRIKE
from arbiter_lab.differentiable.pricing import normal
from arbiter_lab.differentiable.pricing.black import call_parity, put_parity
from arbiter_lab.differentiable.pricing.knots import Knots


def _cap_keeping_gradient(value: Tensor, bound: Tensor) -> Tensor:
    """``value`` cut at ``bound`` against rounding, with the gradient of ``value`` throughout.

    At a tie, a strike on a knot for instance, ``torch.minimum`` would halve the gradient.
    """
    return value + (torch.minimum(value, bound) - value).detach()


def _quadrature_sums(f: Callable[[Tensor], Tensor], node: Tensor, *weights: Tensor) -> list[Tensor]:
    """``Σ_q w_q f(node_q)`` over the last axis, for each set of weights ``(…, q)``.

    Compiled float32 code gets one term at a time: a pointwise kernel, on a GPU fourteen times
    faster than the reduction that the compiler makes of so short an axis. In float64 the
    reduction is the faster one (docs/benchmarks.md).
    """
    if node.dtype == torch.float64 or not torch.compiler.is_compiling():
        values = f(node)
        return [(values * w).sum(-1) for w in weights]
    terms = [f(node[q : q + 1])[..., 0] for q in range(node.numel())]
    totals = [w[..., 0] * terms[0] for w in weights]
    for q, term in enumerate(terms[1:], start=1):
        totals = [total + w[..., q] * term for total, w in zip(totals, weights, strict=True)]
    return totals


def any_or_recording(mask: Tensor) -> bool:
    """Whether any element is true; True where none can be read: in a recording, and compiled."""
    if torch.compiler.is_compiling():
        return True
    recorded = mask.is_cuda and torch.cuda.is_current_stream_capturing()
    return recorded or bool(mask.any())


class SlicePoint(NamedTuple):
    """Points of a slice: strikes and their Gaussian coordinates, all of shape ``(…, m)``."""

    k: Tensor  # log-moneyness
    x: Tensor  # Gaussian coordinate, s(x) = k + log M
    b: Tensor  # slope at x
    bend: Tensor  # derivative of the slope on this segment
    segment: Tensor  # index of the segment; −1 and N−1 are the tails
    to_left: Tensor  # distance to the segment's left end
    to_right: Tensor  # distance to its right end


class Transport:
    """A batch of slices ``X = e^{s(Z)}/M`` with prices at any strike.

    Args:
        knots: ``(n,)`` strictly increasing Gaussian coordinates, or prepared :class:`Knots`.
        slopes: ``(…, n)`` positive slopes at the knots, float64 or float32.

    Example:
        >>> slopes = torch.tensor([0.2, 0.2], dtype=torch.float64)
        >>> flat = Transport(torch.tensor([-1.0, 1.0]), slopes)
        >>> round(float(flat.call(torch.zeros(1))), 12)  # Black at 20 % total volatility
        0.079655674554
    """

    def __init__(self, knots: Tensor | Knots, slopes: Tensor) -> None:
        self.knots = knots if isinstance(knots, Knots) else Knots.from_tensor(knots, slopes)
        grid = self.knots
        self.b = grid.slopes_at_cuts(slopes)  # (…, N)
        width = grid.width
        rise = 0.5 * width * (self.b[..., 1:] + self.b[..., :-1])
        after = torch.cumsum(rise[..., grid.zero :], -1)
        before = torch.cumsum(rise[..., : grid.zero].flip(-1), -1).flip(-1)
        self.s = torch.cat([-before, torch.zeros_like(self.b[..., :1]), after], -1)  # (…, N)

        # segment integrals of e^{s−shift} b Φ(±x): (…, N-1), the tails on both outer sides
        shift = self._scaling_exponent()
        start, b_start = (self.s[..., :-1] - shift)[..., None], self.b[..., :-1, None]
        bend = (torch.diff(self.b) / width)[..., None]

        def mass(node: Tensor) -> Tensor:
            t = width[:, None] * node
            slope = torch.addcmul(b_start, bend, t)
            return torch.exp(start + 0.5 * t * (b_start + slope)) * slope

        above, below = _quadrature_sums(mass, grid.node, grid.upper, grid.lower)
        x_first, x_last = grid.x[:1], grid.x[-1:]
        tail_above = normal.excess_above(self.s[..., -1:] - shift, x_last, self.b[..., -1:])
        tail_below = normal.excess_below(self.s[..., :1] - shift, x_first, self.b[..., :1])
        above = torch.cat([above, tail_above], -1).flip(-1).cumsum(-1).flip(-1)  # from x_i up
        below = torch.cat([tail_below, below], -1).cumsum(-1)  # up to x_i

        # M = 1 + E(e^s − 1)+ − E(1 − e^s)+, split at the median where s = 0: never below ½
        gain = above[..., grid.zero] - below[..., grid.zero]
        shift = shift[..., 0]
        self.log_mean = shift + torch.log1p(torch.expm1(-shift) + gain)  # (…)
        scale = torch.exp(shift - self.log_mean)[..., None]
        self.above = above * scale  # (…, N) call struck at each cut knot
        self.below = below * scale  # (…, N) put struck there

    def _scaling_exponent(self) -> Tensor:
        """An exponent near the largest of ``s − x²/2``: keeps every integral in range."""
        x, b_last = self.knots.x, self.b[..., -1:]
        peak = torch.amax(self.s - 0.5 * x * x, -1, keepdim=True)
        beyond = torch.clamp(b_last - x[-1], min=0.0)
        tail = self.s[..., -1:] - 0.5 * x[-1] ** 2 + 0.5 * beyond * beyond
        return torch.clamp(torch.maximum(peak, tail), min=0.0).detach()  # (…, 1)

    def at_strike(self, k: Tensor) -> SlicePoint:
        """The slice points at log-strikes ``k`` of shape ``(…, m)``."""
        k = self._broadcast_points(k)
        target = k + self.log_mean[..., None]
        found = torch.searchsorted(self.s.detach(), target.detach(), right=True) - 1
        i, x_left, width, b_left, b_right = self._gather_segment(found)
        s_left, s_right = self.s.gather(-1, i), self.s.gather(-1, i + 1)
        # Solve s(x) = target from the end with the smaller slope: the discriminant is then a
        # sum of positive terms, whatever the ratio of the two slopes.
        rising = b_right >= b_left
        bend = (b_right - b_left) / width
        small = torch.where(rising, b_left, b_right)
        climb = torch.where(rising, target - s_left, s_right - target)
        climb = torch.clamp(climb, min=0.0)
        steepening = torch.where(rising, bend, -bend)
        step = 2.0 * climb / (small + torch.sqrt(small * small + 2.0 * steepening * climb))
        step = _cap_keeping_gradient(step, width)
        to_left = torch.where(rising, step, width - step)
        to_right = torch.where(rising, width - step, step)
        x = torch.where(rising, x_left + step, x_left + width - step)
        b = small + steepening * step
        # the tails: one slope, a straight line
        first, last = self.b[..., :1], self.b[..., -1:]
        left, right = found < 0, found == self.knots.x.numel() - 1
        x = torch.where(left, self.knots.x[0] - (self.s[..., :1] - target) / first, x)
        x = torch.where(right, self.knots.x[-1] + (target - self.s[..., -1:]) / last, x)
        b = torch.where(left, first, torch.where(right, last, b))
        return SlicePoint(k, x, b, bend, found, to_left, to_right)

    def at_coordinate(self, x: Tensor) -> SlicePoint:
        """The slice points at Gaussian coordinates ``x`` of shape ``(…, m)``."""
        x = self._broadcast_points(x)
        found = torch.searchsorted(self.knots.x, x.detach().contiguous(), right=True) - 1
        i, x_left, width, b_left, b_right = self._gather_segment(found)
        bend = (b_right - b_left) / width
        t = _cap_keeping_gradient(torch.clamp(x - x_left, min=0.0), width)
        first, last = self.b[..., :1], self.b[..., -1:]
        left, right = found < 0, found == self.knots.x.numel() - 1
        b = torch.where(left, first, torch.where(right, last, b_left + bend * t))
        s = self.s.gather(-1, i) + (b_left + 0.5 * bend * t) * t
        s = torch.where(left, self.s[..., :1] + first * (x - self.knots.x[0]), s)
        s = torch.where(right, self.s[..., -1:] + last * (x - self.knots.x[-1]), s)
        return SlicePoint(s - self.log_mean[..., None], x, b, bend, found, t, width - t)

    def _broadcast_points(self, points: Tensor) -> Tensor:
        points = torch.as_tensor(points, dtype=self.b.dtype, device=self.b.device)
        return points.expand(*self.b.shape[:-1], points.shape[-1]).contiguous()

    def _gather_segment(self, found: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        i = torch.clamp(found, 0, self.knots.x.numel() - 2)
        x_left = self.knots.x[i]
        width = self.knots.x[i + 1] - x_left
        return i, x_left, width, self.b.gather(-1, i), self.b.gather(-1, i + 1)

    def otm(self, k: Tensor) -> Tensor:
        """Out-of-the-money prices: calls for ``k ≥ 0``, puts below."""
        point = self.at_strike(k)
        return self.price_at(point, point.k >= 0.0)

    def call(self, k: Tensor) -> Tensor:
        """Call prices ``E(X − κ)+``, the in-the-money side by parity."""
        k = self._broadcast_points(k)
        return self.otm(k) + call_parity(k)

    def put(self, k: Tensor) -> Tensor:
        """Put prices ``E(κ − X)+``, the in-the-money side by parity."""
        k = self._broadcast_points(k)
        return self.otm(k) + put_parity(k)

    def price_at(self, point: SlicePoint, above: Tensor) -> Tensor:
        """Calls where ``above`` holds and puts elsewhere, each as a sum of positive terms."""
        last = self.knots.x.numel() - 1
        left, right = point.segment < 0, point.segment == last
        outside = left | right
        # The piece between the strike and the end of its segment, (…, m, q). With t the distance
        # from the strike and ± the side, the slope there is m = b ± bend·t and s has moved by
        # ± ½ t (b + m).
        sign = torch.where(above, 1.0, -1.0).to(point.x.dtype)
        room = torch.where(above, point.to_right, point.to_left)
        b, bend = point.b[..., None], (sign * point.bend)[..., None]
        k = torch.where(outside, 0.0, point.k)[..., None]
        half, start = (0.5 * sign)[..., None], -(sign * point.x)[..., None]

        def piece(node: Tensor) -> Tensor:
            t = room[..., None] * node
            slope = torch.addcmul(b, bend, t)
            return torch.exp(k + half * t * (b + slope)) * slope * normal.cdf(start - t)

        price = room * _quadrature_sums(piece, self.knots.node, self.knots.weight)[0]

        # and the whole segments beyond it
        i = torch.clamp(point.segment, 0, last - 1)
        price = price + torch.where(above, self.above.gather(-1, i + 1), self.below.gather(-1, i))
        # Strikes beyond the end knots cost ten times the others, and most requests have none.
        if any_or_recording(outside):
            price = torch.where(outside, self._price_outward_tail(point, right), price)
            behind = torch.where(right, ~above, left & above)
            if any_or_recording(behind):
                price = torch.where(behind, self._price_inward_tail(point, right), price)
        # rounding may lift a price past its bound, E X = 1 for calls and κ for puts
        return _cap_keeping_gradient(
            price, torch.where(above, 0.0, torch.clamp(point.k, max=80.0)).exp()
        )

    def _price_outward_tail(self, point: SlicePoint, right: Tensor) -> Tensor:
        """Prices beyond the end knots: Black calls on the right, Black puts on the left."""
        grid = self.knots
        b = torch.where(right, self.b[..., -1:], self.b[..., :1])
        log_mass = self.s[..., -1:] + b * (0.5 * b - grid.last) - self.log_mean[..., None]
        x = torch.where(right, torch.clamp(point.x, min=grid.last), point.x)
        x = torch.where(right, x, -torch.clamp(point.x, max=grid.first))
        k = torch.where(right, point.k, torch.clamp(point.k, max=MAX_LEFT_TAIL_LOG_STRIKE))
        return normal.scaled_mills_difference(k, x, torch.where(right, x - b, x), b, log_mass)

    def _price_inward_tail(self, point: SlicePoint, right: Tensor) -> Tensor:
        """Prices beyond the end knots of the inner side: puts on the right, calls on the left.

        Steep slopes put the forward itself beyond the last knot, and then these are the
        out-of-the-money options: the price at the end knot and the stretch since.
        """
        grid, shift = self.knots, self.log_mean[..., None]
        x_last, b_last = grid.x[-1:], self.b[..., -1:]
        k = torch.clamp(point.k, max=0.0)  # calls here are in the money, and would overflow
        k_last = torch.clamp(self.s[..., -1:] - shift, max=0.0)
        x = torch.clamp(point.x, min=grid.last)
        since = normal.excess_below(k, x, b_last) - normal.excess_below(k_last, x_last, b_last)
        put = self.below[..., -1:] + since

        x_first, b_first = grid.x[:1], self.b[..., :1]

        def reach(k: Tensor, at: Tensor) -> Tensor:
            mirrored = normal.weighted_mills(k, at, b_first - at)
            return torch.exp(k) * normal.cdf(-at) + mirrored

        k = torch.clamp(point.k, max=MAX_LEFT_TAIL_LOG_STRIKE)
        x = torch.clamp(point.x, max=grid.first)
        call = self.above[..., :1] + reach(self.s[..., :1] - shift, x_first) - reach(k, x)
        return torch.where(right, put, call)

    def z(self, k: Tensor) -> Tensor:
        """Z-coordinate of a strike: the Gaussian quantile of its probability."""
        return self.at_strike(k).x

    def log_strike(self, z: Tensor) -> Tensor:
        """Log-strike at a Z-coordinate, the inverse of :meth:`z`."""
        return self.at_coordinate(z).k

    def cdf(self, k: Tensor) -> Tensor:
        """``P(X ≤ κ)``."""
        return normal.cdf(self.z(k))

    def digital(self, k: Tensor) -> Tensor:
        """``P(X > κ)``, the maximiser ``q*`` of the conjugacy and minus the strike slope."""
        return normal.cdf(-self.z(k))

    def density(self, k: Tensor) -> Tensor:
        """Density of X per unit of κ: ``φ(x*) / (κ b(x*))``."""
        point = self.at_strike(k)
        return normal.scaled_pdf(-point.k, point.x) / point.b

    def quantile(self, u: Tensor) -> Tensor:
        """The κ below which X lies with probability ``u``."""
        return torch.exp(self.log_strike(normal.quantile(u)))

    def log_variance(self) -> Tensor:
        """Total log-contract variance ``W = −2 E log X = 2 (log M − E s(Z))``, shape ``(…)``."""
        return 2.0 * (self.log_mean - (self.b * self.knots.mean).sum(-1))
