"""Simulations side by side: in order, watched, ended by the first error."""

import threading
import time

import pytest

from capplan.simulation.parallel import map_parallel, watching


def test_results_stand_in_the_order_of_the_values():
    def wait(k):
        time.sleep(0.002 * (5 - k))
        return 10 * k

    assert map_parallel(wait, range(5)) == [0, 10, 20, 30, 40]


def test_a_watcher_hears_of_every_result_in_its_own_thread():
    heard = []
    with watching(lambda n_done, n_all: heard.append((n_done, n_all, threading.current_thread().name))):
        map_parallel(str, range(3))
    map_parallel(str, range(3))
    name = threading.current_thread().name
    assert heard == [(1, 3, name), (2, 3, name), (3, 3, name)]


def test_the_first_error_ends_what_has_not_begun():
    begun = []

    def fail(k):
        begun.append(k)
        time.sleep(0.001)
        raise ValueError(f"value {k}")

    with pytest.raises(ValueError, match="value"):
        map_parallel(fail, range(200))
    assert len(begun) < 200
