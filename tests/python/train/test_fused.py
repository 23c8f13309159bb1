"""`--fused` is either true to its word or says why not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

import tiny_chat as tiny
from tigon.train import OptionError, SftArguments, fused, sft


def patcher() -> Any:
    hf = pytest.importorskip("tigon.hf")
    if not pytest.importorskip("tigon.ops").has_kernels("cpu"):
        pytest.skip("the operators are not built")
    return hf


def arguments(model: Path, data: Path, out: Path, **values: Any) -> SftArguments:
    return SftArguments(
        model=str(model),
        dataset=[str(data)],
        output_dir=str(out),
        use_cpu=True,
        lora_dropout=0.0,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        logging_steps=1,
        max_steps=5,
        report_to=["none"],
        **values,
    )


@pytest.mark.parametrize("values", [{}, {"label_smoothing_factor": 0.1}, {"tuner_type": "full"}], ids=str)
def test_fused_training_has_the_losses_of_the_model_itself(
    model_dir: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any]
) -> None:
    patcher()
    traces, saved = [], []
    for mode in ("false", "auto"):
        result = sft(arguments(model_dir, data, tmp_path, fused=mode, val_dataset=[f"{data}#3"], **values))
        traces.append([entry.get("loss", entry.get("eval_loss", 0)) for entry in result.log_history])
        assert (result.fused_calls > 0) == (mode == "auto")
        (weights,) = result.checkpoint.glob("*model.safetensors")
        saved.append(load_file(weights))
    assert traces[1] == pytest.approx(traces[0], rel=1e-4)
    torch.testing.assert_close(saved[1], saved[0], rtol=1e-2, atol=1e-4)  # under the same names
    printed = capsys.readouterr().out
    assert "Fused calls: " in printed
    assert "logits were asked for" not in printed  # evaluation neither makes nor reads them
    assert ("Label smoothing" in printed and "bypassed" in printed) == ("label_smoothing_factor" in values)


def test_a_peft_model_is_patched(tokenizer: Any) -> None:
    patcher()
    model = get_peft_model(tiny.make_model(len(tokenizer)), LoraConfig(target_modules="all-linear"))
    report = fused.patch(model, "true")
    assert report.patched("rms_norm")
    assert report.patched("loss")


def test_patched_but_never_called_raises(tokenizer: Any) -> None:
    """Somebody's forward above ours: the report would otherwise look fine."""
    patcher()
    report = fused.patch(tiny.make_model(len(tokenizer)), "true")
    with pytest.raises(OptionError, match="0 fused calls"):
        fused.summarise(report, "true")
    assert fused.summarise(report, "auto") == 0


def test_nothing_patched_raises_when_asked_for() -> None:
    patcher()
    with pytest.raises(OptionError, match="--fused true"):
        fused.patch(torch.nn.Sequential(torch.nn.Linear(2, 2)), "true")


class Report:
    def __init__(self) -> None:
        self.calls = Counter(rms_norm=4, loss=2)
        self.compiled: Counter[str] = Counter()
        self.fallbacks = {"rope": Counter({"float64": 3})}

    def require(self) -> None: ...


def test_calls_and_fallbacks_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert fused.summarise(Report(), "auto") == 6
    printed = capsys.readouterr().out
    assert "Fused calls: 6 (loss 2, rms_norm 4)" in printed
    assert "rope: 3 calls ran in PyTorch: float64" in printed
