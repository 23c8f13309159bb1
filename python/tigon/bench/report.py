"""Rows as text or Markdown, as bars against the ceiling, and as one HTML file that needs nothing else.

A result of operators is a dictionary with `rows`; one of steps is a list of rows, each with the device and versions of
its run. Ratios are taken inside one result.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tigon.bench import names

Row = dict[str, Any]
Lines = list[list[str]]  # of a table: the header first
_COLUMNS = (
    "operator",
    "direction",
    "variant",
    "ms",
    "±",
    "GB/s",
    "of copy",
    "TFLOP/s",
    "of GEMM",
    "MiB",
    "host µs",
    "× best peer",
)
_OURS, _PEERS = "#FF7043", ("#90A4AE", "#B0BEC5", "#78909C", "#CFD8DC", "#607D8B", "#546E7A")


def load(path: Path) -> Any:
    """A result read again. ValueError says what the file is not."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{path}: this is no JSON") from None
    wanted = {"op", "variant", "ms"}
    if isinstance(result, dict) and {"device", "versions", "date", "ceilings", "rows"} <= set(result):
        rows = result["rows"]
    else:
        rows, wanted = result, {"model", "batch", "length", "tuner", "dtype", "variant", "tok_s", "peak_gib", "loss"}
        wanted |= {"device", "versions", "date"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and wanted <= set(row) for row in rows):
        raise ValueError(f"{path}: these are no rows of tigon bench")
    return result


def same(a: Row, b: Row) -> bool:
    """Whether two rows measure the same thing."""
    return all(a.get(key) == b.get(key) for key in ("op", "shape", "dtype", "note", "direction"))


def best_peer(row: Row, rows: Sequence[Row]) -> Row | None:
    """The fastest row of another variant that measures the same thing."""
    others = [r for r in rows if same(r, row) and r["variant"] != row["variant"]]
    return min(others, key=lambda r: float(r["ms"]), default=None)


def speed_over_best_peer(row: Row, rows: Sequence[Row]) -> float | None:
    """The best other variant's time over this one's: above 1, nobody is faster."""
    best = best_peer(row, rows)
    return None if best is None else float(best["ms"] / row["ms"])


def name(row: Row) -> str:
    return names.label(row["op"], row["shape"], row["dtype"], row.get("note", ""))


def share(row: Row) -> float | None:
    """Of the ceiling: of a large copy's speed, or of the matrix products'."""
    value = row["of_copy"] if row["of_copy"] is not None else row["of_gemm"]
    return None if value is None else float(value)


def cells(row: Row, rows: Sequence[Row]) -> list[str]:
    return [
        name(row),
        row["direction"],
        row["variant"],
        _number(row["ms"], ".4f") + "h" * bool(row.get("host_counted")),
        _number(row["spread"], ".4f"),
        _rounded_number(row["gb_s"]),
        _number(row["of_copy"], ".2f"),
        _rounded_number(row.get("tflop_s")),
        _number(row["of_gemm"], ".2f"),
        _rounded_number(row["extra_mib"]),
        _number(row["host_us"], ".0f"),
        _number(speed_over_best_peer(row, rows), ".2f"),
    ]


def lines(rows: Sequence[Row]) -> Lines:
    """A header, then a line for each row; columns without any value are left out."""
    body = [cells(row, rows) for row in rows]
    used = [i for i in range(len(_COLUMNS)) if any(line[i] for line in body)]
    return [[_COLUMNS[i] for i in used], *([line[i] for i in used] for line in body)]


def text(table: Lines, left: int) -> str:
    """Aligned columns, the first `left` of them to the left; what repeats the line above in the first is left out."""
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    shown = []
    for number, line in enumerate(table):
        if number > 1 and left > 1 and line[0] == table[number - 1][0]:
            line = ["", *line[1:]]
        padded = (w.ljust(n) if i < left else w.rjust(n) for i, (w, n) in enumerate(zip(line, widths, strict=True)))
        shown.append("  ".join(padded).rstrip())
    return "\n".join(shown)


def markdown(table: Lines, left: int) -> str:
    rule = ["---"] * left + ["---:"] * (len(table[0]) - left)
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in (table[0], rule, *table[1:]))
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped)


