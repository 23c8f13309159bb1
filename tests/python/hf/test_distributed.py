"""Two gloo ranks on CPU: DDP with a rank that learns nothing, FSDP2, and DTensors."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh

import tigon
from hf.tiny import EAGER_LOSS, IDS, batch, gradients, tiny, twin

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch has no gloo")


def spawn(function: Any, ranks: int, folder: Path) -> list[Any]:
    """Run `function(rank)` in that many gloo ranks, forked from one server that has everything imported."""
    multiprocessing.set_forkserver_preload(["torch", "transformers.models.llama.modeling_llama", __name__])
    mp.start_processes(_rank, (ranks, function, str(folder)), nprocs=ranks, start_method="forkserver")
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def _rank(rank: int, ranks: int, function: Any, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
    torch.save(function(rank), f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _two_ranks(rank: int) -> dict[str, Any]:
    return {"ddp": _ddp(rank), "dtensor": _dtensor(rank)}


def _ddp(rank: int) -> dict[str, Any]:
    model = tiny()
    reference = twin(model)
    labels = IDS.clone() if rank else torch.full_like(IDS, -100)
    for each in (model, reference):
        parallel = torch.nn.parallel.DistributedDataParallel(each)
        if each is model:
            report = tigon.patch(parallel, loss=True)
        # Eager's own mean over no labels is NaN; a sum over the number of items is what Trainer asks for.
        parallel(input_ids=IDS, labels=labels, num_items_in_batch=torch.tensor(7)).loss.backward()
    assert report.calls["loss"] == 1
    return {"ours": gradients(model), "eager": gradients(reference)}


def _dtensor(rank: int) -> dict[str, Any]:
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    norm = tiny().model.norm
    torch.manual_seed(0)
    x = torch.randn(4, 32)
    expected = norm(x)
    norm.weight = torch.nn.Parameter(distribute_tensor(norm.weight.detach(), mesh, [Replicate()]))
    report = tigon.patch(norm)
    output = norm(distribute_tensor(x, mesh, [Shard(1)]))
    assert isinstance(output, DTensor)
    return {"ours": output.full_tensor(), "eager": expected.detach(), "why": dict(report.fallbacks["rms_norm"])}


def test_ddp_with_a_rank_that_learns_nothing_and_a_sharded_norm(tmp_path):
    for result in spawn(_two_ranks, 2, tmp_path):
        ddp = result["ddp"]
        for name, gradient in ddp["ours"].items():
            torch.testing.assert_close(gradient, ddp["eager"][name], rtol=1e-4, atol=1e-6, msg=name)
        assert sum(gradient.abs().sum() for gradient in ddp["ours"].values()) > 0
        torch.testing.assert_close(result["dtensor"]["ours"], result["dtensor"]["eager"])
        assert result["dtensor"]["why"] == {"tensor subclass DTensor": 1}


def _fsdp2(rank: int) -> list[Any]:
    from torch.distributed.fsdp import fully_shard

    results = []
    for patched_first in (True, False):
        for every_layer in (True, False):
            model, mesh = tiny(), init_device_mesh("cpu", (1,))
            if patched_first:
                report = tigon.patch(model, loss=True)
            for layer in model.model.layers if every_layer else ():
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            if not patched_first:
                report = tigon.patch(model, loss=True)
            loss = model(**batch()).loss
            loss.backward()
            results.append((type(model).__name__, loss.item(), dict(report.calls)))
    return results


def test_fsdp2_renames_the_classes_and_stays_fused(tmp_path):
    for results in spawn(_fsdp2, 1, tmp_path):
        assert len(results) == 4
        for name, loss, calls in results:
            assert name == "FSDPLlamaForCausalLM"
            assert loss == pytest.approx(EAGER_LOSS, abs=1e-4)
            assert calls == {"rms_norm": 7, "rope": 3, "mlp": 3, "loss": 1}
