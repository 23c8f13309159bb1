"""Who may import whom under python/ (the table in docs/architecture.md). Exits 1 on a breach."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "python"
# folder: modules it must not import; a name covers everything below it
FORBIDDEN = {
    "tigon/ops": {"tigon.nn", "tigon.hf", "tigon.train", "tigon.cli", "transformers", "peft"},
    "tigon/nn": {"tigon.hf", "tigon.train", "tigon.cli", "transformers", "peft"},
    "tigon/hf": {"tigon.train", "tigon.cli", "torch.ops"},
    "tigon/train": {"tigon.ops", "tigon.nn", "tigon.cli", "torch.ops"},
    "tigon/cli": {"tigon.ops", "tigon.nn", "torch.ops"},
    "tigon/demo": {"tigon.ops", "tigon.nn", "torch.ops"},
    "liger_kernel": {"tigon.ops", "tigon.nn", "tigon.hf", "tigon.train", "tigon.cli", "torch.ops"},
}


def names(tree: ast.AST, package: list[str]) -> set[tuple[int, str]]:
    """Line and dotted name of every import (relative ones resolved) and use of torch.ops."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            found |= {(node.lineno, f"{base}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.ops":
            found.add((node.lineno, "torch.ops"))
    return found


def main() -> int:
    breaches = []
    for folder, forbidden in FORBIDDEN.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            package = list(path.relative_to(ROOT).parent.parts)
            for line, name in sorted(names(ast.parse(path.read_text()), package)):
                if any(name == bad or name.startswith(bad + ".") for bad in forbidden):
                    breaches.append(f"{path}:{line}: {folder} must not import {name}")
    print("\n".join(breaches) or "imports: every folder keeps to its table")
    return bool(breaches)


if __name__ == "__main__":
    sys.exit(main())
