"""Workload: what a synthetic agent trace is drawn from, and three of them by name.

Sizes and times are log-normal, given by their mean and the standard deviation of their logarithm
(`sigma`; 0 means always the mean). Every prompt is: the shared prompt, the task's instruction, then
outputs and observations in turn. It only grows, except where history is edited or the window is full.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

COUNTS = (
    "n_tasks",
    "n_calls",
    "instruction_tokens",
    "observation_tokens",
    "output_tokens",
    "summary_tokens",
    "sub_agents_at_once",
    "sub_agent_calls",
)
SHARES = ("edit_probability", "compact_share", "kept_share", "sub_agent_probability")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Parameters of a family of traces.

    Attributes
    ----------
    n_tasks, n_calls : int
        Tasks, and model calls of all root sessions together: exact, at least one a task. Calls of
        sub-agents come on top.
    calls_sigma : float
        Spread of the calls per task.
    shared_prompt_tokens : int
        System prompt and tool descriptions, the same in every task (tokens).
    instruction_tokens, instruction_sigma : int, float
        What a task, or a sub-agent, begins with (tokens).
    observation_tokens, observation_sigma : int, float
        What a tool or a user adds before each later call (tokens).
    output_tokens, output_sigma : int, float
        What the model adds at each call (tokens); it stays in the context.
    window_tokens : int
        Longest prompt (tokens): beyond it history is compacted. No drawn piece is longer than a
        quarter of what the longer shared prompt leaves of it.
    edit_probability : float
        Chance per call that history is edited before the prompt is sent.
    compact_share : float
        Share of these edits that compact: older pieces after the instruction give way to a summary.
        The others rewrite one earlier piece, in place, into one that is not longer.
    kept_share : float
        Share of the prompt's tokens a compaction leaves: shared prompt, instruction, summary, and as
        many of the newest pieces as fit, at least the last.
    summary_tokens : int
        Length of a compaction's summary (tokens).
    sub_agent_probability : float
        Chance per root call that sub-agents work before the next one.
    sub_agents_at_once : int
        How many start together; the root goes on when all have ended.
    sub_agent_calls : int
        Mean calls of a sub-agent (geometric).
    sub_agent_prompt_tokens : int
        Sub-agents' own shared prompt (tokens); 0 means they start from the tasks' one.
    gap_s, gap_sigma : float
        End of a response to the session's next sending: tools, agent, or a user (seconds).
    tail_gap_s : float
        Mean time a task's slot is held after its last response (seconds), spread as the gaps.
    first_token_s, decode_s : float
        Recorded service time: seconds to the first token, and per output token.
    arrivals_per_s : float or None
        Tasks that arrive per second (Poisson); None for a trace without clock, to be read with a pool.
    """

    n_tasks: int
    n_calls: int
    calls_sigma: float = 0.0
    shared_prompt_tokens: int = 0
    instruction_tokens: int
    instruction_sigma: float = 0.0
    observation_tokens: int
    observation_sigma: float = 0.0
    output_tokens: int
    output_sigma: float = 0.0
    window_tokens: int = 131_072
    edit_probability: float = 0.0
    compact_share: float = 0.5
    kept_share: float = 0.5
    summary_tokens: int = 1_000
    sub_agent_probability: float = 0.0
    sub_agents_at_once: int = 1
    sub_agent_calls: int = 8
    sub_agent_prompt_tokens: int = 0
    gap_s: float
    gap_sigma: float = 0.0
    tail_gap_s: float = 0.0
    first_token_s: float = 0.5
    decode_s: float = 0.02
    arrivals_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no trace can have.

        Raises
        ------
        ValueError
            Names the parameter, its value and what is accepted.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name in COUNTS:
                _refuse(not 1 <= value < math.inf, field.name, value, "1 or more")
            elif field.name in SHARES:
                _refuse(not 0 <= value <= 1, field.name, value, "0 to 1")
            elif field.name == "arrivals_per_s":
                _refuse(not 0 < value < math.inf, field.name, value, "a rate above 0, or None")
            else:
                _refuse(not 0 <= value < math.inf, field.name, value, "0 or more")
        _refuse(self.n_calls < self.n_tasks, "n_calls", self.n_calls, f"at least one per task ({self.n_tasks})")
        room = self.window_tokens - 4
        for name in ("shared_prompt_tokens", "sub_agent_prompt_tokens"):
            value = getattr(self, name)
            _refuse(value > room, name, value, f"at most window_tokens - 4 ({room})")

    @property
    def longest_piece_tokens(self) -> int:
        """Length every drawn piece is cut to, so that a compacted prompt always fits the window."""
        return (self.window_tokens - max(self.shared_prompt_tokens, self.sub_agent_prompt_tokens)) // 4


def _refuse(bad: bool, name: str, value: float, accepted: str) -> None:
    if bad:
        raise ValueError(f"{name} is {value}; {accepted} is accepted")


# Tuned to the published totals of a coding-agent replay; data/synthetic/README.md compares them.
# Recorded service times are those of a busy server: most of the time to the first token is queueing.
CODING = Workload(
    n_tasks=60,
    n_calls=4_427,
    calls_sigma=0.45,
    shared_prompt_tokens=6_000,
    instruction_tokens=5_500,
    instruction_sigma=0.4,
    observation_tokens=300,
    observation_sigma=1.2,
    output_tokens=200,
    output_sigma=0.7,
    gap_s=8.0,
    gap_sigma=0.7,
    tail_gap_s=10.0,
    first_token_s=9.0,
    decode_s=0.03,
)

# Many short conversations behind one long system prompt, on a clock: tasks arrive, none waits for a slot.
CHAT = Workload(
    n_tasks=300,
    n_calls=1_800,
    calls_sigma=0.7,
    shared_prompt_tokens=6_000,
    instruction_tokens=120,
    instruction_sigma=1.0,
    observation_tokens=90,
    observation_sigma=1.0,
    output_tokens=350,
    output_sigma=0.6,
    window_tokens=32_768,
    gap_s=45.0,
    gap_sigma=1.0,
    first_token_s=0.3,
    decode_s=0.02,
    arrivals_per_s=0.2,
)

# History is edited at every seventh call or so, and pairs of sub-agents work in between.
REWRITING = Workload(
    n_tasks=40,
    n_calls=2_000,
    calls_sigma=0.4,
    shared_prompt_tokens=6_000,
    instruction_tokens=2_000,
    instruction_sigma=0.6,
    observation_tokens=900,
    observation_sigma=1.2,
    output_tokens=250,
    output_sigma=0.7,
    window_tokens=65_536,
    edit_probability=0.15,
    compact_share=0.2,
    sub_agent_probability=0.03,
    sub_agents_at_once=2,
    sub_agent_calls=6,
    sub_agent_prompt_tokens=2_500,
    gap_s=8.0,
    gap_sigma=1.2,
    tail_gap_s=15.0,
    first_token_s=1.0,
    decode_s=0.02,
)

PRESETS: Mapping[str, Workload] = MappingProxyType({"coding": CODING, "chat": CHAT, "rewriting": REWRITING})
