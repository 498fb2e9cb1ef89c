#!/usr/bin/env python3
"""Counts the instructions of kernels' main loops in their machine code; needs no GPU.

    python3 count.py --build CHECKOUT [--arch 80 90] [--only REGEX] [--also REGEX]    compiles and counts hot kernels
    python3 count.py FILE_OR_FOLDER... [--kernels REGEX]                  cubins, object files, a build folder
    ... [--at-most '[COLUMN:]REGEX=NUMBER']... [--launches FILE]... [--json]

A kernel with tensor-core instructions has a row of: instructions per HMMA.16816 on the path that passes all HMMA of a
trip of the main loop with the fewest instructions (README.md), how many of them load fragments (LDSM), compute in
floating point, compute whole numbers and addresses, or control; instructions from the loop's end to the kernel's, and
the same for 64 outputs of a product, with those of a group that finishes what others multiply; registers; KB of shared memory that a launch requests
(--launches: output of launches.cpp; default: launches/*.tsv); loads and stores of spilled registers in the kernel,
and in the loop; the peer of peers.json, and ours as a multiple of it.  Other kernels have a row of instructions per
16 bytes stored (loaded, if it stores nothing) in the loop that moves the most, or the length of the listing.

--at-most: ends with 1 if a row whose name has REGEX has more than NUMBER, or if there is no such row.  COLUMN: loop
(the default: instructions per HMMA, or what such a row has), epilogue (after the loop, for 64 outputs), registers,
spills, loop_spills; ratio:CARD BATCH, such as 'ratio:h100 8=1.1', is model.py's ratio for a step, and implies --step.
With --build, a peer without a kernel is an error, too.
"""
import argparse, collections, concurrent.futures, glob, json, os, pathlib, re, shlex, shutil, signal, subprocess
import sys, time

import model, sass
from names import shortened

here = pathlib.Path(__file__).resolve().parent
# Patterns of the sources with the hot kernels; the files that nvcc compiles are searched for them.
hot_sources = {
    "gradients of weights": r"void multiply_in_runs\(const Matmul",
    "products of bf16": r"void multiply\(const Matmul<bf16>",
    "softmax attention": r"attention_forward\(problem, SoftmaxWeights",
    "relu attention": r"REGISTER_ACTIVATION\(Relu\)",
    "products with gelu": r"REGISTER_ACTIVATION\(GeluTanh\)",
}
# With --step, also the kernels of a step whose instructions bound their time.
step_sources = {
    "cross-entropy": r"struct RowLoss",
    "layer norm": r"REGISTER_NORMALIZATION\(Layer",
    "AdamW": r"REGISTER_OPTIMIZER\(AdamW\)",
}
step_kernels = r"RowLoss|RowGradient|ParameterTerms|Adam|RowBody<(Forward|InputGradient)"
hot_kernels = r"tensor_core"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--build", metavar="CHECKOUT")
    parser.add_argument("--arch", nargs="+", default=["80", "90"])
    parser.add_argument("--only", default="", metavar="REGEX", help="of the hot sources, by their kernels: products")
    parser.add_argument("--also", metavar="REGEX", help="compile the sources whose path has this too")
    parser.add_argument("--folder", help="where --build puts its files; CHECKOUT/build/gpu_static")
    parser.add_argument("--kernels", metavar="REGEX", help=f"default: {hot_kernels} with --build, else all")
    parser.add_argument("--launches", action="append", default=[], metavar="FILE")
    parser.add_argument("--at-most", action="append", default=[], metavar="REGEX=NUMBER")
    parser.add_argument("--step", action="store_true", help="with --build, all that model.py wants to be counted")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.build and not args.files:
        parser.error("give --build CHECKOUT, or files")
    try:
        limits = [read_limit(text) for text in args.at_most]
    except ValueError as error:
        parser.error(str(error))
    args.step |= any(column == "ratio" for column, *_ in limits)
    tools = find_tools()
    files = [f for given in args.files for f in device_files(given)]
    if args.build:
        files += compile_hot(pathlib.Path(args.build), args.folder, args.arch, args.also, args.step, args.only)
    wanted = re.compile(args.kernels or (f"{hot_kernels}|{step_kernels}" if args.step else hot_kernels) if args.build
                        else args.kernels or ".")
    shared = read_shared(args.launches or sorted(glob.glob(str(here / "launches" / "*.tsv"))))
    rows = []
    for file in files:
        rows += [row_of(kernel, shared) for kernel in read_kernels(tools, file, wanted)]
    if not rows:
        sys.exit(f"no kernel in {len(files)} files has a name with {wanted.pattern}")
    rows = unique(rows)
    early = [f"{r['kernel']}, {r['arch']}" for r in rows if r.pop("early")]
    if args.build and early:  # kernels of other libraries start in order
        sys.exit("accesses before wait_for_earlier, or no wait or no allow_next: " + "; ".join(early))
    strangers = compare(rows, json.loads((here / "peers.json").read_text())["peers"])
    if args.build and not args.kernels and strangers:
        sys.exit("peers.json: no kernel has a name with " + " or ".join(strangers))
    rows.sort(key=lambda r: (r["arch"], "per_hmma" not in r, bool(r.get("sum")), r["kernel"]))
    print(json.dumps(rows, indent=1)) if args.json else print_table(rows)
    sys.exit(exceeded(rows, limits))


