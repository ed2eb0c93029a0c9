"""Other people's surfaces on the same quotes: what a fit is compared with."""

from arbiter_lab.peers.andreasen_huge import AndreasenHuge, fit_andreasen_huge
from arbiter_lab.peers.peer import Peer
from arbiter_lab.peers.ssvi import SSVI, fit_ssvi
from arbiter_lab.peers.svi import SVI, fit_svi

__all__ = ["SSVI", "SVI", "AndreasenHuge", "Peer", "fit_andreasen_huge", "fit_ssvi", "fit_svi"]
