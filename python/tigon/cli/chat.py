"""A conversation with a loaded model, printed while it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tigon.cli.infer import InferArguments, completed
from tigon.train import fused
from tigon.train.model import load_model, load_tokenizer, stop_ids


class Chat:
    """A conversation with a loaded model."""

    def __init__(self, args: InferArguments) -> None:
        args = completed(args)
        assert args.model is not None
        has_tokenizer = args.adapters is not None and (Path(args.adapters) / "tokenizer_config.json").is_file()
        self.tokenizer = load_tokenizer(args.adapters if args.adapters and has_tokenizer else args.model)
        model = load_model(args.model, dtype=args.torch_dtype, attn_impl=args.attn_impl)
        self._generation: dict[str, Any] = {
            "max_new_tokens": args.max_new_tokens,
            "do_sample": args.temperature > 0,
            "eos_token_id": sorted({self.tokenizer.eos_token_id, *stop_ids(model)}),
            "pad_token_id": self.tokenizer.pad_token_id,
        }
        if args.temperature > 0:
            self._generation |= {"temperature": args.temperature, "top_p": args.top_p}
        else:  # the model's own settings for sampling would only be warned about
            model.generation_config.update(temperature=None, top_p=None, top_k=None)
        if args.adapters is not None:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, args.adapters)
        self.device = torch.device("cuda" if torch.cuda.is_available() and not args.use_cpu else "cpu")
        self.model = model.to(self.device).eval()
        fused.patch(self.model, args.fused, quiet=True)
        torch.manual_seed(args.seed)
        self._opening = [{"role": "system", "content": args.system}] if args.system else []
        self.clear()

    def clear(self) -> None:
        self.messages = list(self._opening)

    def answer(self, text: str) -> str:
        """Print the answer while it is made; remember both sides."""
        from transformers import TextStreamer

        self.messages.append({"role": "user", "content": text})
        prompt = self.tokenizer.apply_chat_template(self.messages, tokenize=False, add_generation_prompt=True)
        inputs = self.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(self.device)
        inputs.pop("token_type_ids", None)
        streamer = TextStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
        with torch.inference_mode():
            output = self.model.generate(**inputs, streamer=streamer, **self._generation)
        said: str = self.tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        self.messages.append({"role": "assistant", "content": said})
        return said
