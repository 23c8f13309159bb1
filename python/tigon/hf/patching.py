"""The one patcher: walks a model (or a family's classes), asks the tables, installs and undoes forwards."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from torch import nn

from tigon.hf.families import FAMILIES, family_of, row_of
from tigon.hf.family import Family, Part
from tigon.hf.report import PARTS, PatchReport, Row, Tally, Unsupported
from tigon.hf.slot import Forward, Origin, Slot, find, install, mark, origin, own_slot, restore

Choice = bool | Literal["auto"]
_log = logging.getLogger("tigon")


@dataclass(frozen=True)
class Site:
    """A forward that a table knows: where it is held, or why it stays."""

    row: Part
    class_name: str
    slot: Slot | None
    module: nn.Module | None  # None: the class itself
    original: Forward
    installed: Origin | None = None
    reason: str | None = None


def patch(
    target: nn.Module | type[nn.Module] | str,
    *,
    rms_norm: Choice = "auto",
    rope: Choice = "auto",
    mlp: Choice = "auto",
    loss: Choice = "auto",
) -> PatchReport:
    """Make `target` call Tigon's operators, and say what was patched, what was not, and why.

    `target` is a model (however wrapped: only this instance changes), or a class such as
    `LlamaForCausalLM` or a family's name such as `"llama"` (every model of that family, also those
    made later). Each part is `"auto"` (fused where it can be, PyTorch where it cannot), `True` (asked
    for by name: raises `Unsupported` where it cannot be) or `False` (left as it is). Patching twice
    changes nothing.
    """
    choices = dict(zip(PARTS, (rms_norm, rope, mlp, loss), strict=True))
    for part, choice in choices.items():
        if choice not in (True, False, "auto"):
            raise ValueError(f"{part} must be 'auto', True or False, got {choice!r}")
    known = list(_sites(target))
    sites = [site for site in known if choices[site.row.part] is not False]
    for part, choice in choices.items():
        if choice is True:
            _check_by_name(part, [site for site in sites if site.row.part == part], target)

    report = next((site.installed.report for site in sites if site.installed), None) or PatchReport()
    built: dict[tuple[Part, Forward, bool], Forward] = {}
    for site in sites:
        if site.reason is None and site.installed is None:
            _install(site, built, report, by_name=choices[site.row.part] is True)
    _describe(report, sites)
    if not known:
        _log.warning("tigon: nothing patched: %s has no module of a known family", _title(target))
    return report


def unpatch(target: nn.Module | type[nn.Module] | str) -> None:
    """Put back exactly what `patch(target)` found."""
    for site in _sites(target):
        if site.installed is None or site.slot is None:
            continue
        if site.module is not None:
            restore(site.slot, site.module)
        elif site.installed.inherited:
            site.slot.clear()
        else:
            site.slot.put(site.installed.original)


def _sites(target: nn.Module | type[nn.Module] | str) -> Iterator[Site]:
    if isinstance(target, nn.Module):
        # `modules()` walks through PeftModel, DDP, DataParallel, FSDP and compiled wrappers alike.
        for module in target.modules():
            found = row_of(type(module))
            if found is not None:
                yield _instance_site(module, *found)
        return
    family = family_of(target)
    if family is None:
        known = ", ".join(FAMILIES)
        raise Unsupported(f"no table for {target!r}; families: {known}")
    yield from _class_sites(family)


def _instance_site(module: nn.Module, row: Part, family_class: Any) -> Site:
    cls = type(module)
    ours = find(module, lambda function: origin(function) is not None)
    inherited: Forward = cls.forward
    installed = origin(ours.get()) if ours else origin(inherited)
    if installed:  # for the whole class: nothing to do, and nothing to undo here
        return Site(row, cls.__name__, ours, module, installed.original, installed)
    if inherited is not family_class.forward:
        overrides = f"{cls.__name__} overrides {family_class.__name__}.forward"
        return Site(row, cls.__name__, None, module, inherited, reason=overrides)
    slot: Slot | None = own_slot(module)
    reason: str | None = row.unknown(inherited) or row.unfit(module)
    if "forward" in vars(module):
        slot = find(module, lambda function: function is inherited)
        if slot is None:
            reason = f"its forward was replaced by {_name(module.forward)}"
    return Site(row, family_class.__name__, slot, module, inherited, reason=reason)


def _class_sites(family: Family) -> Iterator[Site]:
    module = import_module(family.module)
    for row in family.parts:
        cls = getattr(module, row.class_name)
        installed = origin(cls.forward)
        original = installed.original if installed else cls.forward
        yield Site(row, row.class_name, Slot(cls, "forward"), None, original, installed, row.unknown(original))


def _install(site: Site, built: dict[tuple[Part, Forward, bool], Forward], report: PatchReport, by_name: bool) -> None:
    assert site.slot is not None
    inherited = site.slot.get() is None
    key = (site.row, site.original, inherited)
    if key not in built:  # one function serves every instance of its class
        built[key] = site.row.build(site.original, Tally(report, site.row.part, by_name))
        mark(built[key], site.original, inherited, report)
    if site.module is None:
        site.slot.put(built[key])
    else:
        install(site.slot, built[key], site.module)


def _check_by_name(part: str, sites: list[Site], target: object) -> None:
    for site in sites:
        if site.reason is not None:
            raise Unsupported(f"{part}=True, but {site.class_name}: {site.reason}")
    if not sites:
        raise Unsupported(f"{part}=True, but {_title(target)} has nothing to patch for it")


def _describe(report: PatchReport, sites: list[Site]) -> None:
    counts: dict[tuple[str, str, str | None], int | None] = {}
    for site in sites:
        key = (site.row.part, site.class_name, site.reason)
        counts[key] = None if site.module is None else (counts.get(key) or 0) + 1
    rows = [Row(part, name, count, reason) for (part, name, reason), count in counts.items()]
    for row in rows:
        if row not in report.rows and row.reason is not None:
            _log.warning("tigon: %s left alone: %s: %s", row.part, row.module_class, row.reason)
    said = {(row.part, row.module_class) for row in rows}
    report.rows = [row for row in report.rows if (row.part, row.module_class) not in said] + rows


def _title(target: object) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)


def _name(function: object) -> str:
    function = inspect.unwrap(function) if callable(function) else function
    return getattr(function, "__qualname__", type(function).__name__)
