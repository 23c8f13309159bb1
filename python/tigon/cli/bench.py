"""`tigon bench`: Tigon beside what else is installed, on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tigon.bench.names import HEAD, PEERS, RANK, ROW_WISE
from tigon.cli.parser import Parser, make_parser, parse
from tigon.train.options import OptionError, boolean, check_ranges, option

_USAGE = """\
usage: tigon bench ops|loss|layer|train|decode [--FLAG VALUE ...]
       tigon bench report FILE... [--markdown] [--plot NAME.svg]

  ops     row-wise operators: time, share of a plain copy's speed, against PyTorch and other libraries
  loss    the output head with its loss: time against the plain matrix products, extra memory
  layer   one decoder layer, frozen: time against its plain matrix products
  train   whole training steps of a random model: tokens/s, memory, losses
  decode  transformers' generate, unpatched and patched: tokens/s (Tigon has no decoding of its own yet)
  report  the tables and pictures of JSON files that these wrote

tigon bench ops --help explains the flags."""

_OPS = """\
Row-wise operators and losses beside what else is installed.

  tigon bench ops --op rms_norm cross_entropy --peers F compile liger
  tigon bench ops --op softmax --shapes 8192x4096 --dtypes float32
  tigon bench loss --json loss.json --plot loss.html
  tigon bench ops --sweep --peers F liger quack

