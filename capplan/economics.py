"""Restore or recompute: time of both, what bandwidth and what length they break even at (docs/model.md section 5).

What is modelled: prefill time per token as FLOPs over sustained FLOP/s at a stated mean attended position, a
restore as bytes over one effective link rate plus a fixed cost per loading request, the engine's fixed floor
under any time to first token.
What is not: prefill shares that depend on the size (`capplan.costs.prefill`), how the effective rate falls with the
size of the copied pieces and contention between ranks (`capplan.costs.restore`): the caller passes what holds.
Every function is plain arithmetic on SI units (bytes, seconds, FLOP/s); an endless break-even means never.
"""

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", float, npt.NDArray[np.float64])

# Derived from public measurements: a vLLM host restore on an H100 has an intercept near 8 ms
# (github.com/vllm-project/vllm-project.github.io, _posts/2026-01-08-kv-offloading-connector.md), one on an H20
# costs about 13 ms at 1k tokens and 43 ms at 64k above link time (gitea.gahow.org/gahow/agentic-kvc).
TAU_LOAD_S = 0.010
"""Fixed cost of one loading request, seconds."""
TAU_LOAD_LOW_S, TAU_LOAD_HIGH_S = 0.008, 0.013
"""The smallest and the largest seen at short restores, seconds."""
TAU_LOAD_PER_TOKEN_S = 0.5e-6
"""Scheduling cost of one restored token, seconds."""
TAU_FLOOR_S = 0.042
"""Least time to first token, seconds: a prompt whole in GPU memory on an H20, vLLM 0.18.1 without CUDA graphs
(gitea.gahow.org/gahow/agentic-kvc). An assumption for other engines: restores on an H100 leave at most 8 ms."""


def prefill_seconds_per_token(
    linear_params: float, attention_flops: float, position: Number, tp: int, peak_flops: float, efficiency: float
) -> Number:
    """Return t_pf in seconds per token: (2 N_lin + c_att x) / (TP * peak * efficiency).

    Source: docs/model.md section 5; PaLM (arXiv 2204.02311, appendix B), forward pass only.

    Parameters
    ----------
    linear_params : N_lin, parameters one token uses outside embedding and lm_head
    attention_flops : c_att, FLOPs per token and attended position
    position : x, mean attended position in tokens (half the prompt length for a whole prompt)
    peak_flops : dense peak of one GPU, FLOP/s
    efficiency : share of the peak a whole prefill sustains
    """
    return (2 * linear_params + attention_flops * position) / (tp * peak_flops * efficiency)


def load_seconds(n_tokens: Number, beta: float, h2d_bytes_per_s: float, tau_s: float = TAU_LOAD_S) -> Number:
    """Return T_load, seconds to restore `n_tokens`: n beta / B + tau (docs/model.md section 5).

    Parameters
    ----------
    beta : KV bytes per token and rank (all ranks load at the same time)
    h2d_bytes_per_s : effective restore rate of one rank
    tau_s : fixed cost of the loading request
    """
    return n_tokens * (beta / h2d_bytes_per_s) + tau_s


def obr(n_tokens: Number, t_pf: float, beta: float, h2d_bytes_per_s: float, tau_s: float = TAU_LOAD_S) -> Number:
    """Return the offload benefit ratio 1 - T_load / T_rec of `n_tokens` > 0 (docs/model.md section 5).

    Above 0 restoring beats recomputing. Units as in `load_seconds`; `t_pf` in seconds per token.
    """
    return 1 - load_seconds(n_tokens, beta, h2d_bytes_per_s, tau_s) / (n_tokens * t_pf)


def load_overhead_seconds(n_tokens: Number) -> Number:
    """Return tau_load, seconds of one loading request of `n_tokens` on top of the link: 10 ms + 0.5 us a token.

    docs/model.md section 5. What a fragment costs is inside the restore rate and not here.
    """
    return n_tokens * TAU_LOAD_PER_TOKEN_S + TAU_LOAD_S


def ttft_recompute(t_rec: Number, tau_floor_s: float = TAU_FLOOR_S) -> Number:
    """Return the time to first token where the prompt is computed: `t_rec`, at least the engine's floor."""
    return np.maximum(t_rec, tau_floor_s) if isinstance(t_rec, np.ndarray) else max(t_rec, tau_floor_s)


def ttft_load(t_load: Number, tau_floor_s: float = TAU_FLOOR_S) -> Number:
    """Return the time to first token where the prompt is restored: the engine's floor and then the load."""
    return t_load + tau_floor_s


def obr_ttft(t_rec: Number, t_load: Number, tau_floor_s: float = TAU_FLOOR_S) -> Number:
    """Return the benefit ratio as a client measures it: 1 - TTFT_load / TTFT_rec (docs/model.md section 5).

    Parameters
    ----------
    t_rec : seconds to compute the tokens
    t_load : seconds to restore them, overhead included
    tau_floor_s : time to first token of a prompt whole in GPU memory; 0 gives `obr`
    """
    return 1 - ttft_load(t_load, tau_floor_s) / ttft_recompute(t_rec, tau_floor_s)


def break_even_bandwidth(beta: float, t_pf: float, tau_s: float, n_tokens: float) -> float:
    """Return B* in bytes/s, the restore rate at which `n_tokens` load as fast as they compute.

    B* = beta / (t_pf - tau / n) (docs/model.md section 5); infinite if the fixed cost alone takes longer.
    """
    spare = t_pf - tau_s / n_tokens if n_tokens > 0 else 0.0
    return beta / spare if spare > 0 else math.inf


def break_even_length(tau_s: float, t_pf: float, beta: float, h2d_bytes_per_s: float) -> float:
    """Return n* in tokens, the restored length from which loading is faster.

    n* = tau / (t_pf - beta / B) (docs/model.md section 5); infinite if a token loads no faster than it computes.
    """
    spare = t_pf - beta / h2d_bytes_per_s
    return tau_s / spare if spare > 0 else math.inf


def reuse_working_set_bytes(pool_size: float, mean_prompt_tokens: float, beta: float) -> float:
    """Return C_reuse in bytes per rank: (A - 1) mean(n) beta (docs/model.md section 5).

    What the other tasks of a pool of `pool_size` touch between two calls of one: a scale, not the knee.
    """
    return (pool_size - 1) * mean_prompt_tokens * beta


def gamma_host(reuse_bytes: float, host_bytes: float) -> float:
    """Return gamma_H = C_reuse / C_H: above 1 the host tier risks thrashing (docs/model.md section 5)."""
    return reuse_bytes / host_bytes if host_bytes > 0 else math.inf


def gamma_gpu(pool_size: float, mean_prompt_tokens: float, gpu_tokens: float) -> float:
    """Return gamma_G = A mean(n) / K_G tokens: only above 1 can a host tier help (docs/model.md section 5)."""
    return pool_size * mean_prompt_tokens / gpu_tokens if gpu_tokens > 0 else math.inf


def flop_per_link_byte(peak_flops: float, link_bytes_per_s: float) -> float:
    """Return peak FLOPs a GPU computes while its link moves one byte, a screening ratio.

    Dense BF16 peak with FP32 accumulation over the raw rate of one direction (docs/model.md section 5). It
    does not give the sign of `obr`: that follows the effective restore rate.
    """
    return peak_flops / link_bytes_per_s
