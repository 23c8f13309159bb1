"""`tigon bench`: the operators and whole training steps, side by side with what else is installed.

cases.py says what is measured and as what, sweep.py at which shapes where these are many; peers.py, against whom;
clock.py, how; ceilings.py, what the machine can do. measure.py makes rows of operators, step.py and decoder.py rows of
training steps and decoding, report.py tables and pictures of either. names.py has what the command line needs before
torch is imported. counts/ has one file per operator with the fewest bytes and the FLOPs that it needs.
"""
