"""Joint SPX-VIX arbitrage: a linear program over three laws, with a proof either way."""

from arbiter.joint.auditing import (
    JointAudit,
    JointSettings,
    Verdict,
    joint_audit,
    joint_program,
)
from arbiter.joint.laws import JointLaw
from arbiter.joint.marginals import Marginal
from arbiter.joint.portfolio import Portfolio

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
