"""The configuration of the first design: sizes, switches, and the bounds of what a file may ask."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from arbiter import values
from arbiter_lab.differentiable.operators.law.spectral_projection import ALIGNMENTS

DECODERS = ("transport", "icnn")
SCANS = ("resolvent", "exponential")
# Bounds of what a file may ask for, far beyond what was ever trained.
_SIZES = {
    "heads": (2, 1024),
    "width": (1, 4096),
    "state": (1, 4096),
    "rank": (1, 256),
    "context": (1, 4096),
    "looks": (1, 32),
}
_MAX_SPANS, _MAX_SPAN, _MAX_BUDGET = 16, 100, 1e6


@dataclass(frozen=True)
class Config:
    """Sizes and switches; the switches are the ablations of the paper and of ours.

    Attributes:
        heads: Densities of the gate.
        reach: ``asinh z`` of the farthest of them, below and above the money.
        width: Of the value stream.
        state: m, of each scan.
        rank: r, of each scan's low-rank factors.
        context: Width of the geometry stream.
        looks: How many times the quotes are looked at.
        spans: Of log-maturity, over which neighbouring slices are pooled
            (:mod:`arbiter_lab.differentiable.operators.network.maturity_pooling`); none leaves
            each slice to itself and the scans.
        kriging: True corrects the universe's best guess of every slice from all quotes
            (:mod:`arbiter.operators.prior.gaussian_process`); it looks both ways, whatever the
            scans do.
        budget: Largest spectral norm of a value map.
        gate: False makes every density flat.
        guard: False lets steps exceed ``(1 − ε)/ρ``.
        adjoint: False leaves only the scan from short to long maturities.
        align: False leaves the maps free.
        alignment: ``"projection"`` onto the ball, or the paper's ``"scaling"``.
        scan: ``"resolvent"`` or ``"exponential"``.
        decoder: ``"transport"`` or ``"icnn"``.
        representer: True gives slices of low coverage the kernel-ridge view
            (:mod:`arbiter_lab.differentiable.operators.network.representer`).
    """

    heads: int = 44
    reach: tuple[float, float] = (3.7, 2.4)
    width: int = 192
    state: int = 64
    rank: int = 4
    context: int = 224
    looks: int = 1
    spans: tuple[float, ...] = (0.3, 1.6)
    kriging: bool = True
    budget: float = 10.0
    gate: bool = True
    guard: bool = True
    adjoint: bool = True
    align: bool = True
    alignment: str = "projection"
    scan: str = "resolvent"
    decoder: str = "transport"
    representer: bool = False

    def __post_init__(self) -> None:
        for name in ("spans", "reach"):  # lists, when read from a file
            object.__setattr__(self, name, values.require_numbers(name, getattr(self, name)))
        if len(self.spans) > _MAX_SPANS or not all(0.0 < span <= _MAX_SPAN for span in self.spans):
            told = values.shorten_repr(self.spans)
            raise ValueError(
                f"spans = {told} must be up to {_MAX_SPANS} numbers above 0, to {_MAX_SPAN}"
            )
        far = list(self.reach)
        if len(far) != 2 or min(far) <= 0.0 or max(far) >= 5.0:
            told = values.shorten_repr(self.reach)
            raise ValueError(f"reach = {told} must be two numbers between 0 and 5")
        for name, (least, most) in _SIZES.items():
            values.require_integer(name, getattr(self, name), least, most)
        for name in ("kriging", "gate", "guard", "adjoint", "align", "representer"):
            values.require_bool(name, getattr(self, name))
        values.require_positive("budget", self.budget, _MAX_BUDGET)
        choices = {"alignment": ALIGNMENTS, "scan": SCANS, "decoder": DECODERS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                told = values.shorten_repr(getattr(self, name))
                raise ValueError(f"{name} = {told}: give one of {known}")

    @property
    def lines(self) -> int:
        """Values and slopes in a view: the heads' own, and pooled ones for each span."""
        return 2 * self.heads * (1 + len(self.spans))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a file of JSON gives them back."""
        return {**asdict(self), "spans": list(self.spans), "reach": list(self.reach)}

    @classmethod
    def from_dict(cls, given: object) -> Config:
        """From plain values; what is left out has its default.

        Raises:
            ValueError: If they are not those of a configuration.
        """
        return cls(**values.require_known_keys("config", given, [f.name for f in fields(cls)]))
