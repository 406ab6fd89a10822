"""Calibration: what is read, what is fitted, what is held, what is refused, and the profile that comes out."""

import contextlib
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from capplan.calibration import MeasurementError, Settings, calibrate, read_measurements, write_profile
from capplan.calibration.baseline import Baseline
from capplan.calibration.cells import COLUMNS
from capplan.calibration.least_squares import Term, find_determined, solve, student_quantile
from capplan.calibration.measurements import Run, TtftPoint
from capplan.calibration.profile import describe_rate, list_measured
from capplan.calibration.runs import Held, fit_runs
from capplan.calibration.ttft import fit_points
from capplan.costs import estimate_costs
from capplan.deployment import deploy as place_model
from capplan.errors import SpecError
from capplan.hardware import load_gpu
from capplan.models import load_model

PUBLISHED = Path(__file__).parents[1] / "data" / "published" / "h20_replay.csv"
MODEL = "qwen3-coder-30b-a3b"
HELD = Held({"prefill": 60e-6, "restore": 1e-6, "load": 0.01, "write": 0.0})
RUN_HEADER = "label,computed_prefill_tokens,restored_tokens,written_tokens,makespan_s"
FULL_HEADER = "computed_prefill_tokens,restored_tokens,moved_tokens,written_tokens,loading_requests,makespan_s"
TTFT_HEADER = "prompt_tokens,cached_tokens,cached_in,ttft_s"


@pytest.fixture
def own(tmp_path):
    def write(*lines):
        path = tmp_path / "m.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    return write


def deploy(gpu="h20", model=MODEL, tp=8, position=None):
    return Baseline(load_gpu(gpu), load_model(model), tp, "bf16", "bf16", position)


def make_run(computed, seconds, moved=0.0, loads=0.0, written=0.0, line=2, is_fit=True):
    return Run(line, "", is_fit, computed, moved, moved, written, loads, seconds)


def error_of(call, *arguments, **named):
    with pytest.raises((MeasurementError, SpecError)) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the published replay ---------------------------------------------------------------------------------------


def published(**settings):
    return calibrate(str(PUBLISHED), "h20", MODEL, Settings(tp=8, **settings))


def test_published_slope_intercept_and_no_interval():
    fit = published().runs
    prefill, intercept = fit.parameters["prefill"], fit.parameters["intercept"]
    assert prefill.value * 1e6 == pytest.approx(67.9, abs=0.05)
    assert intercept.value == pytest.approx((128.05 - 5.28 * (208.91 - 128.05) / (76.74 - 5.28)) * 60)
    assert (prefill.low, prefill.high, intercept.low) == (None, None, None)
    assert fit.no_interval == "no interval: 2 runs for 2 fitted parameters; 3 runs would give one"
    assert fit.degrees_of_freedom == 0


@pytest.mark.parametrize(
    ("label", "predicted", "measured"),
    [
        ("none@5", 208.91, 208.91),
        ("none@20", 128.05, 128.05),
        ("none@40", 128.1, 124),
        ("fixed@5", 177.4, 186),
        ("fixed@40", 147.9, 162),
        ("conditioned@5", 178.3, 187),
    ],
)
def test_published_slope_predicts_the_other_rows(label, predicted, measured):
    row = next(row for row in published().runs.rows if row.label == label)
    assert row.measured_s / 60 == pytest.approx(measured)
    assert row.predicted_s / 60 == pytest.approx(predicted, abs=0.05)
    assert row.is_fit == (label in ("none@5", "none@20"))


def test_published_rows_leave_out_what_they_do_not_report():
    parameters = published().runs.parameters
    assert {name for name, one in parameters.items() if one.status == "left out"} == {"restore", "load", "write"}
    assert parameters["restore"].reason == (
        "restored_tokens is not reported at line 6 (none@20); its time stays in the slope and the intercept"
    )
    assert published().is_net
    assert published().prefill_scale == pytest.approx(1, abs=1e-3)


def test_published_rows_to_fit_may_be_chosen_by_label():
    fit = published(fit_rows=("none@5", "none@20", "fixed@5", "fixed@40")).runs
    assert [row.label for row in fit.rows if row.is_fit] == ["none@5", "none@20", "fixed@5", "fixed@40"]
    assert fit.degrees_of_freedom == 2
    assert fit.parameters["prefill"].low < 67.9e-6 < fit.parameters["prefill"].high
    known = "conditioned@5, fixed@40, fixed@5, none@20, none@40, none@5"
    assert error_of(published, fit_rows=("none@6",)) == (
        f"{PUBLISHED}: --fit-rows: no row is labelled 'none@6'; accepted: {known}"
    )


# --- least squares ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (5, 2.57058), (10, 2.22814), (29, 2.04523), (120, 1.97993),
     (1000, 1.96234), (1001, 1.96234), (10**9, 1.95996)],
)  # fmt: skip
def test_student_quantile_equals_the_tables(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, abs=2e-5 * quantile)


