"""Options as data: one dataclass field per flag, from which parser, help text and YAML reader follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


class OptionError(ValueError):
    """A flag, key or value that cannot be used; the message is one sentence for the person who typed it."""


def boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise ValueError(text)


@dataclasses.dataclass(frozen=True)
class Spec:
    """What one flag accepts and how its help reads."""

    help: str
    group: str
    kind: Callable[[str], Any] = str
    many: bool = False
    choices: tuple[str, ...] = ()
    example: str = ""
    # Other projects' words for a value, e.g. LLaMA-Factory's `lora_target: all`.
    synonyms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # How an unset (None) default reads in the help.
    unset: str = "not set"
    required: bool = False
    # The range of a number.
    least: float | None = None
    most: float | None = None
    below: float | None = None

    def one(self, value: object) -> Any:
        """Convert one value that came from the command line (text) or from YAML or JSON (maybe typed already)."""
        if isinstance(value, bool):
            text = "true" if value else "false"
        else:
            text = str(value)
        text = self.synonyms.get(text, text)
        try:
            converted = self.kind(text)
        except ValueError:
            wanted = {"boolean": "true or false", "int": "a whole number", "float": "a number"}
            raise OptionError(f"needs {wanted.get(self.kind.__name__, 'another value')}, got {text!r}") from None
        if self.choices and converted not in self.choices:
            raise OptionError(f"must be one of {', '.join(self.choices)}, got {text!r}")
        return converted

    def convert(self, value: object) -> Any:
        if self.many:
            items = value if isinstance(value, (list, tuple)) else str(value).split(",")
            return [self.one(item.strip() if isinstance(item, str) else item) for item in items]
        if isinstance(value, (list, tuple, dict)):
            raise OptionError(f"takes one value, got {value!r}")
        return self.one(value)

    def check_range(self, value: Any) -> None:
        if value is None:
            return
        limits: list[tuple[str, bool]] = []  # NaN is within none
        if self.least is not None:
            limits.append((f"at least {self.least:g}", value >= self.least))
        if self.most is not None:
            limits.append((f"at most {self.most:g}", value <= self.most))
        if self.below is not None:
            limits.append((f"below {self.below:g}", value < self.below))
        if not all(within for _, within in limits):
            raise OptionError(f"must be {' and '.join(words for words, _ in limits)}, got {value}")


def option(default: T, help: str, **spec: Any) -> T:
    """A dataclass field that carries its Spec; a list default is copied for each instance."""
    metadata = {"spec": Spec(help=help, **spec)}
    if isinstance(default, list):
        return cast(T, dataclasses.field(default_factory=lambda: list(default), metadata=metadata))
    return dataclasses.field(default=default, metadata=metadata)


def specs(cls: type) -> dict[str, Spec]:
    """The options of a dataclass, by name, in the order in which they are declared."""
    return {f.name: f.metadata["spec"] for f in dataclasses.fields(cls) if "spec" in f.metadata}


def check_ranges(options: object) -> None:
    """Refuse numbers that are out of their option's range, wherever they came from."""
    for name, spec in specs(type(options)).items():
        try:
            spec.check_range(getattr(options, name))
        except OptionError as error:
            raise OptionError(f"--{name} {error}.") from None
