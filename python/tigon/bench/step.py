"""Whole training steps of a random model, unpatched and patched, each variant in a process of its own.

`python -m tigon.bench.step SETTINGS` runs one variant and prints its row as JSON.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

MODELS: dict[str, dict[str, Any]] = {
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
    "tiny": {
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    },
}
_SETTLED = 3  # steps that do not count, where there are more


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all variants of a run share, and the one that this process runs."""

    model: str
    tuner_type: str
    lora_rank: int
    target_modules: list[str]
    batch: int
    length: int
    steps: int
    torch_dtype: str
    gradient_checkpointing: bool
    use_cpu: bool
    variant: str = "tigon"

    @property
    def tuner(self) -> str:
        words = [self.tuner_type]
        if self.tuner_type == "lora":
            words += [f"r={self.lora_rank}", ",".join(self.target_modules)]
        return " ".join(words + ["checkpointing"] * self.gradient_checkpointing)


def run(settings: Settings) -> dict[str, Any]:
    """The row of one variant, in a process of its own. RuntimeError says what it printed last."""
    command = [sys.executable, "-m", "tigon.bench.step", json.dumps(dataclasses.asdict(settings))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(lines[-1] if lines else f"exit code {done.returncode}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def measure(settings: Settings) -> dict[str, Any]:
    """Runs one variant here: the same weights, tokens and seed for all. Memory is the allocator's peak on a GPU, the
    largest resident size of the process on a CPU."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    device = torch.device("cuda" if torch.cuda.is_available() and not settings.use_cpu else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    if device.type == "cpu":
        from tigon.train.malloc import keep_freed_memory

        keep_freed_memory()  # for every variant, as `tigon sft` has it
    model = _model(settings, device)
    patched = _patch(settings.variant, model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=device.type == "cuda")
    generator = torch.Generator().manual_seed(1)
    vocabulary = MODELS[settings.model]["vocab_size"]
    losses, norms, times = [], [], []
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(backends, set_priority=True):
        for _ in range(settings.steps):
            tokens = torch.randint(vocabulary, (settings.batch, settings.length), generator=generator).to(device)
            if device.type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(float(loss))
            times.append(time.perf_counter() - start)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else resident
    seconds = statistics.median(times[min(_SETTLED, len(times) - 1) :])
    return {
        "model": settings.model,
        "batch": settings.batch,
        "length": settings.length,
        "tuner": settings.tuner,
        "dtype": settings.torch_dtype,
        "variant": settings.variant,
        "tok_s": settings.batch * settings.length / seconds,
        "step_ms": seconds * 1e3,
        "peak_gib": peak / 2**30,
        "loss": losses,
        "grad_norm": norms,
        "patched": patched,
    }


def _model(settings: Settings, device: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, settings.torch_dtype))
    with torch.device(device):
        config = LlamaConfig(**MODELS[settings.model], max_position_embeddings=max(8192, settings.length))
        model: Any = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    if settings.tuner_type == "lora":
        from peft import LoraConfig, get_peft_model

        chosen = settings.target_modules
        targets: Any = chosen[0] if chosen == ["all-linear"] else chosen
        lora = LoraConfig(r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules=targets)
        model = get_peft_model(model, lora)
    model.train()
    model.config.use_cache = False
    if settings.gradient_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def _patch(variant: str, model: Any) -> str | None:
    if variant == "tigon":
        import tigon

        return str(tigon.patch(model))
    if variant == "liger":
        liger = importlib.import_module("liger_kernel.transformers")
        bare = model.base_model.model if hasattr(model, "peft_config") else model
        liger._apply_liger_kernel_to_instance(model=bare)
    return None


def table(rows: list[dict[str, Any]]) -> str:
    """One line per variant: speed, memory, and how far its losses are from the first one's."""
    lines = [
        f"{'variant':8}  {'tokens/s':>9}  {'ms':>8}  {'GiB':>6}  {'last loss':>9}  {'apart':>7}  {'|gradient|':>10}"
    ]
    for row in rows:
        apart = max(abs(a - b) for a, b in zip(row["loss"], rows[0]["loss"], strict=True))
        lines.append(
            f"{row['variant']:8}  {row['tok_s']:9,.0f}  {row['step_ms']:8.1f}  {row['peak_gib']:6.1f}"
            f"  {row['loss'][-1]:9.5f}  {apart:7.1e}  {row['grad_norm'][0]:10.5f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(measure(Settings(**json.loads(sys.argv[1])))))