def test_interval_of_a_textbook_line():
    """Mean 2 +- 4.303 x 1 / sqrt 3, by hand."""
    terms = [Term("mean", np.ones(3))]
    estimate = solve(terms, np.array([1.0, 2.0, 3.0])).estimates["mean"]
    assert (estimate.value, estimate.high - estimate.value) == pytest.approx((2, 4.30265 / math.sqrt(3)), rel=1e-4)
    assert solve([Term("mean", np.ones(2))], np.array([1.0, 2.0])).estimates["mean"].low is None


TIMES = st.floats(1e-7, 1e-3)


@st.composite
def designs(draw):
    """Columns of an intercept and two kinds of tokens that are far from collinear, and true parameters."""
    n_rows, random = draw(st.integers(5, 9)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = [np.ones(n_rows), *random.uniform(0, 10 ** draw(st.floats(4, 9)), (2, n_rows))]
    scaled = np.stack([column / np.linalg.norm(column) for column in columns], axis=1)
    assume(np.linalg.svd(scaled, compute_uv=False)[-1] > 0.05)
    names = ("intercept", "prefill", "restore")
    terms = [Term(name, column) for name, column in zip(names, columns, strict=True)]
    return terms, {"intercept": draw(st.floats(10, 1e4)), "prefill": draw(TIMES), "restore": draw(TIMES)}


def seconds_of(terms, values):
    return sum(values[term.name] * term.column for term in terms)


@given(designs())
def test_known_parameters_are_recovered(case):
    terms, values = case
    solution = solve(terms, seconds_of(terms, values))
    scale = max(seconds_of(terms, values))
    for term in terms:
        error = abs(solution.estimates[term.name].value - values[term.name]) * max(term.column)
        assert error < 1e-8 * scale
    assert solution.degrees_of_freedom == len(terms[0].column) - 3


@given(designs(), st.floats(0.001, 1000), st.floats(0.001, 1000), st.integers(0, 2**32 - 1))
def test_units_of_time_and_tokens_do_not_matter(case, in_time, in_tokens, seed):
    terms, values = case
    observed = seconds_of(terms, values) * np.random.default_rng(seed).uniform(0.95, 1.05, len(terms[0].column))
    plain = solve(terms, observed).estimates
    scaled_terms = [terms[0], *(Term(term.name, term.column * in_tokens) for term in terms[1:])]
    scaled = solve(scaled_terms, observed * in_time).estimates
    for name, estimate in plain.items():
        factor = in_time if name == "intercept" else in_time / in_tokens
        assert scaled[name].status == estimate.status
        assert scaled[name].value == pytest.approx(factor * estimate.value, rel=1e-6)
        if estimate.low is not None:
            assert scaled[name].high == pytest.approx(factor * estimate.high, rel=1e-6)


@given(designs(), TIMES, TIMES, st.floats(0.1, 0.9))
def test_held_values_never_change_the_rows_used(case, one, other, share):
    """A column in the span of the others, as written = const - computed: its value moves the fit, not the rows."""
    terms, values = case
    dependent = max(terms[1].column) - share * terms[1].column
    true = [*terms, Term("write", dependent)]
    observed = seconds_of(true, {**values, "intercept": values["intercept"] + max(one, other) * 1e9, "write": one})
    observed += max(one, other) * terms[1].column
    solutions = [solve([*terms, Term("write", dependent, held)], observed) for held in (one, other)]
    rows = [seconds_of(true, {name: e.value for name, e in solution.estimates.items()}) for solution in solutions]
    assert [solution.estimates["write"].value for solution in solutions] == [one, other]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-9)
    np.testing.assert_allclose(rows[0], observed, rtol=1e-9)


def test_terms_are_determined_in_order():
    ones, ramp = np.ones(4), np.arange(4.0)
    terms = [Term("a", ones), Term("b", ramp), Term("c", 3 - ramp), Term("d", ones * 7), Term("e", ramp**2)]
    assert find_determined(terms, ones) == ("a", "b", "e")
    assert find_determined([Term("a", ones, is_held=True), *terms[1:]], ones) == ("b", "c", "e")
    assert find_determined([Term("zero", 0 * ones), terms[0]], ones) == ("a",)


@given(st.integers(0, 2**32 - 1))
def test_no_parameter_is_below_zero_and_the_rest_is_the_best_without_it(seed):
    draw = np.random.default_rng(seed)
    terms = [Term(name, draw.uniform(0, 1, 6)) for name in "abc"]
    observed = draw.uniform(-1, 1, 6)
    solution = solve(terms, observed)
    estimates = solution.estimates
    assert all(estimate.value >= 0 for estimate in estimates.values())
    left = observed - sum(estimates[term.name].value * term.column for term in terms)
    for term in terms:
        gradient = term.column @ left
        assert gradient <= 1e-9
        if estimates[term.name].value > 0:
            assert gradient == pytest.approx(0, abs=1e-9)


# --- runs -------------------------------------------------------------------------------------------------------


