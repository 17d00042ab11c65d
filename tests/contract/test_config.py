# SPDX-License-Identifier: Apache-2.0
"""HubConfig: every rule and its message; presets; derived sizes. Model shapes."""

import dataclasses
import json
import re

import pytest

from hub_rtl.contract.config import PRESETS, ConfigError, HubConfig, ceil_log2, index_width, preset
from sim.bench.streams import Codec
from sim.workload.models import EVALUATED, MODELS, bf16_row, fp8_row, model

RANGES = {
    "ranks": (2, 128, False),
    "lanes": (1, 32, False),
    "loop_lanes": (1, 32, False),
    "handles": (1, 2048, False),
    "replicas": (1, 4, True),
    "regions": (1, 2048, False),
    "groups": (4, 65536, True),
    "capacity": (1, 1 << 20, False),
    "max_row_bytes": (16, 16384, False),
    "pool_depth": (4, 256, True),
    "rat_sets": (1, 4096, True),
    "rat_ways": (1, 16, False),
    "filter_depth": (2, 65536, True),
    "filter_width": (1, 8, False),
    "victim_sets": (0, 1024, True),
    "pool_places": (14, 2047, False),
    "ctl_credits": (1, 15, False),
    "write_depth": (2, 512, False),
    "dep_ranges": (1, 64, False),
    "combine_depth": (1, 32, False),
    "slice_bytes": (16, 128, True),
    "slice_links": (1, 8, False),
    "log_depth": (1, 1024, False),
    "reject_depth": (1, 256, False),
    "tag_width": (1, 32, False),
}
# What else must change for a limit to be legal.
BESIDE = {
    ("ranks", 128): {"pool_depth": 256},
    ("loop_lanes", 32): {"lanes": 32},
    ("pool_depth", 4): {"ranks": 2},
}


def refused(text, **fields):
    with pytest.raises(ConfigError, match="^" + re.escape(text) + "$"):
        HubConfig(**fields)


def test_every_field_has_a_rule():
    assert {field.name for field in dataclasses.fields(HubConfig)} == {
        *RANGES,
        "name",
        "packet_bytes",
        "link_clock",
    }


def test_link_clock():
    assert HubConfig(link_clock=1).link_clock is True
    for value in (2, -1, "yes", None):
        refused(f"link_clock = {value!r}: must be 0 or 1", link_clock=value)


@pytest.mark.parametrize("field", RANGES)
def test_range(field):
    low, high, _ = RANGES[field]
    for value in (low, high):
        assert (
            getattr(HubConfig(**{field: value}, **BESIDE.get((field, value), {})), field) == value
        )
    for value in (low - 1, high + 1, -1):
        refused(f"{field} = {value}: must be between {low} and {high}", **{field: value})
    for value in ("8", 8.0, None, True):
        refused(f"{field} = {value!r}: must be an integer", **{field: value})


@pytest.mark.parametrize("field", [field for field, (*_, power) in RANGES.items() if power])
def test_power_of_two(field):
    value = 3 if RANGES[field][0] < 3 else RANGES[field][0] + 1
    refused(f"{field} = {value}: must be a power of two", **{field: value})


def test_rules_between_fields():
    refused("loop_lanes = 3: must not exceed lanes = 2", lanes=2, loop_lanes=3)
    refused("packet_bytes = 64: must be 128 or 256", packet_bytes=64)
    refused("max_row_bytes = 100: must be a multiple of 16", max_row_bytes=100)
    refused(
        "pool_depth = 8: must exceed ranks = 8: one entry is reserved per peer",
        ranks=8,
        pool_depth=8,
    )


def test_config_is_frozen_and_compares_by_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HubConfig().ranks = 4
    assert HubConfig() == HubConfig() and hash(HubConfig()) == hash(HubConfig())


@pytest.mark.parametrize("name", PRESETS)
def test_preset(name):
    cfg = preset(name)
    assert cfg.name == name
    assert HubConfig(**json.loads(json.dumps(cfg.as_dict()))) == cfg
    for field in dir(HubConfig):
        if field.endswith("_width"):
            assert getattr(cfg, field) >= 1, f"{field}: a zero-width port is not Verilog"


def test_unknown_preset_and_field():
    with pytest.raises(
        ConfigError, match="^preset = 'big': must be one of tiny, small, fpga, nvl8, nvl72$"
    ):
        preset("big")
    with pytest.raises(
        ConfigError,
        match="^rank: no such field; the fields are capacity, combine_depth, .*write_depth$",
    ):
        preset("small", rank=4)
    with pytest.raises(ConfigError, match="^ranks = 1: must be between 2 and 128$"):
        preset("small", ranks=1)


