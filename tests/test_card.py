"""The size card: what is typed makes each engine hold the plan's chunks, by that engine's own arithmetic."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.card import make_card, place_card
from capplan.deployment import GpuRoom, deploy
from capplan.engines import list_engines
from capplan.errors import SpecError
from capplan.hardware import load_gpu
from capplan.models import kv_bytes_per_token, list_models, load_model, tp_divides

GIB = 2**30
ENGINES = [engine.name for engine in list_engines()]
MODELS = [model.name for model in list_models()]


@cache
def place(model="qwen3-coder-30b-a3b", tp=8, kv_dtype="bf16"):
    """A model on an H20, whether or not its weights fit."""
    room = GpuRoom(is_used=False)
    return deploy(
        load_gpu("h20"), load_model(model), longest_tokens=0, block_tokens=16, tp=tp, kv_dtype=kv_dtype, room=room
    )


def settings_of(card):
    """Settings by name, and by engine where engines share one."""
    found = {}
    for engine in card.engines:
        for setting in engine.settings:
            found[setting.name] = found[f"{engine.name}.{setting.name}"] = setting
    return found


def size(gib=20.0, *, device_tokens=300_000, chunk_tokens=1024, node_ram=None, engines=tuple(ENGINES), **where):
    """The card of so many GiB per rank, of every engine."""
    return make_card(int(gib * GIB), place(**where), chunk_tokens, device_tokens, node_ram, engines)


# --- by hand -----------------------------------------------------------------
# Qwen3-Coder-30B-A3B at TP8: 48 layers x 1 head x 2 x 128 x 2 B = 24,576 B per token and rank (4 heads on 8 ranks).
# A chunk of 1,024 tokens is 24 MiB, 20 GiB hold 20,480 / 24 = 853 of them: 873,472 tokens, 20,472 MiB = 19.99 GiB.


def test_what_was_asked():
    card = size()
    assert (card.slots, card.chunk_bytes, card.kv_bytes_per_token) == (853, 24 * 2**20, 24_576)
    assert (card.model, card.tp, card.kv_dtype) == ("Qwen3-Coder-30B-A3B", 8, "bf16")
    assert card.asked_bytes == 20 * GIB


def test_lmcache():
    # 24 MiB are whole pages of 4,096 B; 19.99 GiB to three digits are 20.0; 8 ranks pin 160 GiB.
    setting = settings_of(size())["max_local_cpu_size"]
    assert (setting.value, setting.text, setting.counts) == (20.0, "max_local_cpu_size: 20.0", "GiB per rank")
    assert (setting.units, setting.slots, setting.slots_at_most, setting.tokens) == (853, 853, 853, 873_472)
    assert (setting.rank_bytes, setting.node_bytes, setting.reserve_bytes) == (20 * GIB, 160 * GIB, 0)
    (engine,) = size(engines="lmcache").engines
    assert engine.companions == (
        "chunk_size: 1024", "LMCACHE_CHUNK_SIZE=1024", "LMCACHE_MAX_LOCAL_CPU_SIZE=20.0"
    )  # fmt: skip


def test_lmcache_mp():
    # 853 left by a pass that takes a fifth at 80 %: 853 / 0.64 = 1,332.8, so 1,333 chunks x 24 MiB x 8 ranks
    # = 249.94 GiB. 250 GiB are 1,333 chunks, 1,066 of them at the watermark.
    setting = settings_of(size())["l1_size_gb"]
    assert (setting.value, setting.text) == (250.0, "--l1-size-gb 250")
    assert (setting.units, setting.slots, setting.slots_at_most) == (1333, 853, 1066)
    assert (setting.rank_bytes, setting.node_bytes) == (250 * GIB // 8, 250 * GIB)


def test_vllm():
    # A row of 16 tokens x 24,576 B x 8 ranks is 3 MiB; 873,472 / 16 = 54,592 rows are 159.94 GiB.
    # 160 GiB are 163,840 / 3 = 54,613 rows, 163,839 MiB.
    setting = settings_of(size())["kv_offloading_size"]
    assert (setting.value, setting.text) == (160.0, "--kv-offloading-size 160")
    assert (setting.unit_tokens, setting.units, setting.slots, setting.tokens) == (16, 54_613, 853, 873_808)
    assert (setting.node_bytes, setting.rank_bytes) == (163_839 * 2**20, 163_839 * 2**20 // 8)


def test_vllm_0_13():
    # 54,592 blocks on every rank; a layer's tensor is 54,592 x 16 x 512 B = 447,217,664 B, rounded up to 2^29:
    # 48 of them are 24 GiB where 19.99 are used.
    setting = settings_of(size())["num_cpu_blocks"]
    assert (setting.value, setting.text) == (54_592, '"num_cpu_blocks": 54592')
    assert (setting.slots, setting.rank_bytes, setting.node_bytes) == (853, 24 * GIB, 192 * GIB)
    assert setting.counts == "blocks of 16 tokens, the same on every rank"


def test_sglang_size():
    # 873,471 tokens and the page it adds: 21.47e9 B, so 22. 22e9 // 24,576 = 895,182, plus 1: 874.2 chunks.
    setting = settings_of(size())["sglang-hicache.hicache_size"]
    assert (setting.value, setting.text) == (22, "--hicache-size 22")
    assert (setting.unit_tokens, setting.units, setting.slots) == (1, 895_183, 874)
    assert (setting.rank_bytes, setting.node_bytes) == (895_183 * 24_576, 8 * 895_183 * 24_576)
    assert setting.reserve_bytes == 10 * GIB


def test_sglang_ratio():
    # 873,471 / 300,000 = 2.91157, so 2.92: 876,000 tokens, plus 1: 855.5 chunks.
    setting = settings_of(size())["sglang-hicache.hicache_ratio"]
    assert (setting.value, setting.text) == (2.92, "--hicache-ratio 2.92")
    assert (setting.units, setting.slots) == (876_001, 855)
    assert setting.counts == "times the device pool of 300,000 tokens"
    assert "hicache_ratio" not in settings_of(size(device_tokens=0))


def test_dynamo():
    # 54,592 blocks x 3 MiB = 171.73e9 B, so 172: 172e9 // 3,145,728 = 54,677 blocks.
    (engine,) = size(engines="kvbm").engines
    (setting,) = engine.settings
    assert (setting.value, setting.text, setting.units) == (172.0, "DYN_KVBM_CPU_CACHE_GB=172", 54_677)
    assert setting.node_bytes == 54_677 * 3 * 2**20
    assert any("DYN_KVBM_CPU_CACHE_OVERRIDE_NUM_BLOCKS=54677" in note for note in engine.notes)


def test_tensorrt_llm():
    # 873,472 / 32 = 27,296 blocks x 786,432 B
    setting = settings_of(size())["host_cache_size"]
    assert (setting.value, setting.units, setting.slots) == (21_466_447_872, 27_296, 853)
    assert (setting.rank_bytes, setting.node_bytes) == (21_466_447_872, 8 * 21_466_447_872)


def test_mooncake():
    # 8 ranks mount, 4 distinct heads are stored: 54,592 / (0.9 x 0.95) = 63,850.3, so 63,851 blocks, 4 objects each,
    # 31,926 in a segment of 31,926 x 393,216 B.
    setting = settings_of(size())["global_segment_size"]
    assert (setting.value, setting.units) == (31_926 * 393_216, 63_852)
    assert (setting.slots, setting.slots_at_most) == (853, 897)  # 63,852 x 0.9 x 16 / 1,024 = 897.9
    assert (setting.rank_bytes, setting.node_bytes) == (31_926 * 393_216, 8 * 31_926 * 393_216)


def test_mla_is_stored_once_where_the_engine_does():
    # DeepSeek-V3: 61 x 576 x 2 = 70,272 B per token on every rank; 1,024 tokens are 17,568 pages of 4,096 B.
    # 20 GiB hold 298 chunks, 19.97 GiB.
    card = size(model="deepseek-v3")
    found = settings_of(card)
    assert card.slots == 298
    for name in ("max_local_cpu_size", "kv_offloading_size"):
        assert (found[name].value, found[name].slots) == (20.0, 298)
    assert found["max_local_cpu_size"].node_bytes == found["max_local_cpu_size"].rank_bytes == 20 * GIB
    # 305,152 / 64 = 4,768 blocks of 4,497,408 B; 20 GiB hold 4,774
    assert (found["kv_offloading_size"].units, found["kv_offloading_size"].node_bytes) == (4774, 4774 * 4_497_408)
    assert found["l1_size_gb"].value == 31.3  # 298 / 0.64 = 465.6: 466 x 68.625 MiB = 31.23 GiB
    for name in ("hicache_size", "host_cache_size", "num_cpu_blocks", "DYN_KVBM_CPU_CACHE_GB"):
        assert found[name].node_bytes == 8 * found[name].rank_bytes
    assert found["DYN_KVBM_CPU_CACHE_GB"].value == 172.0  # 4,768 blocks x 64 x 70,272 x 8 = 171.55e9
    # Objects over 8 segments: 4,768 / 0.855 = 5,576.6, 5,577 / 8 = 697.1, so 698 a segment.
    assert found["global_segment_size"].value == 698 * 64 * 70_272
    notes = {engine.name: engine.notes for engine in card.engines}
    assert any("rank 0" in note for note in notes["lmcache"])


def test_latent_is_not_shared_across_nodes():
    # TP16 on nodes of 8: vLLM keeps a copy per rank, LMCache one.
    found = settings_of(size(model="deepseek-v3", tp=16))
    assert found["kv_offloading_size"].value == 320.0
    assert found["max_local_cpu_size"].node_bytes == 20 * GIB


def test_rows_and_chunks_are_aligned_to_pages():
    # A chunk of 16 tokens of DeepSeek-V3 is 1,124,352 B, 1,126,400 once aligned. 1 GiB is 954 chunks by bytes,
    # 954 x 1,126,400 = 1.00079 GiB.
    setting = settings_of(size(1.0, model="deepseek-v3", chunk_tokens=16))["max_local_cpu_size"]
    assert (setting.value, setting.slots) == (1.01, 962)


def test_asked_capacity_is_kept_where_it_is_short():
    # 100.7 GiB hold 4,296 chunks, 100.69 GiB: to three digits 101, but 100.7 will do.
    found = settings_of(size(100.7))
    assert found["max_local_cpu_size"].value == 100.7
    assert found["kv_offloading_size"].value == 805.6
    # A recommendation is a whole number of chunks, seldom short: 4,295 x 24 MiB = 100.6640625 GiB.
    assert settings_of(size(4295 / 1024 * 24))["max_local_cpu_size"].value == 101.0


def test_host_pool_is_raised_above_the_device_pool_where_it_has_to_be():
    # 0.5.6 stops unless the host pool exceeds 1,000,000 tokens: 24.576e9 B, so 25. 0.5.23 warns.
    card = size(device_tokens=1_000_000)
    found = settings_of(card)
    assert found["sglang-hicache-0.5.6.hicache_size"].value == 25
    assert found["sglang-hicache-0.5.6.hicache_ratio"].value == 1.0  # 1,000,000 and the page it adds
    assert found["sglang-hicache.hicache_size"].value == 22
    notes = {engine.name: engine.notes[0] for engine in card.engines}
    assert notes["sglang-hicache-0.5.6"].startswith("raised above the device pool of 1,000,000 tokens")
    assert notes["sglang-hicache"].startswith("no larger than the device pool of 1,000,000 tokens")
    assert not size(device_tokens=873_471, engines="sglang").engines[0].notes[0].startswith("no larger")


def test_overrun_is_named():
    # LMCache fits 160 GiB; 163.92 GiB and 10 GiB of reserve exceed it by 13.92.
    card = size(node_ram=160.0, engines=("lmcache", "sglang"), device_tokens=0)
    assert card.warnings == (
        "SGLang HiCache 0.5.23, hicache_size: 163.9 GiB per node and 10.00 GiB it leaves free: over --node-ram "
        "160.0 GiB by 13.9 GiB",
    )
    assert size(node_ram=157.5, engines="lmcache").warnings == (
        "LMCache in-process 0.3.12, max_local_cpu_size: 160.0 GiB per node: over --node-ram 157.5 GiB by 2.50 GiB",
    )
    assert size(node_ram=173.93, engines="sglang", device_tokens=0).warnings == ()


def test_given_copies_are_those_of_a_node():
    card = make_card(20 * GIB, replace(place(), host_copies=4), 1024, 0, engine=("lmcache", "vllm"))
    found = settings_of(card)
    assert found["max_local_cpu_size"].node_bytes == 80 * GIB
    assert (found["kv_offloading_size"].value, found["kv_offloading_size"].node_bytes) == (160, 163_839 * 2**19)


def test_default_is_every_engine_in_its_newest_release():
    card = make_card(20 * GIB, place(), 1024, 0)
    assert [engine.name for engine in card.engines] == [e.name for e in list_engines() if not e.older]


def test_engines_come_as_named_each_once():
    assert [e.name for e in size(engines=("vllm", "lmcache", "vllm-offload")).engines] == ["vllm-offload", "lmcache"]


def test_pair_that_does_not_work_is_said_and_not_sized():
    card = size(model="qwen3-next-80b-a3b", engines=("lmcache", "vllm", "trtllm"))
    refused, approximate, unknown = card.engines
    assert (refused.works, refused.settings) == ("no", ())
    assert "one KV group" in refused.says
    assert "SupportsHMA" in refused.source
    assert (approximate.works, unknown.works) == ("approximate", "unknown")
    assert approximate.settings
    assert unknown.settings
    assert card.warnings == (place(model="qwen3-next-80b-a3b").model.approximation,)


@pytest.mark.parametrize(
    ("model", "engine", "works"),
    [
        ("gpt-oss-120b", "lmcache", "approximate"),
        ("gpt-oss-120b", "sglang-0.5.6", "no"),
        ("gpt-oss-120b", "sglang", "approximate"),
        ("nemotron-3-nano-30b-a3b", "vllm-0.13", "no"),
        ("nemotron-3-nano-30b-a3b", "lmcache-mp", "approximate"),
        ("deepseek-v3.2", "vllm", "unknown"),
        ("deepseek-v3", "kvbm", "yes"),
        ("qwen3-32b", "sglang-0.5.6", "yes"),
    ],
)
def test_pairs(model, engine, works):
    assert [card.works for card in size(model=model, tp=1, engines=engine).engines] == [works]


def test_capacity_below_a_chunk_is_refused():
    said = r"^0\.0125 GiB per rank: no room for a chunk of 1,024 tokens; accepted: at least 0\.0235 GiB$"
    with pytest.raises(SpecError, match=said):
        size(0.0125)
    assert size(0.0235).slots == 1


def test_card_by_names():
    card = place_card(20, "h20", "qwen3-coder-30b-a3b", 8, gpu_kv_tokens=300_000, engine=ENGINES)
    assert replace(card, gpu_kv_tokens=0) == replace(size(), gpu_kv_tokens=0)
    assert card.gpu_kv_tokens == 300_000
    assert place_card(20, "h20", "qwen3-coder-30b-a3b", 8, gpu_kv_tokens=0).gpu_kv_tokens == 0
    assert place_card(20, "h20", "qwen3-coder-30b-a3b", 8).gpu_kv_tokens > 3_000_000


# --- by each engine's own arithmetic -----------------------------------------


def align(n_bytes, page=4096):
    return (n_bytes + page - 1) // page * page


def lmcache_tokens(setting, beta, tp, model, chunk, device):
    total = int(setting.value * 1024**3)
    return total // align(chunk * beta) * chunk


def lmcache_mp_tokens(setting, beta, tp, model, chunk, device):
    objects = int(setting.value * (1 << 30)) // align(chunk * beta)
    chunks = objects // (1 if model.attention == "mla" else tp)
    # The thread acts at 80 % and takes a fifth of the keys.
    return chunks * 80 * 80 // 10_000 * chunk


def vllm_tokens(setting, beta, tp, model, chunk, device):
    block = 64 if model.attention == "mla" else 16
    copies = 1 if model.attention == "mla" else tp
    cpu_bytes_to_use = setting.value * (1 << 30)
    return int(cpu_bytes_to_use) // align(block * beta * copies) * block


def vllm_0_13_tokens(setting, beta, tp, model, chunk, device):
    return setting.value * (64 if model.attention == "mla" else 16)


def sglang_tokens(setting, beta, tp, model, chunk, device):
    page = 1
    if setting.name == "hicache_size":
        assert isinstance(setting.value, int)
        assert setting.value > 0  # 0 means: use the ratio
        tokens = int(setting.value * 1e9 // beta)
    else:
        tokens = int(device * setting.value)
    return (tokens // page + 1) * page


def sglang_0_5_6_tokens(setting, beta, tp, model, chunk, device):
    tokens = sglang_tokens(setting, beta, tp, model, chunk, device)
    assert tokens > device, "The host memory should be larger than the device memory"
    return tokens


def dynamo_tokens(setting, beta, tp, model, chunk, device):
    block = 64 if model.attention == "mla" else 16
    return int((setting.value * 1_000_000_000.0) / float(sum([block * beta] * tp))) * block


def trtllm_tokens(setting, beta, tp, model, chunk, device):
    return setting.value // beta // 32 * 32


def mooncake_tokens(setting, beta, tp, model, chunk, device):
    block = 64 if model.attention == "mla" else 16
    replicas = tp if model.attention == "mla" else max(1, tp // model.kv_heads)
    objects = tp * (setting.value // (block * beta))
    blocks = objects // (tp // replicas)
    return blocks * 90 * 95 // 10_000 * block


OWN = {
    "lmcache": lmcache_tokens,
    "lmcache-mp": lmcache_mp_tokens,
    "vllm-offload": vllm_tokens,
    "vllm-offload-0.13": vllm_0_13_tokens,
    "sglang-hicache": sglang_tokens,
    "sglang-hicache-0.5.6": sglang_0_5_6_tokens,
    "dynamo-kvbm": dynamo_tokens,
    "trtllm-host": trtllm_tokens,
    "mooncake-store": mooncake_tokens,
}


def test_every_engine_has_its_own_arithmetic_here():
    assert set(OWN) == set(ENGINES)


PLACES = [
    (model.name, tp)
    for model in list_models()
    for tp in (1, 2, 4, 8)
    if tp_divides(model, tp)
]  # fmt: skip


@given(
    st.sampled_from(PLACES),
    st.sampled_from(["bf16", "fp8"]),
    st.floats(0.5, 4000),
    st.sampled_from([16, 64, 96, 256, 1024, 4096]),
    st.integers(0, 5_000_000),
    st.sampled_from(ENGINES),
)
def test_engine_holds_the_chunks_of_the_plan(where, kv_dtype, gib, chunk, device, name):
    model, tp = where
    deployment = place(model, tp, kv_dtype)
    beta = kv_bytes_per_token(deployment.model, tp, kv_dtype)
    card = make_card(max(int(gib * GIB), chunk * beta), deployment, chunk, device, engine=name)
    for engine in card.engines:
        for setting in engine.settings:
            tokens = OWN[name](setting, beta, tp, deployment.model, chunk, device)
            assert tokens >= card.slots * chunk
            assert tokens == setting.tokens
            assert setting.slots == tokens // chunk >= card.slots
            assert setting.slots_at_most >= setting.slots
            # Honest memory: never less than what is held, on every rank that holds it.
            assert setting.rank_bytes >= 0.99 * setting.tokens * beta or name == "mooncake-store"
            assert setting.node_bytes >= setting.rank_bytes


@given(st.sampled_from(PLACES), st.floats(0.5, 4000), st.integers(1, 5_000_000))
def test_no_smaller_number_would_do(where, gib, device):
    model, tp = where
    deployment = place(model, tp)
    beta = deployment.kv_bytes_per_token
    card = make_card(max(int(gib * GIB), 1024 * beta), deployment, 1024, device)
    for setting in settings_of(card).values():
        # Whole numbers are the least; others are within the third digit, 1 % of it.
        less = setting.value - 1 if isinstance(setting.value, int) else setting.value * 0.989
        if less > 0:
            tokens = OWN[setting.engine](replace(setting, value=less), beta, tp, deployment.model, 1024, device)
            assert tokens < card.slots * 1024


def test_engines_are_sized_by_what_each_keeps_of_layers_with_a_window():
    deployments = [
        deploy(load_gpu("h20"), load_model("gpt-oss-120b"), longest_tokens=1, block_tokens=16, tp=2, engine=engine)
        for engine in ("lmcache", "vllm")
    ]
    for deployment in deployments:
        capacity = 500 * 1024 * deployment.kv_bytes_per_token
        lmcache, vllm = make_card(capacity, deployment, 1024, 200_000, engine=["lmcache", "vllm-offload"]).engines
        assert lmcache.settings[0].rank_bytes >= 500 * 1024 * 36_864
        assert vllm.settings[0].rank_bytes == pytest.approx(capacity, rel=0.01)
