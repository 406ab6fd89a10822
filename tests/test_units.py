import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.units import (
    GIB,
    bytes_to_gib,
    format_capacity,
    format_number,
    format_seconds,
    format_share,
    format_tokens,
    gib_to_bytes,
    round_up,
)


def test_gib_are_powers_of_two():
    assert gib_to_bytes(20) == 20 * 1024**3
    assert gib_to_bytes(0.5) == 512 * 1024**2
    assert bytes_to_gib(3 * 1024**3 // 2) == 1.5


def test_part_of_a_byte_is_cut():
    assert gib_to_bytes(1.5 / GIB) == 1
    assert gib_to_bytes(0.5 / GIB) == 0


@given(st.integers(0, 1 << 53))
def test_bytes_survive_the_way_to_gib_and_back(n_bytes):
    assert gib_to_bytes(bytes_to_gib(n_bytes)) == n_bytes


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0, 0.0),
        (-1.5, 0.0),
        (0.1, 0.1),
        (12.3, 12.3),
        (12.31, 12.4),
        (12.300000000001, 12.4),
        (0.001231, 0.00124),
        (99.91, 100.0),
        (1234.5, 1240.0),
        (np.float64(0.3), 0.3),
    ],
)
def test_round_up(value, rounded):
    assert round_up(value) == rounded


@given(st.floats(1e-9, 1e12), st.integers(1, 6))
def test_rounded_up_is_the_next_number_with_so_many_digits(value, digits):
    rounded = round_up(value, digits)
    number = Decimal(repr(rounded)).normalize()
    assert len(number.as_tuple().digits) <= digits
    assert rounded >= value
    step = Decimal(1).scaleb(Decimal(repr(value)).adjusted() + 1 - digits)
    assert number - Decimal(repr(value)) < step


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (1234567.8, "1,234,568"),
        (96, "96.0"),
        (0.00123456, "0.00123"),
        (9.99, "9.99"),
        (-5.25, "-5.25"),
        (math.nan, "n/a"),
        (math.inf, "inf"),
    ],
)
def test_numbers(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("n_tokens", "text"),
    [
        (0, "0"),
        (80, "80"),
        (1234.5678, "1,235"),
        (9_999, "9,999"),
        (10_000, "10.0 k"),
        (999_499, "999 k"),
        (1_000_000, "1.000 M"),
        (147_100_000, "147.1 M"),
        (2_500_000_000, "2.500 G"),
        (-3_000_000, "-3.000 M"),
    ],
)
def test_tokens(n_tokens, text):
    assert format_tokens(n_tokens) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0123, "0.0123 s"),
        (119.4, "119 s"),
        (120, "2.00 min"),
        (-600, "-10.0 min"),
        (7199, "120 min"),
        (7200, "2.00 h"),
        (math.nan, "n/a s"),
    ],
)
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_shares():
    assert [format_share(share) for share in (0.0, 0.4567, 1.0)] == ["0.0 %", "45.7 %", "100.0 %"]
    assert format_share(math.nan) == "n/a"


@given(st.floats(1e-6, 1e9), st.integers(1, 6))
def test_a_capacity_as_printed_holds_what_it_should(gib, digits):
    printed = Decimal(format_capacity(gib, digits).replace(",", ""))
    assert printed >= Decimal(repr(gib))
    assert printed == Decimal(repr(round_up(gib, digits)))
    assert printed - Decimal(repr(gib)) < Decimal(1).scaleb(Decimal(repr(gib)).adjusted() + 1 - digits)


@given(st.integers(1, 10**6), st.sampled_from([24 << 20, 96 << 20, 70_272 * 1024, 1_310_720]))
def test_a_capacity_of_slots_holds_them_as_printed(slots, chunk_bytes):
    printed = float(format_capacity(bytes_to_gib(slots * chunk_bytes)).replace(",", ""))
    assert gib_to_bytes(printed) // chunk_bytes >= slots


@pytest.mark.parametrize(
    ("gib", "text"),
    [(0, "0"), (-1.0, "0"), (13.101, "13.2"), (13.1, "13.1"), (2.004, "2.01"), (9.996, "10.0"), (1234.2, "1,240")],
)
def test_capacities(gib, text):
    assert format_capacity(gib) == text
