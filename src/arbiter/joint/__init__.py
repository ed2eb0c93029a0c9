"""Joint SPX-VIX arbitrage: a linear program that returns a joint law or an arbitrage portfolio."""

from arbiter.joint.joint_audit import JointAudit, JointSettings, Verdict, joint_audit, joint_program
from arbiter.joint.marginals import Marginal
from arbiter.joint.portfolio import Portfolio
from arbiter.joint.witness import JointLaw

__all__ = [
    "JointAudit",
    "JointLaw",
    "JointSettings",
    "Marginal",
    "Portfolio",
    "Verdict",
    "joint_audit",
    "joint_program",
]
