"""`capplan formats`: every reader by name, with what it carries."""

from builders import link_tokens
from commands import finish, invoke, start

from capplan import write_trace
from capplan.cli import options
from capplan.readers import FORMATS
from capplan.readers.formats import CLOCKS, MODULES


def test_every_format_is_listed_with_what_it_carries():
    result = invoke("formats")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for name, module in FORMATS.items():
        assert f"\n{name}\n" in "\n" + result.stdout
        assert " ".join(module.CARRIES.split()) in text
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_every_format_can_be_forced():
    assert tuple(FORMATS) == options.FORMATS


def test_formats_that_leave_their_clock_open_are_few():
    refused = {"azure", "kv-events", "lmcache-calls", "lmcache-log", "otel-spans"}
    open_to_all = {"capplan", "mooncake-extended", "openai-chat", "token-ids", "block-hashes"}
    assert set(FORMATS) == set(CLOCKS) | refused | open_to_all


def test_only_the_format_that_is_read_is_imported(tmp_path):
    trace = tmp_path / "t.parquet"
    write_trace(link_tokens([[1] * 20], 4), trace)
    tell = f"""
import sys
from capplan.readers import read_trace
read_trace({str(trace)!r})
names = {{"capplan.readers." + module for module in {set(MODULES.values())!r}}}
print(sorted(names & set(sys.modules)))
"""
    assert finish(start(code=tell)) == (0, "['capplan.readers.canonical']\n", "")
