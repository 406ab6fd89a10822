"""`capplan formats`: every reader by name, with what it carries."""

from commands import invoke

from capplan.cli import options
from capplan.readers import FORMATS


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