def losses(rows: Sequence[Row]) -> str:
    """What was computed, beside what it took: a wrong fast answer shows here."""
    shown = []
    for row in rows:
        if row["direction"] == "both":
            loss = "" if row["loss"] is None else f"  loss {row['loss']:.6f}"
            shown.append(f"{name(row)}  {row['variant']}{loss}  |gradient| {row['gradient_norm']:.6g}")
    return "\n".join(shown)


def standing(rows: Sequence[Row]) -> Lines:
    """For each operator, dtype and direction: at how many shapes Tigon is the fastest, and its worst ratio."""
    found: dict[tuple[str, str, str], list[tuple[float, Row, Row]]] = {}
    for row in rows:
        best = best_peer(row, rows) if row["variant"] == "tigon" else None
        if best is not None:
            key = (f"{row['op']} {row.get('note', '')}".strip(), row["dtype"], row["direction"])
            found.setdefault(key, []).append((best["ms"] / row["ms"], row, best))
    table = [["operator", "dtype", "direction", "fastest at", "worst", "there", "fastest peer there"]]
    for key, ratios in found.items():
        ratio, row, best = min(ratios, key=lambda found: found[0])
        won = sum(ratio >= 1 for ratio, _, _ in ratios)
        shape = "×".join(map(str, row["shape"]))
        table.append([*key, f"{won} of {len(ratios)}", f"{ratio:.2f}", shape, best["variant"]])
    return table


def step_configuration(row: Row) -> tuple[Any, ...]:
    """What rows of steps must share to be compared."""
    return "tokens" in row, *(row.get(key) for key in ("model", "tuner", "dtype", "batch", "length", "device"))


def steps(rows: Sequence[Row]) -> Lines:
    """Training or decoding: one line per variant. `apart`: how far its losses are from those of its configuration's
    first variant; for decoding, how many of the new tokens are the same."""
    table = [["model", "variant", "tokens/s", "ms", "GiB", "last loss", "apart", "|gradient|", "× best peer"]]
    for row in rows:
        alike = [r for r in rows if step_configuration(r) == step_configuration(row)]
        first, others = alike[0], [r["tok_s"] for r in alike if r["variant"] != row["variant"]]
        if "tokens" in row:
            equal = sum(a == b for a, b in zip(row["tokens"], first["tokens"], strict=False))
            last, apart, ms, norm = None, f"{equal} of {len(row['tokens'])} same", row["ms_per_token"], None
        else:
            apart = f"{max(abs(a - b) for a, b in zip(row['loss'], first['loss'], strict=False)):.1e}"
            last, ms, norm = row["loss"][-1], row["step_ms"], row["grad_norm"][0]
        table.append(
            [
                f"{row['model']}, {row['tuner']}, {row['batch']} × {row['length']}, {row['dtype']}",
                row["variant"],
                f"{row['tok_s']:,.0f}" if row["tok_s"] >= 1000 else f"{row['tok_s']:.1f}",
                f"{ms:.2f}",
                _number(row.get("peak_gib"), ".1f"),
                _number(last, ".5f"),
                apart,
                _number(norm, ".5f"),
                _number(row["tok_s"] / max(others) if others else None, ".2f"),
            ]
        )
    used = [i for i in range(len(table[0])) if any(line[i] for line in table[1:])]
    return [[line[i] for i in used] for line in table]


def show(result: Any, as_markdown: bool = False) -> str:
    """A whole result: where it was made, and its tables."""
    render: Callable[[Lines, int], str] = markdown if as_markdown else text
    gap = "\n\n" if as_markdown else "\n"
    if isinstance(result, list):
        runs: dict[tuple[str, str], dict[str, str]] = {}  # versions of all variants of a day's runs
        for row in result:
            runs.setdefault((row["device"], row["date"]), {}).update(row["versions"])
        made = (_made({"device": device, "date": date, "versions": found}) for (device, date), found in runs.items())
        return gap.join([*made, render(steps(result), 2)])
    rows, peak = result["rows"], result["ceilings"]
    ceilings = "  ".join(f"{key} {value:,.1f}" for key, value in peak.items())
    tables = [render(lines(rows), 3)]
    if any(row.get("host_counted") for row in rows):
        tables.append("h: the host had not issued all of the call when the GPU began with it; ms may count its time")
    if len({row["variant"] for row in rows}) > 1:
        tables.append(render(standing(rows), 3))
    return gap.join([_made(result), ceilings, *tables, *([] if as_markdown else [losses(rows)])])


