"""What the figure shows, and how it gets to disk."""

import itertools
import warnings

import numpy as np
import pytest
from matplotlib.colors import to_hex
from plans import SMALL, agent_trace, make_costs, make_deployment, make_plan, make_prediction, make_workload

from capplan import CapplanError, Options, predict
from capplan.plot import REGIMES, draw_plan, save_figure
from capplan.prediction import BEST, TYPICAL, WORST, Prices
from capplan.units import format_number

GIB = 2**30
SLOTS = 200
CHUNKS = np.arange(SLOTS + 1)
RISE = 1_000_000 * np.clip(CHUNKS - 20, 0, 60) + 50_000 * np.clip(CHUNKS - 80, 0, 60)  # steep, then flat, then level


def tp8_plan(*, copies=8, workload=None, **changes):
    """Chunks of 24 MiB: 10 to 90 % of the saving from 27 to 77 slots, the knee at 80."""
    deployment = make_deployment(tp=8, host_copies=copies)
    workload = make_workload(concurrent_tasks=61.0, mean_prompt_tokens=1024.0) if workload is None else workload
    return make_plan(make_prediction(RISE, deployment=deployment, workload=workload, **changes))


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def net_lines_of(axes):
    """The labelled ones: matplotlib numbers the others."""
    return {label: line for label, line in lines_of(axes).items() if not label.startswith("_")}


def strips_of(axes):
    """(begin, end, colour) of every strip at the foot of a panel, in GiB."""
    boxes = [(patch.get_extents().transformed(axes.transData.inverted()), patch) for patch in axes.patches]
    return [(box.x0, box.x1, to_hex(patch.get_facecolor())) for box, patch in boxes]


def test_lines_are_the_curve():
    plan = tp8_plan()
    prediction, verdict = plan.answers[0].prediction, plan.answers[0].verdict
    axes, _ = draw_plan(plan).axes
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
    axes, _ = draw_plan(plan).axes
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
    above, below = figure.axes
    assert figure.get_suptitle() == "agents: pool of 16 tasks"
    assert below.get_xlabel() == "host KV capacity (GiB per rank)"
    assert (above.get_ylabel(), below.get_ylabel()) == ("prompt tokens (M)", "net time saved (h)")
    assert above.get_title() == (
        "NVIDIA H20 96 GB, Qwen3-Coder-30B-A3B, TP8: pays\nGPU memory serves 0.0 M of 63.0 M prompt tokens"
    )
    assert [text.get_text() for text in below.get_legend().get_texts()] == [
        "range of the inputs",
        "net, typical",
        "overhead only",
        "pays",
    ]


# From 20 to 80 slots the tier restores; from 120 on it moves so much that it loses.
MOVED = RISE + 2 * 10**10 * (CHUNKS >= 120)


def uncertain_plan(**changes):
    costs = make_costs((5e-5, 1e-4, 2e-4), (20.0, 40.0, 50.0), (0.5, 1.0, 2.0), beta=24_576)
    return tp8_plan(costs=costs, moved=MOVED, **changes)


def test_net_time_and_its_band_are_those_of_the_corners():
    plan = uncertain_plan()
    prediction = plan.answers[0].prediction
    above, below = draw_plan(plan).axes
    x, y = net_lines_of(below)["net, typical"].get_data()
    slots = np.round(x[:-1] * GIB / prediction.chunk_bytes).astype(int)
    assert slots[-1] > 120
    assert y[:-1] == pytest.approx(prediction.net_seconds(TYPICAL)[slots] / 3600)
    assert x[-1] == above.get_xlim()[1]
    assert y[-1] == y[-2]
    (band,) = below.collections
    assert band.get_label() == "range of the inputs"
    path = band.get_paths()[0].vertices
    worst, best = (prediction.net_seconds(corner)[slots] / 3600 for corner in (WORST, BEST))
    assert path[:, 1].min() == pytest.approx(worst.min())
    assert path[:, 1].max() == pytest.approx(best.max())
    for k in (30, 60, 100, 130):
        inside = x[k] + prediction.chunk_bytes / GIB / 2  # in the middle of a step
        assert band.get_paths()[0].contains_point((inside, (worst[k] + best[k]) / 2))
        assert not band.get_paths()[0].contains_point((inside, best[k] + 0.1))
        assert not band.get_paths()[0].contains_point((inside, worst[k] - 0.1))


