"""Rows as text, as bars against the ceiling, and as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_COLUMNS = (
    "operator",
    "direction",
    "variant",
    "ms",
    "±",
    "GB/s",
    "of copy",
    "of GEMM",
    "MiB",
    "host µs",
    "× best peer",
)
_OURS, _PEERS = "#FF7043", ("#90A4AE", "#B0BEC5", "#78909C", "#CFD8DC", "#607D8B", "#546E7A")


def same(a: Row, b: Row) -> bool:
    """Whether two rows measure the same thing."""
    return all(a.get(key) == b.get(key) for key in ("op", "shape", "dtype", "note", "direction"))


def speed_over_best_peer(row: Row, rows: Sequence[Row]) -> float | None:
    """The best other variant's time over this one's: above 1, nobody is faster."""
    others = [r["ms"] for r in rows if same(r, row) and r["variant"] != row["variant"]]
    return min(others) / row["ms"] if others else None


def name(row: Row) -> str:
    words = [row["op"], "×".join(map(str, row["shape"])), row["dtype"], row.get("note", "")]
    return " ".join(word for word in words if word)


def cells(row: Row, rows: Sequence[Row]) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return [
        name(row),
        row["direction"],
        row["variant"],
        number(row["ms"], ".4f"),
        number(row["spread"], ".4f"),
        number(row["gb_s"], ".0f"),
        number(row["of_copy"], ".2f"),
        number(row["of_gemm"], ".2f"),
        number(row["extra_mib"], ".0f"),
        number(row["host_us"], ".0f"),
        number(speed_over_best_peer(row, rows), ".2f"),
    ]


def table(rows: Sequence[Row]) -> str:
    """Aligned columns, those without any value left out, a line for each case."""
    body = [cells(row, rows) for row in rows]
    used = [i for i in range(len(_COLUMNS)) if any(line[i] for line in body)]
    lines = [[_COLUMNS[i] for i in used], *([line[i] for i in used] for line in body)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(used))]
    text = []
    for number, line in enumerate(lines):
        if number > 1 and line[0] == lines[number - 1][0]:
            line = ["", *line[1:]]
        text.append(
            "  ".join(w.ljust(n) if i < 3 else w.rjust(n) for i, (w, n) in enumerate(zip(line, widths, strict=True)))
        )
    return "\n".join(line.rstrip() for line in text)


def losses(rows: Sequence[Row]) -> str:
    """What was computed, beside what it took: a wrong fast answer shows here."""
    shown = []
    for row in rows:
        if row["direction"] == "both":
            loss = "" if row["loss"] is None else f"  loss {row['loss']:.6f}"
            shown.append(f"{name(row)}  {row['variant']}{loss}  |gradient| {row['gradient_norm']:.6g}")
    return "\n".join(shown)


def draw(rows: Sequence[Row], file: Path | io.BytesIO) -> None:
    """Bars of the share of the ceiling, one group per case and direction. A suffix says PNG or SVG; else PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [row for row in rows if _share(row) is not None]
    groups: list[list[Row]] = []
    for row in shown:
        if groups and same(groups[-1][0], row):
            groups[-1].append(row)
        else:
            groups.append([row])
    variants = list(dict.fromkeys(row["variant"] for row in shown))
    colours = {v: _OURS if v == "tigon" else _PEERS[i % len(_PEERS)] for i, v in enumerate(variants)}
    figure = Figure(figsize=(9, 1.2 + 0.22 * len(shown) + 0.2 * len(groups)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    at, ticks, labels, seen = 0.0, [], [], set()
    for group in groups:
        ticks.append(at + (len(group) - 1) / 2)
        labels.append(f"{name(group[0])}\n{group[0]['direction']}")
        for row in group:
            variant = row["variant"]
            axes.barh(at, _share(row) or 0.0, color=colours[variant], label=None if variant in seen else variant)
            seen.add(variant)
            at += 1
        at += 0.8
    axes.axvline(1.0, color="#37474F", linewidth=1)
    axes.set_yticks(ticks, labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("share of the ceiling: a large copy, or the plain matrix products")
    if seen:
        axes.legend(loc="lower right", fontsize=8)
    figure.savefig(file, format=file.suffix[1:] if isinstance(file, Path) else "png")


def write_html(result: dict[str, Any], path: Path) -> None:
    """Ceilings, the picture and the table in one file."""
    rows = result["rows"]
    buffer = io.BytesIO()
    draw(rows, buffer)
    data = base64.b64encode(buffer.getvalue()).decode()
    facts = {"device": result["device"], "date": result["date"], **result["versions"], **_rounded(result["ceilings"])}
    listed = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>" for k, v in facts.items())
    head = "".join(f"<th>{html.escape(c)}</th>" for c in _COLUMNS)
    body = "".join(
        f"<tr class='{'ours' if row['variant'] == 'tigon' else ''}'>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(row, rows))
        + "</tr>"
        for row in rows
    )
    path.write_text(
        "<!doctype html><meta charset='utf-8'><title>tigon bench</title><style>"
        "body{font:14px system-ui;margin:2em}table{border-collapse:collapse;margin:1em 0}"
        "td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}"
        "td:first-child,th:first-child{text-align:left}.ours{background:#fff3ee}img{max-width:100%}</style>"
        f"<h1>tigon bench</h1><table>{listed}</table>"
        f"<img alt='share of the ceiling' src='data:image/png;base64,{data}'>"
        f"<table><tr>{head}</tr>{body}</table><pre>{html.escape(losses(rows))}</pre>\n",
        encoding="utf-8",
    )


def _share(row: Row) -> float | None:
    value = row["of_copy"] if row["of_copy"] is not None else row["of_gemm"]
    return None if value is None else float(value)


def _rounded(values: dict[str, float]) -> dict[str, str]:
    return {key: f"{value:,.1f}" for key, value in values.items()}
