"""`tigon infer`: one answer or a chat, from a model, an adapter, or a checkpoint that knows its base model."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

import tiny_chat as tiny
from tigon.cli import infer
from tigon.cli.chat import Chat
from tigon.cli.main import main
from tigon.train import SftArguments, sft
from tigon.train.options import OptionError

COMMON = ["--use_cpu", "--fused", "false", "--max_new_tokens", "8"]


@pytest.fixture(scope="module")
def checkpoint(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that has learned to answer every prompt with "Hello"."""
    folder = tmp_path_factory.mktemp("trained")
    data = tiny.write_jsonl(folder / "d.jsonl", [{"query": word, "response": "Hello"} for word in ("Hi", "好")])
    result = sft(
        SftArguments(
            model=str(model_dir),
            dataset=[str(data)],
            output_dir=str(folder),
            system="Be brief.",
            fused="false",
            use_cpu=True,
            report_to=["none"],
            modules_to_save=["lm_head", "embed_tokens"],
            gradient_checkpointing=False,
            lora_dropout=0.0,
            learning_rate=3e-2,
            gradient_accumulation_steps=2,
            max_steps=20,
        )
    )
    assert result.checkpoint is not None
    return result.checkpoint


def test_the_adapter_finds_its_model_and_stops(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "--adapters", str(checkpoint), "--prompt", "Hi", *COMMON]) == 0
    assert capsys.readouterr().out == "Hello\n"


def test_prompt_from_a_pipe(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("好\n".encode()), encoding="ascii"))
    assert main(["infer", "--adapters", str(checkpoint), *COMMON]) == 0
    assert capsys.readouterr().out == "Hello\n"


def test_a_chat_keeps_and_forgets_the_conversation(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(infer.InferArguments(adapters=str(checkpoint), fused="false", use_cpu=True, max_new_tokens=4))
    typed = iter(["Hi", "", "Hi", "exit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert infer._converse(chat) == 0
    assert [message["role"] for message in chat.messages] == ["system", *["user", "assistant"] * 2]
    assert chat.messages[0]["content"] == "Be brief."
    typed = iter(["clear"])  # then the end of input
    monkeypatch.setattr("builtins.input", lambda _: next(typed, None) or (_ for _ in ()).throw(EOFError))
    assert infer._converse(chat) == 0
    assert [message["role"] for message in chat.messages] == ["system"]


def test_greedy_equals_generate(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = infer.InferArguments(model=str(model_dir), fused="false", use_cpu=True, max_new_tokens=6)
    chat = Chat(arguments)
    said = chat.answer("Hi")
    tokenizer, model = tiny.make_tokenizer(), chat.model
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    ids = torch.tensor([tokenizer.encode(text)])
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
    assert said == tokenizer.decode(expected[0, ids.shape[1] :], skip_special_tokens=True)


def test_sampling_follows_the_seed(model_dir: Path) -> None:
    def sample(seed: int) -> str:
        return Chat(
            infer.InferArguments(
                model=str(model_dir), fused="false", use_cpu=True, max_new_tokens=8, temperature=1.0, seed=seed
            )
        ).answer("Hi")

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--model MODEL, --adapters"):
        infer.main([])
    with pytest.raises(OptionError, match=r"no adapter_config\.json"):
        infer.main(["--adapters", str(tmp_path), "--prompt", "x"])
    with pytest.raises(OptionError, match="no such folder"):
        infer.main(["--adapters", str(tmp_path / "none"), "--prompt", "x"])
    with pytest.raises(OptionError, match="--top_p must be at least 0 and at most 1, got 5"):
        infer.main(["--model", str(tmp_path), "--top_p", "5"])
    (tmp_path / "config.json").touch()
    with pytest.raises(OptionError, match="a whole model; say --model"):
        infer.main(["--adapters", str(tmp_path), "--prompt", "x"])
    (tmp_path / "checkpoint-20").mkdir()
    with pytest.raises(OptionError, match=r"this is a run; .*checkpoint-20"):
        infer.main(["--adapters", str(tmp_path), "--prompt", "x"])
    with pytest.raises(OptionError, match="Did you mean --prompt"):
        infer.main(["--pormpt", "x"])
