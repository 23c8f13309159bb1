"""One file per operator: `bytes_moved`, the fewest bytes it can move, and `flops`."""