def test_regimes_cover_the_axis():
    plan = uncertain_plan()
    answer = plan.answers[0]
    above, below = draw_plan(plan).axes
    limit = above.get_xlim()[1]
    strips = strips_of(below)
    assert [regime for _, regime in answer.verdict.regimes] == ["overhead only", "pays", "loses"]
    assert strips[0][0] == 0
    assert strips[-1][1] == pytest.approx(limit)
    for (_, end, _), (begin, _, _) in itertools.pairwise(strips):
        assert end == pytest.approx(begin)
    for (slots, regime), (begin, _, color) in zip(answer.verdict.regimes, strips, strict=True):
        assert begin == pytest.approx(answer.prediction.gib_at(slots))
        assert color == REGIMES[regime]


def test_a_regime_that_returns_is_named_once():
    plan = tp8_plan(moved=RISE + 10**11 * (CHUNKS == 100), costs=make_costs(beta=24_576))
    regimes = [regime for _, regime in plan.answers[0].verdict.regimes]
    assert regimes == ["overhead only", "pays", "loses", "pays"]
    _, below = draw_plan(plan).axes
    assert len(strips_of(below)) == 4
    labels = [text.get_text() for text in below.get_legend().get_texts()]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize(("scale", "unit", "seconds"), [(1.0, "h", 3600), (1e-2, "min", 60), (1e-4, "s", 1)])
def test_unit_of_the_net_time_suits_it(scale, unit, seconds):
    plan = tp8_plan(costs=make_costs(scale * 1e-4, 50 / scale, beta=24_576))
    _, below = draw_plan(plan).axes
    assert below.get_ylabel() == f"net time saved ({unit})"
    drawn = net_lines_of(below)["net, typical"].get_ydata().max()
    assert drawn == pytest.approx(plan.answers[0].verdict.best_net_s[1] / seconds)
    assert drawn >= 1 or unit == "s"


def test_money_stands_at_the_recommended_capacity():
    plan = tp8_plan(prices=Prices(4.0, 2.0))
    row = plan.answers[0].prediction.row_at(
        plan.answers[0].prediction.gib_at(plan.answers[0].verdict.recommended_slots)
    )
    (note,) = draw_plan(plan).axes[1].texts
    assert note.get_text() == (
        f"${format_number(row.dram_usd)} of memory\npaid back in {format_number(row.payback_months)} months"
    )
    assert [text.get_text() for text in draw_plan(tp8_plan()).axes[1].texts] == [""]


@pytest.mark.parametrize(("copies", "label"), [(8, "GiB per node (8 copies)"), (1, "GiB per node (1 copy)")])
def test_second_axis_counts_the_node(copies, label):
    figure = draw_plan(tp8_plan(copies=copies))
    figure.draw_without_rendering()
    axes, below = figure.axes
    (node,) = axes.child_axes
    assert node.get_xlabel() == label
    assert node.get_xlim() == pytest.approx((0, copies * axes.get_xlim()[1]))
    assert below.get_xlim() == axes.get_xlim()


def test_nothing_to_mark():
    workload = make_workload(concurrent_tasks=None)
    costs = make_costs(prefill_s=1e-9)
    figure = draw_plan(make_plan(make_prediction([0, 0, 0], costs=costs, workload=workload)))
    axes, below = figure.axes
    assert set(lines_of(axes)) == {"computed prefill", "restored from host"}
    assert not axes.patches
    assert set(net_lines_of(below)) == {"net, typical"}
    assert [color for _, _, color in strips_of(below)] == [REGIMES["overhead only"]]
    assert not below.texts


def test_a_column_for_every_gpu_on_common_axes():
    figure = draw_plan(predict(agent_trace(), "h20,h100,h800", options=Options(**SMALL)))
    above, below = figure.axes[:3], figure.axes[3:]
    titles = [axes.get_title().split(",")[0] for axes in above]
    assert titles == ["NVIDIA H20 96 GB", "NVIDIA H100 80 GB SXM", "NVIDIA H800 80 GB SXM"]
    for row in (above, below):
        assert len({axes.get_ylim() for axes in row}) == 1
    top = max(line.get_ydata().max() for axes in above for line in axes.get_lines()[:2])
    assert above[0].get_ylim()[1] >= top
    for axes in below:
        net = net_lines_of(axes)["net, typical"].get_ydata()
        assert axes.get_ylim()[0] <= net.min()
        assert net.max() <= axes.get_ylim()[1]
    for upper, lower in zip(above, below, strict=True):
        assert upper.get_xlim() == lower.get_xlim()


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
