"""Files appear complete or not at all; links keep their place, devices are not replaced."""

import os
import stat

import pytest

from capplan.errors import CapplanError, TraceError
from capplan.output import written_whole


def test_target_appears_only_when_the_block_ends_well(tmp_path):
    target = tmp_path / "out.txt"
    with written_whole(target) as path:
        path.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert os.listdir(tmp_path) == ["out.txt"]


def write_half(target, interruption):
    with written_whole(target) as path:
        path.write_text("half")
        raise interruption


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_what_was_there_stays_when_the_block_fails(tmp_path, interruption):
    target = tmp_path / "out.txt"
    target.write_text("before")
    with pytest.raises(interruption):
        write_half(target, interruption)
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_link_keeps_its_place_and_its_target_is_replaced(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("before")
    link.symlink_to(target)
    with written_whole(link) as path:
        path.write_text("after")
    assert link.is_symlink()
    assert target.read_text() == "after"


def test_device_is_written_to_and_not_replaced():
    with written_whole("/dev/null") as path:
        path.write_text("gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_folder_that_is_not_there_is_one_line_of_the_callers_kind(tmp_path):
    missing = tmp_path / "no" / "out.txt"
    with pytest.raises(TraceError) as refusal, written_whole(missing, TraceError) as path:
        path.write_text("x")
    assert str(refusal.value) == f"{missing}: No such file or directory; a writable path is needed"
    assert isinstance(refusal.value, CapplanError)
