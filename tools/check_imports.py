"""Who may import whom under python/tigon (the table in docs/architecture.md). Exits 1 on a breach."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "python/tigon"
# Lower first: nobody imports from above.
LAYERS = ("ops", "nn", "hf", "train", "bench", "cli", "demo")
# What else a folder must not import; a name covers everything below it.
FORBIDDEN = {
    "ops": {"transformers", "peft"},
    "nn": {"transformers", "peft", "torch.ops"},
    "hf": {"torch.ops"},
    "train": {"tigon.ops", "tigon.nn", "torch.ops"},
    "bench": {"tigon.ops", "tigon.nn", "torch.ops"},
    "cli": {"tigon.ops", "tigon.nn", "torch.ops"},
    "demo": {"tigon.ops", "tigon.nn", "torch.ops"},
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
    for height, layer in enumerate(LAYERS, 1):
        forbidden = FORBIDDEN[layer] | {f"tigon.{above}" for above in LAYERS[height:]}
        for path in sorted((ROOT / layer).rglob("*.py")):
            package = ["tigon", *path.relative_to(ROOT).parent.parts]
            for line, name in sorted(names(ast.parse(path.read_text(encoding="utf-8")), package)):
                if any(name == bad or name.startswith(bad + ".") for bad in forbidden):
                    breaches.append(f"{path}:{line}: tigon/{layer} must not import {name}")
    unknown = {path.parent.name for path in ROOT.glob("*/__init__.py")} - set(LAYERS)
    breaches += [f"{ROOT / folder}: has no place in LAYERS" for folder in sorted(unknown)]
    print("\n".join(breaches) or "imports: every folder keeps to its table")
    return bool(breaches)


if __name__ == "__main__":
    sys.exit(main())
