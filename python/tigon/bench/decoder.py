"""One decoder layer, and decoding: models with random weights, unpatched and patched."""

from __future__ import annotations

import copy
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import tigon
from tigon.bench.cases import Case, Operands, Product
from tigon.bench.peers import Table
from tigon.bench.step import MODELS, facts

LAYER = "decoder_layer"


def model(name: str, dtype: torch.dtype, device: torch.device, **changes: Any) -> Any:
    """A Llama with random weights of one seed, nothing of it trained."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            made: Any = LlamaForCausalLM(LlamaConfig(**{**MODELS[name], **changes}, max_position_embeddings=8192))
    finally:
        torch.set_default_dtype(before)
    return made.requires_grad_(False).eval()


def patched(bare: Any, variant: str) -> Any:
    """A copy of the model as a variant has it."""
    mine = copy.deepcopy(bare)
    if variant == "tigon":
        tigon.patch(mine)
    elif variant == "liger":
        importlib.import_module("liger_kernel.transformers")._apply_liger_kernel_to_instance(model=mine)
    return mine


def layers(name: str, dtype: torch.dtype, device: torch.device, variants: list[str]) -> dict[str, Table]:
    """One frozen layer and the last norm: hidden states [B, T, H] in and out. Variants are patched at first call."""
    bare = model(name, dtype, device, num_hidden_layers=1, vocab_size=256)

    def function(variant: str) -> Callable[[Tensor], Tensor]:
        bodies: list[Any] = []

        def run(hidden: Tensor) -> Tensor:
            if not bodies:
                bodies.append(patched(bare, variant).model)
            output: Tensor = bodies[0](inputs_embeds=hidden, use_cache=False).last_hidden_state
            return output

        return run

    return {variant: {LAYER: function(variant)} for variant in _ordered(variants)}


def _ordered(variants: list[str]) -> list[str]:
    """Liger last: it changes transformers' functions for all that runs after it."""
    return ["tigon", *sorted(variants, key=lambda variant: variant == "liger")]


def layer_case(name: str, batch: int, length: int, dtype: torch.dtype) -> Case:
    """Its ceiling: the plain products of all its linear layers, and with gradients those of their inputs."""
    sizes = MODELS[name]
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    kv = hidden // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    rows = batch * length

    def make(device: torch.device) -> Operands:
        return (torch.randn(batch, length, hidden, device=device).to(dtype),)

    def products(direction: str) -> list[Product]:
        outputs = [(hidden, hidden), (hidden, kv), (hidden, kv), (hidden, hidden)]
        outputs += [(hidden, inner), (hidden, inner), (inner, hidden)]
        forward = [(rows, k, n) for k, n in outputs]
        return forward if direction == "forward" else [*forward, *((rows, n, k) for k, n in outputs)]

    return Case(LAYER, LAYER, (batch, length, hidden), dtype, make, (0,), products=products, note=name)


def decode(
    name: str,
    dtype: torch.dtype,
    device: torch.device,
    variants: list[str],
    *,
    batch: int,
    prompt: int,
    new_tokens: int,
    calls: int,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Rows of transformers' generate, greedy: new tokens per second, the prompt's time counted in. Peak memory is a
    GPU's alone: all variants share a process, whose size on a CPU says nothing of one of them."""
    bare = model(name, dtype, device)
    tokens = torch.randint(MODELS[name]["vocab_size"], (batch, prompt), device=device)
    for variant in _ordered(variants):
        try:
            mine = patched(bare, variant)
            times, output = [], tokens
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            for _ in range(calls + 1):
                start = time.perf_counter()
                output = mine.generate(
                    tokens,
                    attention_mask=torch.ones_like(tokens),
                    max_new_tokens=new_tokens,
                    min_new_tokens=new_tokens,
                    do_sample=False,
                    pad_token_id=0,
                )
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                times.append(time.perf_counter() - start)
        except Exception as error:  # the same
            if variant == "tigon":
                raise
            say(f"{variant}: {type(error).__name__}: {error}")
            continue
        seconds = statistics.median(times[1:])
        peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
        yield {
            "model": name,
            "batch": batch,
            "length": prompt + new_tokens,
            "dtype": str(dtype).removeprefix("torch."),
            "tuner": "none",
            "variant": variant,
            "tok_s": batch * new_tokens / seconds,
            "ms_per_token": seconds / new_tokens * 1e3,
            "peak_gib": peak,  # the model that the variants are copies of counted in
            "loss": None,
            "tokens": output[0, prompt:].tolist(),
            **facts(device, [variant], []),
        }
        del mine
