#!/usr/bin/env python3
"""Starts an operator: copies every part of the compiled, tested skeleton under a new name.

    python3 tools/new_op.py scaled_tanh

Then follow docs/adding-an-op.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def camel(name: str) -> str:
    """scaled_tanh -> ScaledTanh."""
    return "".join(part.capitalize() for part in name.split("_"))


def copy(name: str, into: Path) -> list[Path]:
    """Writes the operator's files below `into` and returns them; refuses to overwrite any."""
    skeleton = ROOT / "skeleton"
    parts = {p: p.relative_to(skeleton) for p in sorted(skeleton.rglob("skeleton.*")) if "__pycache__" not in p.parts}
    test = Path("tests/python/ops/test_skeleton.py")
    parts[ROOT / test] = test
    sources = list(parts)
    targets = [into / str(relative).replace("skeleton", name) for relative in parts.values()]
    for target in targets:
        if target.exists():
            raise FileExistsError(f"{target} exists already: choose another name")
    for source, target in zip(sources, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8")
        target.write_text(text.replace("skeleton", name).replace("Skeleton", camel(name)), encoding="utf-8")
    return targets


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", help="lower case with underscores, the field's own word: scaled_tanh")
    name = parser.parse_args().name
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        parser.error(f"name must be lower case words joined by underscores, got {name!r}")
    try:
        files = copy(name, ROOT)
    except FileExistsError as error:
        parser.error(str(error))
    print("\n".join(str(f.relative_to(ROOT)) for f in files))
    print(f"\nNow add to python/tigon/ops/__init__.py:\n    from tigon.ops.{name} import {name}")
    print("and go on with docs/adding-an-op.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