def _made(facts: Row) -> str:
    return ", ".join([facts["device"], facts["date"], *(f"{k} {v}" for k, v in facts["versions"].items())])


def digest(rows: Sequence[Row]) -> str:
    """Of what `draw` shows: kept in the picture, so that it can be told from an old one."""
    drawn = [[*_group(row), row["variant"], f"{_length(row, rows):.3f}"] for row in _drawn(rows)]
    return hashlib.sha256(json.dumps(drawn).encode()).hexdigest()


def _group(row: Row) -> tuple[str, str]:
    if "op" in row:
        return name(row), row["direction"]
    return f"{row['model']} {row['batch']}×{row['length']}", f"{row['tuner']} {row['dtype']}"


def _drawn(rows: Sequence[Row]) -> list[Row]:
    """Rows that have a bar: those of operators first."""
    return [r for r in rows if "op" in r and share(r) is not None] + [r for r in rows if "op" not in r]


def _length(row: Row, rows: Sequence[Row]) -> float:
    """A bar's: the share of the ceiling; of steps, the speed over that of the first variant of the configuration."""
    if "op" in row:
        return share(row) or 0.0
    first = next(r for r in rows if "op" not in r and _group(r) == _group(row))
    return float(row["tok_s"] / first["tok_s"])


def draw(rows: Sequence[Row], file: Path | io.BytesIO) -> None:
    """Bars, one group per case and direction: operators as shares of the ceiling, steps as speeds over the first
    variant's. A suffix says PNG or SVG; else PNG."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = _drawn(rows)
    kinds = [kind for kind in (True, False) if any(("op" in row) is kind for row in shown)] or [True]
    variants = list(dict.fromkeys(row["variant"] for row in shown))
    colours = {v: _OURS if v == "tigon" else _PEERS[i % len(_PEERS)] for i, v in enumerate(variants)}
    heights = []
    for kind in kinds:
        mine = [row for row in shown if ("op" in row) is kind]
        heights.append(1.2 + 0.22 * len(mine) + 0.2 * len({_group(row) for row in mine}))
    suffix = file.suffix[1:] if isinstance(file, Path) else "png"
    metadata: dict[str, Any] = {"Description": digest(rows)} | ({"Date": None} if suffix == "svg" else {})
    with matplotlib.rc_context({"svg.hashsalt": "tigon", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, sum(heights)), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(kinds), squeeze=False, height_ratios=heights)
        for axes, kind in zip(grid[:, 0], kinds, strict=True):
            _bars(axes, [row for row in shown if ("op" in row) is kind], rows, colours)
            axes.set_xlabel(
                "share of the ceiling: a large copy, or the plain matrix products"
                if kind
                else "tokens per second over the first variant's"
            )
        figure.savefig(file, format=suffix, metadata=metadata)


def _bars(axes: Any, shown: Sequence[Row], rows: Sequence[Row], colours: dict[str, str]) -> None:
    groups: list[list[Row]] = []
    for row in shown:
        if groups and _group(groups[-1][0]) == _group(row):
            groups[-1].append(row)
        else:
            groups.append([row])
    at, ticks, labels, seen = 0.0, [], [], set()
    for group in groups:
        ticks.append(at + (len(group) - 1) / 2)
        labels.append("\n".join(_group(group[0])))
        for row in group:
            variant = row["variant"]
            axes.barh(at, _length(row, rows), color=colours[variant], label=None if variant in seen else variant)
            seen.add(variant)
            at += 1
        at += 0.8
    axes.axvline(1.0, color="#37474F", linewidth=1)
    axes.set_yticks(ticks, labels, fontsize=7)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    if seen:
        axes.legend(loc="lower right", fontsize=8)


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


def _rounded(values: dict[str, float]) -> dict[str, str]:
    return {key: f"{value:,.1f}" for key, value in values.items()}


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _rounded_number(value: float | None) -> str:
    """Without decimals, but for small ones."""
    return _number(value, ".2f" if value is not None and 0 < value < 10 else ".0f")
