"""Row-wise operators against PyTorch's own: time, share of a copy, and how far the results differ.

    python3 bench/row_ops.py --json bench/results/DATE-h200-row-ops.json
    python3 bench/row_ops.py --op rms_norm --op softmax

On a GPU the L2 cache is flushed before every call and times are the GPU's; on a CPU freed memory is kept, as in
`tigon sft`. `of_copy` is the fewest bytes the operation can move (bench/ops), over its time, over the speed of a large
copy; `of_same_size_copy` compares with a copy of a tensor of the operand's size. Medians.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import torch
import torch.nn.functional as F
from torch import Tensor

import tigon

GIB = 2**30
OPS = ("rms_norm", "layer_norm", "softmax", "swiglu", "geglu", "cross_entropy")


@dataclass
class Case:
    """shape: of the first operand. make: operands by the first one's shape and dtype. run: ours, then the peers."""

    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[Callable[..., Tensor]], tuple[Tensor, ...]]
    run: dict[str, Callable[..., Tensor]]


def hf_norm(x: Tensor, w: Tensor) -> Tensor:
    h = x.float()
    return w * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def cases(cuda: bool) -> list[Case]:
    bf16, fp32 = torch.bfloat16, torch.float32
    square = (16384, 4096) if cuda else (4096, 4096)
    wide = (16384, 14336) if cuda else (4096, 4096)
    norms = [(32768, 2048), square, (8192, 8192), (524288, 128)] if cuda else [square]
    vocabularies = [(8192, 32000), (8192, 128256), (4096, 262144)] if cuda else [(1024, 49152)]

    found = []
    for dtype in (bf16, fp32):
        for shape in norms if dtype == bf16 else [square]:
            run = {
                "tigon": lambda x, w: tigon.rms_norm(x, w),
                "F": lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
                "eager": hf_norm,
            }
            found.append(Case("rms_norm", shape, dtype, lambda new, s=shape: (new(*s), new(s[-1])), run))
        run = {
            "tigon": lambda x, w, b: tigon.layer_norm(x, w, b),
            "F": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        }
        found.append(
            Case("layer_norm", square, dtype, lambda new: (new(*square), *(new(square[-1]) for _ in range(2))), run)
        )
        run = {"tigon": lambda x: tigon.softmax(x), "F": lambda x: F.softmax(x, -1)}
        found.append(Case("softmax", square, dtype, lambda new: (new(*square),), run))
        run = {"tigon": lambda g, u: tigon.swiglu(g, u), "eager": lambda g, u: F.silu(g) * u}
        found.append(Case("swiglu", wide, dtype, lambda new: (new(*wide), new(*wide)), run))
        run = {"tigon": lambda g, u: tigon.geglu(g, u), "eager": lambda g, u: F.gelu(g, approximate="tanh") * u}
        found.append(Case("geglu", wide, dtype, lambda new: (new(*wide), new(*wide)), run))
        for shape in vocabularies if dtype == bf16 else vocabularies[:1]:
            labels = torch.randint(shape[1], shape[:1], device="cuda" if cuda else "cpu")
            run = {
                "tigon": lambda x, y=labels: tigon.cross_entropy(x, y),
                "F": lambda x, y=labels: F.cross_entropy(x, y),
                "eager": lambda x, y=labels: F.cross_entropy(x.float(), y),
            }
            found.append(Case("cross_entropy", shape, dtype, lambda new, s=shape: (new(*s),), run))
    return found


