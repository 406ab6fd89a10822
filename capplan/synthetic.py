"""Seeded agent traces: tasks whose contexts grow, are edited, and hand work to sub-agents.

No token is ever made. A context is a sequence of segments, each a stretch of text that nothing else
repeats, so two paths share exactly their equal leading segments. Links follow from that, as
docs/model.md section 1 defines them. Tasks stand one after the other, calls of a task by start time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capplan.prompts import Labels, Requests
from capplan.trace import Trace
from capplan.workloads import Workload

Int64s = NDArray[np.int64]

RESOLUTION_TOKENS = 16
MS = 1_000


class Call(NamedTuple):
    """One model call: how its path differs from the previous path of its session, and when it was sent.

    The path is the first `n_kept` segments of that previous path, then `added`, the last of which is
    the output. Times are whole milliseconds; `gap_ms` is -1 on a session's first call.
    """

    session: str
    n_kept: int
    added: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    start_ms: int
    gap_ms: int
    service_ms: int


@dataclass(slots=True)
class Story:
    """What was drawn: calls task by task, and the length of every segment in tokens."""

    tasks: list[list[Call]] = field(default_factory=list)
    tail_gap_ms: list[int] = field(default_factory=list)
    arrival_ms: Int64s | None = None
    segments: list[int] = field(default_factory=list)

    def add_segment(self, n_tokens: int) -> int:
        """Number of a new segment."""
        self.segments.append(n_tokens)
        return len(self.segments) - 1


def generate(workload: Workload, seed: int = 0) -> Trace:
    """Draw a trace; the same workload and seed give the same trace.

    Parameters
    ----------
    workload : Workload
    seed : int
        0 or more.

    Returns
    -------
    Trace
        Checked, at a resolution of 16 tokens, with known outputs; `arrival_s` only where the
        workload has arrivals.

    Raises
    ------
    ValueError
        A negative seed.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}; 0 or more is accepted")
    story = draw_story(workload, seed)
    parent, shared_tokens = link_story(story)
    trace = Trace(
        requests=tabulate(story),
        parent=parent,
        shared_tokens=shared_tokens,
        resolution_tokens=RESOLUTION_TOKENS,
        outputs_known=True,
        source=f"synthetic, seed {seed}",
    )
    trace.check(trace.source)
    return trace


def draw_story(workload: Workload, seed: int) -> Story:
    """Draw all calls; every task has a random stream of its own."""
    first, *streams = np.random.SeedSequence(seed).spawn(workload.n_tasks + 1)
    rng = np.random.default_rng(first)
    story = Story()
    prompts = [
        [story.add_segment(n_tokens)] if n_tokens else []
        for n_tokens in (workload.shared_prompt_tokens, workload.sub_agent_prompt_tokens)
    ]
    if not workload.sub_agent_prompt_tokens:
        prompts[1] = prompts[0]
    n_calls = split_calls(workload, rng)
    if workload.arrivals_per_s is not None:
        waits = rng.exponential(1 / workload.arrivals_per_s, workload.n_tasks)
        story.arrival_ms = np.rint(MS * (np.cumsum(waits) - waits[0])).astype(np.int64)
    for number, stream in enumerate(streams):
        agent = Agent(workload, np.random.default_rng(stream), story, f"task-{number}", prompts)
        calls = agent.work(agent.name, prompts[0], n_calls[number], 0, is_root=True)
        story.tasks.append(sorted(calls, key=lambda call: call.start_ms))
        tail = draw_lognormal(agent.rng, workload.tail_gap_s, workload.gap_sigma, 1)
        story.tail_gap_ms.append(int(np.rint(MS * tail[0])))
    return story


def split_calls(workload: Workload, rng: np.random.Generator) -> list[int]:
    """Calls of each task: one, and the rest by log-normal weights, to the exact total."""
    rest = workload.n_calls - workload.n_tasks
    weights = draw_lognormal(rng, 1.0, workload.calls_sigma, workload.n_tasks)
    bounds = np.rint(rest * np.cumsum(weights) / weights.sum()).astype(np.int64)
    return (1 + np.diff(bounds, prepend=0)).tolist()  # type: ignore[no-any-return]  # int64 array to list[int]


def draw_lognormal(rng: np.random.Generator, mean: float, sigma: float, n: int) -> NDArray[np.float64]:
    """`n` draws with that mean, whose logarithm has standard deviation `sigma`."""
    return mean * np.exp(sigma * rng.standard_normal(n) - sigma * sigma / 2)


