"""The table of results and its place in a document."""

import json

import pytest
from harness import Measure, Result
from run import describe_machine, read_results, render_report, to_json
from tables import BEGIN, END, render_table, replace_between

FASTER = Result("engine", Measure((0.01, 0.02, 0.03)), "tree", Measure((2.0, 4.0, 6.0)), "faster", at_least=100)
SLOWER = Result("predict", Measure((3.0,)), "import", Measure((1.0,)), "the time", at_most=2)
MEMORY = Result("memory", Measure((212.4,), "MB"), at_most=400, note="a note")


def test_replaces_only_what_is_between_the_markers():
    document = f"# title\n\n{BEGIN}\nold | table\n{END}\n\nrest\n"
    assert replace_between(document, "\nnew\n") == f"# title\n\n{BEGIN}\nnew\n{END}\n\nrest\n"


def test_replacing_twice_changes_nothing_more():
    once = replace_between(f"{BEGIN}{END}", r"a \1 backslash")
    assert replace_between(once, r"a \1 backslash") == once == f"{BEGIN}\na \\1 backslash\n{END}"


@pytest.mark.parametrize("document", ["", BEGIN, END + BEGIN, BEGIN + END + BEGIN + END])
def test_refuses_a_document_without_its_two_markers(document):
    with pytest.raises(ValueError, match="benchmarks:begin"):
        replace_between(document, "table")


def test_a_row_states_medians_spread_ratio_and_target():
    assert render_table([FASTER]).splitlines()[2] == (
        "| engine | 20 ms (10 ms to 30 ms) | tree: 4 s (2 s to 6 s) | 200x faster | at least 100x |"
    )


def test_a_missed_target_says_so():
    assert SLOWER.value == 3
    assert SLOWER.is_met is False
    assert render_table([SLOWER]).endswith("| 3x the time | at most 2x: missed |")


def test_a_measure_by_itself_has_a_limit_in_its_unit():
    assert render_table([MEMORY]).endswith("| memory; a note | 212 MB |  | 212 MB | at most 400 MB |")


def test_a_rate_is_work_over_the_median():
    assert Measure((0.5, 0.5), work=1.5, work_unit="GB").describe() == "500 ms (500 ms to 500 ms), 3 GB/s"


def test_results_survive_their_file(tmp_path):
    path = tmp_path / "results.json"
    results = {"engine": [FASTER], "predict": [SLOWER, MEMORY]}
    path.write_text(to_json(results, is_small=False))
    assert read_results(path) == results
    assert json.loads(path.read_text())["benchmarks"]["engine"][0]["is_met"] is True


def test_results_of_tiny_inputs_or_another_machine_are_not_kept(tmp_path):
    path = tmp_path / "results.json"
    assert read_results(path) == {}
    path.write_text(to_json({"engine": [FASTER]}, is_small=True))
    assert read_results(path) == {}
    path.write_text(to_json({"engine": [FASTER]}, is_small=False).replace('"system": "', '"system": "not '))
    assert read_results(path) == {}


def test_the_report_names_the_machine_and_the_command():
    text = render_report({"engine": [FASTER]})
    assert describe_machine()["processor"] in text
    assert "python benchmarks/run.py --write-readme" in text
