"""One LoRA training step of a random model, unpatched against patched: losses, tokens/s, peak memory.

    python3 bench/lora_step.py --model llama3-8b --target q_proj,k_proj,v_proj,o_proj --batch 4 --length 2048
    python3 bench/lora_step.py --model smollm2-135m --batch 8 --length 1024 --json out.json
    python3 bench/lora_step.py --rank 8 --batch 4 --length 256 --torch_dtype float32   # on a CPU

Each variant runs in a process of its own, on the same weights and tokens (one seed). Memory is the allocator's peak on
a GPU, the process's largest resident size on a CPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "llama3-8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
    },
    "smollm2-135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
    },
}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Runs one variant in this process."""
    import torch
    from peft import LoraConfig, get_peft_model
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from transformers import LlamaConfig, LlamaForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    if device == "cpu":  # for every variant, as `tigon sft` has it
        from tigon.train.malloc import keep_freed_memory

        keep_freed_memory()
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, args.torch_dtype))
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(**SHAPES[args.model], max_position_embeddings=8192))
    torch.set_default_dtype(torch.float32)
    targets: Any = "all-linear" if args.target == "all-linear" else args.target.split(",")
    model = get_peft_model(model, LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules=targets))
    model.train()
    model.config.use_cache = False
    if args.checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    report = None
    if args.variant == "tigon":
        import tigon

        report = tigon.patch(model)
    elif args.variant == "liger":
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=model.base_model.model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=device == "cuda")
    generator = torch.Generator().manual_seed(1)
    batches = [
        torch.randint(SHAPES[args.model]["vocab_size"], (args.batch, args.length), generator=generator).to(device)
        for _ in range(args.steps)
    ]
    losses, norms, times = [], [], []
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(backends, set_priority=True):
        for ids in batches:
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            times.append(time.perf_counter() - start)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else resident
    seconds = statistics.median(times[min(3, len(times) - 1) :])
    return {
        "model": args.model,
        "batch": args.batch,
        "length": args.length,
        "tuner": f"lora r={args.rank} {args.target}" + (" checkpointing" if args.checkpointing else ""),
        "variant": args.variant,
        "tok_s": args.batch * args.length / seconds,
        "step_ms": seconds * 1e3,
        "dtype": args.torch_dtype,
        "peak_gib": peak / 2**30,
        "loss": losses,
        "grad_norm": norms,
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "versions": {"torch": torch.__version__},
        "patched": str(report) if report is not None else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--target", default="all-linear", help="all-linear, or names joined by commas")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--torch_dtype", choices=["float32", "bfloat16"], default="bfloat16", help="of the base")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--peers", default="eager,tigon", help="of eager, tigon, liger")
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.variant:
        print(json.dumps(measure(args)))
        return 0

    rows = []
    for variant in args.peers.split(","):
        command = [sys.executable, __file__, *sys.argv[1:], "--variant", variant]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{variant}: failed ({done.returncode})", file=sys.stderr)
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        row = rows[-1]
        drift = max(abs(a - b) for a, b in zip(row["loss"], rows[0]["loss"], strict=True))
        print(
            f"{row['model']} {row['tuner']} B={row['batch']} T={row['length']}  {variant:6}  {row['tok_s']:9.0f} tok/s"
            f"  {row['step_ms']:8.1f} ms  {row['peak_gib']:6.1f} GiB  last loss {row['loss'][-1]:.4f}"
            f"  largest difference of losses {drift:.1e}  first grad norm {row['grad_norm'][0]:.4f}"
        )
    if args.json:
        earlier = json.loads(args.json.read_text()) if args.json.exists() else []
        args.json.write_text(json.dumps(earlier + rows, indent=1) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