@dataclass(slots=True)
class Agent:
    """Works through one task: draws the calls of its root session and of its sub-agents."""

    workload: Workload
    rng: np.random.Generator
    story: Story
    name: str
    prompts: list[list[int]]
    n_sub_agents: int = 0

    def work(self, session: str, prompt: Sequence[int], n_calls: int, begin_ms: int, is_root: bool) -> list[Call]:
        """Calls of one session that is first sent at `begin_ms`, its sub-agents' behind the call that starts them."""
        w, rng, segments = self.workload, self.rng, self.story.segments
        observations = self.draw_sizes("observation", n_calls)
        outputs = self.draw_sizes("output", n_calls)
        gaps = np.rint(MS * draw_lognormal(rng, w.gap_s, w.gap_sigma, n_calls)).astype(np.int64).tolist()
        is_edited = (rng.random(n_calls) < w.edit_probability).tolist()
        spawns = (rng.random(n_calls) < (w.sub_agent_probability if is_root else 0.0)).tolist()
        path = [*prompt, self.story.add_segment(self.draw_sizes("instruction", 1)[0])]
        n_head, n_tokens, n_kept = len(path), sum(segments[piece] for piece in path), 0
        calls: list[Call] = []
        start, gap = begin_ms, -1
        for k in range(n_calls):
            if k:
                path.append(self.story.add_segment(observations[k]))
                n_tokens += observations[k]
                n_kept = len(path) - 1
                if n_tokens > w.window_tokens or is_edited[k]:
                    n_kept = self.edit(path, n_head, n_tokens)
                    n_tokens = sum(segments[piece] for piece in path)
            path.append(self.story.add_segment(outputs[k]))
            service = round(MS * (w.first_token_s + w.decode_s * outputs[k]))
            calls.append(Call(session, n_kept, tuple(path[n_kept:]), n_tokens, outputs[k], start, gap, service))
            n_tokens += outputs[k]
            end = free = start + service
            if spawns[k] and k < n_calls - 1:
                free = self.delegate(calls, end)
            gap = free + gaps[k] - end
            start = end + gap
        return calls

    def draw_sizes(self, name: str, n: int) -> list[int]:
        """Lengths of `n` pieces (tokens), at least 1 and at most `longest_piece_tokens`."""
        w = self.workload
        drawn = draw_lognormal(self.rng, getattr(w, f"{name}_tokens"), getattr(w, f"{name}_sigma"), n)
        return np.clip(np.rint(drawn), 1, w.longest_piece_tokens).astype(np.int64).tolist()  # type: ignore[no-any-return]

    def edit(self, path: list[int], n_head: int, n_tokens: int) -> int:
        """Edit the history between the instruction and the newest piece; the first segment that differs."""
        if n_tokens > self.workload.window_tokens or self.rng.random() < self.workload.compact_share:
            return self.compact(path, n_head, n_tokens)
        place = int(self.rng.integers(n_head, len(path) - 1))
        shorter = int(self.rng.integers(1, self.story.segments[path[place]] + 1))
        path[place] = self.story.add_segment(shorter)
        return place

    def compact(self, path: list[int], n_head: int, n_tokens: int) -> int:
        """Put a summary for the older pieces after the instruction; the first segment that differs."""
        segments, w = self.story.segments, self.workload
        summary = min(w.summary_tokens, w.longest_piece_tokens)
        room = w.kept_share * min(n_tokens, w.window_tokens) - summary - sum(segments[piece] for piece in path[:n_head])
        first = len(path) - 1
        room -= segments[path[first]]
        while first - 1 > n_head and segments[path[first - 1]] <= room:
            first -= 1
            room -= segments[path[first]]
        path[n_head:first] = [self.story.add_segment(summary)]
        return n_head

    def delegate(self, calls: list[Call], begin_ms: int) -> int:
        """Add the calls of sub-agents that start together; when the last one ends."""
        w = self.workload
        end = begin_ms
        for _ in range(w.sub_agents_at_once):
            self.n_sub_agents += 1
            n_calls = int(self.rng.geometric(1 / w.sub_agent_calls))
            made = self.work(f"{self.name}/sub-{self.n_sub_agents}", self.prompts[1], n_calls, begin_ms, is_root=False)
            calls += made
            end = max(end, made[-1].start_ms + made[-1].service_ms)
        return end


def link_story(story: Story) -> tuple[Int64s, Int64s]:
    """Parent row and shared tokens of every call, from equal leading segments."""
    calls = [call for task in story.tasks for call in task]
    parent, shared = np.full(len(calls), -1, np.int64), np.zeros(len(calls), np.int64)
    child: dict[tuple[int, int], int] = {}
    begins, ends, first_rows = [0], [0], [-1]
    branches: dict[str, list[int]] = {}
    for row, call in enumerate(calls):
        nodes = branches.setdefault(call.session, [])
        del nodes[call.n_kept :]
        n_known = call.n_kept
        for segment in call.added:
            above = nodes[-1] if nodes else 0
            node = child.get((above, segment))
            if node is None:
                node = child[above, segment] = len(ends)
                begins.append(ends[above])
                ends.append(ends[above] + story.segments[segment])
                first_rows.append(row)
            elif n_known == len(nodes):
                n_known += 1
            nodes.append(node)
        depth = ends[nodes[n_known - 1]] // RESOLUTION_TOKENS * RESOLUTION_TOKENS if n_known else 0
        if depth:
            while begins[nodes[n_known - 1]] >= depth:
                n_known -= 1
            parent[row], shared[row] = first_rows[nodes[n_known - 1]], depth
    return parent, shared


def tabulate(story: Story) -> Requests:
    """The request columns, in seconds."""
    calls = [call for task in story.tasks for call in task]
    n_calls = np.array([len(task) for task in story.tasks])
    task = np.repeat(np.arange(n_calls.size), n_calls)
    start, gap, service = (
        np.array([getattr(call, name) for call in calls], np.float64) for name in ("start_ms", "gap_ms", "service_ms")
    )
    tail = np.full(len(calls), np.nan)
    tail[np.cumsum(n_calls) - 1] = story.tail_gap_ms
    counts: dict[str, int] = {}
    request_ids = []
    for call in calls:
        counts[call.session] = counts.get(call.session, -1) + 1
        request_ids.append(f"{call.session}:{counts[call.session]}")
    return Requests.of(
        np.array([call.input_tokens for call in calls], np.int64),
        output_tokens=np.array([call.output_tokens for call in calls], np.int64),
        request_ids=request_ids,
        session=Labels.encode(call.session for call in calls),
        task=Labels(task, tuple(f"task-{number}" for number in range(n_calls.size))),
        arrival_s=None if story.arrival_ms is None else (story.arrival_ms[task] + start) / MS,
        start_s=start / MS,
        gap_s=np.where(gap < 0, np.nan, gap / MS),
        service_s=service / MS,
        tail_gap_s=tail / MS,
    )
