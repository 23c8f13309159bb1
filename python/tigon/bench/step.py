"""Whole training steps of a random model, unpatched and patched, each variant in a process of its own.

`python -m tigon.bench.step SETTINGS` runs one variant and prints its row as JSON; with a FOLDER behind it, saves the
random model there instead, for a variant that has a loader of its own.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from tigon.bench import names

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
_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
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
    folder: str = ""  # the saved model, for a variant that loads it

    @property
    def tuner(self) -> str:
        words = [self.tuner_type]
        if self.tuner_type == "lora":
            words += [f"r={self.lora_rank}", ",".join(self.target_modules)]
        return " ".join(words + ["checkpointing"] * self.gradient_checkpointing)


def run(settings: Settings) -> dict[str, Any]:
    """The row of one variant, in a process of its own. RuntimeError says what it printed last."""
    if settings.variant != "unsloth":
        return _row(_process(settings))
    if importlib.util.find_spec("unsloth") is None:
        raise RuntimeError("the package unsloth is not installed")
    with tempfile.TemporaryDirectory() as folder:
        _process(settings, folder)
        return _row(_process(dataclasses.replace(settings, folder=folder)))


def _row(printed: list[str]) -> dict[str, Any]:
    """The last line that looks like one; other libraries print too."""
    for line in reversed(printed):
        if line.startswith("{"):
            row: dict[str, Any] = json.loads(line)
            return row
    raise RuntimeError(f"it ended without a row; its last line: {printed[-1] if printed else 'none'}")


def _process(settings: Settings, *folder: str) -> list[str]:
    """The lines that a process of its own prints."""
    command = [sys.executable, "-m", "tigon.bench.step", json.dumps(dataclasses.asdict(settings)), *folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout.splitlines()


def measure(settings: Settings) -> dict[str, Any]:
    """Runs one variant here: the same weights, tokens and seed for all. Memory is the allocator's peak on a GPU, the
    largest resident size of the process on a CPU."""
    if settings.variant == "unsloth":
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", UNSLOTH_DISABLE_STATISTICS="1")
        importlib.import_module("unsloth")  # before transformers, which it changes
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    device = torch.device("cuda" if torch.cuda.is_available() and not settings.use_cpu else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    if device.type == "cpu":
        from tigon.train.malloc import keep_freed_memory

        keep_freed_memory()  # for every variant, as `tigon sft` has it
    model = _unsloth(settings) if settings.variant == "unsloth" else _model(settings, device)
    patched = _patch(settings.variant, model)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()  # a loader's own peak is no step's
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
            losses.append(float(loss.detach()))
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
        **facts(device, [settings.variant], ["peft"] if settings.tuner_type == "lora" else []),
    }


def facts(device: Any, variants: list[str], packages: list[str]) -> dict[str, Any]:
    """Device, versions and date: what every row of steps carries, since rows of several runs share a file."""
    import torch

    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "versions": names.versions(variants, ["transformers", *packages]),
        "date": datetime.date.today().isoformat(),
    }


def _bare(settings: Settings, device: Any) -> Any:
    """The model with random weights of one seed."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, settings.torch_dtype))
    with torch.device(device):
        config = LlamaConfig(**MODELS[settings.model], max_position_embeddings=max(8192, settings.length))
        model: Any = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model


def _model(settings: Settings, device: Any) -> Any:
    import torch

    model = _bare(settings, device)
    torch.manual_seed(1)  # of the adapters
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


def save(settings: Settings, folder: str) -> None:
    """The random model and a tokenizer with a word per token id, as a loader from a folder wants them."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    device = torch.device("cuda" if torch.cuda.is_available() and not settings.use_cpu else "cpu")
    model = _bare(settings, device)
    model.config.bos_token_id, model.config.eos_token_id, model.config.pad_token_id = 1, 2, 0
    model.save_pretrained(folder)
    words = {f"<{i}>": i for i in range(model.config.vocab_size)}
    special = {"pad_token": "<0>", "bos_token": "<1>", "eos_token": "<2>", "unk_token": "<3>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="<3>")), **special)
    tokenizer.save_pretrained(folder)


def _unsloth(settings: Settings) -> Any:
    """Unsloth's own loader and adapters, as fast as they get: no dropout, no bias, 16 bits, and its way to keep
    activations on the host where they are computed again."""
    import torch

    loader = importlib.import_module("unsloth").FastLanguageModel
    checkpointing = "unsloth" if settings.gradient_checkpointing else False
    model, _ = loader.from_pretrained(
        settings.folder,
        max_seq_length=settings.length,
        dtype=getattr(torch, settings.torch_dtype),
        load_in_4bit=False,
        full_finetuning=settings.tuner_type == "full",
        local_files_only=True,
    )
    if settings.tuner_type == "lora":
        chosen = settings.target_modules
        model = loader.get_peft_model(
            model,
            r=settings.lora_rank,
            lora_alpha=2 * settings.lora_rank,
            lora_dropout=0,
            bias="none",
            random_state=1,
            target_modules=_LINEAR if chosen == ["all-linear"] else chosen,
            use_gradient_checkpointing=checkpointing,
        )
    return loader.for_training(model, use_gradient_checkpointing=bool(checkpointing)) or model


def _patch(variant: str, model: Any) -> str | None:
    if variant == "tigon":
        import tigon

        return str(tigon.patch(model))
    if variant == "liger":
        liger = importlib.import_module("liger_kernel.transformers")
        bare = model.base_model.model if hasattr(model, "peft_config") else model
        liger._apply_liger_kernel_to_instance(model=bare)
    return None


if __name__ == "__main__":
    _settings = Settings(**json.loads(sys.argv[1]))
    if sys.argv[2:]:
        save(_settings, sys.argv[2])
    else:
        print(json.dumps(measure(_settings)))
