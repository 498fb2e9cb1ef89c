#!/usr/bin/env python3
"""Trains the committed configurations on the real sets, three seeds each, and prints the results of the table in README.md.

    python3 examples/benchmarks/real_data.py --orrery build/orrery --data DATA --out runs/real [RUN...] [--seeds 1,2,3]

DATA has the sets in folders: images/fashion-mnist (four .gz), images/cifar10 (binary files), translation/multi30k,
translation/bible-kjv-luther1912 (train, valid, test .tsv.gz), text/novels and code/cpython-lib (train, valid .txt.gz);
the heads of the configurations name their sources.  The results of each seed are kept in real_data.json next to this
script, with the hash of their settings; kept seeds are not run again, and an interrupted run is resumed.  `--fresh`
ignores them.  Several calls may run in parallel, with `--threads=1` each: all results except the minutes are equal.
Prints one row per seed, then the means; the last line is "N passed, N failed".
"""
import argparse, fcntl, gzip, hashlib, json, math, pathlib, re, statistics, subprocess, sys, time, tomllib

parser = argparse.ArgumentParser()
parser.add_argument("runs", nargs="*")
parser.add_argument("--orrery", required=True)
parser.add_argument("--data", required=True, type=pathlib.Path)
parser.add_argument("--out", default="runs/real", type=pathlib.Path)
parser.add_argument("--seeds", default=[1, 2, 3], type=lambda text: [int(seed) for seed in text.split(",")])
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--fresh", action="store_true")
args = parser.parse_args()
kept = pathlib.Path(__file__).resolve().with_suffix(".json")
configs = pathlib.Path(__file__).resolve().parent.parent / "configs"
sets = {name: args.data / name for name in ("images/fashion-mnist", "images/cifar10", "translation/multi30k",
                                            "translation/bible-kjv-luther1912", "text/novels", "code/cpython-lib")}


def call(*words):
    """Returns a program's stdout, then its stderr: translate prints its score there."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout + "\n" + done.stderr


def figures_of(text):
    """Parses "validation loss 1.89, bits per character 2.7" into a dictionary."""
    return {name.strip(): float(value) for name, value in re.findall(r"([a-z][a-z ]*?) (-?[\d.]+)(?:,|$|\n)", text)}


def train(name, config, seed, *options):
    """Returns the metrics of the run's last validation, and its minutes."""
    out = args.out / f"{name}-{seed}"
    log = out.with_suffix(".log")
    if not log.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        started = time.time()
        resume = ["--resume=yes"] if any(out.glob("step_*")) else []
        text = call(args.orrery, "train", f"--config={configs / config}.toml", f"--seed={seed}", f"--out={out}",
                    f"--threads={args.threads}", *options, *resume)
        log.write_text(text + f"\nseconds {time.time() - started:.0f}\n")
    text = log.read_text()
    found = figures_of([line for line in text.splitlines() if line.startswith("validation loss")][-1])
    if args.threads == 0:
        found["minutes"] = float(re.search(r"seconds (\d+)", text)[1]) / 60
    return out, found


def evaluate(out, *options):
    text = call(args.orrery, "evaluate", f"--checkpoint={out}", f"--threads={args.threads}", "--bleu=no", *options)
    return float(re.search(r"loss ([\d.]+) nats", text)[1])


def bleu(out, folder, beam):
    text = call(args.orrery, "translate", f"--checkpoint={out}", f"--input={folder}/test_2016_flickr.de.gz",
                f"--reference={folder}/test_2016_flickr.en.gz", f"--beam={beam}", f"--threads={args.threads}")
    return float(re.findall(r"BLEU ([\d.]+)", text)[-1])


def fashion(name, config, seed, *options):
    return train(name, config, seed, f"--data={sets['images/fashion-mnist']}", *options)[1]


def cifar(name, config, seed, *options):
    return train(name, config, seed, f"--data={sets['images/cifar10']}", *options)[1]


