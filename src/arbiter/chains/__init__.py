"""Listed chains: readers, settlement times, put-call parity, cleaning."""

from arbiter.chains.chain import Chain
from arbiter.chains.errors import ChainError
from arbiter.chains.layouts import read_chain

__all__ = ["Chain", "ChainError", "read_chain"]
