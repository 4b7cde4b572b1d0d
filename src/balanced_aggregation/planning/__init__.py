"""What a study will need, before anyone spends a GPU-hour: tokens, memory, hours, and what cannot work.

Everything follows from the study, the shapes of its model and stated assumptions; no GPU, network, weights or data.
"""
