"""Usage: python -m tigon.demo.answers MODEL [--adapter FOLDER] -- QUESTION...

Prints the greedy answers as a JSON list.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

MAX_NEW_TOKENS = 60


@torch.inference_mode()
def answer(model_folder: Path, adapter: Path | None, questions: list[str]) -> list[str]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    if adapter:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter)
    model.to(device).eval()
    answers = []
    for question in questions:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to(device)
        output = model.generate(**prompt, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        new = output[0, prompt["input_ids"].shape[1] :]
        cut = " ..." if len(new) == MAX_NEW_TOKENS else ""
        answers.append(tokenizer.decode(new, skip_special_tokens=True) + cut)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("questions", nargs="+")
    options = parser.parse_args()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    try:
        print(json.dumps(answer(options.model, options.adapter, options.questions)))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