# ---- tools


def find_tools():
    """Finds cuobjdump, and nvdisasm, which it calls: in the PATH, a CUDA toolkit, or Python's packages."""
    places = [None, *glob.glob("/usr/local/cuda*/bin")]
    places += [str(p) for folder in sys.path for p in pathlib.Path(folder or ".").glob("nvidia/cu*/bin")]
    found = {name: next(filter(None, (shutil.which(name, path=p) for p in places)), None)
             for name in ("cuobjdump", "nvdisasm")}
    missing = [name for name, path in found.items() if not path]
    if missing:
        sys.exit(f"{' and '.join(missing)} not found: pip install " + " ".join(f"nvidia-cuda-{n}" for n in missing) +
                 "  (13.5.37 is known to work; in a virtual environment, with whose python3 this is then run)")
    os.environ["PATH"] += os.pathsep + str(pathlib.Path(found["nvdisasm"]).parent)
    return found["cuobjdump"]


def output_of(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:300]}\n{done.stderr or done.stdout}")
    return done.stdout


def device_files(given):
    path = pathlib.Path(given)
    if not path.is_dir():
        return [path] if path.exists() else sys.exit(f"{given} does not exist")
    found = [f for pattern in ("*.cubin", "*.o") for f in sorted(path.rglob(pattern))]
    return [f for f in found if f.suffix == ".cubin" or b".nv_fatbin" in f.read_bytes()]


# ---- compiling


def compile_hot(checkout, folder, architectures, also, step=False, only=""):
    folder = pathlib.Path(folder or checkout / "build" / "gpu_static").resolve()
    begin = time.time()
    output_of("cmake", "-S", checkout, "-B", folder / "cmake", "-DORRERY_CUDA=ON", "-DORRERY_TESTS=OFF",
              "-DORRERY_EXAMPLES=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = json.loads((folder / "cmake" / "compile_commands.json").read_text())
    by_nvcc = {c["file"]: c for c in commands if re.search(r"(^|/)nvcc(\s|$)", c["command"])}
    chosen = {}
    sources = {**hot_sources, **(step_sources if step else {})}
    for what, pattern in ((w, p) for w, p in sources.items() if re.search(only, w)):
        holds = [f for f in by_nvcc if re.search(pattern, pathlib.Path(f).read_text())]
        if not holds:
            sys.exit(f"{what}: no source that nvcc compiles has {pattern}; mend hot_sources in {__file__}")
        chosen.update(dict.fromkeys(holds))
    chosen.update(dict.fromkeys(f for f in by_nvcc if also and re.search(also, f)))

    def compile_one(file, architecture):
        words = shlex.split(by_nvcc[file]["command"])
        words = words[next(n for n, w in enumerate(words) if w.rsplit("/", 1)[-1] == "nvcc"):]
        target = folder / f"{pathlib.Path(file).stem}.sm_{architecture}.cubin"
        kept, skip = [], False
        for word in words:
            if skip or word in ("-o", "-MF", "-MT"):
                skip = not skip
            elif word not in ("-c", "-dc", "-MD") and not re.match(r"-?-(generate-code|gencode|arch)", word):
                kept.append(word)
        output_of(*kept, "-cubin", f"-arch=sm_{architecture}", "-o", target, cwd=by_nvcc[file]["directory"])
        return target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_one, f, a) for f in chosen for a in architectures]
        made = [job.result() for job in jobs]
    print(f"{len(made)} cubins in {time.time() - begin:.0f} s: " +
          ", ".join(os.path.relpath(f, checkout.resolve()) for f in chosen), file=sys.stderr)
    return made