def test_all_parameters_of_runs_are_recovered():
    truth = {"prefill": 50e-6, "restore": 2e-6, "load": 0.02, "write": 0.5e-6}
    amounts = [(70e6, 1e6, 90, 80e6), (50e6, 20e6, 900, 60e6), (30e6, 45e6, 3000, 70e6), (5e6, 60e6, 2500, 9e6),
               (9e6, 70e6, 4000, 40e6), (20e6, 10e6, 700, 5e6)]  # fmt: skip
    runs = [
        make_run(c, 4000 + 50e-6 * c + 2e-6 * m + 0.02 * q + 0.5e-6 * w, m, q, w, line)
        for line, (c, m, q, w) in enumerate(amounts, 2)
    ]
    fit = fit_runs(runs, "m.csv", HELD)
    assert fit.value("intercept") == pytest.approx(4000)
    for name, value in truth.items():
        assert fit.value(name) == pytest.approx(value)
        assert fit.parameters[name].status == "fitted"
    assert (fit.degrees_of_freedom, fit.no_interval) == (1, "")
    assert all(row.predicted_s == pytest.approx(row.measured_s) for row in fit.rows)


def test_collinear_restores_are_held_and_named():
    """Restored = const - computed: the slope is t_pf less the restore time, which is held."""
    runs = [make_run(c, 1000 + 40e-6 * c + 1e-6 * (80e6 - c), 80e6 - c, line=k) for k, c in enumerate((1e7, 3e7, 6e7))]
    fit = fit_runs(runs, "m.csv", HELD)
    restore = fit.parameters["restore"]
    assert (restore.status, restore.value) == ("held", 1e-6)
    assert restore.reason == "follows from intercept, computed_prefill_tokens in these rows"
    assert fit.value("prefill") == pytest.approx(40e-6)
    assert fit.parameters["load"].reason == "none in any row"
    again = fit_runs(runs, "m.csv", Held({**HELD.values, "restore": 9e-6}))
    assert again.value("prefill") == pytest.approx(48e-6)
    for first, second in zip(fit.rows, again.rows, strict=True):
        assert first.predicted_s == pytest.approx(second.predicted_s)


def test_rounded_collinear_tokens_are_held_too():
    computed = np.array([76.74, 48.9, 22.8, 5.28])
    runs = [make_run(c * 1e6, 7000 + 68 * c, round(147.1 - c, 1) * 1e6) for c in computed]
    assert fit_runs(runs, "m.csv", HELD).parameters["restore"].status == "held"


def test_fewer_runs_than_parameters_hold_the_last():
    runs = [make_run(1e7, 1000, 5e6, 10, 3e6), make_run(5e7, 3000, 2e6, 30, 1e6)]
    parameters = fit_runs(runs, "m.csv", HELD).parameters
    assert [name for name, one in parameters.items() if one.is_fitted] == ["intercept", "prefill"]
    assert parameters["restore"].reason == "2 rows determine no more than 2 parameters"


def test_restore_is_fitted_where_computed_tokens_are_the_same():
    runs = [make_run(1e7, 1000 + 3e-6 * m, m) for m in (1e7, 5e7, 9e7)]
    fit = fit_runs(runs, "m.csv", HELD)
    assert fit.value("restore") == pytest.approx(3e-6)
    assert fit.parameters["prefill"].status == "held"
    assert fit.parameters["prefill"].reason == "the same in every row"
    without = Held({name: value for name, value in HELD.values.items() if name != "prefill"})
    assert "accepted: --position TOKENS for its formula" in error_of(fit_runs, runs, "m.csv", without)


def test_hold_keeps_the_profile_value():
    runs = [make_run(c, 100 + 5e-5 * c + 2e-6 * m, m) for c, m in ((1e7, 2e7), (2e7, 3e7), (5e7, 9e7))]
    fit = fit_runs(runs, "m.csv", HELD, ("restore",))
    assert (fit.parameters["restore"].status, fit.parameters["restore"].reason) == ("held", "--hold")
    assert fit.value("restore") == HELD.values["restore"]


def test_intervals_from_three_runs_on():
    three = [make_run(1e7, 1000), make_run(2e7, 1510), make_run(3e7, 1990)]
    assert fit_runs(three[:2], "m.csv", HELD).parameters["prefill"].low is None
    fit = fit_runs(three, "m.csv", HELD)
    prefill = fit.parameters["prefill"]
    # slope 49.5 us, residuals +-5 and 10 s: sigma = sqrt(150), over sqrt(2) x 1e7, times 12.706
    assert prefill.value == pytest.approx(49.5e-6)
    assert prefill.high - prefill.value == pytest.approx(12.7062 * math.sqrt(150) / (math.sqrt(2) * 1e7), rel=1e-4)
    assert fit.no_interval == ""


def test_a_negative_intercept_stops_at_zero_and_is_named():
    fit = fit_runs([make_run(1e7, 100), make_run(1e8, 2000)], "m.csv", HELD)
    assert (fit.value("intercept"), fit.parameters["intercept"].status) == (0, "at zero")
    assert fit.parameters["intercept"].reason == "the fit without this bound gives -111 s"
    assert fit.no_interval == "no interval: 2 runs for 1 fitted parameter; 3 runs would give one"


