"""`tigon infer`: talk to a model in the terminal, or answer one prompt."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tigon.cli.parser import make_parser, parse
from tigon.train import checkpoint
from tigon.train.arguments import ALIASES, DTYPE, FUSED
from tigon.train.options import OptionError, boolean, check_ranges, option, specs

if TYPE_CHECKING:
    from tigon.cli.chat import Chat

_DESCRIPTION = """\
Chat with a model, with or without an adapter.

  tigon infer --adapters output/v0-20260801-120000/checkpoint-100
  tigon infer --model MODEL --prompt "What is a kernel?"
  echo "What is a kernel?" | tigon infer --model MODEL

In a chat, `clear` forgets the conversation and `exit` or Ctrl-D ends it. A pipe is one prompt,
however many lines it has.

OMP_NUM_THREADS sets the threads on a CPU: fewer where its cores are shared with other work."""


@dataclasses.dataclass
class InferArguments:
    model: str | None = option(
        None,
        "folder or hub id",
        group="model",
        unset="what the adapter was trained on",
        example="HuggingFaceTB/SmolLM2-135M",
    )
    adapters: str | None = option(None, "checkpoint that `tigon sft` or PEFT wrote", group="model", unset="none")
    torch_dtype: str = option("auto", "element type of the weights", group="model", **DTYPE)
    attn_impl: str | None = option(None, "attention implementation", group="model", unset="the model's own")
    fused: str = option("auto", "run through Tigon's fused operators", group="model", **FUSED)
    use_cpu: bool = option(False, "run on the CPU although there is a GPU", group="model", kind=boolean)
    prompt: str | None = option(None, "answer this and exit", group="chat", unset="chat, or read from a pipe")
    system: str | None = option(
        None, "system message", group="chat", unset="as in training, else the chat template's own"
    )
    max_new_tokens: int = option(512, "longest answer in tokens", group="chat", kind=int, least=1)
    temperature: float = option(
        0.0, "0 takes the likeliest token, more is more varied", group="chat", kind=float, least=0
    )
    top_p: float = option(
        1.0, "sample from the likeliest tokens of this total probability", group="chat", kind=float, least=0, most=1
    )
    seed: int = option(42, "seed of the sampling", group="chat", kind=int, least=0)


def completed(args: InferArguments) -> InferArguments:
    """Fill in from the checkpoint what was not said: the base model and the system message."""
    if args.model is None and args.adapters is None:
        raise OptionError("Say which model: --model MODEL, --adapters CHECKPOINT, or both.")
    folder = Path(args.adapters or args.model or "")
    saved = checkpoint.saved_arguments(folder) if folder.is_dir() else {}
    if args.adapters is not None:
        if not (folder / "adapter_config.json").is_file():
            raise OptionError(f"--adapters {args.adapters}: {_instead_of_adapter(folder)}.")
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        base = args.model or saved.get("model") or config.get("base_model_name_or_path")
        args = dataclasses.replace(args, model=base)
    return dataclasses.replace(args, system=args.system or saved.get("system"))


def _instead_of_adapter(folder: Path) -> str:
    """What a folder without adapter_config.json is, and what was meant."""
    if not folder.is_dir():
        return "there is no such folder"
    if saved := checkpoint.checkpoints(folder):
        return f"this is a run; name one of its checkpoints, for example {saved[-1]}"
    if (folder / "config.json").is_file():
        return "this is a whole model; say --model"
    return "there is no adapter_config.json"


def main(argv: Sequence[str]) -> int:
    parser = make_parser(InferArguments, "infer", description=_DESCRIPTION)
    aliases = {name: target for name, target in ALIASES.items() if target in specs(InferArguments)}
    aliases["adapter_name_or_path"] = "adapters"
    args = InferArguments(**parse(parser, InferArguments, argv, aliases=aliases, implied={}))
    check_ranges(args)
    args = completed(args)
    for stream in (sys.stdin, sys.stdout):  # text is UTF-8 whatever the locale says
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")
    from tigon.cli.chat import Chat  # only now torch, which takes seconds to import

    chat = Chat(args)
    if args.prompt is not None or not sys.stdin.isatty():
        prompt = args.prompt if args.prompt is not None else sys.stdin.read().strip()
        if not prompt:
            raise OptionError("Nothing to answer: the prompt is empty.")
        chat.answer(prompt)
        return 0
    return _converse(chat)


def _converse(chat: Chat) -> int:
    print("`clear` forgets the conversation, `exit` ends it.")
    while True:
        try:
            text = input(">>> ").strip()
        except EOFError:
            print()
            return 0
        if text in ("exit", "quit"):
            return 0
        if text == "clear":
            chat.clear()
        elif text:
            try:
                chat.answer(text)
            except KeyboardInterrupt:  # stops the answer, not the chat
                print()
                chat.messages.pop()
