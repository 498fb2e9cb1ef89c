#!/usr/bin/env python3
"""Registers, shared memory and spills of every kernel, from what nvcc -Xptxas -v printed.

    python3 tests/kernel_table.py [--all] LOG...        (- reads the standard input)

Kernels made from formulas are thousands, so the table has one line for all of a name, with the least and the most; --all
prints each.  Shared memory is what the kernel has of its own; what its launch asks for comes on top.  Ends with 1 if a
kernel of products or of attention spills registers, or if there is no kernel at all.
"""
import collections, re, subprocess, sys

must_not_spill = re.compile(r"matmul|tensor_core|add_pieces|attend")
formula_kernels = re.compile(r"^(map|broadcast|lanes_rows|warp_rows|block_rows|reduce)_kernel")
arguments = [a for a in sys.argv[1:] if a != "--all"]
everything = "--all" in sys.argv[1:]
if not arguments:
    sys.exit(__doc__)

Kernel = collections.namedtuple("Kernel", "name architecture registers shared spilled")


def number(pattern, line):
    found = re.search(pattern, line)
    return int(found.group(1)) if found else 0


def read(lines):
    kernels, mangled, architecture, spilled = {}, None, "", 0
    for line in lines:
        entry = re.search(r"Compiling entry function '([^']+)' for '([^']+)'", line)
        if entry:
            mangled, architecture, spilled = entry.group(1), entry.group(2), 0
        elif mangled and "bytes spill stores" in line:
            spilled = number(r"(\d+) bytes spill stores", line) + number(r"(\d+) bytes spill loads", line)
        elif mangled and re.search(r"Used \d+ registers", line):
            kernels[mangled, architecture] = Kernel(mangled, architecture, number(r"Used (\d+) registers", line),
                                                    number(r"(\d+) bytes smem", line), spilled)
            mangled = None
    return list(kernels.values())


def without_arguments(name):
    """The name up to the parenthesis that opens the arguments: not one inside of <>, nor an anonymous namespace."""
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0 and not name.startswith("(anonymous", i):
            return name[:i]
    return name


def readable(kernels):
    try:
        names = subprocess.run(["c++filt"], input="\n".join(k.name for k in kernels), text=True, capture_output=True,
                               check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [k.name for k in kernels]
    short = []
    for kernel, name in zip(kernels, names):
        name = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::|<unnamed>::", "", without_arguments(name))
        name = re.sub(r"\b(orrery|cuda|nn|detail)::|^void ", "", name)
        short.append(kernel._replace(name=name))
    return sorted(short)


def spread(values):
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


lines = []
for path in arguments:
    with sys.stdin if path == "-" else open(path, errors="replace") as file:
        lines += file
kernels = readable(read(lines))
groups = collections.OrderedDict()
for k in kernels:
    together = not everything and formula_kernels.match(k.name)
    groups.setdefault((together.group(0) + "<...>" if together else k.name, k.architecture), []).append(k)

print(f"{'registers':>9} {'shared':>9} {'spilled bytes':>13} {'kernels':>7}  name")
for (name, architecture), group in groups.items():
    spilled = [k for k in group if k.spilled]
    spills = "0" if not spilled else spread([k.spilled for k in spilled]) + (f" in {len(spilled)}" if len(group) > 1 else "")
    print(f"{spread([k.registers for k in group]):>9} {spread([k.shared for k in group]):>9} {spills:>13} {len(group):>7}  "
          f"{architecture} {name if len(name) <= 110 else name[:107] + '...'}")

bad = [k for k in kernels if k.spilled and must_not_spill.search(k.name)]
for k in bad:
    print(f"spills {k.spilled} bytes: {k.architecture} {k.name}")
print(f"{len(kernels)} kernels, {sum(1 for k in kernels if k.spilled)} spill, {len(bad)} of these are products or attention")
sys.exit(bool(bad) or not kernels)