# ---- reading

Kernel = collections.namedtuple("Kernel", "name arch code registers shared")


def read_kernels(cuobjdump, file, wanted):
    usage, arch = {}, ""
    for line in output_of(cuobjdump, "-res-usage", file).splitlines():
        arch = found.group(1) if (found := re.search(r"\barch = (sm_\w+)", line)) else arch
        if found := re.match(r"\s*Function (\S+):", line):
            mangled = found.group(1)
        elif found := re.match(r"\s*REG:(\d+) .*\bSHARED:(\d+)", line):
            usage.setdefault(mangled, {})[arch] = tuple(map(int, found.groups()))
    names = {m: n for m, n in zip(usage, map(shortened, demangled(list(usage)))) if wanted.search(n)}
    if not names:
        return
    together = ",".join(names)
    chosen = [f"-fun={together}"] if len(names) < len(usage) and len(together) < 100_000 else []  # a word's limit
    name, code = None, []

    def finished():
        of_arch = usage[name]
        registers, shared = of_arch.get(arch) or next(iter(of_arch.values()))
        return Kernel(names[name], arch, code, registers, shared)

    for line in output_of(cuobjdump, "-sass", *chosen, file).splitlines():
        if (found := re.search(r"code for (sm_\w+)", line)) or (next_name := re.match(r"\s*Function : (\S+)", line)):
            if code:
                yield finished()
            name, code = None if found else next_name.group(1), []
            arch = found.group(1) if found else arch
        elif name in names and (i := sass.parse(line)):
            code.append(i)
    if code:
        yield finished()


def demangled(names):
    return output_of("c++filt", input="\n".join(names)).splitlines() if names else []


def read_shared(files):
    """Returns the bytes of shared memory that launches of each kernel requested."""
    most = {}
    for launch in (l for file in files for l in model.read_launches(file)):
        most[launch.kernel] = max(launch.shared, most.get(launch.kernel, 0))
    return most


# ---- counting


def is_early(kernel):
    """Whether the kernel accesses global memory before it has waited for earlier kernels (cuda/runtime/launch.cuh), in
    the order of the listing.  nvcc must not move a load to before the wait."""
    ops = list(map(sass.base, kernel.code))
    if set(ops) <= {"LDC", "EXIT", "BRA", "NOP"}:  # a kernel of 90a in code for 90
        return False
    waits = ops.index("ACQBULK") if "ACQBULK" in ops else len(ops)
    return int(re.sub(r"\D", "", kernel.arch)) >= 90 and (
        "PREEXIT" not in ops or waits == len(ops) or any(op in sass.global_accesses for op in ops[:waits]))


