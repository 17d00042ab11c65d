# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for memories in a netlist: registers at the ports, so that the logic around a memory is
kept and timed."""

import json

__all__ = ["MODEL", "memory_cells", "memory_models"]

MODEL = "MEMORY_"  # name of a stand-in, followed by the number of its memory


def memory_cells(path):
    """Every memory in ``path`` (Yosys' JSON of one flat module ``top``), in a fixed order: [{name,
    ports, parameters}]; of each port the nets, of the parameters the names."""
    top = json.loads(path.read_text())["modules"]["top"]
    return [
        {
            "name": name,
            "ports": dict(sorted(cell["connections"].items())),
            "parameters": sorted(cell["parameters"]),
        }
        for name, cell in sorted(top["cells"].items())
        if cell["type"] == "$mem_v2"
    ]


def memory_models(cells):
    """Verilog of one module per memory, and the Yosys passes that put it in the memory's place.

    Every read bit comes from a register and every net that enters goes to one: a memory that
    answers as fast as a register and asks for no more set-up than one. A real macro is slower; what
    the logic around leaves of the cycle is for it.
    """
    texts, passes = [], []
    for number, cell in enumerate(cells):
        ports = {port: bits for port, bits in cell["ports"].items() if bits}
        outputs = len(ports["RD_DATA"])
        # One pin per net: a word's write enables are one pin of a macro, though one bit each of the
        # port.
        pins = {
            bit: f"{port}[{n}]"
            for port, bits in ports.items()
            if port != "RD_DATA" and not port.endswith("_CLK")
            for n, bit in reversed(list(enumerate(bits)))
            if isinstance(bit, int)
        }
        pins = list(pins.values())
        # Output registers take a pin each, the rest of them each other; registers that nobody reads
        # take the other pins.
        sources = (pins + [f"RD_DATA[{n}]" for n in range(outputs)])[:outputs]
        lists = [
            f"input [{len(bits) - 1}:0] {port}" for port, bits in ports.items() if port != "RD_DATA"
        ]
        body = [f"always @(posedge WR_CLK[0]) RD_DATA <= {{{', '.join(reversed(sources))}}};"]
        if rest := pins[outputs:]:
            body += [
                f"(* keep *) reg [{len(rest) - 1}:0] taken;",
                f"always @(posedge WR_CLK[0]) taken <= {{{', '.join(reversed(rest))}}};",
            ]
        ports_text = ", ".join([*lists, f"output reg [{outputs - 1}:0] RD_DATA"])
        texts.append(
            f"module {MODEL}{number} ({ports_text});\n" + "\n".join(body) + "\nendmodule\n"
        )
        unset = " ".join(f"-unset {each}" for each in cell["parameters"])
        passes += [
            f"setparam {unset} c:{cell['name']}",
            f"chtype -set {MODEL}{number} c:{cell['name']}",
        ]
    return "".join(texts), passes