def test_a_restore_time_that_noise_makes_negative_stops_at_zero():
    noise = (3, -4, 2, -1, 5, -5)
    moved = (1e6, 9e6, 2e6, 8e6, 4e6, 5e6)
    seconds = [500 + 500 * k - 1e-7 * m + 5 * e for k, (m, e) in enumerate(zip(moved, noise, strict=True), 1)]
    runs = [make_run(1e7 * k, s, m) for k, (s, m) in enumerate(zip(seconds, moved, strict=True), 1)]
    fit = fit_runs(runs, "m.csv", HELD)
    assert (fit.value("restore"), fit.parameters["restore"].status) == (0, "at zero")
    assert fit.parameters["prefill"].low < 50e-6 < fit.parameters["prefill"].high


# --- contradictions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ("a,1e7,0,0,1000", "b,1e7,0,0,2000", "c,2e7,0,0,3000"),
            "line 2 (a) and line 3 (b) have the same inputs, yet take 1000 s and 2000 s;",
        ),
        (
            ("a,1e7,0,0,1000", "b,2e7,0,0,800", "c,3e7,0,0,3000"),
            "line 3 (b) computes 10,000,000 tokens more than line 2 (a) with all else equal, "
            "yet takes 800 s instead of 1000 s;",
        ),
        (
            ("a,1e7,0,0,1000", "b,5e7,0,0,980"),
            "line 2 (a), line 3 (b): fitted prefill time per computed token comes out as -5e-07 s (no interval);",
        ),
        (
            ("a,1e7,8e7,0,1000", "b,5e7,4e7,0,2000", "c,6e7,4.2e7,0,2000"),
            "line 2 (a), line 3 (b), line 4 (c): fitted restore time per moved token comes out as",
        ),
    ],
)
def test_contradictions_name_the_rows(own, lines, message):
    path = own(RUN_HEADER, *lines)
    said = error_of(calibrate, path, "h20", MODEL, Settings(tp=8))
    assert said.startswith(f"{path}: {message}")
    assert "; accepted: rows of one machine and engine, or use = check for the row that is not to be fitted" in said


def test_a_contradiction_may_be_checked_instead_of_fitted(own):
    lines = ("a,1e7,0,0,1000,fit", "b,2e7,0,0,800,check", "c,3e7,0,0,3000,")
    found = calibrate(own(f"{RUN_HEADER},use", *lines), "h20", MODEL, Settings(tp=8))
    assert [row.is_fit for row in found.runs.rows] == [True, False, True]
    assert found.runs.rows[1].predicted_s == pytest.approx(2000)


def test_a_negative_restore_time_may_be_held(own):
    amounts = ((1e7, 8e7, 841), (5e7, 4e7, 2918), (6e7, 1e7, 3482), (2e7, 2e7, 1459), (9e7, 3e7, 4941))
    path = own(RUN_HEADER, *(f"{k},{c},{m},0,{seconds}" for k, (c, m, seconds) in enumerate(amounts)))
    assert error_of(calibrate, path, "h20", MODEL, Settings(tp=8)).endswith(", or --hold restore")
    assert calibrate(path, "h20", MODEL, Settings(tp=8, hold=("restore",))).runs.value("prefill") > 0


def test_a_prefill_that_may_take_no_time_is_refused(own):
    rows = ("a,1e7,0,0,1000", "b,2e7,0,0,1050", "c,3e7,0,0,3000")
    assert "(95 % interval -0.000597 to 0.000797 s)" in error_of(
        calibrate, own(RUN_HEADER, *rows), "h20", MODEL, Settings(tp=8)
    )


def test_repeats_may_differ_a_little(own):
    path = own(RUN_HEADER, "a,1e7,0,0,1000", "b,1e7,0,0,1100", "c,3e7,0,0,3000", "d,3.1e7,0,0,2990")
    assert calibrate(path, "h20", MODEL, Settings(tp=8)).runs.degrees_of_freedom == 2


def test_ttft_points_that_contradict_each_other():
    points = [TtftPoint(2, "", True, 1e4, 0, False, 1.0), TtftPoint(3, "", True, 1e4, 0, False, 0.5)]
    assert "line 2 and line 3 have the same inputs" in error_of(fit_points, points, "m.csv", deploy())
    points = [TtftPoint(2, "", True, 1e4, 0, False, 1.0), TtftPoint(3, "", True, 2e4, 0, False, 0.5)]
    assert "line 3 computes 10,000 tokens more than line 2" in error_of(fit_points, points, "m.csv", deploy())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,1e7,0,0,1000"], "1 run to fit; accepted: 2 or more that differ in computed_prefill_tokens"),
        (
            ["a,1e7,0,0,1000", "b,1e7,0,0,1010"],
            "the rows to fit determine neither prefill nor restore time; accepted: runs that differ in computed "
            "tokens, or TTFT points that compute more than 256 tokens",
        ),
    ],
)
def test_too_little_to_fit(own, lines, message):
    path = own(RUN_HEADER, *lines)
    assert error_of(calibrate, path, "h20", MODEL, Settings(tp=8)) == f"{path}: {message}"


