"""One file per operator: `bytes_moved`, the fewest bytes it can move, and `flops`.

Every input is read once and every output written once, in the tensors' own dtype; a backward reads what its formula
needs. Directions are "forward" and "backward", or "forward" and "both" where one kernel makes both at once; another one
raises KeyError.
"""
