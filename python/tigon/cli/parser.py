"""argparse from a table of options, a YAML or JSON file with the same keys, and near misses named."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tigon.train.options import OptionError, Spec, boolean, specs


class Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that every mistake is reported in one way."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message[:1].upper() + message[1:] + ".")


def make_parser(
    options: type, command: str, *, description: str, epilog: str = "", implied: Sequence[str] = ()
) -> Parser:
    """A parser with one flag per option, grouped as the table groups them."""
    parser = Parser(
        prog=f"tigon {command}",
        usage=f"tigon {command} [CONFIG.yaml] [--FLAG VALUE ...]",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("yaml", nargs="?", metavar="CONFIG.yaml", help="file of options, same names as the flags")
    parser.add_argument("--config", metavar="FILE", help="the same as a flag; YAML or JSON")
    groups: dict[str, Any] = {}
    defaults = {field.name: field for field in dataclasses.fields(options)}
    for name, spec in specs(options).items():
        if spec.group not in groups:
            groups[spec.group] = parser.add_argument_group(spec.group)
        groups[spec.group].add_argument(f"--{name}", help=_help(spec, defaults[name]), **_argparse_options(spec))
    for name in implied:
        parser.add_argument(f"--{name}", nargs="?", const="true", help=argparse.SUPPRESS)
    return parser


def _argparse_options(spec: Spec) -> dict[str, Any]:
    options: dict[str, Any] = {"metavar": "|".join(spec.choices) if spec.choices else _metavar(spec)}
    if spec.many:
        options["nargs"] = "+"
    elif spec.kind is boolean or "true" in spec.choices:
        options |= {"nargs": "?", "const": "true"}  # a bare flag means true
    return options


def _metavar(spec: Spec) -> str:
    return {"boolean": "true|false", "int": "N", "float": "X"}.get(spec.kind.__name__, "VALUE")


def _help(spec: Spec, field: dataclasses.Field[Any]) -> str:
    default = field.default_factory() if callable(field.default_factory) else field.default
    if spec.required:
        shown = "required"
    elif default in (None, []):
        shown = f"default: {spec.unset}"
    else:
        words = default if isinstance(default, list) else [default]
        shown = "default: " + " ".join(str(word).lower() if isinstance(word, bool) else str(word) for word in words)
    example = f"; e.g. {spec.example}" if spec.example else ""
    return f"{spec.help} ({shown}{example})".replace("%", "%%")


def parse(
    parser: Parser,
    options: type,
    arguments: Sequence[str],
    *,
    aliases: Mapping[str, str],
    implied: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Values that were given, by option name: those of the file, overridden by those of the command line."""
    table = specs(options)
    known = [*table, *aliases, *implied, "config", "help"]
    given, unknown = parser.parse_known_args([_canonical(argument, aliases) for argument in arguments])
    flags = [word for word in unknown if word.startswith("--")]
    if flags:
        name = flags[0][2:].partition("=")[0]
        raise OptionError(f"Unknown flag --{name}.{_nearest(name, known)}")
    if unknown:
        raise OptionError(f"Unexpected argument {unknown[0]!r}: flags begin with --.")
    values = vars(given)
    positional, config = values.pop("yaml", None), values.pop("config", None)
    if positional and config:
        raise OptionError("Give one file of options: as the first argument or with --config.")
    merged: dict[str, Any] = {}
    if path := positional or config:
        for key, value in _read(Path(path)).items():
            name = aliases.get(key, key)
            if key in implied:
                _check_implied(path, key, value, implied[key])
            elif name not in table:
                raise OptionError(f"{path}: unknown key {key}.{_nearest(key, known)}")
            elif value is not None:
                merged[name] = _convert(f"{path}: {key}", table[name], value)
    for name, value in values.items():
        if name in implied:
            _check_implied("The command line", name, value, implied[name])
        else:
            merged[name] = _convert(f"--{name}", table[name], value)
    return merged


def _canonical(argument: str, aliases: Mapping[str, str]) -> str:
    """`--lora-r=8` as `--lora_rank=8`."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument[2:].partition("=")
    name = flag.replace("-", "_")
    return f"--{aliases.get(name, name)}{equals}{value}"


def _convert(where: str, spec: Spec, value: object) -> Any:
    try:
        return spec.convert(value)
    except OptionError as error:
        raise OptionError(f"{where} {error}.") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}.") from None
    try:
        if path.suffix == ".json":
            values = json.loads(text)
        else:
            import yaml

            values = yaml.safe_load(text)
    except ImportError:
        raise OptionError(f"Reading {path} needs the package pyyaml.") from None
    except ValueError as error:
        raise OptionError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        raise OptionError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise OptionError(f"{path}: expected keys and values.")
    return values


def _check_implied(path: str, key: str, value: object, allowed: tuple[str, ...]) -> None:
    text = str(value).lower()
    if allowed and text not in allowed:
        raise OptionError(f"{path}: {key} can only be {' or '.join(allowed)} here, got {text}.")


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
    return f" Did you mean --{close[0]}?" if close else ""
