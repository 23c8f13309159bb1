"""The entry point: picks the command, reports mistakes in one sentence."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from tigon.train.console import rank, tolerate_any_encoding
from tigon.train.options import OptionError

# Each command is a module beside this one with `main(argv) -> int`; it is imported only when called.
COMMANDS = {
    "sft": "fine-tune a model on demonstrations",
    "infer": "chat with a model, with or without an adapter",
    "bench": "measure operators and training steps, beside other libraries",
    "doctor": "show versions, devices and which kernels are usable",
}
# What other programs call them.
_MEANT = {
    "train": "sft",
    "finetune": "sft",
    "fine-tune": "sft",
    "chat": "infer",
    "generate": "infer",
    "env": "doctor",
    "version": "doctor",
    "--version": "doctor",
}


def main(argv: Sequence[str] | None = None) -> int:
    if argv is None:
        _insist_on_utf8()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    command, *rest = arguments
    if command not in COMMANDS:
        print(f"tigon: {_unknown(command)}", file=sys.stderr)
        return 2
    return call(command, lambda: importlib.import_module(f"tigon.cli.{command}").main(rest))


def call(command: str, function: Callable[[], int]) -> int:
    """The exit code of a command that `function` runs; mistakes are reported in one sentence."""
    tolerate_any_encoding()
    # Deprecations are for those who call transformers, which here is not the user.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|peft|accelerate)\.")
    try:
        return function()
    except OptionError as error:
        if rank() == 0:
            print(f"tigon: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "tigon":
            raise
        print(f"tigon: {command} needs the package {error.name}: pip install 'tigon[train]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _insist_on_utf8() -> None:
    """Start over in Python's UTF-8 mode where the locale would garble arguments and file names.

    The terminal keeps the encoding that it said it has, so what is drawn for it stays readable.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"
        os.environ["PYTHONIOENCODING"] = f"{sys.stderr.encoding}:backslashreplace"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _unknown(command: str) -> str:
    nearest = _MEANT.get(command) or next(iter(difflib.get_close_matches(command, COMMANDS, n=1)), None)
    meant = f" Did you mean tigon {nearest}?" if nearest else ""
    return f"Unknown command {command}; there are {', '.join(COMMANDS)}.{meant}"


def _usage() -> str:
    lines = [f"  {name:8} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: tigon COMMAND ...", "", *lines, "", "tigon COMMAND --help explains the flags."])


if __name__ == "__main__":
    sys.exit(main())