class Clock:
    """Median and spread (80 % of the calls), in ms."""

    def __init__(self, cuda: bool, calls: int) -> None:
        self.cuda, self.calls = cuda, calls
        self.flush = torch.empty(GIB // 2, dtype=torch.uint8, device="cuda") if cuda else None

    def __call__(self, run: Callable[[], Any]) -> tuple[float, float]:
        for _ in range(3):
            run()
        times = sorted(self.on_gpu(run) if self.cuda else self.on_cpu(run))
        return statistics.median(times), times[int(0.9 * len(times))] - times[int(0.1 * len(times))]

    def on_gpu(self, run: Callable[[], Any]) -> list[float]:
        assert self.flush is not None
        events = []
        for _ in range(self.calls):
            self.flush.zero_()  # long enough for the host to be ahead of the GPU
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def on_cpu(self, run: Callable[[], Any]) -> list[float]:
        times = []
        for _ in range(self.calls):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        return times


def copy_rate(clock: Clock, size: int, device: str) -> float:
    """GB/s read and written."""
    a, b = (torch.empty(size, dtype=torch.uint8, device=device).fill_(1) for _ in range(2))
    return 2 * size / clock(lambda: b.copy_(a))[0] / 1e6


def measure(case: Case, clock: Clock, device: str, ceiling: float) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    operands = tuple(t.requires_grad_() for t in case.make(lambda *s: torch.randn(*s, device=device).to(case.dtype)))
    with torch.no_grad():
        reference = case.run["tigon"](*operands)
    upstream = torch.randn_like(reference) if reference.dim() else torch.ones_like(reference)  # loss.backward()
    same_size = copy_rate(clock, operands[0].numel() * case.dtype.itemsize, device)
    count = importlib.import_module(f"ops.{case.op}").bytes_moved

    rows = []
    for variant, run in case.run.items():

        def forward(run: Callable[..., Tensor] = run) -> Tensor:
            with torch.no_grad():
                return run(*operands)

        def both(run: Callable[..., Tensor] = run) -> tuple[Tensor, ...]:
            return torch.autograd.grad(run(*operands), operands, upstream)

        output = run(*operands)

        def backward(output: Tensor = output) -> tuple[Tensor, ...]:
            return torch.autograd.grad(output, operands, upstream, retain_graph=True)

        difference = float((output.detach().float() - reference.float()).abs().max())
        norm = float(sum(g.float().square().sum() for g in both()) ** 0.5)
        timed = {"forward": clock(forward), "backward": clock(backward), "both": clock(both)}
        del output
        for direction, (ms, spread) in timed.items():
            try:
                moved = count(case.shape, case.dtype, direction)
            except KeyError:  # a direction that is not counted by itself
                if direction == "backward":
                    continue
                moved = sum(count(case.shape, case.dtype, d) for d in ("forward", "backward"))
            rate = moved / ms / 1e6
            rows.append(
                {
                    "op": case.op,
                    "shape": case.shape,
                    "dtype": str(case.dtype).removeprefix("torch."),
                    "direction": direction,
                    "variant": variant,
                    "ms": ms,
                    "spread": spread,
                    "of_copy": rate / ceiling,
                    "of_same_size_copy": rate / same_size,
                    "difference": difference,
                    "gradient_norm": norm,
                }
            )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    variants = dict.fromkeys(row["variant"] for row in rows)
    for direction in dict.fromkeys(row["direction"] for row in rows):
        line = f"{rows[0]['op']:14} {rows[0]['dtype']:9} {'×'.join(map(str, rows[0]['shape'])):13} {direction:9}"
        for variant in variants:
            row = next(r for r in rows if r["variant"] == variant and r["direction"] == direction)
            line += f"  {variant} {row['ms']:8.3f} ms {row['of_copy']:.2f}"
        print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=OPS, help="only this operator (may be repeated)")
    parser.add_argument("--calls", type=int, default=25)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    if not cuda:
        from tigon.train.malloc import keep_freed_memory

        keep_freed_memory()
    clock = Clock(cuda, args.calls)
    ceiling = copy_rate(clock, 4 * GIB if cuda else GIB // 4, device)
    print(f"copy {ceiling:.0f} GB/s; ms and share of the copy's speed")
    rows = []
    for case in cases(cuda):
        if args.op and case.op not in args.op:
            continue
        found = measure(case, clock, device, ceiling)
        show(found)
        rows += found
    if args.json:
        result = {
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "versions": {"torch": torch.__version__, "tigon": tigon.__version__},
            "date": datetime.date.today().isoformat(),
            "ceilings": {"copy_gb_s": ceiling},
            "rows": rows,
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
