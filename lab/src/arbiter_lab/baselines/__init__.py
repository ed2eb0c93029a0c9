"""Baselines of the operator: unconstrained networks, and SVI with a no-arbitrage projection.

The networks have a plain readout and are trained on the operator's batches, with the same number of
steps and parameters: the selective scan itself (:mod:`.ssm`), a recurrent network (:mod:`.gru`) and
a transformer (:mod:`.transformer`). :mod:`.matched_size` sets their sizes and
:mod:`.trained_baseline` evaluates them. Only :mod:`.cleaned_svi` is free of static arbitrage.
"""
