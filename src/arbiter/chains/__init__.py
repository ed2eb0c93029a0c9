"""Listed chains: readers, settlement times, put-call parity, cleaning."""

from arbiter.chains.chain import Chain
from arbiter.chains.errors import ChainError, Remedy
from arbiter.chains.futures_files import read_futures
from arbiter.chains.layouts import read_chain
from arbiter.chains.volatilities_layout import read_volatilities

__all__ = ["Chain", "ChainError", "Remedy", "read_chain", "read_futures", "read_volatilities"]
