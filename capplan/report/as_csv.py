"""CSV: one row per GPU and host capacity, the unit in every column's name."""

import csv
import io
from dataclasses import asdict

from capplan.plan import Plan


def render(plan: Plan) -> str:
    """The grid of every GPU, one after the other."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for answer in plan.answers:
        deployment = answer.prediction.deployment
        for row in answer.rows:
            record = {"gpu": deployment.gpu.name, "model": deployment.model.name, "tp": deployment.tp, **asdict(row)}
            if writer is None:
                writer = csv.DictWriter(out, list(record), lineterminator="\n")
                writer.writeheader()
            writer.writerow(record)
    return out.getvalue()
