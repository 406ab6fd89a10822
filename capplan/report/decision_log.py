"""The log of single decisions of admission rules: what each rested on, and what became of it."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capplan.admission_study import DecisionLog, simulate_logs
from capplan.plan import AdmissionStudy


def log_decisions(study: AdmissionStudy) -> pl.DataFrame:
    """Every decision with what it rested on: a row per GPU, capacity, rule and request, in stream order."""
    ordered = study.trace.requests.take(study.order.rows)
    names = pl.Series("request_id", list(ordered.request_ids), pl.String)
    tasks = pl.Series("task_id", ordered.task.decode(), pl.String)
    times = np.full(len(ordered), np.nan) if study.order.time_s is None else study.order.time_s
    frames = []
    for answer in study.answers:
        gpu = pl.lit(answer.prediction.deployment.gpu.name).alias("gpu")
        gibs = [capacity.host_gib_per_rank for capacity in answer.capacities]
        logs = simulate_logs(answer.tier, gibs, study.candidates)
        frames += [_tabulate_log(log, names, tasks, times).select(gpu, pl.all()) for log in logs]
    return pl.concat(frames)


def _tabulate_log(log: DecisionLog, names: pl.Series, tasks: pl.Series, times: NDArray[np.float64]) -> pl.DataFrame:
    decisions, run = log.run.decisions, log.run
    if decisions is None:
        raise ValueError("the run made no decisions")
    frame = pl.DataFrame(
        {
            "time_s": times,
            "prompt_tokens": run.n_tokens,
            "host_hit_tokens": run.found_tokens,
            "new_units": decisions.new_units,
            "tasks": decisions.tasks,
            "mean_prompt_tokens": decisions.mean_prompt_tokens,
            "estimate_bytes": decisions.estimate_bytes,
            "is_fresh": decisions.is_fresh,
            "evictions_in_window": decisions.evictions,
            "resident_units": decisions.resident,
            "is_pressured": decisions.is_pressured,
            "is_declined": decisions.is_declined,
        }
    ).with_columns(
        pl.col("tasks", "evictions_in_window", "resident_units").replace(-1, None),
        pl.col("time_s", "mean_prompt_tokens", "estimate_bytes").fill_nan(None),
    )
    constants = [
        pl.lit(log.host_gib_per_rank).alias("host_gib_per_rank"),
        pl.lit(log.label).alias("rule"),
        pl.lit(float(log.rule.kappa)).alias("kappa"),
        pl.lit(float(log.rule.theta)).alias("theta"),
    ]
    return frame.select(*constants, names, tasks, pl.all())
