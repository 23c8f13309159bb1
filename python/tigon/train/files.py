"""Read rows from the files named by --dataset: json, jsonl, csv and parquet, always as UTF-8."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tigon.train.options import OptionError

Row = dict[str, Any]


def read_rows(source: str) -> list[Row]:
    """Rows of `PATH` or of the first N samples of `PATH#N`."""
    path, count = _split_count(source)
    if not path.is_file():
        what = "is a folder; name the files in it" if path.is_dir() else "is no file"
        raise OptionError(f"--dataset {source}: {path} {what}.")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise OptionError(f"--dataset {source}: {path.suffix or 'no'} suffix; known are {', '.join(_READERS)}.")
    rows = reader(path)
    if not rows:
        raise OptionError(f"--dataset {source}: {path} has no rows.")
    return rows if count is None else rows[:count]


def _split_count(source: str) -> tuple[Path, int | None]:
    name, mark, count = source.rpartition("#")
    if not mark or Path(source).is_file():
        return Path(source).expanduser(), None
    if not count.isdigit() or int(count) == 0:
        raise OptionError(f"--dataset {source}: what follows # must be a number of samples, got {count!r}.")
    return Path(name).expanduser(), int(count)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not UTF-8 (byte {error.start}): convert it first.") from None


def _read_json(path: Path) -> list[Row]:
    text = _text(path)
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # one object per line under a .json name
            return _read_jsonl(path)
        raise OptionError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None
    if isinstance(rows, dict):
        rows = [rows]
    return _checked(rows, path)


def _read_jsonl(path: Path) -> list[Row]:
    rows = []
    # Not splitlines(): U+2028 and its like are legal inside JSON strings.
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise OptionError(f"{path}, line {number}: not JSON ({error.msg}).") from None
    return _checked(rows, path)


def _read_csv(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return list(csv.DictReader(file, strict=True))
        except UnicodeDecodeError as error:
            raise OptionError(f"{path} is not UTF-8 (byte {error.start}): convert it first.") from None
        except csv.Error as error:
            raise OptionError(f"{path}: not CSV ({error}).") from None


def _read_parquet(path: Path) -> list[Row]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise OptionError(f"reading {path} needs the package pyarrow.") from None
    try:
        rows: list[Row] = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise OptionError(f"{path}: not Parquet ({str(error).splitlines()[0]}).") from None
    return rows


def _checked(rows: object, path: Path) -> list[Row]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise OptionError(f"{path}: expected a list of objects, one per sample.")
    return rows


_READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
