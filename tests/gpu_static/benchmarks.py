#!/usr/bin/env python3
"""Prints the expected time of each benchmark of tests/gpu.sh on a GPU, next to the measured one.

    python3 benchmarks.py [--card NAME] [--counts COUNTS] [--like REGEX] [MEASURED...]

NAME: as nvidia-smi prints it; without it, all GPUs that model.py knows are listed.  COUNTS: the output of `count.py
--build ... --step --json` for a GPU of the same architecture.  MEASURED: the output of `orrery bench --json`, or
compare.py's --json.  REGEX: matches names such as "bf16 gemm/2048x2048x2048".

Times of products, attention and steps in bf16 follow from their recorded launches (launches/benchmarks.tsv) and the
counted instructions of their kernels, as in model.py.  For kernels without counts, all in f32, only a bound is known:
>= is the time that the bandwidth or the f32 units of the GPU allow, plus the launches; arrays of 16 MB that stay in the
level-2 cache from call to call may be faster.
"""
import argparse, collections, json, pathlib, re

import model

Benchmark = collections.namedtuple("Benchmark", "dtype case work unit parameters launches")


def read_benchmarks(path=model.here / "launches" / "benchmarks.tsv"):
    result = []
    for text in pathlib.Path(path).read_text().split("# benchmark\t")[1:]:
        head, *lines = text.splitlines()
        dtype, case, work, unit, parameters = head.split("\t")
        result.append(Benchmark(dtype, case, float(work), unit, int(parameters), model.launches_of(lines)))
    return result


def expected(benchmark, card, counts):
    """Returns (seconds, "" or ">=") of a benchmark; a Failure if a kernel has no counts or its memory is unknown."""
    if benchmark.dtype == "bf16":
        sizes = model.sizes_of(benchmark.launches, benchmark.parameters)
        array = sizes.tokens * sizes.width * 2
        others = None if benchmark.parameters else 3 * array  # a step knows them all; around attention: two in, one out
        return model.Step(card, sizes, benchmark.launches, counts, others).total("likely"), ""
    per_second = {"GFLOP/s": card.multiprocessors * card.lanes * 2 * card.clock,
                  "GB/s": card.bandwidth * model.memory_share}[benchmark.unit]
    return benchmark.work * 1e9 / per_second + sum(l.times for l in benchmark.launches) * model.launch_time, ">="


def read_measured(path, benchmarks):
    """Returns the milliseconds of each (dtype, case)."""
    text = pathlib.Path(path).read_text()
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        whole = {}
    measured = {}
    if "rows" in whole:  # compare.py's, which has rates alone
        dtype = "bf16" if whole["bf16"] else "f32"
        work = {f.case: f.work for f in benchmarks if f.dtype == dtype}
        for row in whole["rows"]:
            if row["ours"] and row["case"] in work:
                measured[dtype, row["case"]] = work[row["case"]] / row["ours"] * 1e3
        return measured
    for line in text.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            dtype = row["dtype"].split("-")[0]
            measured[dtype, row["case"]] = row["ms"]
            if "forward_ms" in row:
                measured[dtype, row["case"] + "/forward"] = row["forward_ms"]
    return measured


def card_named(name):
    return next((key for key, card in model.cards.items() if re.search(card.calls_itself, name)), None)


def text_of(benchmark, card, counts, failures):
    try:
        seconds, sign = expected(benchmark, card, counts)
    except model.Failure as failure:
        failures.append(str(failure).splitlines()[0])
        return None, "?"
    return seconds, f"{sign}{seconds * 1e3:.4f}"


def print_table(benchmarks, measured, cards, rows):
    failures = []
    print(f"{'':40} {'':4} {'measured ms':>12} " + " ".join(f"{c.name + ' ms':>18}" for c in cards) +
          (f" {'times':>6}" if cards and measured else "") + ("  modelled, not measured" if cards else ""))
    for benchmark in benchmarks:
        took = measured.get((benchmark.dtype, benchmark.case))
        if measured and took is None:
            continue
        texts, times = [], ""
        for card in cards:
            seconds, text = text_of(benchmark, card, model.counts_of(rows, card), failures)
            texts.append(f"{text:>18}")
            times = f" {took / 1e3 / seconds:6.2f}" if took and seconds else ""
        own = "-" if took is None else f"{took:.4f}"
        print(f"{benchmark.case:40} {benchmark.dtype:4} {own:>12} {' '.join(texts)}{times}".rstrip())
    for key in measured.keys() - {(f.dtype, f.case) for f in benchmarks}:
        print(f"{key[1]:40} {key[0]:4} {measured[key]:12.4f}  launches/benchmarks.tsv does not have it")
    for failure, n in collections.Counter(failures).items():
        print(f"? {failure}" + (f" ({n} benchmarks)" if n > 1 else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="*")
    parser.add_argument("--card", default="")
    parser.add_argument("--counts")
    parser.add_argument("--like", default="")
    args = parser.parse_args()
    counted = pathlib.Path(args.counts) if args.counts else None
    rows = json.loads(counted.read_text()) if counted and counted.exists() and counted.stat().st_size else []
    cards = list(model.cards.values())
    if args.card:
        key = card_named(args.card)
        cards = [model.cards[key]] if key else []
        if not key:
            print(f"the model does not know the card '{args.card}', so nothing is expected of it; it knows " +
                  ", ".join(c.name for c in model.cards.values()))
    benchmarks = [f for f in read_benchmarks() if re.search(args.like, f"{f.dtype} {f.case}")]
    measured = {}
    for path in args.measured:
        measured.update(read_measured(path, benchmarks))
    print_table(benchmarks, measured, cards, rows)


if __name__ == "__main__":
    main()
