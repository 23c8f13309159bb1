"""Adds up JUnit files: python tools/test_summary.py FILE... Prints `N passed, N failed, N skipped`.

A suite that wrote no file (it crashed before) counts as one failure. Exits 1 unless all passed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET


def count(path: str) -> tuple[int, int, int]:
    try:
        cases = list(ET.parse(path).iter("testcase"))
    except (OSError, ET.ParseError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 0, 1, 0
    failed = sum(c.find("failure") is not None or c.find("error") is not None for c in cases)
    skipped = sum(c.find("skipped") is not None for c in cases)
    return len(cases) - failed - skipped, failed, skipped


def main() -> int:
    passed, failed, skipped = map(sum, zip(*map(count, sys.argv[1:]), strict=True))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return bool(failed) or not passed


if __name__ == "__main__":
    sys.exit(main())
