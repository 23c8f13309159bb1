"""The measured tables and pictures of README.md, made from bench/results so that nobody copies a figure by hand.

    python tools/bench_tables.py           # rewrites what stands between the marks in README.md, and docs/images
    python tools/bench_tables.py --check   # exits 1 where README.md or a picture says something else than the results

A block is `<!-- bench:NAME -->` to `<!-- /bench:NAME -->`. `ops` is made from the newest DATE-h200-ops.json and
-loss.json, `train` from the newest DATE-h200-train.json, `sweep`, a sentence, from the newest DATE-h200-ops-sweep.json
and -loss-sweep.json; a block of which there is no result stays as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from tigon.bench import report  # noqa: E402
from tigon.bench.names import PACKAGES  # noqa: E402

Row = dict[str, Any]
DEVICE = "h200"
NOTHING = "—"
WIDTH = 120
KINDS = {"ops": ("ops", "loss"), "sweep": ("ops-sweep", "loss-sweep"), "train": ("train",)}  # of results, by block


def newest(root: Path, kind: str) -> Path | None:
    """The result of one kind whose name begins with the latest date."""
    return max((root / "bench/results").glob(f"????-??-??-{DEVICE}-{kind}.json"), default=None)


def picture(block: str) -> str:
    return f"docs/images/bench-{DEVICE}-{block}.svg"


def links(root: Path, paths: list[Path]) -> str:
    """To the results that a block is made from."""
    return ", ".join(f"[{path.name}]({path.relative_to(root)})" for path in paths)


def bars(block: str) -> str:
    return f"as [bars]({picture(block)})"


def peer(variant: str, versions: dict[str, str]) -> str:
    package = PACKAGES.get(variant)
    return f"{variant} {versions[package]}" if package in versions else variant


def filled(words: str) -> str:
    return textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False)


def decimals(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}".removeprefix("0")


def ops(root: Path, paths: list[Path]) -> str:
    """A line for each operator, at the first of its shapes: shares of the ceiling, and those of the fastest peer."""
    results = [report.load(path) for path in paths]
    table = [["operator, bf16", "share of", "forward", "best other", "both", "best other"]]
    peers: dict[str, None] = {}
    for result in results:
        rows = [row for row in result["rows"] if row["dtype"] == "bfloat16"]
        peers |= dict.fromkeys(peer(row["variant"], result["versions"]) for row in rows if row["variant"] != "tigon")
        ours = {(row["op"], row.get("note", ""), tuple(row["shape"]), row["direction"]): row for row in _ours(rows)}
        for op, note, shape in _first_shapes(rows):
            pair = [ours.get((op, note, shape, direction)) for direction in ("forward", "both")]
            of = "GEMM" if any(row and row["of_gemm"] is not None for row in pair) else "copy"
            words = [op, " × ".join(map(str, shape)), note]
            table.append([" ".join(filter(None, words)), of, *(cell for row in pair for cell in _shares(row, rows))])
    words = (
        f"Operators on an {_machines(results)}: their share of a plain copy's speed for the fewest bytes they can "
        f"move, or of their plain matrix products' (GEMM), and that of the fastest of {', '.join(peers)}. All shapes, "
        f"times and memory: {links(root, paths)}, {bars('ops')}."
    )
    if any(cell.partition(" ")[0].endswith("h") for line in table[1:] for cell in line[2:]):
        words += " h: the GPU waited for the host meanwhile."
    return f"{filled(words)}\n\n{report.markdown(table, 2)}"


def sweep(root: Path, paths: list[Path]) -> str:
    """At how many shapes and directions Tigon is the fastest, and where it is the slowest beside the best of others."""
    ratios: list[tuple[float, Row, Row]] = []
    peers: dict[str, None] = {}
    for result in map(report.load, paths):
        rows = result["rows"]
        peers |= dict.fromkeys(peer(row["variant"], result["versions"]) for row in rows if row["variant"] != "tigon")
        for row in _ours(rows):
            best = report.best_peer(row, rows)
            if best is not None:
                ratios.append((best["ms"] / row["ms"], row, best))
    if not ratios:
        raise ValueError(f"{paths[0]}: nobody was measured beside Tigon")
    worst, row, best = min(ratios, key=lambda found: found[0])
    shapes = {(row["op"], row.get("note", ""), tuple(row["shape"])) for _, row, _ in ratios}
    won = sum(ratio >= 1 for ratio, _, _ in ratios)
    words = (
        f"In a sweep over {len(shapes)} shapes, long, short and odd, forward, backward and both ({len(ratios)} cases), "
        f"Tigon is the fastest beside {', '.join(peers)} at {won}; at worst it has {worst:.2f} of the speed of "
        f"{best['variant']}, at {report.name(row)}, {row['direction']}: {links(root, paths)}."
    )
    return filled(words)


def _machines(results: list[Row]) -> str:
    """Of all results, each once: these may come from several runs."""
    return ", ".join(dict.fromkeys(map(_machine, results)))


def _machine(facts: Row) -> str:
    return f"{facts['device']} (torch {facts['versions']['torch']}, {facts['date']})"


def _ours(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["variant"] == "tigon"]


def _first_shapes(rows: list[Row]) -> list[tuple[str, str, tuple[int, ...]]]:
    first: dict[tuple[str, str], tuple[int, ...]] = {}
    for row in _ours(rows):
        first.setdefault((row["op"], row.get("note", "")), tuple(row["shape"]))
    return [(*key, shape) for key, shape in first.items()]


def _shares(row: Row | None, rows: list[Row]) -> tuple[str, str]:
    """Tigon's share, and the fastest peer's with its name."""
    if row is None:
        return NOTHING, NOTHING
    best = report.best_peer(row, rows)
    if best is None:
        return _share(row), NOTHING
    return _share(row), f"{_share(best)} {best['variant']}"


def _share(row: Row) -> str:
    return decimals(report.share(row)) + "h" * bool(row.get("host_counted"))


def train(root: Path, paths: list[Path]) -> str:
    """A line for each configuration: tokens per second and memory of every variant."""
    rows: list[Row] = report.load(paths[0])
    variants = [v for v in dict.fromkeys(row["variant"] for row in rows) if v != "tigon"] + ["tigon"]
    versions = {key: value for row in rows for key, value in row["versions"].items()}
    heads = [f"{'Tigon' if v == 'tigon' else peer(v, versions)} tok/s (GiB)" for v in variants]
    table = [["model", "trained", "batch × length", *heads, "× eager", "× best other"]]
    for key in dict.fromkeys(report.step_configuration(row) for row in rows):
        found = {row["variant"]: row for row in rows if report.step_configuration(row) == key}
        row = next(iter(found.values()))
        cells = [f"{r['tok_s']:.0f} ({r['peak_gib']:.1f})" if (r := found.get(v)) else NOTHING for v in variants]
        speed = {v: r["tok_s"] for v, r in found.items() if v != "tigon"}
        ours = found["tigon"]["tok_s"] if "tigon" in found else None
        over = [
            ours / speed["eager"] if ours and "eager" in speed else None,
            ours / max(speed.values()) if ours and speed else None,
        ]
        ratios = [NOTHING if ratio is None else f"{ratio:.2f}" for ratio in over]
        size = f"{row['batch']} × {row['length']}"
        table.append([row["model"], _tuner(row["tuner"]), size, *cells, *ratios])
    words = (
        f"Whole steps on an {_machines(rows)}, each variant in a process of its own: "
        f"{links(root, paths)}, {bars('train')}."
    )
    return f"{filled(words)}\n\n{report.markdown(table, 3)}"


def _tuner(words: str) -> str:
    """`lora r=64 q_proj,v_proj` as `LoRA r = 64 on q, v`."""
    kind, *rest = words.split()
    if kind != "lora":
        return words
    rank, modules, *more = rest
    where = "all linear layers" if modules == "all-linear" else modules.replace("_proj", "").replace(",", ", ")
    return " ".join([f"LoRA r = {rank.removeprefix('r=')} on {where}", *more])


def made(root: Path) -> dict[str, tuple[str, list[Row]]]:
    """For each block that has results: its text, and the rows of its picture; no rows, no picture."""
    makers = {"ops": ops, "sweep": sweep, "train": train}
    found = {}
    for block, kinds in KINDS.items():
        paths = [path for kind in kinds if (path := newest(root, kind))]
        if paths:
            results = [report.load(path) for path in paths]
            rows = [row for result in results for row in (result if isinstance(result, list) else result["rows"])]
            drawn = [row for row in rows if row.get("direction", "both") == "both"]
            found[block] = makers[block](root, paths), [] if block == "sweep" else drawn
    return found


def replaced(readme: str, block: str, text: str) -> str:
    """README.md with the text of one block; ValueError where it has no marks for it."""
    pattern = re.compile(rf"(<!-- bench:{block} -->\n).*?(<!-- /bench:{block} -->)", re.DOTALL)
    if not pattern.search(readme):
        raise ValueError(f"README.md has no <!-- bench:{block} --> to <!-- /bench:{block} -->")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", readme)


def main(argv: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something would change")
    check = parser.parse_args(argv).check
    old = new = (root / "README.md").read_text(encoding="utf-8")
    stale = []
    for block, (text, rows) in made(root).items():
        new = replaced(new, block, text)
        file = root / picture(block)
        if rows and not (file.exists() and report.digest(rows) in file.read_text(encoding="utf-8")):
            stale.append(picture(block))
            if not check:
                report.draw(rows, file)
    if new != old:
        stale.append("README.md")
        if not check:
            (root / "README.md").write_text(new, encoding="utf-8")
    if stale:
        words = "are not what bench/results says: run `make bench-tables`" if check else "rewritten"
        print(f"{', '.join(stale)}: {words}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