def test_derived_sizes():
    cfg = HubConfig(
        lanes=3,
        loop_lanes=2,
        packet_bytes=256,
        handles=5,
        replicas=2,
        capacity=8,
        max_row_bytes=5760,
    )
    assert (cfg.slices, cfg.packet_flits, cfg.mask_flits, cfg.frame_flits) == (5, 16, 2, 19)
    assert (cfg.dests, cfg.dest_width, cfg.slice_width) == (10, 4, 3)
    assert cfg.slot_width == 4  # holds 8, the row count
    assert cfg.bytes_width == 9  # holds 256
    assert cfg.row_block_width == ceil_log2(23)  # 5760 / 256 = 22.5 blocks
    assert cfg.addr_block_width == 40


def test_index_width():
    assert [index_width(n) for n in (1, 2, 3, 4, 5, 8, 9)] == [1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    shape = model(name)
    assert shape.name == name and shape.source
    assert 1 <= shape.top_k <= 32 and shape.experts <= 1024
    assert shape.combine_bytes == 2 * shape.row and 1 <= shape.moe_layers <= shape.layers
    assert sum(
        1 for expert in range(shape.experts) if shape.rank_of(expert, 8) == 0
    ) == shape.local_experts(8)
    if shape.experts <= 512:  # what the preset has handles for
        shape.check(preset("nvl8"))


def test_one_word_per_quantity():
    """The same names and numbers for `run` and `evaluate`: all layers, and those with experts."""
    assert (model("deepseek-v3").layers, model("deepseek-v3").moe_layers) == (61, 58)
    assert (model("kimi-k2").layers, model("kimi-k2").moe_layers) == (61, 60)
    assert model("qwen3-30b-a3b").dispatch_bytes == 4096 and model("kimi-k3").dispatch_bytes == 7168
    assert set(MODELS) - set(EVALUATED) == {"tiny", "flux-moe"}


def test_row_bytes():
    assert fp8_row(7168) == 7392 and bf16_row(2880) == 5760
    assert fp8_row(130) == 138  # the second scale covers two values
    assert model("deepseek-v3").dispatch_bytes == 7392
    assert model("gpt-oss-120b").dispatch_bytes == 45 * 128
    assert model("mixtral-8x7b").rows(10) == 20


def test_model_refused():
    with pytest.raises(ConfigError, match="^model = 'gpt-9': must be one of tiny, mixtral-8x7b, "):
        model("gpt-9")
    with pytest.raises(
        ConfigError, match="^max_row_bytes = 256: deepseek-v3 needs rows of 14336 bytes$"
    ):
        model("deepseek-v3").check(preset("tiny"))
    with pytest.raises(ConfigError, match="^regions = 8: deepseek-v3 needs 64 on each of 4 ranks$"):
        model("deepseek-v3").check(preset("small"))
    with pytest.raises(ConfigError, match="^handles = 32: olmoe-1b-7b needs 64, one per expert$"):
        model("olmoe-1b-7b").check(preset("small", regions=16))
    shape = model("tiny")
    for changes, text in (
        ({"layers": 0}, "layers = 0: must be at least 1"),
        ({"top_k": 5}, "top_k = 5: must not exceed experts = 4"),
        ({"dense_layers": 1}, "dense_layers = 1: must be between 0 and 0"),
        ({"row_bytes": 40}, "dispatch_bytes = 40: must be a multiple of 16 between 16 and 16384"),
    ):
        with pytest.raises(ConfigError, match="^" + text + "$"):
            dataclasses.replace(shape, **changes)


def test_codec_matches_types():
    """The benches' packing is Amaranth's, for every payload of a small and of a big
    configuration."""
    from amaranth.lib import data

    from hub_rtl.contract.records import types_of

    for name in ("tiny", "nvl72"):
        payloads = dict(vars(types_of(preset(name))))
        payloads |= payloads.pop("messages")
        assert "store" in payloads
        for layout in payloads.values():
            codec = Codec(layout)
            word = int.from_bytes(bytes(range(1, 200)), "little") & ((1 << codec.width) - 1)
            fields = codec.unpack(word)
            assert codec.pack(fields) == word
            assert codec.pack({}) == 0
            constant = data.Const(layout, word)
            for key, value in fields.items():
                if isinstance(value, int):
                    assert value == constant[key]


def test_codec_refuses():
    from hub_rtl.contract.records import types_of

    codec = Codec(types_of(preset("tiny")).ack)
    with pytest.raises(
        ValueError, match="^value.context.nothing: no such field; the fields are counted, plain, "
    ):
        codec.pack({"context": {"nothing": 1}})
    with pytest.raises(ValueError, match="^value.ok = 2: must fit 1 bits$"):
        codec.pack({"ok": 2})
    with pytest.raises(ValueError, match="^value.ok = -1: must fit 1 bits$"):
        codec.pack({"ok": -1})
