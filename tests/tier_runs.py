"""Small traces run through the simulator, for tests of tiers."""

from dataclasses import replace

import numpy as np
from builders import in_order, link_tokens

from capplan.order import Order
from capplan.prompts import Labels
from capplan.simulation.presets import load_preset
from capplan.simulation.settings import TierSettings
from capplan.simulation.simulator import simulate_tier
from capplan.simulation.tier_input import prepare_tier
from capplan.tiers import GpuService
from capplan.tree import build_tree


def touched(prompt, output):
    """Tokens whose KV exists when a request ends."""
    return (prompt + output)[: len(prompt) + max(len(output) - 1, 0)]


def set_tier(name, unit=1, **changes):
    """Settings of a preset with small units and no alignment."""
    settings = TierSettings.of(load_preset(name))
    preset = replace_struct(settings.preset, align_bytes=1)
    return replace(settings, preset=preset, unit_tokens=unit, **changes)


def replace_struct(preset, **changes):
    """A preset with other fields."""
    import msgspec

    return msgspec.structs.replace(preset, **changes)


class Calls:
    """Calls with known outputs as a linked trace, ready for any tier."""

    def __init__(self, calls, gpu_tokens=None, times=None, resolution=1, tasks=None):
        self.calls = calls
        paths = [prompt + output for prompt, output in calls]
        self.trace = link_tokens(paths, resolution, [len(prompt) for prompt, _ in calls])
        if tasks is not None:
            labels = Labels.encode([None if task < 0 else str(task) for task in tasks])
            self.trace = replace(self.trace, requests=replace(self.trace.requests, task=labels))
        self.tree = build_tree(self.trace)
        rows = in_order(range(len(calls))).rows
        self.order = Order("recorded", rows, None if times is None else np.array(times, float), None)
        served = np.zeros(len(calls), np.int64) if gpu_tokens is None else np.array(gpu_tokens, np.int64)
        self.gpu = GpuService(1, 1, served, np.zeros(len(calls), np.int64))

    def tier(self, settings, kv_bytes=1):
        """A preset's input."""
        return prepare_tier(self.trace, self.tree, self.order, self.gpu, settings, kv_bytes)

    def run(self, settings, n_slots):
        """One capacity, in units."""
        tier = self.tier(settings)
        return simulate_tier(tier, n_slots * tier.stream.unit_tokens)

    def replay(self, oracle, declines=None):
        """An oracle's found units per request, in stream order."""
        found = []
        for c, (prompt, output) in enumerate(self.calls):
            ask = (lambda n, c=c: declines(c, n)) if declines else (lambda n: False)
            found.append(oracle.run(prompt, touched(prompt, output), int(self.gpu.tokens[c]), ask))
        return found