A share of 1.00 is a plain copy's speed for the fewest bytes that the operation can move, or for
`loss` that of its matrix products alone. Forward, backward and both are timed apart; the caches of a
GPU are flushed before every call; medians. Losses and norms of gradients stand below the table."""

_TRAIN = """\
Training steps of a model with random weights, each variant in a process of its own, on the same
weights and tokens.

  tigon bench train --model llama3-8b --batch 4 --length 2048 --peers eager liger unsloth
  tigon bench train --model smollm2-135m --lora_rank 8 --batch 4 --length 256 --torch_dtype float32"""

_LAYER = """\
One decoder layer with random weights, nothing of it trained, and the last norm. A share of 1.00 of
GEMM is the time of its matrix products alone.

  tigon bench layer --model llama3-8b --batch 4 --length 2048 --peers eager liger"""

_REPORT = """\
Reads files that `--json` wrote and prints their tables again.

  tigon bench report bench/results/*-ops.json --markdown
  tigon bench report train.json --plot train.svg"""

_DECODE = """\
transformers' generate with random weights, greedy, its own cache.

  tigon bench decode --model smollm2-135m --prompt 64 --new_tokens 64"""

_MODELS = ("llama3-8b", "smollm2-135m", "tiny")
_STEP_PEERS = ("eager", "liger", "unsloth")
_DTYPES = ("bfloat16", "float16", "float32")
T = TypeVar("T")
_SUFFIXES = (".png", ".svg", ".html")
_SWEPT_SECONDS = 0.5  # of calls for one median, of which a sweep takes a thousand


def shape(text: str) -> tuple[int, ...]:
    """`16384x4096`."""
    sizes = tuple(int(word) for word in text.replace("×", "x").split("x"))
    if min(sizes) < 1:
        raise ValueError(text)
    return sizes


@dataclasses.dataclass
class LossArguments:
    shapes: list[tuple[int, ...]] = option(
        [],
        "sizes instead of the usual ones, as python/tigon/bench/counts has them",
        group="what",
        many=True,
        kind=shape,
        unset="a decoder's",
        example="16384x4096",
    )
    dtypes: list[str] = option(["bfloat16"], "element types", group="what", many=True, choices=_DTYPES)
    peers: list[str] = option(
        ["eager", "F"], "whom to measure beside Tigon, where installed", group="what", many=True, choices=PEERS
    )
    sweep: bool = option(
        False, "many shapes of every operator, and who is fastest at how many", group="what", kind=boolean
    )
    use_cpu: bool = option(False, "measure the CPU although there is a GPU", group="how", kind=boolean)
    calls: int | None = option(None, "calls per median", group="how", kind=int, least=3, unset="25, of a sweep 7")
    json: str | None = option(None, "write the rows to this file", group="output")
    plot: list[str] = option(
        [], "write pictures: names that end in .png, .svg or .html", group="output", many=True, unset="none"
    )


@dataclasses.dataclass
class OpsArguments(LossArguments):
    op: list[str] = option(list(ROW_WISE), "operators", group="what", many=True, choices=ROW_WISE)


@dataclasses.dataclass
class TrainArguments:
    model: str = option("smollm2-135m", "shape", group="model", choices=_MODELS)
    torch_dtype: str = option("bfloat16", "element type of the base", group="model", choices=_DTYPES)
    tuner_type: str = option("lora", "what is trained", group="tuner", choices=("lora", "full"))
    lora_rank: int = option(64, "rank of the adapters", group="tuner", kind=int, least=1)
    target_modules: list[str] = option(["all-linear"], "layers with adapters", group="tuner", many=True)
    batch: int = option(4, "samples per step", group="step", kind=int, least=1)
    length: int = option(2048, "tokens per sample", group="step", kind=int, least=2)
    steps: int = option(20, "steps; the first three do not count", group="step", kind=int, least=1)
    gradient_checkpointing: bool = option(False, "recompute activations", group="step", kind=boolean)
    use_cpu: bool = option(False, "measure the CPU although there is a GPU", group="step", kind=boolean)
    peers: list[str] = option(
        ["eager"], "whom to measure beside Tigon, where installed", group="what", many=True, choices=_STEP_PEERS
    )
    json: str | None = option(None, "append the rows to this file", group="output")


@dataclasses.dataclass
class DecoderArguments:
    model: str = option("smollm2-135m", "shape", group="model", choices=_MODELS)
    torch_dtype: str = option("bfloat16", "element type", group="model", choices=_DTYPES)
    peers: list[str] = option(
        ["eager"], "whom to measure beside Tigon, where installed", group="how", many=True, choices=("eager", "liger")
    )
    use_cpu: bool = option(False, "measure the CPU although there is a GPU", group="how", kind=boolean)


@dataclasses.dataclass
class LayerArguments(DecoderArguments):
    batch: int = option(4, "samples", group="model", kind=int, least=1)
    length: int = option(2048, "tokens per sample", group="model", kind=int, least=1)
    calls: int = option(25, "calls per median", group="how", kind=int, least=3)
    json: str | None = option(None, "write the rows to this file", group="output")
    plot: list[str] = option(
        [], "write pictures: names that end in .png, .svg or .html", group="output", many=True, unset="none"
    )


@dataclasses.dataclass
class DecodeArguments(DecoderArguments):
    batch: int = option(1, "sequences", group="model", kind=int, least=1)
    prompt: int = option(64, "tokens of the prompt", group="model", kind=int, least=1)
    new_tokens: int = option(64, "tokens to make", group="model", kind=int, least=1)
    calls: int = option(3, "runs per median", group="how", kind=int, least=1)
    json: str | None = option(None, "append the rows to this file", group="output")


def main(argv: Sequence[str]) -> int:
    if not argv:
        print(_USAGE)
        return 2
    what, *rest = argv
    if what in ("-h", "--help"):
        print(_USAGE)
        raise SystemExit(0)  # as a parser ends
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        "ops": _ops,
        "loss": _loss,
        "layer": _layer,
        "train": _train,
        "decode": _decode,
        "report": _report,
    }
    if what not in commands:
        raise OptionError(f"bench knows {', '.join(commands)}, not {what}.")
    return commands[what](rest)


def _loss(argv: Sequence[str]) -> int:
    return _operators([HEAD], _parsed(LossArguments, "loss", _OPS, argv))


def _ops(argv: Sequence[str]) -> int:
    args = _parsed(OpsArguments, "ops", _OPS, argv)
    return _operators(args.op, args)


def _operators(ops: list[str], args: LossArguments) -> int:
    _check_files(args.json, args.plot)
    if args.sweep and args.shapes:
        raise OptionError("--sweep has shapes of its own: leave --shapes out.")
    for sizes in args.shapes:
        for op in ops:
            if len(sizes) != RANK.get(op, 2):
                raise OptionError(f"--shapes: {op} has {RANK.get(op, 2)} sizes, got {'x'.join(map(str, sizes))}.")
    import torch  # only now, which takes seconds

    from tigon.bench import cases, peers
    from tigon.bench.clock import Clock

    device = _device(args.use_cpu)
    dtypes = [getattr(torch, name) for name in args.dtypes]
    todo = list(cases.cases(ops, args.shapes, dtypes, device, swept=args.sweep))
    if not todo:
        raise OptionError(f"--sweep: {torch.cuda.get_device_name(device)} has too little memory for these operators.")
    clock = Clock(device, args.calls or 7, _SWEPT_SECONDS) if args.sweep else Clock(device, args.calls or 25)
    return _measure(todo, lambda say: peers.tables(args.peers, say), clock, args)


def _layer(argv: Sequence[str]) -> int:
    args = _parsed(LayerArguments, "layer", _LAYER, argv)
    _check_files(args.json, args.plot)
    import torch

    from tigon.bench import decoder
    from tigon.bench.clock import Clock

    device, dtype = _device(args.use_cpu), getattr(torch, args.torch_dtype)
    case = decoder.layer_case(args.model, args.batch, args.length, dtype)
    clock = Clock(device, args.calls)
    return _measure([case], lambda _: decoder.layers(args.model, dtype, device, args.peers), clock, args)


def _measure(todo: list[Any], tables: Callable[[Any], Any], clock: Any, args: LossArguments | LayerArguments) -> int:
    """Measures the cases, and writes what was asked for."""
    import torch

    from tigon.bench import ceilings, measure, names, report

    device = clock.device
    rows: list[dict[str, Any]] = []
    with _progress(len(todo) + 1) as (say, doing, done):
        variants = tables(say)
        peak = ceilings.measure(clock, doing)
        done()
        for case in todo:
            doing(case.label)
            rows += measure.measure(case, variants, clock, peak, say)
            done()
    packages = ["transformers"] if isinstance(args, LayerArguments) else []
    result = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "versions": names.versions(dict.fromkeys(row["variant"] for row in rows), packages),
        "date": datetime.date.today().isoformat(),
        "ceilings": peak,
        "rows": rows,
    }
    print(report.show(result))
    _write(args.json, result)
    for name in args.plot:
        if name.endswith(".html"):
            report.write_html(result, Path(name))
        else:
            report.draw(rows, Path(name))
    return 0


def _report(argv: Sequence[str]) -> int:
    parser = Parser(
        prog="tigon bench report",
        description=_REPORT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON that `--json` wrote")
    parser.add_argument("--markdown", action="store_true", help="tables in Markdown")
    parser.add_argument("--plot", nargs="+", default=[], metavar="NAME", help="pictures of all files: .png or .svg")
    args = parser.parse_args(argv)
    _check_files(None, args.plot, _SUFFIXES[:2])
    from tigon.bench import report

    try:
        results = [report.load(Path(file)) for file in args.files]
    except ValueError as error:
        raise OptionError(f"{error}.") from None
    print("\n\n".join(report.show(result, args.markdown) for result in results))
    rows = [row for result in results for row in (result if isinstance(result, list) else result["rows"])]
    for name in args.plot:
        report.draw(rows, Path(name))
    return 0


def _decode(argv: Sequence[str]) -> int:
    args = _parsed(DecodeArguments, "decode", _DECODE, argv)
    earlier = _earlier(args.json)
    import torch

    from tigon.bench import decoder, report

    rows = []
    with _progress(len(args.peers) + 1) as (say, doing, done):
        doing("decode")
        for row in decoder.decode(
            args.model,
            getattr(torch, args.torch_dtype),
            _device(args.use_cpu),
            args.peers,
            batch=args.batch,
            prompt=args.prompt,
            new_tokens=args.new_tokens,
            calls=args.calls,
            say=say,
        ):
            rows.append(row)
            done()
    print(report.show(rows))
    _write(args.json, [*earlier, *rows])
    return 0


def _train(argv: Sequence[str]) -> int:
    args = _parsed(TrainArguments, "train", _TRAIN, argv)
    earlier = _earlier(args.json)
    from tigon.bench import report, step

    values = dataclasses.asdict(args)
    peers, path = values.pop("peers"), values.pop("json")
    rows: list[dict[str, Any]] = []
    with _progress(len(peers) + 1) as (say, doing, done):
        for variant in [*(["eager"] if "eager" in peers else []), "tigon", *(p for p in peers if p != "eager")]:
            doing(variant)
            try:
                rows.append(step.run(step.Settings(**values, variant=variant)))
            except RuntimeError as error:
                say(f"{variant}: {error}")
            done()
    if not rows:
        return 1
    print(report.show(rows))
    _write(path, [*earlier, *rows])
    return 0 if any(row["variant"] == "tigon" for row in rows) else 1


def _parsed(options: type[T], command: str, description: str, argv: Sequence[str]) -> T:
    parser = make_parser(options, f"bench {command}", description=description)
    args = options(**parse(parser, options, argv, aliases={}, implied={}))
    check_ranges(args)
    return args


def _earlier(path: str | None) -> list[Any]:
    """The rows that a file holds already; what cannot be added to is refused before anything is measured."""
    _check_files(path, [])
    if path is None or not Path(path).exists():
        return []
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        rows = None
    if not isinstance(rows, list):
        raise OptionError(f"--json {path}: this file holds something else than rows of steps.")
    return rows


def _write(path: str | None, result: Any) -> None:
    if path is not None:
        Path(path).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _check_files(path: str | None, pictures: list[str], suffixes: Sequence[str] = _SUFFIXES) -> None:
    for name in pictures:
        if Path(name).suffix not in suffixes:
            raise OptionError(f"--plot {name}: the name must end in {', '.join(suffixes)}.")
    for flag, name in (*(("--json", p) for p in [path] if p), *(("--plot", p) for p in pictures)):
        if not Path(name).absolute().parent.is_dir():
            raise OptionError(f"{flag} {name}: there is no such folder.")
    if pictures and importlib.util.find_spec("matplotlib") is None:
        raise OptionError("--plot needs the package matplotlib.")


def _device(use_cpu: bool) -> Any:
    """The GPU where there is one. On a CPU freed memory is kept, as in `tigon sft`."""
    import torch

    if torch.cuda.is_available() and not use_cpu:
        return torch.device("cuda")
    from tigon.train.malloc import keep_freed_memory

    keep_freed_memory()
    return torch.device("cpu")


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[str], None], Callable[[], None]]]:
    """say(line) above the bar, doing(what) beside it, done() after each part. No bar where nobody would see it move."""
    from tqdm import tqdm

    with tqdm(total=total, disable=not sys.stderr.isatty(), leave=False) as bar:

        def done() -> None:
            bar.update()

        yield lambda line: tqdm.write(line, file=sys.stderr), bar.set_description, done
