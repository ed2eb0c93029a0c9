"""What the operator is compared with: nothing here promises a surface without arbitrage but one.

Networks with a plain readout, trained on the operator's batches for as many steps and with as many
parameters: the selective scan itself (:mod:`.ssm`), a recurrent network (:mod:`.gru`) and a
transformer (:mod:`.transformer`), matched by :mod:`.designs` and asked through :mod:`.trained`.
And the usual practice, raw SVI followed by a projection (:mod:`.cleaned`).
"""
