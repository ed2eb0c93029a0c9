"""The trained operator: quotes in, a surface out that cannot be arbitraged, in one pass."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FittedSurface, fit
from arbiter.fitting.cross_validation import QuoteFold, folds
from arbiter.fitting.joint_fit import require_one_moment
from arbiter.fitting.refinement import refine
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.futures import FuturesCurve
from arbiter.inputs import freeze_array, freeze_info
from arbiter.operators import checkpoint, domain, residuals, slope_head, workers
from arbiter.operators.chain_pass import ChainPass, KnownNetwork, build_surface, plain_surface
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.fallback import Fallback, fit_instead, is_outside, require_fallback
from arbiter.operators.law.answer import Limits, answer
from arbiter.operators.law.config import LawConfig
from arbiter.operators.law.lipschitz import constant
from arbiter.operators.law.network import LawNetwork
from arbiter.operators.law.weights import (
    Weights,
    count_parameters,
    describe_weights,
    freeze_weights,
)
from arbiter.operators.monitors import typical_rate
from arbiter.operators.operator_surface import OperatorSurface, put_on_clock
from arbiter.operators.quote_rows import batches, lay_quotes
from arbiter.operators.vix_head import fit_vix_slices
from arbiter.operators.volatility_error import INFO_KEY, parse_errors
from arbiter.quotes import MIN_QUOTES, Quotes, require_quotes
from arbiter.surface import Surface

logger = logging.getLogger(__name__)

DEFAULT_WEIGHTS_NAME = "operator"


class Operator:
    """A trained risk-neutral operator.

    It is immutable, and may be called from several threads at once. The same quotes give the same
    surface.

    Example:
        >>> import arbiter as ab
        >>> operator = ab.Operator.pretrained()
        >>> surface = operator(ab.example_chain().quotes())
        >>> surface.certificate().passed, surface.domain.inside
        (True, True)
    """

    def __init__(
        self, weights: Weights, config: LawConfig, info: dict[str, Any], source: str = "memory"
    ) -> None:
        workers.keep_memory()
        self.weights = freeze_weights(weights)
        self._network = LawNetwork(self.weights, config)
        self._info = info
        self.source = source
        self.config = config
        self.model = checkpoint.model_hash(self.weights)
        self.lipschitz = constant(self.weights, config)
        self.knots = freeze_array(np.array(slope_head.KNOTS))
        limits = domain.parse_limits(info.get("domain"))
        ends = (limits.get(name, (None, None))[1] for name in ("moved", "prior_misfit"))
        self._limits = Limits(*(math.inf if end is None else end for end in ends))
        self._known = KnownNetwork(
            self.knots,
            self.model,
            self.lipschitz,
            limits,
            freeze_array(self._network.places),
            parse_errors(info.get(INFO_KEY)),
            typical_rate(self.weights),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.weights), self.config, self._info, self.source)

    @classmethod
    def pretrained(cls, name: str | None = None) -> Operator:
        """The operator that ships with the package; the second call is free.

        Args:
            name: Of the weights; the default ones if left out.
        """
        return _load_shipped(DEFAULT_WEIGHTS_NAME if name is None else name)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Operator:
        """An operator from a checkpoint file.

        Raises:
            FileNotFoundError: If there is no such file.
            CheckpointError: If it is not a readable checkpoint of an operator.
        """
        tensors, info = checkpoint.load(path)
        plain = info.get("config")
        if isinstance(plain, dict) and "spans" in plain:
            raise CheckpointError(
                f"{path}: a network of the first design, which this version does not run: take the "
                "shipped weights, or train again with `arbiter train`"
            )
        try:
            config = LawConfig.from_dict(plain)
        except ValueError as error:
            raise CheckpointError(
                f"{path}: its config is not an operator's ({error}); a checkpoint of another "
                "version, or of something else: train it again"
            ) from error
        if _is_ablated(info):
            raise CheckpointError(
                f"{path}: an ablation was trained, which this version would run as a whole one: "
                "score it where it was trained, or take a run without 'variant'"
            )
        try:
            domain.parse_limits(info.get("domain"))
            parse_errors(info.get(INFO_KEY))
        except ValueError as error:
            raise CheckpointError(
                f"{path}: its limits cannot be read ({error}); take an intact copy, or save it "
                "again without a domain"
            ) from error
        # names, shapes and types are compared before anything of the size that a file asks for
        checkpoint.require_same_tensors(tensors, describe_weights(config), Path(path))
        return cls(tensors, config, info, str(path))

    def __repr__(self) -> str:
        size = count_parameters(self.weights)
        bound = "" if self.lipschitz is None else f", Lipschitz {self.lipschitz:.4g}"
        return f"Operator({self.model}, {size:,} parameters{bound})"

    @property
    def card(self) -> dict[str, Any]:
        """The model card: what it is, what it was trained on, how good it is, its limits."""
        size = count_parameters(self.weights)
        about = {"model": self.model, "parameters": size, "lipschitz": self.lipschitz}
        return {**about, **freeze_info(self._info)}

    @overload
    def __call__(
        self,
        quotes: Quotes,
        *,
        vix_quotes: Quotes | None = ...,
        vix_futures: FuturesCurve | None = ...,
    ) -> OperatorSurface: ...

    @overload
    def __call__(
        self,
        quotes: Quotes,
        *,
        vix_quotes: Quotes | None = ...,
        vix_futures: FuturesCurve | None = ...,
        fallback: Fallback,
    ) -> OperatorSurface | FittedSurface: ...

    def __call__(
        self,
        quotes: Quotes,
        *,
        vix_quotes: Quotes | None = None,
        vix_futures: FuturesCurve | None = None,
        fallback: Fallback = None,
    ) -> OperatorSurface | FittedSurface:
        """A surface from quotes.

        Args:
            quotes: From a chain's ``quotes()`` or :meth:`Quotes.from_frame`: three or more.
            vix_quotes: Options on the VIX of the same moment. The surface then has VIX slices that
                follow them, at the level of its own forward variance; without them, its VIX is
                what :func:`arbiter.vix.prior.vix_prior` makes of it.
            vix_futures: Futures on the VIX; without them those that the options imply.
            fallback: ``"fit"`` has quotes that are unlike those of training answered by
                :func:`arbiter.fit`, which takes longer. Left out, a call has one bounded cost and
                the surface is continuous in the quotes.

        Returns:
            The surface. ``.result`` says how it came about and ``.result.path`` by which path,
            ``.domain`` whether the quotes are like those of training; if not,
            ``.result.warnings`` say so.

        Raises:
            ValueError: If there are fewer than three quotes, or none tells a level; if the quotes
                on the VIX are none, or of another moment; if ``fallback`` is asked of weights
                without limits of their domain.
        """
        require_quotes(quotes, "the operator")
        if vix_quotes is None and vix_futures is None:
            return self.many([quotes], fallback=fallback)[0]
        market = VixMarket.from_quotes(vix_quotes, vix_futures)
        require_one_moment(quotes, market)
        require_fallback(fallback, self._known.limits)
        began = time.perf_counter()
        surface = self.many([quotes])[0]
        if fallback is not None and is_outside(surface):
            return fit_instead(surface, quotes, vix_quotes, vix_futures)
        slices, sits, warnings = fit_vix_slices(surface, market)
        result = replace(
            surface.result,
            vix=sits,
            seconds=time.perf_counter() - began,
            warnings=(*surface.result.warnings, *warnings),
        )
        return replace(surface, vix_slices=slices, result=result)

    @overload
    def many(self, chains: Sequence[Quotes]) -> list[OperatorSurface]: ...

    @overload
    def many(
        self, chains: Sequence[Quotes], *, fallback: Fallback
    ) -> list[OperatorSurface | FittedSurface]: ...

    def many(
        self, chains: Sequence[Quotes], *, fallback: Fallback = None
    ) -> Sequence[OperatorSurface | FittedSurface]:
        """Surfaces of many chains, several at a time; ``fallback`` as for a call.

        Each is the surface that the chain alone would give, to single precision: some 1e-5 of
        slopes, less than a hundredth of a basis point of volatility.
        """
        require_fallback(fallback, self._known.limits)
        for place, quotes in enumerate(chains):
            require_quotes(quotes, "the operator", f"chains[{place}]: " if len(chains) > 1 else "")
        moved = [quotes.in_clock_time() for quotes in chains]
        split = batches(moved)
        found: dict[int, OperatorSurface] = {}
        together = workers.map_in_threads(
            lambda batch: self._answer_batch([moved[i] for i in batch]), split
        )
        for batch, surfaces in zip(split, together, strict=True):
            found.update(zip(batch, surfaces, strict=True))
        done = [put_on_clock(found[i], quotes) for i, quotes in enumerate(chains)]
        if fallback is None:
            return done
        return [
            fit_instead(surface, quotes) if is_outside(surface) else surface
            for surface, quotes in zip(done, chains, strict=True)
        ]

    def refine(
        self,
        quotes: Quotes,
        surface: Surface | None = None,
        options: FitOptions | None = None,
        *,
        vix_quotes: Quotes | None = None,
        vix_futures: FuturesCurve | None = None,
    ) -> FittedSurface:
        """The direct fit with the operator's surface as a prior, weighted by cross-validation.

        The quotes are split into four folds. The operator predicts each fold from the others, and
        the errors of these predictions set the weight of the prior.

        Args:
            quotes: As for a call.
            surface: The operator's surface of these quotes, if it is there already.
            options: Of the fit. With given weights, or ``roughness="gcv"``, this is
                ``fit(quotes, prior=surface)``; with ``components=2`` it is
                ``fit(quotes, start=surface)``.
            vix_quotes: Options on the VIX: this is the joint fit then, with the surface as its
                prior, or with two components its start.
            vix_futures: Futures on the VIX.

        Returns:
            The fitted surface. ``result.trust`` is the share of the fit's freedom that its guide
            takes, from 0 for the fit alone to 1 for the guide alone; None with two components.
            ``result.warnings`` begin with those of the guide.
        """
        options = FitOptions() if options is None else options
        free = vix_quotes is None and vix_futures is None and options.roughness == "likelihood"
        guide = self(quotes) if surface is None else surface
        two = options.components == 2
        if free and not two:
            fitted = refine(quotes, guide, self.fold_guides(quotes), options)
        else:
            fitted = fit(
                quotes,
                vix_quotes=vix_quotes,
                vix_futures=vix_futures,
                options=options,
                start=guide if two else None,
                prior=None if two else guide,
            )
        made = guide.info.get("operator", {"model": self.model})
        result = fitted.result
        if isinstance(guide, OperatorSurface):
            result = replace(result, warnings=(*guide.result.warnings, *result.warnings))
        info = freeze_info({**fitted.info, "operator": made})
        return replace(fitted, info=info, result=result)

    def fold_guides(self, quotes: Quotes) -> list[QuoteFold]:
        """Folds of the quotes, each with the surface of all others; none if those are too few."""
        outs = folds(quotes)
        kept = [quotes.select(~out) for out in outs]
        if min(map(len, kept)) < MIN_QUOTES:
            return []
        rest = [others.in_clock_time() for others in kept]
        implied = residuals.implied([quotes.in_clock_time()])[0]
        left = [implied.select(~out) for out in outs]
        guides: dict[int, Surface] = {}
        for batch in batches(rest):
            given = lay_quotes([rest[i] for i in batch], [left[i] for i in batch])
            padded = answer(self._network, given, self._limits).slopes  # (B, L, n)
            for i, b in zip(batch, padded, strict=True):
                slopes = b[: rest[i].maturities.size]
                if not np.isfinite(slopes).all():  # no level of volatility without that fold
                    return []
                guides[i] = put_on_clock(plain_surface(self.knots, rest[i], slopes), kept[i])
        return [QuoteFold(out, guides[i]) for i, out in enumerate(outs)]

    def _answer_batch(self, chains: list[Quotes]) -> list[OperatorSurface]:
        """Surfaces of one batch."""
        began = time.perf_counter()
        implied = residuals.implied(chains)
        found = answer(self._network, lay_quotes(chains, implied), self._limits)
        padded, total = found.slopes, found.total
        sizes = [quotes.maturities.size for quotes in chains]
        slopes = [b[:size] for b, size in zip(padded, sizes, strict=True)]
        levels = [level[:size] for level, size in zip(total, sizes, strict=True)]
        if not (np.isfinite(padded).all() and np.isfinite(total).all()):  # or one is, of padding
            _require_finite_slopes(chains, slopes, levels)
        # all that the theorem asks of one component: knots and maturities increase by their types
        ordered = slope_head.is_star_ordered
        if not (ordered(padded) or all(ordered(b[None]) for b in slopes)):
            raise AssertionError("the decoder orders slopes along maturities")
        price = residuals.price_chains(chains, slopes, self.knots)
        off, traits = residuals.measure_misses(
            chains, implied, price, levels, (found.moved, found.missed)
        )
        took = (time.perf_counter() - began) / len(chains)
        unsure = [found.doubt[i, :size] for i, size in enumerate(sizes)]
        several = (found.share.tolist(), unsure, [took] * len(chains))
        parts = (chains, slopes, levels, off, traits, *several)
        return [build_surface(ChainPass(*part), self._known) for part in zip(*parts, strict=True)]


@lru_cache(maxsize=4)
def _load_shipped(name: str) -> Operator:
    folder = Path(str(files("arbiter.data")))
    path = folder / f"{name}.safetensors"
    if not path.is_file():
        there = sorted(found.stem for found in folder.glob("*.safetensors"))
        raise ValueError(
            f"name = {name!r} is not among the shipped weights {there}: leave it out, or give a "
            "file to Operator.load"
        )
    return Operator.load(path)


def _is_ablated(info: dict[str, Any]) -> bool:
    """Whether a run's weights belong to another function than the library's, by its settings."""
    training = info.get("training")
    variant = training.get("variant") if isinstance(training, dict) else None
    whole = {"flat": False, "guard": True, "scans": 2}
    return isinstance(variant, dict) and any(variant.get(n, v) != v for n, v in whole.items())


def _require_finite_slopes(chains: list[Quotes], slopes: list[Array], levels: list[Array]) -> None:
    for quotes, b, level in zip(chains, slopes, levels, strict=True):
        if not (np.isfinite(b).all() and np.isfinite(level).all()):
            raise ValueError(
                f"{quotes!r}: the quotes do not tell a level of volatility, none of them is near "
                "the money; take fit(quotes) instead"
            )