def row_of(kernel, shared):
    row = {"kernel": kernel.name, "arch": kernel.arch, "registers": kernel.registers, "listing": len(kernel.code),
           "early": is_early(kernel), "shared": shared.get(kernel.name),
           "spills": sum(sass.base(i) in ("LDL", "STL") for i in kernel.code)}
    flow = sass.Kernel(kernel.code)
    tensor = any(map(sass.tensor_work, kernel.code))
    way = flow.main_loop(sass.tensor_work if tensor else lambda i: sass.bytes_of(i, ("LDG", "LDGSTS", "STG")))
    if way is None:
        return row
    trip = flow.instructions(way)
    kinds = collections.Counter(map(sass.kind, trip))
    row["instructions"] = len(trip)
    row.update({"fp32_mufu": kinds["FP32"] + kinds["MUFU"], "int": kinds["INT"], "ctrl": kinds["CTRL"]})
    if tensor:
        hmma = sum(map(sass.tensor_work, trip))
        row["ldsm"] = kinds["LDSM"]
        after = flow.instructions(flow.after(way))
        row.update({"hmma": hmma, "per_hmma": len(trip) / hmma, "ldsm_per_hmma": kinds["LDSM"] / hmma,
                    "copied": sum(sass.bytes_of(i, ("LDGSTS",)) for i in trip), "after_loop": len(after),
                    "loop_spills": sum(sass.base(i) in ("LDL", "STL") for i in trip)})
        if "attention" not in kernel.name:
            least = flow.instructions(flow.least_trip(way))  # of blocks that sum no rows of A for a bias
            ldsm = sum(sass.kind(i) == "LDSM" for i in least)
            row["plain"] = {"instructions": len(least), "hmma": sum(map(sass.tensor_work, least)), "ldsm": ldsm}
            row["outputs"] = sass.sums_of(least)
            finishing = len(sass.finishing(kernel.code)) / 2  # for the outputs of two groups that multiply
            row["epilogue"] = (len(after) + finishing) * 64 / row["outputs"]
    else:
        loaded, stored = (sum(sass.bytes_of(i, ops) for i in trip) for ops in (("LDG", "LDGSTS"), ("STG",)))
        row.update({"loaded": loaded, "stored": stored, "per_16_bytes": len(trip) * 16 / (stored or loaded)})
    return row


def unique(rows):
    """Keeps one row of a kernel that several files contain."""
    return list({(r["kernel"], r["arch"], r.get("instructions"), r["listing"]): r for r in rows}.values())


def compare(rows, peers):
    """Adds peers to our rows.  If ours needs several kernels, adds a row for all of them: the instructions of each per
    HMMA, times the products that it multiplies, over the products that are needed.  Returns patterns of no kernel."""
    strangers = []
    for peer in peers:
        groups, before = collections.defaultdict(list), sum("peer" in r for r in rows)
        for row in rows:
            found = re.search(peer["ours"], row["kernel"]) if peer["ours"] and "per_hmma" in row else None
            if found and "products" not in peer:
                beside(row, peer)
            elif found:
                groups[row["arch"], found.groups()].append(row)
        for (arch, key), group in groups.items():
            products = [next(n for name, n in peer["products"].items() if re.search(name, r["kernel"])) for r in group]
            total = sum(r["per_hmma"] * n for r, n in zip(group, products)) / peer["needed"]
            ldsm = sum(r["ldsm_per_hmma"] * n for r, n in zip(group, products)) / peer["needed"]
            name = f"{peer['sum']}, {' '.join(key)}: {len(group)} kernels, per HMMA needed"
            rows.append({"kernel": name, "sum": True,
                         "arch": arch, "per_hmma": total, "ldsm_per_hmma": ldsm})
            beside(rows[-1], peer)
        if peer["ours"] and sum("peer" in r for r in rows) == before:
            strangers.append(peer["ours"])
    return strangers


def beside(row, peer):
    number = peer["per_hmma"].get(row["arch"])
    if number:
        row.update({"peer": peer["name"], "peer_per_hmma": number, "ratio": row["per_hmma"] / number})


columns = ("loop", "epilogue", "registers", "spills", "loop_spills", "ratio")


