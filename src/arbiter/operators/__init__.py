"""The risk-neutral operator: gate, Green scan, Q-Align, Spec-Guard, head."""
