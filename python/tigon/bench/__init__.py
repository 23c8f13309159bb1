"""`tigon bench`: the operators and whole training steps, side by side with what else is installed.

cases.py says what is measured and as what; peers.py, against whom; clock.py, how; ceilings.py, what the machine can do.
measure.py makes rows of operators, step.py rows of training steps, report.py tables and pictures of either. counts/ has
one file per operator with the fewest bytes and the FLOPs that it needs.
"""