def read_limit(text):
    """(column, pattern, number) of [COLUMN:]REGEX=NUMBER."""
    pattern, separator, number = text.rpartition("=")
    if not separator:
        raise ValueError(f"--at-most {text}: [COLUMN:]REGEX=NUMBER is wanted")
    column, colon, rest = pattern.partition(":")
    return (column, rest, float(number)) if colon and column in columns else ("loop", pattern, float(number))


def ratio_of(rows, where):
    """Returns the model's ratio of our time to torch.compile's for "CARD BATCH"."""
    card, batch = where.split()
    return model.ratio(rows, model.cards[card], int(batch))


def exceeded(rows, limits):
    bad = 0
    for column, pattern, limit in limits:
        if column == "ratio":
            try:
                number = ratio_of(rows, pattern)
            except model.Failure as failure:
                print(failure, file=sys.stderr)
                number = float("inf")
            if number > limit:
                print(f"ratio {number:.2f} > {limit:g}: {pattern}", file=sys.stderr)
                bad += 1
            continue

        def number_of(row):
            loop = row.get("per_hmma", row.get("per_16_bytes", row.get("listing")))
            return loop if column == "loop" else row.get(column)

        matching = [r for r in rows if re.search(pattern, r["kernel"]) and number_of(r) is not None]
        if not matching:
            print(f"--at-most {column}:{pattern}: no such row", file=sys.stderr)
        for r in matching:
            if number_of(r) > limit:
                print(f"{column} {number_of(r):.2f} > {limit:g}: {r['arch']} {r['kernel']}", file=sys.stderr)
                bad += 1
        bad += not matching
    return int(bad > 0)


# ---- printing


def print_table(rows):
    def text(row, key, form="{}"):
        return form.format(row[key]) if row.get(key) is not None else "?" if key == "shared" else ""

    tensor = [r for r in rows if "per_hmma" in r]
    others = [r for r in rows if "per_hmma" not in r]
    if tensor:
        print("arch    instr/HMMA            LDSM/HMMA FP32+MUFU   INT  CTRL after /64 out  regs shared KB spills"
              " (loop)  peer  ratio  kernel")
    for r in tensor:
        of = "" if r.get("sum") else f"({r['instructions']}/{r['hmma']:g})"
        shared = "" if r.get("sum") else text({"shared": r["shared"] and r["shared"] / 1024}, "shared", "{:.0f}")
        print(f"{r['arch']:7} {r['per_hmma']:6.2f} {of:14} {r['ldsm_per_hmma']:9.3f} {text(r, 'fp32_mufu'):>9} "
              f"{text(r, 'int'):>5} {text(r, 'ctrl'):>5} {text(r, 'after_loop'):>5} "
              f"{text(r, 'epilogue', '{:.0f}'):>7} "
              f"{text(r, 'registers'):>5} {shared:>9} {text(r, 'spills'):>6} {text(r, 'loop_spills', '({})'):>6} "
              f"{text(r, 'peer_per_hmma', '{:.2f}'):>5} {text(r, 'ratio', '{:.2f}'):>6}  {r['kernel'][:110]}")
    for peer in dict.fromkeys(r["peer"] for r in tensor if "peer" in r):
        ours = [f"{r['kernel'].split('<')[0].split(',')[0]}" for r in tensor if r.get("peer") == peer]
        print(f"peer of {', '.join(dict.fromkeys(ours))}: {peer}")
    if others:
        print("arch    instr/16 B  a trip  loaded  stored FP32+MUFU   INT  CTRL listing  regs spills  kernel")
    for r in others:
        print(f"{r['arch']:7} {text(r, 'per_16_bytes', '{:.1f}'):>10} {text(r, 'instructions'):>7} "
              f"{text(r, 'loaded'):>7} "
              f"{text(r, 'stored'):>7} {text(r, 'fp32_mufu'):>9} {text(r, 'int'):>5} {text(r, 'ctrl'):>5} "
              f"{r['listing']:>7} {r['registers']:>5} {r['spills']:>6}  {r['kernel'][:110]}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # count.py ... | head
    main()
