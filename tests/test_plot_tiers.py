"""Figures of simulated tiers and of admission rules: what their lines are."""

import pytest
from matplotlib.colors import to_hex
from plans import SMALL, agent_trace

from capplan import Options, predict
from capplan.pipeline import compare_admission
from capplan.plot import save_figure
from capplan.plot_tiers import draw_admission, draw_tiers
from capplan.simulation.presets import load_preset
from capplan.simulation.rules import AdmissionRule
from capplan.simulation.settings import TierSettings

TRACE = agent_trace()
GIBS = (0.0, 0.02, 0.05, 0.2)


def settings_of(name, **changes):
    return TierSettings.of(load_preset(name)).change(unit_tokens=64, **changes)


def plan_of(name, gpus="h20", gibs=GIBS, **changes):
    options = Options(room=SMALL["room"], host_gib=gibs, tier=settings_of(name, **changes))
    return predict(TRACE, gpus, options=options)


def study_of(gpus=("h20",), kappas=(1, 4), thetas=(0.95,)):
    options = Options(room=SMALL["room"], host_gib=GIBS[1:], tier=settings_of("efficientagent"))
    return compare_admission(TRACE, gpus, "qwen3-coder-30b-a3b", options, kappas, thetas)


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_points_are_simulated_and_the_line_is_the_curve():
    plan = plan_of("lmcache")
    (answer,) = plan.answers
    (axes,) = draw_tiers(plan).axes
    lines = lines_of(axes)
    assert list(lines) == ["one-pass curve", "best policy", "lmcache"]
    found = answer.simulated.capacities
    assert lines["lmcache"].get_xdata().tolist() == list(GIBS)
    assert lines["lmcache"].get_ydata() == pytest.approx([one.totals.computed_tokens / 1e3 for one in found])
    assert lines["best policy"].get_ydata() == pytest.approx([one.best_computed_tokens / 1e3 for one in found])
    x, y = lines["one-pass curve"].get_data()
    for gib, value in zip(x[:-1], y[:-1], strict=True):
        slots = round(gib * 2**30 / answer.curve.chunk_bytes)
        assert value * 1e3 == pytest.approx(answer.curve.tiers.computed_tokens[slots])
    assert lines["one-pass curve"].get_drawstyle() == "steps-post"
    assert axes.get_ylabel() == "computed prefill (k tokens)"
    assert axes.get_ylim()[0] == 0 < axes.get_ylim()[1]
    assert axes.get_xlim() == (0, x[-1])


def test_large_traces_are_drawn_in_millions():
    plan = predict(agent_trace(6, 12, step=3200), options=Options(tier=settings_of("lmcache"), host_gib=(1.0,)))
    (axes,) = draw_tiers(plan).axes
    assert axes.get_ylabel() == "computed prefill (M tokens)"
    computed = plan.answers[0].rows[0].computed_tokens
    assert lines_of(axes)["lmcache"].get_ydata() == pytest.approx([computed / 1e6])


def test_a_tier_without_a_yardstick_has_two_lines():
    (axes,) = draw_tiers(plan_of("lmcache-mp")).axes
    assert list(lines_of(axes)) == ["one-pass curve", "lmcache-mp"]


def test_the_best_policy_is_drawn_once_under_its_name():
    plan = plan_of("lmcache", policy="belady")
    (axes,) = draw_tiers(plan).axes
    lines = lines_of(axes)
    assert list(lines) == ["one-pass curve", "best policy"]
    found = plan.answers[0].simulated.capacities
    assert lines["best policy"].get_ydata() == pytest.approx([one.totals.computed_tokens / 1e3 for one in found])


def test_a_rule_stands_in_the_name():
    (axes,) = draw_tiers(plan_of("lmcache", rule=AdmissionRule("fixed", 3))).axes
    assert "lmcache, fixed kappa 3" in lines_of(axes)


def test_a_panel_for_every_gpu():
    figure = draw_tiers(plan_of("lmcache", "h20,h100"))
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["NVIDIA H20 96 GB", "NVIDIA H100 80 GB SXM"]
    figure = draw_admission(study_of(("h20", "h100")))
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["NVIDIA H20 96 GB", "NVIDIA H100 80 GB SXM"]


def test_one_capacity_of_nothing_can_be_drawn():
    (axes,) = draw_tiers(plan_of("lmcache", gibs=(0.0,))).axes
    assert axes.get_xlim()[1] > 0


def test_a_plan_without_a_simulation_has_no_such_figure():
    with pytest.raises(ValueError, match="holds no simulated tier"):
        draw_tiers(predict(TRACE, options=Options(**SMALL)))


def test_every_rule_is_a_line():
    study = study_of(thetas=(0.5, 0.95))
    (axes,) = draw_admission(study).axes
    lines = lines_of(axes)
    assert list(lines) == [one.label for one in study.candidates]
    for k, label in enumerate(lines):
        computed = [capacity.outcomes[k].totals.computed_tokens / 1e3 for capacity in study.answers[0].capacities]
        assert lines[label].get_ydata() == pytest.approx(computed)
        assert lines[label].get_xdata().tolist() == list(GIBS[1:])
    colours = [to_hex(line.get_color()) for line in lines.values()]
    assert len(set(colours)) == len(colours)
    assert colours[0] == "#000000"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_same_bytes_twice(tmp_path, suffix):
    for draw, what in ((draw_tiers, plan_of), (draw_admission, study_of)):
        paths = [tmp_path / f"{draw.__name__}-{k}.{suffix}" for k in range(2)]
        for path in paths:
            save_figure(draw(what("lmcache") if what is plan_of else what()), path)
        assert paths[0].read_bytes() == paths[1].read_bytes()
