"""Files and formats: every accepted shape of a sample becomes the same conversation; anything else is an error."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tigon.train.files import read_rows
from tigon.train.formats import Sample, convert, detect
from tigon.train.options import OptionError

HELLO = Sample([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
        {"messages": json.dumps(HELLO.messages)},
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        {"conversation": [{"human": "Hi", "assistant": "Hello"}]},
        {"instruction": "Hi", "input": "", "output": "Hello"},
        {"instruction": "Hi", "input": None, "output": "Hello"},
        {"instruction": "Hi", "output": "Hello"},
        {"query": "Hi", "response": "Hello"},
        {"prompt": "Hi", "completion": "Hello"},
        {"prompt": [{"role": "user", "content": "Hi"}], "completion": [{"role": "assistant", "content": "Hello"}]},
        {"question": "Hi", "answer": "Hello"},
        {"problem": "Hi", "solution": "Hello"},
        {"input": "Hi", "target": "Hello", "id": 7},
    ],
)
def test_formats(row: dict[str, object]) -> None:
    assert convert([row], "data") == [HELLO]


def test_alpaca_joins_instruction_and_input() -> None:
    (sample,) = convert([{"instruction": "Add", "input": "1 2", "output": "3", "system": "Sums"}], "data")
    assert [message["content"] for message in sample.messages] == ["Sums", "Add\n1 2", "3"]


def test_history_comes_first() -> None:
    (sample,) = convert([{"query": "c", "response": "d", "history": [["a", "b"]]}], "data")
    assert [message["content"] for message in sample.messages] == ["a", "b", "c", "d"]


def test_gsm8k_is_detected() -> None:
    assert "question/answer" in detect([{"question": "1+1?", "answer": "#### 2"}], "data").name


def test_plain_text_must_be_asked_for() -> None:
    with pytest.raises(OptionError, match="--loss_scale all"):
        convert([{"text": "abc"}], "data")
    assert convert([{"text": "abc"}], "data", plain_text=True) == [Sample(text="abc")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"foo": 1, "bar": 2}], "columns foo, bar"),
        ([{"prompt": "a", "chosen": "b", "rejected": "c"}], "preference"),
        ([{"messages": [], "label": True}], "preference"),
        ([{"query": "a", "response": "b"}, {"query": "a"}], "sample 2: .*missing column 'response'"),
        ([{"query": "a", "response": 3}], "sample 1.*expected text, got int"),
        ([{"conversations": [{"from": "martian", "value": "x"}]}], "unknown role 'martian'"),
        ([{"messages": "not json"}], "sample 1: not messages .*a list of turns, got the text 'not json'"),
    ],
)
def test_unusable_rows_are_named(rows: list[dict[str, object]], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        convert(rows, "data")


def test_files_hold_the_same_rows(tmp_path: Path) -> None:
    rows = [{"question": "你好\u2028吗", "answer": '好,"是"\n二'}, {"question": "b", "answer": "c"}]
    (tmp_path / "a.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "a.jsonl").write_text("\ufeff" + lines + "\n\n", encoding="utf-8")
    (tmp_path / "lines.json").write_text(lines, encoding="utf-8")
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(rows)
    for name in ("a.json", "a.jsonl", "lines.json", "a.csv"):
        assert read_rows(str(tmp_path / name)) == rows, name
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read_rows(str(tmp_path / "a.parquet")) == rows
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(OptionError, match=r"broken\.parquet: not Parquet \("):
        read_rows(str(tmp_path / "broken.parquet"))


def test_count_takes_the_first_samples(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"n": i} for i in range(5)]))
    assert read_rows(f"{path}#2") == [{"n": 0}, {"n": 1}]
    odd = tmp_path / "b#3.json"
    odd.write_text('[{"n": 9}]')
    assert read_rows(str(odd)) == [{"n": 9}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"[1, 2]", "list of objects"),
        ("a.json", b"[{]", "line 1: not JSON"),
        ("a.jsonl", b'{"a": 1}\n{"a":', "line 2: not JSON"),
        ("a.jsonl", b'{"a": "\xff"}', "not UTF-8"),
        ("a.csv", b"a\n\xff", "not UTF-8"),
        ("a.json", b"[]", "no rows"),
        ("a.txt", b"x", r"\.txt suffix"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match=message):
        read_rows(str(tmp_path / name))


@pytest.mark.parametrize(("source", "message"), [("absent.json", "no file"), ("absent.json#x", "number of samples")])
def test_bad_sources(source: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_rows(source)
