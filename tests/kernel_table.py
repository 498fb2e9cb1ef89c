#!/usr/bin/env python3
"""Registers, shared memory and spills of every kernel, from the output of nvcc -Xptxas -v.

    python3 tests/kernel_table.py [--all] [--shared=FILE] LOG...        (- reads the standard input)

Thousands of kernels are made from formulas, so the table has one line for all kernels of a name that differ only in the
formula, with the least and the most; --all prints each.  Shared memory is requested at launch, not when compiling:
FILE has the requests of the emulated kernels (ORRERY_SHARED_MEMORY=FILE build/cuda_tests); "?" marks a kernel that
it lacks.  Banks: accesses of ldmatrix and cp.async to shared memory, as a multiple of the least, 1.00.  Sectors: the
32-byte sectors of device memory that the lanes of a warp read or wrote together, as a multiple of the fewest that
contain as many bytes: of cp.async, and in a build with -DORRERY_WATCH_ACCESSES=ON of every load and store; repeated
reads of a value count each time, as if there were no cache.  The exit code is 1 if a kernel of products or of attention
spills registers (except may_spill), if one requests more than 99 KB, or if there is no kernel.
"""
import collections, re, subprocess, sys

must_not_spill = re.compile(r"matmul|tensor_core|add_splits|attention")
formula_kernels = re.compile(r"^(map|broadcast|lanes_rows|warp_rows|block_rows|reduce)_kernel")
most_shared = 99 * 1024  # of a consumer card
most_of_groups = 227 * 1024
# Bytes that these kernels may spill, because they spill outside of their loops (checked by gpu_static/count.py).
may_spill = {
    ("sm_120", "tensor_core_kernel<192,"): 72,
}
arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
everything = "--all" in sys.argv[1:]
if not arguments:
    sys.exit(__doc__)

# traffic: of ldmatrix with banks, of cp.async with banks, with sectors; each the actual count, then the least
Kernel = collections.namedtuple("Kernel", "name architecture registers shared spilled traffic", defaults=((),))


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
            registers, shared = number(r"Used (\d+) registers", line), number(r"(\d+) bytes smem", line)
            kernels[mangled, architecture] = Kernel(mangled, architecture, registers, shared, spilled)
            mangled = None
    return list(kernels.values())


def without_arguments(name):
    """Returns the name up to the parenthesis of the arguments: not one inside of <>, nor an anonymous namespace."""
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0 and not name.startswith("(anonymous", i):
            return name[:i]
    return name


def shortened(name):
    name = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::|<unnamed>::", "", without_arguments(name))
    return re.sub(r"\b(orrery|cuda|nn|detail)::|^void ", "", name)


def readable(kernels):
    try:
        names = subprocess.run(["c++filt"], input="\n".join(k.name for k in kernels), text=True, capture_output=True,
                               check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [k.name for k in kernels]
    return sorted(k._replace(name=shortened(name)) for k, name in zip(kernels, names))


def asked_for(path):
    """Returns the most bytes that a launch of each name requested, and its traffic."""
    asked = {}
    with open(path) as file:
        for line in file:
            module, address, *numbers = line.rstrip("\n").split("\t")
            asked.setdefault(module, {})[int(address, 16)] = tuple(map(int, numbers))
    most = {}
    for module, sizes in asked.items():
        symbols = subprocess.run(["nm", "-C", module], text=True, capture_output=True, check=True).stdout
        for line in symbols.splitlines():
            address, _, name = line.partition(" ")
            found = sizes.get(int(address, 16)) if address.strip() else None
            if found is not None:
                name = shortened(name[2:])
                size, *traffic = most.get(name, (0,) * len(found))
                most[name] = (max(found[0], size), *map(sum, zip(traffic, found[1:])))
    return most


def times_the_least(kernels, n):
    """Returns the worst of the kernels; n: index in `traffic` of the actual count, before the least."""
    known = [k.traffic[n] / k.traffic[n + 1] for k in kernels if len(k.traffic) > n + 1 and k.traffic[n + 1]]
    return f"{max(known):.2f}" if known else "-"


def spread(values):
    known = [v for v in values if v is not None]
    if not known:
        return "?"
    low, high = min(known), max(known)
    return str(low) if low == high else f"{low}-{high}"


def family(name):
    """One name for kernels that differ in the formula they were made from."""
    of_formula = formula_kernels.match(name)
    if of_formula:
        return of_formula.group(0) + "<...>"
    return re.sub(r"\b((?:PointwiseWeights|Activated|ActivatedBackward)<(?:\w+, )?)\w+>", r"\1...>", name)


lines = []
for path in arguments:
    with sys.stdin if path == "-" else open(path, errors="replace") as file:
        lines += file
shared = [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("--shared=")]
asked = {name: size for path in shared for name, size in asked_for(path).items()}
kernels = [k._replace(shared=k.shared + asked[k.name][0] if k.name in asked else None,
                      traffic=asked.get(k.name, (0,))[1:]) for k in readable(read(lines))]
groups = collections.OrderedDict()
for k in kernels:
    groups.setdefault((k.name if everything else family(k.name), k.architecture), []).append(k)

print(f"{'registers':>9} {'shared':>9} {'banks':>9} {'sectors':>7} {'spilled bytes':>13} {'kernels':>7}  name")
for (name, architecture), group in groups.items():
    spilled = [k for k in group if k.spilled]
    spills = "0" if not spilled else spread([k.spilled for k in spilled]) + (f" in {len(spilled)}" if len(group) > 1 else "")
    banks = f"{times_the_least(group, 0)} {times_the_least(group, 2)}"
    print(f"{spread([k.registers for k in group]):>9} {spread([k.shared for k in group]):>9} "
          f"{banks:>9} {times_the_least(group, 4):>7} {spills:>13} {len(group):>7}  "
          f"{architecture} {name if len(name) <= 110 else name[:107] + '...'}")

def spills_too_much(kernel):
    allowed = [n for (architecture, name), n in may_spill.items()
               if kernel.architecture == architecture and kernel.name.startswith(name)]
    return bool(must_not_spill.search(kernel.name)) and kernel.spilled > max(allowed, default=0)


bad = [k for k in kernels if spills_too_much(k)]
for k in bad:
    print(f"spills {k.spilled} bytes: {k.architecture} {k.name}")


def limit(kernel):
    """Warp groups ask for all that the one card has that runs them; what others are asked for, cuda_tests_86 sees."""
    of_groups = kernel.name.startswith(
        ("tensor_core_kernel<", "tensor_core_pipeline_kernel<", "tensor_core_runs_kernel", "warp_group_"))
    return most_of_groups if of_groups else most_shared


large = [k for k in kernels if k.shared is not None and k.shared > limit(k)]
for k in large:
    print(f"asks for {k.shared} bytes of shared memory, more than {limit(k)}: {k.name}")
known = [k.shared for k in kernels if k.shared is not None]
print(f"{len(kernels)} kernels; shared memory of at most {max(known, default=0)} bytes, known of {len(known)}; "
      f"{sum(1 for k in kernels if k.spilled)} spill, {len(bad)} of products or attention more than they may")
sys.exit(bool(bad or large) or not kernels)
