# SPDX-License-Identifier: Apache-2.0
"""Golden model of the register bank: what each access answers, and what it orders. Cycle-free: an
order is done at once.

Written from ``docs/architecture.md`` (section 7) and the register manual; addresses come in as the
sidecar's ``register_map``.
"""

from hub_rtl.contract.packets import CommandOp, RegionOp, RegionState

__all__ = ["CsrModel", "geometry_rules_broken", "OKAY", "SLVERR"]

OKAY, SLVERR = 0, 2
TILE_BYTES_LIMIT = 1 << 24  # one tile's byte counter


def geometry_rules_broken(cfg, region, g, in_use):
    """Names of the rules that geometry ``g`` (fields as in the registers, pairs as tuples) breaks
    for ``region``."""
    broken = set()
    if in_use:
        broken.add("busy")
    if not g["valid"]:
        broken.add("valid")
    tile_rows = 1 << g["log2_tile"]
    tiles = -(-g["capacity"] // tile_rows)
    if g["row_bytes"] % 16 or not 16 <= g["row_bytes"] <= cfg.max_row_bytes:
        broken.add("row_bytes")
    if g["stride"] % cfg.packet_bytes or g["stride"] < g["row_bytes"]:
        broken.add("stride")
    if any(base % cfg.packet_bytes for base in g["base"]) or any(
        word % 8 for word in (*g["spill_base"], g["flag_base"])
    ):
        broken.add("base")
    if not 1 <= g["capacity"] <= cfg.capacity:
        broken.add("capacity")
    if (
        g["group_base"] + tiles > cfg.groups
        or tile_rows > 1024
        or tile_rows * g["row_bytes"] >= TILE_BYTES_LIMIT
    ):
        broken.add("groups")
    if g["row_span"] < 1 or g["row_first"] + g["row_span"] > 1 << 24:
        broken.add("rows")
    if g["overflow_en"] and (g["overflow"] == region or g["overflow"] >= cfg.regions):
        broken.add("overflow")
    return broken


class CsrModel:
    """Registers of one hub.

    Parameters: ``cfg``; ``registers``, the sidecar's ``register_map``. ``effects`` collects orders
    as (kind, value): ``handle``, ``geometry``, ``dep``, ``window``, ``command``,
    ``region_command``, ``fetch``, ``snapshot``, ``clear_counters``, ``clear_log``. ``inputs`` holds
    what blocks show, by ``page.REGISTER.field``. ``banks`` maps (region, bank) to its status, for
    queries and geometry checks.
    """

    def __init__(self, cfg, registers):
        self.cfg = cfg
        self._registers, self._names = {}, {}
        for page in registers["pages"]:
            for register in page["registers"]:
                self._registers[register["address"]] = (page["name"], register)
                self._names[f"{page['name']}.{register['name']}"] = register
        self.inputs, self.banks, self.counters, self.handles = {}, {}, {}, {}
        self.effects = []
        self.reset()

    def reset(self):
        self.values = {
            f"{path}.{field['name']}": field["reset"]
            for path, register in self._names.items()
            for field in register["fields"]
            if field["access"] in ("rw", "w1c")
        }
        self.command_busy = self.region_busy = False
        self.used = False  # a store was taken, or a flit moved
        self.answer_status = 0
        self.snapshot = {}

    def address(self, path):
        return self._names[path]["address"]

    def get(self, path, field="value"):
        return self.values[f"{path}.{field}"]

    def raised(self, path, field):
        """Hardware sets a ``w1c`` field."""
        self.values[f"{path}.{field}"] = 1

    def answered(self, status):
        """The command of ``control.COMMAND`` was answered."""
        self.command_busy, self.answer_status = False, status

    # -- bus ---------------------------------------------------------------------------------------

    def read(self, address):
        """(data, response)"""
        if address & ~3 not in self._registers:
            return 0, SLVERR
        page, register = self._registers[address & ~3]
        path = f"{page}.{register['name']}"
        word = 0
        for field in register["fields"]:
            name = f"{path}.{field['name']}"
            if register["constant"]:
                value = field["reset"]
            elif register["external"]:
                counter, _, half = register["name"].lower().rpartition("_")
                total = self.snapshot.get(counter, 0)
                value = total & 0xFFFFFFFF if half == "lo" else total >> 32
            elif field["access"] == "wo":
                value = 0
            elif name in self.values:
                value = self.values[name]
            else:
                value = self._shown(name)
            word |= value << field["low"]
        return word, OKAY

    def _shown(self, name):
        own = {
            "control.STATUS.command_busy": self.command_busy,
            "control.ANSWER.busy": self.command_busy,
            "control.STATUS.region_busy": self.region_busy,
            "control.ANSWER.status": self.answer_status,
        }
        return int(own.get(name, self.inputs.get(name, 0)))

    def write(self, address, data, strobe=0xF):
        """Response. Orders go to ``effects``."""
        if address & ~3 not in self._registers or strobe != 0xF:
            return SLVERR
        page, register = self._registers[address & ~3]
        path = f"{page}.{register['name']}"
        fields = {f["name"]: data >> f["low"] & ((1 << f["width"]) - 1) for f in register["fields"]}
        kinds = {f["access"] for f in register["fields"]}
        if not kinds & {"rw", "w1c", "wo"}:
            return SLVERR
        if "wo" in kinds and not self._order(path, fields):
            return SLVERR
        if path == "id.RANK" and (self.used or data >= self.cfg.ranks):
            return SLVERR
        for field in register["fields"]:
            name = f"{path}.{field['name']}"
            if field["access"] == "rw":
                self.values[name] = fields[field["name"]]
            elif field["access"] == "w1c":
                self.values[name] &= ~fields[field["name"]]
        return OKAY

    # -- orders ------------------------------------------------------------------------------------

    def _wide(self, path):
        return self.get(f"{path}_LO") | self.get(f"{path}_HI") << 32

    def _order(self, path, fields):
        """False when the order cannot be taken."""
        return getattr(self, "_order_" + path.lower().replace(".", "_"))(fields)

    def _order_control_command(self, fields):
        return self._command(**fields)

    def _order_control_announce(self, fields):
        path = "control.ANNOUNCE_TO"
        to = {name: self.get(path, name) for name in ("owner", "epoch", "replica", "handle")}
        if not self._command(op=CommandOp.ANNOUNCE, **to, **fields):
            return False
        width = self.cfg.handle_width
        self.values[f"{path}.handle"] = (to["handle"] + 1) % (1 << width)
        return True

    def _command(self, **said):
        """One at a time; what the register does not say is 0."""
        if self.command_busy:
            return False
        self.command_busy = True
        names = ("op", "handle", "epoch", "owner", "abort", "replica", "bytes16", "more")
        self.effects.append(("command", dict.fromkeys(names, 0) | said))
        return True

    def _order_handles_commit(self, fields):
        index = self.get("handles.INDEX")
        if index >= self.cfg.handles:
            return False
        entry = {
            name: self.get("handles.FLAGS", name)
            for name in ("valid", "closed", "owner", "epoch", "log2_replicas", "lane_mode", "lane")
        }
        entry["row_bytes"] = self.get("handles.ROW_BYTES")
        entry["replica"] = [
            {name: self.get(f"handles.REPLICA{n}", name) for name in ("rank", "region")}
            for n in range(self.cfg.replicas)
        ]
        self.handles[index] = entry
        self.effects.append(("handle", {"index": index, "handle": entry}))
        return True

    def _order_handles_fetch(self, fields):
        index = self.get("handles.INDEX")
        if index >= self.cfg.handles:
            return False
        entry = self.handles.get(index)
        for name in ("valid", "closed", "owner", "epoch", "log2_replicas", "lane_mode", "lane"):
            self.values[f"handles.FLAGS.{name}"] = entry[name] if entry else 0
        self.values["handles.ROW_BYTES.value"] = entry["row_bytes"] if entry else 0
        for n in range(self.cfg.replicas):
            for name in ("rank", "region"):
                self.values[f"handles.REPLICA{n}.{name}"] = (
                    entry["replica"][n][name] if entry else 0
                )
        self.effects.append(("fetch", {"index": index}))
        return True

    def _order_regions_commit(self, fields):
        region = self.get("regions.INDEX")
        if region >= self.cfg.regions:
            return False
        g = {
            name: self.get("regions.FLAGS", name)
            for name in ("valid", "overflow_en", "flag_en", "log2_tile", "expected", "overflow")
        }
        g |= {
            name: self.get(f"regions.{name.upper()}")
            for name in ("stride", "row_bytes", "capacity", "group_base", "row_first", "row_span")
        }
        g |= {
            "base": [self._wide("regions.BASE0"), self._wide("regions.BASE1")],
            "spill_base": [self._wide("regions.SPILL_BASE0"), self._wide("regions.SPILL_BASE1")],
            "flag_base": self._wide("regions.FLAG_BASE"),
        }
        in_use = any(
            self.banks.get((region, bank), {}).get("state", RegionState.FREE) != RegionState.FREE
            for bank in range(2)
        )
        broken = geometry_rules_broken(
            self.cfg, region, g, in_use or self.region_busy == ("region", region)
        )
        for rule in broken:
            self.raised("regions.ERROR", rule)
        if broken:
            self.raised("control.IRQ_STATUS", "geometry")
        else:
            self.effects.append(("geometry", {"region": region, "geometry": g}))
        return True

    def _order_regions_command(self, fields):
        region = self.get("regions.INDEX")
        last, again = region + fields.pop("more"), fields["again"]
        if last >= self.cfg.regions or self.region_busy:
            return False
        if again and fields["op"] != RegionOp.RELEASE:
            return False
        self.effects.append(("region_command", fields | {"region": region, "last": last}))
        return True

    def _order_regions_query(self, fields):
        region = self.get("regions.INDEX")
        if region >= self.cfg.regions:
            return False
        status = self.banks.get((region, fields["value"]), {})
        for name in ("state", "epoch", "error", "closes"):
            self.inputs[f"regions.STATE.{name}"] = status.get(name, 0)
        for name in ("sent", "acked", "refused"):
            self.inputs[f"regions.{name.upper()}_LO.value"] = status.get(name, 0) & 0xFFFFFFFF
            self.inputs[f"regions.{name.upper()}_HI.value"] = status.get(name, 0) >> 32
        self.inputs["regions.ROWS.value"] = status.get("rows", 0)
        self.inputs["regions.TOLD.value"] = status.get("told", 0)
        for name in ("valid", "rank"):
            self.inputs[f"regions.BLAME.{name}"] = status.get("blame", {}).get(name, 0)
        for n in range(-(-self.cfg.ranks // 32)):
            for name in ("missing", "silent"):
                bits = status.get(name, 0) >> 32 * n & 0xFFFFFFFF
                self.inputs[f"regions.{name.upper()}{n}.value"] = bits
        return True

    def _order_deps_commit(self, fields):
        index = self.get("deps.INDEX")
        if index >= self.cfg.dep_ranges:
            return False
        self.effects.append(
            (
                "dep",
                {
                    "index": index,
                    "range": {
                        "armed": self.get("deps.FLAGS", "armed"),
                        "log2_stride": self.get("deps.FLAGS", "log2_stride"),
                        "base": self._wide("deps.BASE"),
                        "limit": self._wide("deps.LIMIT"),
                        "group_base": self.get("deps.GROUP_BASE"),
                        "threshold": self.get("deps.THRESHOLD"),
                    },
                },
            )
        )
        return True

    def _order_windows_commit(self, fields):
        rank = self.get("windows.INDEX")
        if rank >= self.cfg.ranks:
            return False
        self.effects.append(
            (
                "window",
                {
                    "rank": rank,
                    "window": {
                        "base": self._wide("windows.BASE"),
                        "limit": self._wide("windows.LIMIT"),
                    },
                },
            )
        )
        return True

    def _order_counters_snapshot(self, fields):
        self.snapshot = dict(self.counters)
        self.effects.append(("snapshot", {}))
        return True

    def _order_counters_clear(self, fields):
        self.counters.clear()
        self.effects.append(("clear_counters", {}))
        return True

    def _order_logs_clear(self, fields):
        self.effects.append(("clear_log", {}))
        return True