def test_nothing_to_fit(own):
    path = own(f"{RUN_HEADER},use", "a,1e7,0,0,1000,check")
    assert error_of(calibrate, path, "h20", MODEL, Settings(tp=8)).startswith(f"{path}: 0 runs to fit")


# --- TTFT points ------------------------------------------------------------------------------------------------


@given(
    scale=st.floats(0.5, 3),
    floor=st.floats(0.005, 0.05),
    restore=st.floats(1e-6, 1e-5),
    load=st.floats(0.005, 0.05),
)
def test_ttft_parameters_are_recovered(scale, floor, restore, load):
    base = deploy("h100", "llama-3.1-8b", 1)
    prompts = [(20_000, 0, False), (50_000, 10_000, False), (90_000, 0, False), (30_000, 29_990, False),
               (20_000, 20_000, True), (80_000, 80_000, True), (90_000, 40_000, True)]  # fmt: skip
    points = [
        TtftPoint(
            k, "", True, n, c, host, max(floor, scale * base.suffix_s(c, n)) + (restore * c + load if host else 0)
        )
        for k, (n, c, host) in enumerate(prompts)
    ]
    fit = fit_points(points, "m.csv", base)
    for name, value in (("scale", scale), ("floor", floor), ("restore", restore), ("load", load)):
        assert fit.value(name) == pytest.approx(value, rel=1e-6)
        assert fit.parameters[name].is_fitted
    assert all(row.error_share == pytest.approx(0, abs=1e-9) for row in fit.rows)


def test_published_restores_on_an_h100():
    """TTFT of Llama-3.1-8B on vLLM: 8 ms and 131,072 B a token at 43.5 GB/s, within the published points' reading."""
    rows = [(10_000, 0, 0.262), (20_000, 0, 0.640), (50_000, 0, 2.290), (100_000, 0, 6.850),
            (10_000, 10_000, 0.038), (50_000, 50_000, 0.158), (100_000, 100_000, 0.305)]  # fmt: skip
    points = [TtftPoint(k, "", True, n, c, c > 0, t) for k, (n, c, t) in enumerate(rows, 2)]
    fit = fit_points(points, "m.csv", deploy("h100", "llama-3.1-8b", 1))
    assert fit.value("restore") == pytest.approx(131_072 / 43.5e9, rel=0.05)
    assert fit.parameters["restore"].low < 131_072 / 43.5e9 < fit.parameters["restore"].high
    assert all(abs(row.error_share) < 0.06 for row in fit.rows)


def test_what_ttft_points_do_not_show_is_held():
    base = deploy("h100", "llama-3.1-8b", 1)
    fit = fit_points([TtftPoint(2, "", True, 50_000, 0, False, 2.0)], "m.csv", base)
    reasons = {name: one.reason for name, one in fit.parameters.items() if one.status == "held"}
    assert reasons == {
        "floor": "no row computes at most 256 tokens",
        "restore": "no row is cached on the host",
        "load": "no row is cached on the host",
    }
    assert fit.value("scale") == pytest.approx(2.0 / base.suffix_s(0, 50_000))
    assert fit.no_interval == "no interval: 1 TTFT point for 1 fitted parameter; 3 TTFT points would give one"
    full_hit = fit_points([TtftPoint(2, "", True, 50_000, 50_000, False, 0.03)], "m.csv", base)
    assert full_hit.parameters["scale"].reason == "no row shows prefill above the floor"
    assert fit_points([], "m.csv", base) is None


def test_a_short_prefill_below_the_floor_shows_the_floor():
    base = deploy("h100", "llama-3.1-8b", 1)
    rows = [(300, 300, 0.050), (1_000, 0, 0.051), (50_000, 0, base.suffix_s(0, 50_000))]
    points = [TtftPoint(k, "", True, n, c, False, t) for k, (n, c, t) in enumerate(rows)]
    fit = fit_points(points, "m.csv", base)
    assert fit.value("scale") == pytest.approx(1)
    assert 0.050 < fit.value("floor") < 0.051


def test_restores_of_ttft_points_hold_where_runs_are_collinear(own):
    header = (
        "computed_prefill_tokens,restored_tokens,written_tokens,makespan_s,prompt_tokens,cached_tokens,cached_in,ttft_s"
    )
    base = deploy()
    points = [f",,,,{n},{n},{place},{0.02 + (0.03 + 4e-6 * n if place == 'host' else 0)}"
              for n, place in ((10_000, "host"), (90_000, "host"), (90_000, "gpu"))]  # fmt: skip
    runs = [f"{c},{8e7 - c},,{1000 + 5e-5 * c},,,," for c in (1e7, 5e7)]
    found = calibrate(own(header, *runs, *points), "h20", MODEL, Settings(tp=8))
    assert found.points.value("restore") == pytest.approx(4e-6)
    assert found.runs.parameters["restore"].status == "held"
    assert found.runs.value("restore") == found.points.value("restore")
    assert found.runs.parameters["restore"].reason.endswith("; the value is that of the TTFT points")
    assert found.runs.value("prefill") == pytest.approx(5e-5 + 4e-6)
    assert found.restore_rate == pytest.approx(base.beta / (4e-6 - 0.5e-6))