def multi30k(name, config, seed, *options):
    folder = sets["translation/multi30k"]
    out, found = train(name, config, seed, f"--data={folder}/train.de.gz",
                       f"--translations={folder}/train.en.gz", f"--validation_data={folder}/val.de.gz",
                       f"--validation_translations={folder}/val.en.gz", *options)
    found["exchanged sources"] = evaluate(out, "--exchanged_sources=yes") - found["validation loss"]
    greedy, beam = bleu(out, folder, 1), bleu(out, folder, 5)
    return found | {"BLEU greedy": greedy, "BLEU beam 5": beam, "beam 5 over greedy": beam - greedy}


def novels(name, config, seed, *options):
    folder = sets["text/novels"]
    return train(name, config, seed, f"--data={folder}/train.txt.gz", f"--validation_data={folder}/valid.txt.gz",
                 *options)[1]


def python_library(name, config, seed, *options):
    folder = sets["code/cpython-lib"]
    train_text, valid_text = (gzip.open(folder / f"{part}.txt.gz").read() for part in ("train", "valid"))
    out, found = train(name, config, seed, f"--data={folder}/train.txt.gz",
                       f"--validation_data={folder}/valid.txt.gz", *options)
    state = json.loads((sorted(out.glob("step_*"))[-1] / "state.json").read_text())
    found["bits per byte"] = found["bits per character"] * len(valid_text.decode()) / len(valid_text)
    found["below the bigram model"] = bigram_bits(train_text, valid_text) - found["bits per byte"]
    found["tokens"] = len(state["tokenizer"]["tokens"])
    return found


def bigram_bits(train_text, valid_text):
    """Bits per byte of b l2 c(ab)/c(a) + l1 c(b)/N + l0/256, with the best weights on a grid for the evaluated text."""
    pairs, singles = {}, [0] * 256
    for a, b in zip(train_text, train_text[1:]):
        pairs[a, b] = pairs.get((a, b), 0) + 1
    for a in train_text:
        singles[a] += 1
    judged = {}
    for a, b in zip(valid_text, valid_text[1:]):
        judged[a, b] = judged.get((a, b), 0) + 1
    best = math.inf
    for l2 in (0.9, 0.95, 0.98, 0.99, 0.995, 0.999):
        l0, l1 = (1 - l2) * 0.01, (1 - l2) * 0.99
        bits = -sum(n * math.log2(l2 * pairs.get(ab, 0) / max(1, singles[ab[0]]) + l1 * singles[ab[1]] / len(train_text)
                                  + l0 / 256) for ab, n in judged.items())
        best = min(best, bits / sum(judged.values()))
    return best


def bible(name, config, seed, *options):
    folder = sets["translation/bible-kjv-luther1912"]
    out, found = train(name, config, seed, f"--data={folder}/train.tsv.gz", f"--validation_data={folder}/valid.tsv.gz",
                       *options)
    found["exchanged sources"] = evaluate(out, "--exchanged_sources=yes") - found["validation loss"]
    return found | {"BLEU greedy": bible_bleu(out, folder)}


def bible_bleu(out, folder):
    """BLEU of the test chapters' passages of eight verses, as in the configuration, one per line."""
    chapters = {}
    for line in gzip.open(folder / "test.tsv.gz", "rt", encoding="utf-8"):
        document, _, english, german = line.rstrip("\n").split("\t")
        chapters.setdefault(document, []).append((german, english))
    passages = [verses[i:i + 8] for verses in chapters.values() for i in range(0, len(verses), 8)]
    for side, name in enumerate(("de", "en")):
        out.with_suffix(f".{name}").write_text(
            "\n".join(" ".join(verse[side] for verse in verses) for verses in passages) + "\n")
    text = call(args.orrery, "translate", f"--checkpoint={out}", f"--input={out}.de", f"--reference={out}.en",
                "--beam=1", f"--threads={args.threads}")
    return float(re.findall(r"BLEU ([\d.]+)", text)[-1])


