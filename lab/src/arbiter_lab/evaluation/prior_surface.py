"""The operator's prior as a method of its own: no network and no trained weights take part.

The Gaussian process reads a smile off the quotes, the smile becomes slopes in the star order, and
those are the surface. The covariance of the process was estimated on the training universe.
"""

from __future__ import annotations

import numpy as np

from arbiter.inputs import freeze_array
from arbiter.operators import slope_head
from arbiter.operators.chain_pass import plain_surface
from arbiter.operators.law.config import LawConfig
from arbiter.operators.law.proposal import Law, decode
from arbiter.operators.operator_surface import put_on_clock
from arbiter.operators.prior.gaussian_process import kriged
from arbiter.operators.prior.reference_volatility import scaled
from arbiter.operators.quote_rows import lay_quotes
from arbiter.quotes import Quotes, require_quotes
from arbiter.surface import Surface


def prior_surface(quotes: Quotes) -> Surface:
    """Return the surface of the prior alone.

    The smile is priced where the network is told of it, as in a pass.

    Raises:
        ValueError: If there are fewer than three quotes, or none tells a level of volatility.
    """
    require_quotes(quotes, "the prior")
    moved = quotes.in_clock_time()
    with np.errstate(all="ignore"):  # quotes without a level have no numbers, and are refused
        chain = scaled(lay_quotes([moved]))
        start = kriged(chain, LawConfig().places()).start
        law = Law(start, np.zeros(chain.total.shape))  # the decoder leaves the shift out
        slopes = decode(law, chain.total, chain.quotes.listed)
    if not np.isfinite(slopes).all():
        raise ValueError(f"{quotes!r}: the quotes do not tell a level of volatility")
    knots = freeze_array(np.array(slope_head.KNOTS))
    return put_on_clock(plain_surface(knots, moved, slopes[0]), quotes)
