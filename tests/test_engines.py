"""Engine files: every fact has a source, names lead to them, and rules undo each other."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan import spec_files
from capplan.engines import Engine, EngineSetting, Hybrid, Pool, count_units, least_value, list_engines, load_engine
from capplan.errors import SpecError

ENGINES = {engine.name: engine for engine in list_engines()}
NUMBERS = {"value", "units", "unit_tokens", "chunk_tokens", "gpu_kv_tokens"}
NOT_CHECKED = "not checked"


def make_engine(**changes):
    """A plain engine: pages of one token, one setting in bytes per rank."""
    setting = EngineSetting(name="size", type="--size {value}", counts="bytes", measure="bytes", source="a test")
    fields = {"name": "plain", "title": "Plain", "version": "1", "unit": "page", "unit_tokens": 1, "basis": "rank",
              "ram": "units", "mla": "per-rank", "source": "a test", "settings": (setting,)}  # fmt: skip
    return Engine(**(fields | changes))


def make_pool(**changes):
    """A pool of units of 1,000 bytes on one rank."""
    fields = {"unit_tokens": 1, "unit_bytes": 1000, "ranks": 1, "node_ranks": 1, "copies": 1, "node_copies": 1,
              "layers": 1, "device_tokens": 0}  # fmt: skip
    return Pool(**(fields | changes))


def test_engines_that_ship():
    newest = {name for name, engine in ENGINES.items() if not engine.older}
    assert newest == {
        "dynamo-kvbm", "lmcache", "lmcache-mp", "mooncake-store", "sglang-hicache", "trtllm-host", "vllm-offload"
    }  # fmt: skip
    assert set(ENGINES) - newest == {"sglang-hicache-0.5.6", "vllm-offload-0.13"}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_every_fact_names_engine_release_and_file(engine):
    sources = [engine.source, *(setting.source for setting in engine.settings)]
    sources += [hybrid.source for hybrid in engine.hybrids if hybrid.source != NOT_CHECKED]
    for source in sources:
        assert re.search(r"\d+\.\d+|@[0-9a-f]{7}|^NVIDIA|^ai-dynamo|^vLLM docs", source), source
        assert re.search(r"\w+\.(py|rs|cpp|md)\b|vllm: no connector", source), source
    assert all(hybrid.works == "unknown" for hybrid in engine.hybrids if hybrid.source == NOT_CHECKED)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_texts_name_only_numbers_that_are_filled_in(engine):
    texts = [*engine.companions, *engine.notes, *engine.mla_notes]
    texts += [text for setting in engine.settings for text in (setting.type, setting.counts)]
    for text in texts:
        assert {name for _, name, _, _ in string.Formatter().parse(text) if name is not None} <= NUMBERS
    assert all("{value" in setting.type for setting in engine.settings)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_every_kind_of_hybrid_is_spoken_of(engine):
    spoken = {kind for hybrid in engine.hybrids for kind in hybrid.kinds}
    assert spoken == {"sliding", "chunked", "linear", "mamba", "index"}
    assert engine.find_hybrid({"gqa", "full"}) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm", "vllm-offload"),
        ("vLLM 0.13", "vllm-offload-0.13"),
        ("SGLang", "sglang-hicache"),
        ("sglang_0.5.6", "sglang-hicache-0.5.6"),
        ("kvbm", "dynamo-kvbm"),
        ("TRT-LLM", "trtllm-host"),
        ("mooncake", "mooncake-store"),
        ("LMCache MP", "lmcache-mp"),
    ],
)
def test_names_and_aliases(name, expected):
    assert load_engine(name) == ENGINES[expected]


def test_no_alias_stands_for_two():
    spellings = [spec_files.normalised(s) for engine in ENGINES.values() for s in (engine.name, *engine.aliases)]
    assert len(spellings) == len(set(spellings))


def test_unknown_engine_lists_the_known():
    with pytest.raises(
        SpecError, match=r"^unknown engine 'redis'; accepted: dynamo-kvbm, lmcache, .*vllm-offload-0.13$"
    ):
        load_engine("redis")


def test_worst_of_what_is_known_of_a_hybrid_comes_first():
    def known(works, *kinds):
        return Hybrid(kinds=kinds, works=works, says=works, source="a test")

    engine = make_engine(hybrids=(known("approximate", "sliding"), known("unknown", "index"), known("no", "mamba")))
    assert engine.find_hybrid({"gqa", "sliding"}).works == "approximate"
    assert engine.find_hybrid({"sliding", "index"}).works == "unknown"
    assert engine.find_hybrid({"sliding", "index", "mamba"}).works == "no"
    assert engine.find_hybrid({"mla"}) is None


def test_a_pass_of_eviction_leaves_what_is_counted():
    # 1,000 units: eviction starts at 800 and takes a fifth of them; 640 need all of the 1,000.
    engine = make_engine(watermark=0.8, evict_fraction=0.2)
    assert (engine.filled(1000), engine.kept(1000)) == (800, 640)
    assert engine.units_for(640) == 1000
    assert engine.units_for(641) == 1002  # 641 / 0.64 = 1,001.6


@given(st.integers(1, 10**9), st.sampled_from([(1.0, 0.0), (0.8, 0.2), (0.9, 0.05)]))
def test_fewest_units_that_keep_so_many(kept, shares):
    engine = make_engine(watermark=shares[0], evict_fraction=shares[1])
    units = engine.units_for(kept)
    assert engine.kept(units) >= kept > engine.kept(units - 1)


@pytest.mark.parametrize(
    ("engine", "pool", "value", "units"),
    [
        # 10,000 bytes: ten units of 1,000; of 1,024 once aligned to 512: nine.
        ({}, {}, 10_000, 10),
        ({"align_bytes": 512}, {}, 10_000, 9),
        # A page more than asked for.
        ({"extra_units": 1}, {}, 10_000, 11),
        # 4 ranks in one number: 4,000 a row, aligned to 4,096; aligned one by one 4 x 1,024.
        ({"basis": "world"}, {"ranks": 4, "copies": 4}, 40_000, 10),
        ({"basis": "world", "align_bytes": 4096}, {"ranks": 4, "copies": 4}, 40_000, 9),
        ({"basis": "server", "align_bytes": 512}, {"ranks": 4, "copies": 4, "node_copies": 4}, 40_960, 10),
        # 4 segments of 10 objects, 2 objects a unit: an object does not span segments.
        ({"basis": "segment"}, {"ranks": 4, "copies": 2}, 10_999, 20),
    ],
)
def test_units_of_a_number(engine, pool, value, units):
    engine, pool = make_engine(**engine), make_pool(**pool)
    assert count_units(engine, engine.settings[0], pool, value) == units


@given(
    st.sampled_from(["rank", "world", "server", "segment"]),
    st.integers(1, 8),
    st.integers(1, 10**7),
    st.sampled_from([1, 4096]),
    st.integers(0, 1),
    st.integers(2, 10**6),
)
def test_least_number_makes_so_many_units_and_no_smaller_one_does(basis, ranks, unit_bytes, align, extra, units):
    engine = make_engine(basis=basis, align_bytes=align, extra_units=0 if basis == "segment" else extra)
    pool = make_pool(unit_bytes=unit_bytes, ranks=ranks, copies=ranks, node_copies=ranks)
    value = least_value(engine, engine.settings[0], pool, units)
    assert value.denominator == 1
    assert count_units(engine, engine.settings[0], pool, int(value)) >= units
    assert count_units(engine, engine.settings[0], pool, int(value) - 1) < units