def figures(name, run, config, options, seed):
    """Returns the results of a run and a seed: the kept ones, if their settings are equal, or new ones, then kept."""
    settings = tomllib.loads((configs / f"{config}.toml").read_text()) | {"options": options}
    head = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    with open(kept, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        file.seek(0)
        known = json.loads(file.read() or "{}").get(name, {})
    if not args.fresh and known.get("configuration") == head and str(seed) in known["seeds"]:
        return known["seeds"][str(seed)]
    found = run(name, config, seed, *options)
    with open(kept, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        everything = json.loads(file.read() or "{}")
        of_run = everything.get(name, {})
        if of_run.get("configuration") != head:
            of_run = {"configuration": head, "seeds": {}}
        of_run["seeds"][str(seed)] = found
        everything[name] = of_run
        file.seek(0)
        file.truncate()
        file.write(json.dumps(everything, indent=1, sort_keys=True) + "\n")
    return found


# The rise of the validation loss if each translation gets the source of another, in standard deviations of the seeds:
# shows how much the model uses its sources.
of_spread = "exchanged sources, in spreads"
# Per run: function, configuration, further options, and bounds of the means: (result, least, most).
# CIFAR trains for the steps that PyTorch's script makes in its 150 seconds on two cores: 1,500, and 1,270 with DyT.
RUNS = {
    "fashion": (fashion, "vit-fashion", [], [("accuracy", 0.863, 1)]),
    "cifar-batch": (cifar, "resnet-cifar", [], [("accuracy", 0.69, 1)]),
    "cifar-dyt": (cifar, "resnet-cifar", ["--normalization=dyt", "--steps=1270"], [("accuracy", 0.477, 0.537)]),
    "multi30k": (multi30k, "multi30k", [],
                 [("BLEU greedy", 29.9, 100), ("beam 5 over greedy", 0, 100), (of_spread, 10, math.inf)]),
    "novels-fixed": (novels, "novels-fixed", [], []),
    "novels-adaptive": (novels, "novels-adaptive", [], [("span mean", 0, 128)]),
    "novels-all-attention": (novels, "novels-all-attention", [], []),
    "python": (python_library, "python-library", [], [("below the bigram model", 0.3, 8)]),
    "bible-softmax": (bible, "bible", [], [(of_spread, 3, math.inf)]),
    "bible-relu_former": (bible, "bible", ["--attention=relu_former", "--losses.normalization_loss=0.01"],
                          [(of_spread, 3, math.inf)]),
}
# Bounds of a mean minus that of another run with equal seeds; 0.02 bits is the spread of the seeds.
COMPARED = [
    ("novels-adaptive", "bits per character", "novels-fixed", 0.02),
    ("novels-adaptive", "attention multiply adds per token", "novels-fixed", 0),
    ("novels-all-attention", "bits per character", "novels-adaptive", 0.02),
]


def main():
    passed = failed = 0
    of_run = {}

    def judge(what, value, least, most):
        nonlocal passed, failed
        good = least <= value <= most
        passed, failed = passed + good, failed + (not good)
        print(f"{what} {value:.4g}, from {least} to {most}: {'passed' if good else 'FAILED'}", flush=True)

    for name in args.runs or RUNS:
        run, config, options, bounds = RUNS[name]
        seeds = []
        for seed in args.seeds:
            found = figures(name, run, config, options, seed)
            seeds.append(found)
            print(f"{name} seed {seed}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()), flush=True)
        means = {key: statistics.mean(found[key] for found in seeds) for key in seeds[0] if all(key in f for f in seeds)}
        if "exchanged sources" in means:
            if len(seeds) < 2:
                bounds = [bound for bound in bounds if bound[0] != of_spread]
            else:
                spread = statistics.stdev(found["validation loss"] for found in seeds)
                means[of_spread] = means["exchanged sources"] / spread
        print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in means.items()), flush=True)
        of_run[name] = means
        for key, least, most in bounds:
            judge(f"{name}: {key}", means[key], least, most)
    for name, key, other, most in COMPARED:
        if name in of_run and other in of_run:
            judge(f"{name}: {key} less that of {other}", of_run[name][key] - of_run[other][key], -math.inf, most)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
