"""The table of results and its place in a document."""

import dataclasses
import json

import pytest
import run
from bench_memory import SOURCES
from harness import Footprint, Measure, Result
from run import describe_machine, join_memory, read_memory, read_results, render_report, to_json
from tables import BEGIN, END, render_memory, render_table, replace_between

FASTER = Result("engine", Measure((0.01, 0.02, 0.03)), "tree", Measure((2.0, 4.0, 6.0)), "faster", at_least=100)
SLOWER = Result("predict", Measure((3.0,)), "import", Measure((1.0,)), "the time", at_most=2)
TAKEN = Footprint(SOURCES[0].what, 1_500_000_000, 12_000, 7_200_000, 800_000, 9.25, 612.4, 1500)
LARGE = Footprint(SOURCES[1].what, 3_000_000_000, 36_000, 21_600_000, 800_000, 27.0, 1600.0, 1500, is_large=True)
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


def test_a_row_of_memory_states_what_the_input_holds():
    assert render_memory([TAKEN]).splitlines()[2] == (
        "| Mooncake rows of agents | 1.50 GB | 12,000 | 7.2 million | 0.8 million | 9.25 s | 612 MB | "
        "at most 1,500 MB |"
    )
    assert render_memory([LARGE]).endswith("| 1,600 MB | at most 1,500 MB: missed |")


def test_memory_survives_its_file_and_stays_until_measured_anew(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(to_json({"engine": [FASTER]}, False, [LARGE, TAKEN]))
    kept = read_memory(path)
    assert kept == [LARGE, TAKEN]
    again = dataclasses.replace(TAKEN, peak_mb=1.0)
    assert join_memory(kept, [again]) == [again, LARGE]
    assert join_memory([], [TAKEN]) == [TAKEN]


def test_the_report_says_how_memory_was_measured():
    text = render_report({"engine": [FASTER]}, [TAKEN])
    assert text.index("| engine |") < text.index("| Mooncake rows of agents |") < text.index("ru_maxrss")
    assert "ru_maxrss" not in render_report({"engine": [FASTER]})


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Run with nothing to measure, on a README and results of its own."""
    readme, results = tmp_path / "README.md", tmp_path / "results.json"
    readme.write_text(f"# title\n{BEGIN}\nold\n{END}\nrest\n")
    results.write_text(to_json({"engine": [FASTER], "readers": [SLOWER]}, False, [LARGE]))
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "run_benchmarks", lambda names, settings: {name: [MEMORY] for name in names})
    monkeypatch.setattr(run, "measure_memory", lambda settings: [TAKEN])

    def call(*options):
        monkeypatch.setattr("sys.argv", ["run.py", "-o", str(results), "--write-readme", *options])
        run.main()
        return readme.read_text()

    return call, results


def test_one_benchmark_alone_leaves_the_others_in_the_readme(bench):
    text = bench[0]("--only", "readers")
    assert text.startswith(f"# title\n{BEGIN}\n| what |")
    assert text.endswith(f"{END}\nrest\n")
    assert [text.count(what) for what in ("| engine |", "| memory; a note |", "| predict |")] == [1, 1, 0]
    assert [text.count(f"| {taken.what} |") for taken in (TAKEN, LARGE)] == [1, 1]


def test_one_benchmark_alone_does_not_mix_machines(bench, capsys):
    call, results = bench
    results.write_text(results.read_text().replace('"system": "', '"system": "not '))
    with pytest.raises(SystemExit) as caught:
        call("--only", "readers")
    assert caught.value.code == 2
    assert "is of another machine or of tiny inputs; run all, without --only" in capsys.readouterr().err
