"""`python -m tigon.cli`, also for launchers that start modules."""

import sys

from tigon.cli.main import main

sys.exit(main())
