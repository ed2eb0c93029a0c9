"""Other people's surfaces on the same quotes: what a fit is compared with."""

from arbiter.peers.andreasen_huge import AndreasenHuge, fit_andreasen_huge
from arbiter.peers.peer import Peer
from arbiter.peers.ssvi import SSVI, fit_ssvi
from arbiter.peers.svi import SVI, fit_svi

__all__ = ["SSVI", "SVI", "AndreasenHuge", "Peer", "fit_andreasen_huge", "fit_ssvi", "fit_svi"]