# --- the file ---------------------------------------------------------------------------------------------------


def test_reads_both_kinds_comments_and_blank_cells(own):
    path = own(
        "# a comment",
        f"label, {FULL_HEADER},use,{TTFT_HEADER}",
        "",
        '"a, b",76.74e6,,,81690000,,12534.6,fit,,,,',
        "# another",
        "c,5e6,1e6,2e6,,40,7683,check,,,,",
        "d,,,,,,,,20000,16,host,0.5",
        "e,,,,,,,,20000,0,,0.7",
    )
    measured = read_measurements(path)
    assert measured.name == "m.csv"
    first, second = measured.runs
    assert first == Run(4, "a, b", True, 76.74e6, None, None, 81.69e6, None, 12534.6)
    assert second == Run(6, "c", False, 5e6, 1e6, 2e6, None, 40, 7683)
    assert measured.points == (
        TtftPoint(7, "d", True, 20_000, 16, True, 0.5),
        TtftPoint(8, "e", True, 20_000, 0, False, 0.7),
    )


def test_moved_tokens_are_the_restored_ones_unless_given(own):
    (run,) = read_measurements(own(RUN_HEADER, "a,1,2,3,4")).runs
    assert (run.restored_tokens, run.moved_tokens, run.loads) == (2, 2, None)


def test_byte_order_mark_and_crlf(tmp_path):
    path = tmp_path / "m.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{RUN_HEADER}\r\na,1,2,3,4\r\n".encode())
    assert len(read_measurements(path).runs) == 1


NUMBER = "accepted: a number from 0 to 1e+15, without thousands separators"
ALL = ", ".join(COLUMNS)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], f"no header; accepted: columns of {ALL}"),
        (["# only a comment"], f"no header; accepted: columns of {ALL}"),
        ([RUN_HEADER], "no rows below the header; accepted: one run or TTFT point a row"),
        ([f"{RUN_HEADER},speed"], f"header: unknown column 'speed'; accepted: {ALL}"),
        ([f"{RUN_HEADER},"], f"header: unknown column ''; accepted: {ALL}"),
        ([f"{RUN_HEADER},makespan_s"], "header: column 'makespan_s' stands twice; accepted: each column once"),
        (
            ["label,computed_prefill_tokens,makespan_s"],
            "header: missing column restored_tokens, written_tokens; accepted: computed_prefill_tokens, "
            "restored_tokens, written_tokens, makespan_s for runs, prompt_tokens, cached_tokens, cached_in, ttft_s "
            "for TTFT points",
        ),
        (["label,use"], "header: missing column computed_prefill_tokens, restored_tokens, written_tokens, makespan_s"),
        ([RUN_HEADER, "a,1,2,3"], "line 2: 4 cells under a header of 5; accepted: one cell a column"),
        ([RUN_HEADER, "a,-1,2,3,4"], f"line 2 (a): computed_prefill_tokens: '-1'; {NUMBER}"),
        ([RUN_HEADER, "a,1,nan,3,4"], f"line 2 (a): restored_tokens: 'nan'; {NUMBER}"),
        ([RUN_HEADER, "a,1,2,inf,4"], f"line 2 (a): written_tokens: 'inf'; {NUMBER}"),
        ([RUN_HEADER, 'a,1,2,"3,000",4'], f"line 2 (a): written_tokens: '3,000'; {NUMBER}"),
        ([RUN_HEADER, ",x,2,3,4"], f"line 2: computed_prefill_tokens: 'x'; {NUMBER}"),
        ([RUN_HEADER, "a,,2,3,4"], f"line 2 (a): computed_prefill_tokens: blank; {NUMBER}"),
        ([RUN_HEADER, "a,1,2,3,0"], "line 2 (a): makespan_s: '0'; accepted: a number from 1e-06 to 1e+15"),
        (
            [RUN_HEADER, "a,1,2,3,"],
            "line 2 (a): makespan_s, ttft_s: neither is given; accepted: makespan_s for a run, ttft_s for a TTFT point",
        ),
        ([f"{RUN_HEADER},use", "a,1,2,3,4,no"], "line 2 (a): use: 'no'; accepted: fit, check, or blank for fit"),
        ([RUN_HEADER, 'a,"1,2,3,4'], "line 2: not CSV: unexpected end of data; accepted: a CSV file"),
        ([TTFT_HEADER, "10,11,gpu,1"], "line 2: cached_tokens: 11 of a prompt of 10; accepted: at most prompt_tokens"),
        ([TTFT_HEADER, "10,9,disk,1"], "line 2: cached_in: 'disk'; accepted: gpu, host; blank where nothing is cached"),
        ([TTFT_HEADER, "10,9,,1"], "line 2: cached_in: blank; accepted: gpu, host; blank where nothing is cached"),
        (
            [f"{RUN_HEADER},{TTFT_HEADER}", "a,1,2,3,4,5,,,"],
            "line 2 (a): prompt_tokens: '5' in a row of a run; accepted: blank there",
        ),
        (
            [f"{RUN_HEADER},{TTFT_HEADER}", "a,1,,,,5,0,,1"],
            "line 2 (a): computed_prefill_tokens: '1' in a row of a TTFT point; accepted: blank there",
        ),
    ],
)
def test_file_errors(own, lines, message):
    path = own(*lines)
    assert error_of(read_measurements, path).startswith(f"{path}: {message}")


