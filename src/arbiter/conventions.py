"""Units and types that every module shares: years, days, index points, arrays.

A maturity is a year fraction, minutes over 525,600, so that a day is 1/365 of a year.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MINUTES_PER_DAY = 1_440
MINUTES_PER_YEAR = 525_600
DAYS_PER_YEAR = 365.0
THIRTY_DAYS = 30.0 / DAYS_PER_YEAR  # years that the volatility index looks ahead
INDEX_POINTS = 100.0  # index points per unit of volatility
