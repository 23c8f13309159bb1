"""One table of data formats: which columns name a format and how its rows become chat messages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from tigon.train.files import Row
from tigon.train.options import OptionError

Message = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Sample:
    """A conversation, or (for a `text` column) bare text without roles."""

    messages: list[Message] = dataclasses.field(default_factory=list)
    text: str | None = None


@dataclasses.dataclass(frozen=True)
class Format:
    name: str
    # One alternative of every tuple must be a column.
    needs: tuple[tuple[str, ...], ...]
    convert: Callable[[Row], Sample]


QUERY = ("query", "prompt", "instruction", "question", "problem", "input")
RESPONSE = ("response", "completion", "output", "answer", "target", "targets", "solution")
_PREFERENCE = {"chosen", "rejected", "rejected_response", "rejected_messages", "kto_tag"}

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
}


def detect(rows: list[Row], source: str) -> Format:
    """The format of a file, from the columns of its first row."""
    columns = [name for name in rows[0] if name is not None]
    found = ", ".join(columns) or "none"
    if _PREFERENCE & set(columns) or isinstance(rows[0].get("label"), bool):
        raise OptionError(f"{source}: columns {found} are preference data; sft learns from demonstrations only.")
    for candidate in FORMATS:
        if all(any(name in columns for name in names) for names in candidate.needs):
            return candidate
    known = "; ".join(f.name for f in FORMATS)
    raise OptionError(f"{source}: no known format has the columns {found}. Known formats: {known}.")


def convert(rows: list[Row], source: str, *, plain_text: bool = False) -> list[Sample]:
    """Turn rows into samples; `plain_text` says that learning every token of a text column is wanted."""
    chosen = detect(rows, source)
    if chosen is TEXT and not plain_text:
        raise OptionError(
            f"{source}: a plain text column has no prompt to leave out of the loss; "
            "say --loss_scale all to learn every token."
        )
    samples = []
    for number, row in enumerate(rows, 1):
        try:
            samples.append(chosen.convert(row))
        except (KeyError, TypeError, ValueError) as error:
            reason = f"missing column {error}" if isinstance(error, KeyError) else str(error)
            raise OptionError(f"{source}, sample {number}: not {chosen.name} ({reason}).") from None
    return samples


def _string(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def _list(value: object) -> list[Any]:
    if isinstance(text := value, str):  # a CSV cell
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            raise TypeError(f"expected a list of turns, got the text {text[:40]!r}") from None
    if not isinstance(value, list):
        raise TypeError(f"expected a list of turns, got {type(value).__name__}")
    return value


def _first(row: Row, names: tuple[str, ...]) -> str:
    return next((_string(row[name]) for name in names if name in row), "")


def _conversation(row: Row, turns: list[Message]) -> Sample:
    system = _string(row.get("system"))
    if system and not (turns and turns[0]["role"] == "system"):
        turns = [{"role": "system", "content": system}, *turns]
    return Sample(turns)


def _role(tag: object) -> str:
    if tag not in _ROLES:
        raise ValueError(f"unknown role {tag!r}; known are {', '.join(_ROLES)}")
    return _ROLES[str(tag)]


def _from_messages(row: Row) -> Sample:
    turns = [
        {**turn, "role": _role(turn["role"]), "content": _string(turn["content"])} for turn in _list(row["messages"])
    ]
    return _conversation(row, turns)


def _from_sharegpt(row: Row) -> Sample:
    turns = [{"role": _role(turn["from"]), "content": _string(turn["value"])} for turn in _list(row["conversations"])]
    return _conversation(row, turns)


def _from_pairs(row: Row) -> Sample:
    turns = []
    for turn in _list(row["conversation"]):
        if "human" not in turn and "user" not in turn:
            raise KeyError("human")
        turns.append({"role": "user", "content": _first(turn, ("human", "user"))})
        turns.append({"role": "assistant", "content": _string(turn["assistant"])})
    return _conversation(row, turns)


def _exchange(row: Row, query: str, response: str) -> Sample:
    turns: list[Message] = []
    for past_query, past_response in _list(row.get("history") or []):
        turns.append({"role": "user", "content": _string(past_query)})
        turns.append({"role": "assistant", "content": _string(past_response)})
    turns += [{"role": "user", "content": query}, {"role": "assistant", "content": response}]
    return _conversation(row, turns)


def _from_alpaca(row: Row) -> Sample:
    parts = [_string(row["instruction"]), _string(row.get("input"))]
    return _exchange(row, "\n".join(part for part in parts if part), _first(row, RESPONSE))


def _from_query(row: Row) -> Sample:
    for names in (QUERY, RESPONSE):
        if not any(name in row for name in names):
            raise KeyError(names[0])
    prompt, completion = (next(row[name] for name in names if name in row) for names in (QUERY, RESPONSE))
    if isinstance(prompt, list) and isinstance(completion, list):  # TRL's conversational prompt/completion
        return _from_messages({**row, "messages": prompt + completion})
    return _exchange(row, _first(row, QUERY), _first(row, RESPONSE))


def _from_text(row: Row) -> Sample:
    return Sample(text=_string(row["text"]))


TEXT = Format("text", (("text",),), _from_text)

# The first match wins: the more telling columns come first.
FORMATS = (
    Format("messages", (("messages",),), _from_messages),
    Format("sharegpt (conversations)", (("conversations",),), _from_sharegpt),
    Format("sharegpt (conversation)", (("conversation",),), _from_pairs),
    Format("alpaca (instruction, input, output)", (("instruction",), ("output", "response", "answer")), _from_alpaca),
    Format("query/response, prompt/completion or question/answer", (QUERY, RESPONSE), _from_query),
    TEXT,
)
