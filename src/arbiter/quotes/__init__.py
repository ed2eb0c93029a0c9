"""The one input type: two-sided out-of-the-money quotes in forward units, expiry by expiry."""

from arbiter.quotes.ask_bounds import AskBounds
from arbiter.quotes.contradictory_asks import ContradictoryAsk, find_contradictory_asks
from arbiter.quotes.dropped_expiries import ExpiryLike, drop_expiries, leave_out
from arbiter.quotes.expiry_endings import Ending, ExpiryEnding
from arbiter.quotes.quote_set import MIN_QUOTES, Quotes, require_quotes
from arbiter.quotes.quote_tables import MAX_DEAR_SHARE, MAX_LOG_MONEYNESS, MAX_YEARS, MIN_DEAR_ASKS

__all__ = [
    "MAX_DEAR_SHARE",
    "MAX_LOG_MONEYNESS",
    "MAX_YEARS",
    "MIN_DEAR_ASKS",
    "MIN_QUOTES",
    "AskBounds",
    "ContradictoryAsk",
    "Ending",
    "ExpiryEnding",
    "ExpiryLike",
    "Quotes",
    "drop_expiries",
    "find_contradictory_asks",
    "leave_out",
    "require_quotes",
]