def test_unreadable_files(tmp_path):
    absent = tmp_path / "absent.csv"
    assert error_of(read_measurements, absent) == f"{absent}: cannot be read: No such file or directory"
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe")
    assert error_of(read_measurements, tmp_path / "b.csv").endswith(": cannot be read: not UTF-8 text")


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_on_one_line(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(f"{TTFT_HEADER}\n{text}", encoding="utf-8", errors="replace")
    with contextlib.suppress(MeasurementError):
        assert read_measurements(path).points


# --- the profile ------------------------------------------------------------------------------------------------


def load_written(found, tmp_path):
    path = tmp_path / "my-gpu.toml"
    path.write_text(write_profile(found), encoding="utf-8")
    return load_gpu(str(path))


def test_profile_is_read_back(tmp_path):
    found, base = published(), load_gpu("h20")
    gpu = load_written(found, tmp_path)
    (point,) = gpu.measured_for(MODEL, 8)
    assert point.us_per_token == pytest.approx(67.9, abs=0.05)
    assert point.position is None
    assert point.source.startswith("h20_replay.csv: slope of makespan per avoided prefill token, 2 runs; no interval:")
    assert gpu.h2d_gb_per_s == base.h2d_gb_per_s
    assert (gpu.efficiency, gpu.hbm_gib, gpu.name) == (base.efficiency, base.hbm_gib, "my-gpu")
    assert set(tomllib.loads(write_profile(found))) == {"base", "notes", "measured"}


def test_profile_names_what_was_held():
    text = write_profile(published())
    for name in ("restore", "load", "write"):
        assert f'"{name} is not fitted, stays ' in text
    assert "no interval: 2 runs for 2 fitted parameters" in text


def test_points_of_other_models_and_sizes_are_kept(tmp_path):
    base, gpu = load_gpu("h20"), load_written(published(), tmp_path)
    others = [point for point in base.measured if (point.model, point.tp) != (MODEL, 8)]
    assert list(gpu.measured[1:]) == others
    assert others


def test_position_is_written_where_given(tmp_path):
    (point,) = load_written(published(position=34_000.0), tmp_path).measured_for(MODEL, 8)
    assert point.position == 34_000


def test_fitted_restore_rate_is_written_with_its_interval(own, tmp_path):
    base = deploy()
    restore = base.beta / 10e9 + 0.5e-6
    noise = (3, 1, -4, -2, 5, -3)
    runs = [f"{c},{m},0,{1000 + 5e-5 * c + restore * m + e}" for c, m, e in
            zip((1e7, 2e7, 3e7, 4e7, 5e7, 6e7), (9e7, 1e8, 3e7, 7e7, 1e7, 5e7), noise, strict=True)]  # fmt: skip
    header = "computed_prefill_tokens,restored_tokens,written_tokens,makespan_s"
    found = calibrate(own(header, *runs), "h20", MODEL, Settings(tp=8))
    rate = load_written(found, tmp_path).h2d_gb_per_s
    assert rate.low < 10 < rate.high
    assert rate.typical == pytest.approx(10, rel=0.05)
    assert rate.source == "measured: m.csv"
    assert "95 % interval" in rate.basis
    assert rate.effective  # what copies lose is inside, so a prediction takes it as it is
    gpu = load_written(found, tmp_path)
    costs = estimate_costs(place_model(gpu, load_model(MODEL), longest_tokens=1, block_tokens=16, tp=8), 30_000)
    assert costs.h2d_bytes_per_s == (rate.low * 1e9, rate.typical * 1e9, rate.high * 1e9)
    assert costs.restore is None


def test_interval_of_the_prefill_time_is_written(own, tmp_path):
    runs = [f"{k},{c},0,0,{1000 + 5e-5 * c + e}" for k, c, e in ((0, 1e7, 3), (1, 3e7, -5), (2, 6e7, 4), (3, 9e7, -2))]
    found = calibrate(own(RUN_HEADER, *runs), "h20", MODEL, Settings(tp=8))
    (point,) = load_written(found, tmp_path).measured_for(MODEL, 8)
    prefill = found.runs.parameters["prefill"]
    assert (point.us_low, point.us_high) == pytest.approx((1e6 * prefill.low, 1e6 * prefill.high), rel=1e-5)
    assert point.us_low < 50 < point.us_high
    (unsure,) = load_written(published(), tmp_path).measured_for(MODEL, 8)
    assert (unsure.us_low, unsure.us_high) == (None, None)


def test_a_rate_above_the_link_is_not_written(own):
    """0.6 us a token is 0.1 us beyond scheduling: 246 GB/s on a link of 64."""
    runs = [f"{c},{m},0,{1000 + 5e-5 * c + 0.6e-6 * m}" for c, m in ((1e7, 9e7), (2e7, 1e7), (5e7, 5e7), (6e7, 2e7))]
    header = "computed_prefill_tokens,restored_tokens,written_tokens,makespan_s"
    found = calibrate(own(header, *runs), "h20", MODEL, Settings(tp=8))
    assert describe_rate(found) is None
    assert "h2d_gb_per_s" not in write_profile(found)
    assert "restores came out faster than the host link can be: the base's rate is kept" in write_profile(found)


def test_ttft_scale_becomes_points_at_their_positions(own, tmp_path):
    base = deploy("h100", "llama-3.1-8b", 1)
    rows = [f"{n},0,,{1.2 * base.suffix_s(0, n)}" for n in (20_000, 21_000, 60_000)]
    found = calibrate(own(TTFT_HEADER, *rows), "h100", "llama-3.1-8b", Settings(tp=1))
    points = load_written(found, tmp_path).measured_for("llama-3.1-8b", 1)
    assert [point.position for point in points] == [10_000, 30_000]
    for point in points:
        assert point.us_per_token == pytest.approx(1.2e6 * base.formula_s(point.position), rel=1e-4)


def test_impossible_prefill_is_remarked(own):
    path = own(RUN_HEADER, "a,1e7,0,0,1000", "b,5e7,0,0,1001")
    assert "faster than the GPU's peak allows" in write_profile(calibrate(path, "h20", MODEL, Settings(tp=8)))


def test_names_are_safe_in_toml(tmp_path):
    path = tmp_path / 'odd "name" \\ ü\x7f.csv'
    header, label = RUN_HEADER.replace("restored_tokens", "loading_requests,restored_tokens"), "b\x7f\x01 \\"
    path.write_text(f"{header}\na,1e7,3,0,0,1000\n{label},5e7,,0,0,3000\n", encoding="utf-8")
    written = tomllib.loads(write_profile(calibrate(str(path), "h20", MODEL, Settings(tp=8))))
    assert written["measured"][0]["source"].startswith('odd "name" \\ ü?.csv: slope')
    assert any(label in note for note in written["notes"])


@pytest.mark.parametrize(
    ("gpu", "model", "tp", "message"),
    [
        ("h21", MODEL, 8, "unknown gpu 'h21'"),
        ("my.toml", MODEL, 8, "my.toml: a shipped profile is needed as the base; accepted: a name of capplan gpus"),
        ("h20", "qwen", 8, "model 'qwen' is ambiguous"),
        ("h20", MODEL, 3, f"--tp 3: {MODEL} has 32 attention heads and 4 KV heads; a divisor is accepted"),
    ],
)
def test_deployment_errors(gpu, model, tp, message):
    assert error_of(calibrate, str(PUBLISHED), gpu, model, Settings(tp=tp)).startswith(message)


def test_points_are_only_those_fitted(own):
    runs = [f"1e7,{m},0,{1000 + 3e-6 * m}" for m in (1e7, 5e7, 9e7)]
    header = "computed_prefill_tokens,restored_tokens,written_tokens,makespan_s"
    found = calibrate(own(header, *runs), "h20", MODEL, Settings(tp=8))
    assert list_measured(found) == []
    assert describe_rate(found)["typical"] == pytest.approx(24_576 / 2.5e-6 / 1e9, rel=1e-4)


def test_what_a_profile_has_no_field_for_is_advice(own):
    amounts = [(7e7, 1e6, 90, 8e7), (5e7, 2e7, 900, 6e7), (3e7, 4.5e7, 3000, 7e7), (5e6, 6e7, 2500, 9e6)]
    amounts.append((9e6, 7e7, 4000, 4e7))
    runs = [f"{c},{m},{m},{w},{q},{4000 + 5e-5 * c + 2e-6 * m + 0.025 * q + 5e-7 * w}" for c, m, q, w in amounts]
    notes = tomllib.loads(write_profile(calibrate(own(FULL_HEADER, *runs), "h20", MODEL, Settings(tp=8))))["notes"]
    assert "a loading request costs 25.0 ms: predict with --load-latency-ms 25.0" in notes
    assert "a written token costs 0.500 us, which predictions do not count" in notes


def test_a_bound_is_named_in_the_profile(own):
    text = write_profile(calibrate(own(RUN_HEADER, "a,1e7,0,0,100", "b,1e8,0,0,2000"), "h20", MODEL, Settings(tp=8)))
    assert '"intercept at 0, its bound: the fit without this bound gives -111 s"' in text


def test_many_rows_are_not_all_named(own):
    moved = (9, 40, 3, 77, 20, 5, 60, 31)
    runs = [f"r{k},{k}e7,{m}e6,0,{9000 + 500 * k - 50 * m + k % 2}" for k, m in enumerate(moved, 1)]
    said = error_of(calibrate, own(RUN_HEADER, *runs), "h20", MODEL, Settings(tp=8))
    assert "line 7 (r6) and 2 more: fitted restore time per moved token comes out as -5e-05 s (95 % interval" in said
