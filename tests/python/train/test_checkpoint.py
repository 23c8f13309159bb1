"""Half-written checkpoints are passed over by name or refused, never resumed from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tigon.train import checkpoint
from tigon.train.options import OptionError


def write(run: Path, step: int, *, world_size: int = 1) -> Path:
    folder = run / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    rng = ["rng_state.pth"] if world_size == 1 else [f"rng_state_{rank}.pth" for rank in range(world_size)]
    for name in ("optimizer.pt", "scheduler.pt", *rng):
        torch.save({}, folder / name)
    save_file({"w": torch.zeros(64)}, folder / "adapter_model.safetensors")
    return folder


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_the_newest_whole_one_is_found_by_number(tmp_path: Path) -> None:
    for step in (2, 9, 10):
        write(tmp_path, step)
    assert checkpoint.find(str(tmp_path), "unused") == (tmp_path / "checkpoint-10", [])


def test_what_was_skipped_is_named(tmp_path: Path) -> None:
    write(tmp_path, 5)
    (tmp_path / "checkpoint-7").mkdir()
    (tmp_path / "tmp-checkpoint-8" / "checkpoint-8").mkdir(parents=True)
    (write(tmp_path, 6) / "scheduler.pt").unlink()
    found, skipped = checkpoint.find(str(tmp_path), "unused")
    assert found == tmp_path / "checkpoint-5"
    text = "\n".join(skipped)
    assert "tmp-checkpoint-8: was never completed" in text
    assert "checkpoint-7: no trainer_state.json, no optimizer.pt" in text
    assert "checkpoint-6: no scheduler.pt" in text


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"])
@pytest.mark.parametrize("damage", ["absent", "halved"])
def test_a_named_checkpoint_must_be_whole(tmp_path: Path, name: str, damage: str) -> None:
    folder = write(tmp_path, 3)
    if damage == "absent":
        (folder / name).unlink()
    else:
        halve(folder / name)
    with pytest.raises(OptionError, match=f"{'no' if damage == 'absent' else 'broken'} {name}"):
        checkpoint.find(str(folder), "unused")


def test_weights_must_be_whole(tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    halve(folder / "adapter_model.safetensors")
    assert checkpoint.defects(folder) == ["broken adapter_model.safetensors"]
    (folder / "adapter_model.safetensors").unlink()
    assert checkpoint.defects(folder) == ["no weights"]
    save_file({"w": torch.zeros(2)}, folder / "a.safetensors")
    index = {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert checkpoint.defects(folder) == ["broken b.safetensors"]


def test_every_process_needs_its_random_state(tmp_path: Path) -> None:
    folder = write(tmp_path, 3, world_size=2)
    assert checkpoint.defects(folder, world_size=2) == []
    assert checkpoint.defects(folder, world_size=3) == ["no rng_state_2.pth"]
    assert checkpoint.defects(folder, world_size=1) == ["no rng_state.pth"]


def test_true_means_the_newest_run(tmp_path: Path) -> None:
    for version in (2, 10):
        write(tmp_path / f"v{version}-20260801-120000", version)
    found, _ = checkpoint.find("true", str(tmp_path))
    assert found.name == "checkpoint-10"
    with pytest.raises(OptionError, match="no run"):
        checkpoint.find("true", str(tmp_path / "absent"))


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").mkdir()
    with pytest.raises(OptionError, match=r"no complete checkpoint.*\n.*checkpoint-1: no trainer_state"):
        checkpoint.find(str(tmp_path), "unused")
    with pytest.raises(OptionError, match="no such folder"):
        checkpoint.find(str(tmp_path / "absent"), "unused")


def test_commit_replaces_what_is_left_of_an_older_one(tmp_path: Path) -> None:
    aside = write(tmp_path / "tmp", 4)
    stale = tmp_path / "checkpoint-4"
    stale.mkdir()
    (stale / "old").touch()
    checkpoint.commit(aside, stale)
    assert checkpoint.defects(stale) == []
    assert not (stale / "old").exists()


def test_rotation_keeps_the_newest(tmp_path: Path) -> None:
    for step in (2, 9, 10):
        write(tmp_path, step)
    checkpoint.rotate(tmp_path, None)
    assert len(checkpoint.checkpoints(tmp_path)) == 3
    checkpoint.rotate(tmp_path, 2)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["checkpoint-9", "checkpoint-10"]
