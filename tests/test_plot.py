"""What the figure shows, and how it gets to disk."""

import warnings

import numpy as np
import pytest
from plans import SMALL, agent_trace, make_costs, make_deployment, make_plan, make_prediction, make_workload

from capplan import CapplanError, Options, predict
from capplan.plot import draw_plan, save_figure

GIB = 2**30
SLOTS = 200
CHUNKS = np.arange(SLOTS + 1)
RISE = 1_000_000 * np.clip(CHUNKS - 20, 0, 60) + 50_000 * np.clip(CHUNKS - 80, 0, 60)  # steep, then flat, then level


def tp8_plan(*, copies=8, workload=None, names=1):
    """Chunks of 24 MiB: 10 to 90 % of the saving from 27 to 77 slots, the knee at 80."""
    deployment = make_deployment(tp=8, host_copies=copies)
    workload = make_workload(concurrent_tasks=61.0, mean_prompt_tokens=1024.0) if workload is None else workload
    return make_plan(*[make_prediction(RISE, deployment=deployment, workload=workload)] * names)


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_lines_are_the_curve():
    plan = tp8_plan()
    prediction, verdict = plan.answers[0].prediction, plan.answers[0].verdict
    (axes,) = draw_plan(plan).axes
    lines = lines_of(axes)
    limit = axes.get_xlim()[1]
    assert limit > prediction.gib_at(verdict.transitions[0.99])
    for label, tokens in (
        ("computed prefill", prediction.tiers.computed_tokens),
        ("restored from host", prediction.tiers.restored_tokens),
    ):
        x, y = lines[label].get_data()
        slots = np.round(x[:-1] * GIB / prediction.chunk_bytes).astype(int)
        assert slots.tolist() == list(range(slots[-1] + 1))
        assert y[:-1] == pytest.approx(tokens[slots] / 1e6)
        assert lines[label].get_drawstyle() == "steps-post"
        assert x[-1] == limit


def test_marks():
    plan = tp8_plan()
    prediction, verdict = plan.answers[0].prediction, plan.answers[0].verdict
    (axes,) = draw_plan(plan).axes
    lines = lines_of(axes)
    assert set(lines) == {
        "computed prefill",
        "restored from host",
        "$C_{reuse}$ 1.41 GiB",  # 60 x 1,024 tokens of 24,576 B
        "knee 1.88 GiB",
        "recommended 3.00 GiB",
    }
    assert lines["$C_{reuse}$ 1.41 GiB"].get_xdata() == pytest.approx([prediction.reuse_bytes / GIB] * 2)
    for label, slots in (("knee 1.88 GiB", verdict.knee_slots), ("recommended 3.00 GiB", verdict.recommended_slots)):
        assert lines[label].get_xdata() == pytest.approx([prediction.gib_at(slots)])
        assert lines[label].get_ydata() == pytest.approx([prediction.tiers.computed_tokens[slots] / 1e6])
    shade = next(patch for patch in axes.patches if patch.get_label() == "10-90 % of the saving")
    box = shade.get_extents().transformed(axes.transData.inverted())
    assert (box.x0, box.x1) == pytest.approx((prediction.gib_at(27), prediction.gib_at(77)))
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(legend) == sorted([*lines, "10-90 % of the saving"])


def test_text():
    figure = draw_plan(tp8_plan())
    (axes,) = figure.axes
    assert figure.get_suptitle() == "agents: pool of 16 tasks"
    assert axes.get_xlabel() == "host KV capacity (GiB per rank)"
    assert axes.get_ylabel() == "prompt tokens (M)"
    assert axes.get_title() == (
        "NVIDIA H20 96 GB, Qwen3-Coder-30B-A3B, TP8: pays\nGPU memory serves 0.0 M of 63.0 M prompt tokens"
    )


@pytest.mark.parametrize(("copies", "label"), [(8, "GiB per node (8 copies)"), (1, "GiB per node (1 copy)")])
def test_second_axis_counts_the_node(copies, label):
    figure = draw_plan(tp8_plan(copies=copies))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (node,) = axes.child_axes
    assert node.get_xlabel() == label
    assert node.get_xlim() == pytest.approx((0, copies * axes.get_xlim()[1]))


def test_nothing_to_mark():
    workload = make_workload(concurrent_tasks=None)
    costs = make_costs(prefill_s=1e-9)
    figure = draw_plan(make_plan(make_prediction([0, 0, 0], costs=costs, workload=workload)))
    (axes,) = figure.axes
    assert set(lines_of(axes)) == {"computed prefill", "restored from host"}
    assert not axes.patches


def test_a_panel_for_every_gpu_on_one_token_axis():
    figure = draw_plan(predict(agent_trace(), "h20,h100", options=Options(**SMALL)))
    left, right = figure.axes
    assert [axes.get_title().split(",")[0] for axes in (left, right)] == ["NVIDIA H20 96 GB", "NVIDIA H100 80 GB SXM"]
    assert left.get_ylim() == right.get_ylim()
    top = max(line.get_ydata().max() for axes in (left, right) for line in axes.get_lines()[:2])
    assert left.get_ylim()[1] >= top


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_saved_figures_are_whole_and_the_same_every_time(tmp_path, suffix, magic):
    plan = tp8_plan()
    paths = [tmp_path / f"{name}.{suffix}" for name in ("first", "second")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in paths:
            save_figure(draw_plan(plan), path)
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(magic)
    assert first == second
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_unknown_kind_of_picture(tmp_path):
    with pytest.raises(CapplanError) as caught:
        save_figure(draw_plan(tp8_plan()), tmp_path / "curve.gif")
    assert str(caught.value) == f"{tmp_path / 'curve.gif'}: unknown kind of picture; accepted: .png, .svg, .pdf"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "absent" / "curve.png"
    with pytest.raises(CapplanError) as caught:
        save_figure(draw_plan(tp8_plan()), path)
    assert str(caught.value) == f"{path}: No such file or directory; a writable path is needed"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_interrupted_saving_leaves_what_was_there(tmp_path, monkeypatch, error):
    path = tmp_path / "curve.png"
    path.write_bytes(b"before")
    figure = draw_plan(tp8_plan())

    def break_off(target, **_):
        target.write_bytes(b"half a picture")
        raise error

    monkeypatch.setattr(figure, "savefig", break_off)
    with pytest.raises((KeyboardInterrupt, CapplanError)):
        save_figure(figure, path)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"before"]
