"""Usage: python -m tigon.demo.train FLAGS: `tigon sft` without its last line, which the demo says at its own end."""

from __future__ import annotations

import sys

from tigon.cli import main as entry
from tigon.cli.sft import train

if __name__ == "__main__":
    sys.exit(entry.call("sft", lambda: train(sys.argv[1:])[1]))
