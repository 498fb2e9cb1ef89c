"""Trains random models in small memory cgroups; see ../memory_limits.sh."""

import array
import gzip
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

SMALLEST, LARGEST = 100, 300  # MB of a cgroup
PATIENCE = 300  # seconds of a run


# ---- cgroups

class Group:
    """A memory cgroup of version 1 or 2, created below the cgroup of this process."""

    def __init__(self, megabytes):
        self.limit = int(megabytes * 1e6) // 4096 * 4096
        self.path = None
        errors = []
        for make in (self._make_2, self._make_1):
            try:
                make()
                return
            except OSError as error:
                errors.append(str(error))
                self.remove()
        raise OSError("; ".join(errors))

    @staticmethod
    def _own(controller):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == controller or controller in controllers.split(","):
                return path.rstrip("/")
        raise OSError("no cgroup has the controller " + (controller or "of version 2"))

    def _make(self, folder):
        path = Path(folder) / f"orrery_memory_{os.getpid()}"
        path.mkdir()
        self.path = path

    def _make_2(self):
        own = Path("/sys/fs/cgroup" + self._own(""))
        if "memory" not in (own / "cgroup.subtree_control").read_text().split():
            (own / "cgroup.subtree_control").write_text("+memory")
        self._make(own)
        (self.path / "memory.max").write_text(str(self.limit))
        if (self.path / "memory.swap.max").exists():
            (self.path / "memory.swap.max").write_text("0")

    def _make_1(self):
        self._make("/sys/fs/cgroup/memory" + self._own("memory"))
        (self.path / "memory.limit_in_bytes").write_text(str(self.limit))
        if (self.path / "memory.swappiness").exists():
            (self.path / "memory.swappiness").write_text("0")

    def enter(self):  # of the child, before the program begins
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        if self.path is None:
            return
        for _ in range(100):
            try:
                self.path.rmdir()
                break
            except OSError:
                signal.sigtimedwait([signal.SIGUSR1], 0.02)  # its process is still ending
        self.path = None


# ---- data, each made once

class Data:
    def __init__(self, folder):
        self.folder, self.made = Path(folder), {}

    def get(self, name, make):
        if name not in self.made:
            path = self.folder / name
            make(path)
            self.made[name] = str(path)
        return self.made[name]

    @staticmethod
    def words(size, seed=1):
        rng = random.Random(seed)
        words = ["".join(rng.choice("etaoinshrdlucmfw") for _ in range(rng.randint(1, 9))) for _ in range(8000)]
        lines, length = [], 0
        while length < size:
            line = " ".join(rng.choices(words, k=12))
            lines.append(line)
            length += len(line) + 1
        return ("\n".join(lines) + "\n").encode()

    def text(self, megabytes):
        def make(path):
            once = self.words(min(1.0, megabytes) * 1e6)
            path.write_bytes(once * max(1, round(megabytes)))
        return self.get(f"text_{megabytes}.txt", make)

    def packed_text(self, megabytes):
        return self.get(f"text_{megabytes}.txt.gz",
                        lambda path: path.write_bytes(gzip.compress(Path(self.text(megabytes)).read_bytes(), 1)))

    def documents(self, megabytes):
        def make(path):
            path.mkdir()
            whole = self.words(megabytes * 1e6)
            for i in range(40):
                part = len(whole) // 40
                (path / f"{i:03}.txt").write_bytes(whole[i * part:(i + 1) * part])
        return self.get(f"documents_{megabytes}", make)

    def prepared(self, megabytes):
        def make(path):
            path.mkdir()
            (path / "train.bin").write_bytes(array.array("H", list(Path(self.text(megabytes)).read_bytes())).tobytes())
        return self.get(f"prepared_{megabytes}", make)

    def pairs(self, lines):
        def make(path):
            some = self.words(lines * 60, 2).decode().splitlines()
            rows = (some[i % len(some)][:60] + "\t" + some[(i * 7 + 3) % len(some)][:70] for i in range(lines))
            path.write_text("\n".join(rows) + "\n")
        return self.get(f"pairs_{lines}.tsv", make)

    def idx(self, count, side, packed):
        def make(path):
            path.mkdir()
            rng = random.Random(3)
            image = rng.randbytes(side * side)
            files = {"images-idx3-ubyte": struct.pack(">4I", 0x803, count, side, side) + image * count,
                     "labels-idx1-ubyte": struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count))}
            for name, content in files.items():
                if packed:
                    (path / f"train-{name}.gz").write_bytes(gzip.compress(content, 1))
                else:
                    (path / f"train-{name}").write_bytes(content)
        return self.get(f"idx_{count}_{side}_{packed}", make)

    def cifar(self, count):
        def make(path):
            path.mkdir()
            rng = random.Random(4)
            records = b"".join(bytes([i % 10]) + rng.randbytes(3072) for i in range(min(count, 500)))
            records *= max(1, count // 500)
            (path / "data_batch_1.bin").write_bytes(records)
            (path / "test_batch.bin").write_bytes(records[:3073 * 200])
        return self.get(f"cifar_{count}", make)

    def class_folders(self, side):
        def make(path):
            def chunk(kind, content):
                return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
            rng = random.Random(5)
            for name in ("barn", "mill", "weir"):
                (path / name).mkdir(parents=True)
                for i in range(12):
                    row = b"\0" + rng.randbytes(3 * side)
                    (path / name / f"{i}.png").write_bytes(
                        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)) +
                        chunk(b"IDAT", zlib.compress(row * side, 1)) + chunk(b"IEND", b""))
        return self.get(f"pictures_{side}", make)


# ---- what is drawn

class Draw:
    def __init__(self, seed, number, data):
        self.rng = random.Random(seed * 1_000_003 + number)
        self.data = data
        self.s = {"evaluate_every": "0", "checkpoint_every": self.one("0", "1", "2"), "threads": self.one("1", "2", "0")}
        self.limit = self.rng.uniform(SMALLEST, LARGEST)
        kind = self.one("gpt", "gpt", "gpt", "stream", "translation", "vit", "resnet", "algorithmic", "preset")
        getattr(self, kind)()
        self.common()

    def one(self, *choices):
        return self.rng.choice(choices)

    def chance(self, share):
        return self.rng.random() < share

    def about(self, low, high):  # evenly in its logarithm
        return round(low * (high / low) ** self.rng.random())

    def optimizer(self):
        return self.one("adamw(weight_decay=0.1)", "sgd", "sgd(momentum=0.9)", "lion", "muon", "adagrad")

    def common(self):
        s = self.s
        s["steps"] = str(self.one(1, 2, 3))
        s["optimizer"] = self.optimizer()
        s["dtype"] = self.one("f32", "f32", "f32", "bf16", "f64")
        s["signal_propagation"] = self.one("no", "no", "yes")
        s["nan_guard"] = self.one("no", "no", "no", "yes")
        s["metrics"] = self.one("default", "default", "all", "none")
        s["grad_clip"] = self.one("0", "1")
        if self.chance(0.3):
            s["gradient_accumulation_steps"] = str(self.one(2, 3))
        if self.chance(0.3):
            s["evaluate_every"] = "1"
        if self.chance(0.2):
            s["save_optimizer"] = "no"

    def shape(self, most_layers=10):
        heads = self.one(1, 2, 4, 8)
        self.s.update(layers=str(self.about(1, most_layers)), heads=str(heads),
                      width=str(heads * 8 * self.about(1, 512 // (heads * 8))))

    def parts(self):
        s = self.s
        s["feed_forward"] = self.one("dense(gelu_tanh)", "dense(relu)", "gated(silu)", "none")
        s["normalization"] = self.one("layer", "rms", "dyt")
        if self.chance(0.2):
            s["dropout"] = "0.1"

    def text_settings(self):
        s = self.s
        megabytes = self.one(0.1, 0.1, 0.1, 0.3, 1, 3, 10, 30)
        s["data"] = self.one(self.data.text, self.data.text, self.data.packed_text)(megabytes)
        s["tokenizer"] = self.one("character", "character", "byte")
        if megabytes <= 3 and self.chance(0.3):
            s["tokenizer"] = self.one("byte_pair(vocabulary=400)", "sentence_piece(vocabulary=300)",
                                      "sentence_piece(vocabulary=300, kind=unigram)")
        elif self.chance(0.2):
            s["data"] = self.data.documents(self.one(0.3, 3))
        elif self.chance(0.2):
            s["data"] = self.data.prepared(self.one(1, 10))
            s["tokenizer"] = "byte"
        if self.chance(0.3):
            s["vocabulary"] = str(self.about(500, 30000))
        s["validation_tokens"] = str(self.about(1000, 6000))
        s["training_loss_tokens"] = self.one("0", "2000")

    def gpt(self):
        self.s["model"] = "gpt"
        self.shape(), self.parts(), self.text_settings()
        s = self.s
        s["context"] = str(self.about(8, 512))
        s["batch_size"] = str(self.about(1, 48))
        s["attention"] = self.one("softmax", "softmax", "softmax", "sparsemax", "entmax15", "linear(relu)", "naive",
                                  "pointwise(relu)", "rela", "softmax(persistent=32)")
        s["position"] = self.one("learned", "rotary", "sinusoidal", "none")
        if s["attention"] == "softmax" and self.chance(0.3):
            s["position"] = "alibi"
        s["tied_head"] = self.one("yes", "no")
        if self.chance(0.15) and "prepared" not in s["data"]:  # whose tokens have their tokenizer
            s["documents"] = "yes"
            s["tokenizer"] = "byte_pair(vocabulary=400)"

    def stream(self):
        self.s["model"] = "stream"
        self.shape(6), self.text_settings()
        s = self.s
        s["context"] = str(self.about(8, 128))
        s["cache_length"] = str(self.about(8, 512))
        s["attention"] = f"softmax(span={self.one('adaptive_span', 'fixed')}({s['cache_length']}))"
        s["batch_size"] = str(self.about(1, 24))
        if self.chance(0.5):
            s["feed_forward"] = self.one("none", "dense(relu)")

    def translation(self):
        self.s["model"] = "encoder_decoder"
        self.shape(5), self.parts()
        s = self.s
        s["data"] = self.data.pairs(self.one(300, 3000, 30000))
        s["tokenizer"] = self.one("character", "byte", "sentence_piece(vocabulary=300)")
        s["context"] = "128"
        s["batch_tokens"] = str(self.about(200, 12000))
        s["validation_fraction"] = "0.01"
        s["training_loss_pairs"] = self.one("0", "20")
        if self.chance(0.3):
            s["vocabulary"] = str(self.about(500, 20000))
        if self.chance(0.3):
            s["decoder_layers"] = str(self.one(1, 2, 6))

    def pictures(self):
        s = self.s
        kind = self.one("idx", "idx", "cifar", "folders")
        if kind == "idx":
            s["data"] = self.data.idx(self.one(300, 3000, 60000), 28, self.chance(0.5))
        elif kind == "cifar":
            s["data"] = self.data.cifar(self.one(500, 10000))
        else:
            s["data"] = self.data.class_folders(self.one(32, 300, 1500))
            s["image_size"] = str(self.one(32, 64))
        s["batch_size"] = str(self.about(1, 128))
        s["training_loss_images"] = self.one("0", "32")
        if kind != "folders":
            s["validation_fraction"] = "0.1"
        if self.chance(0.2):
            s["mixup"] = "0.2"

    def vit(self):
        self.s["model"] = "vit"
        self.shape(6), self.parts(), self.pictures()
        self.s["patch"] = self.one("4", "2") if "idx" in self.s["data"] else self.one("4", "8")

    def resnet(self):
        self.s["model"] = "resnet"
        self.pictures()
        self.s["blocks"] = str(self.one(1, 2, 3))
        self.s["width"] = str(self.one(8, 16, 32))

    def algorithmic(self):
        self.s.update(model="gpt", task="algorithmic", problem="copy(length=30)")
        self.shape(), self.parts()
        self.s["context"] = "64"
        self.s["batch_size"] = str(self.about(1, 128))
        self.s["validation_sequences"] = "64"

    def preset(self):
        self.s["model"] = self.one("gpt-char-small", "gpt-char-medium", "stream-char-small")
        self.text_settings()
        self.s.pop("vocabulary", None)
        self.s["batch_size"] = str(self.about(1, 16))


# ---- a run and what is made of it

def megabytes(text):
    return float(text.replace(",", ""))


def numbers_of_refusal(told):
    """Returns the MB that a refusal names: needed and free."""
    found = re.search(r"needs [a-z ]*([\d,.]+) MB.*?([\d,.]+) MB (?:are|is) free", told, re.S)
    return (megabytes(found[1]), megabytes(found[2])) if found else None


def train(orrery, settings, out, group=None):
    command = [orrery, "train"] + [f"--{key}={value}" for key, value in settings.items()] + [f"--out={out}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=group.enter if group else None)
    late = False
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        late = True
    shutil.rmtree(out, ignore_errors=True)
    return process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"), late


PEAK = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def peak_without_limit(orrery, settings, out):
    command = [orrery, "train"] + [f"--{key}={value}" for key, value in settings.items()] + [f"--out={out}"]
    told = subprocess.run([sys.executable, "-c", PEAK] + command, capture_output=True, text=True).stdout.split()
    shutil.rmtree(out, ignore_errors=True)
    return int(told[1]) * 1024 / 1e6 if told and told[0] == "0" else None


def main():
    count, orrery = int(sys.argv[1]), str(Path(sys.argv[2]).resolve() / "orrery")
    seed, first = int(os.environ.get("SEED", "1")), int(os.environ.get("FIRST", "0"))
    check, verbose = os.environ.get("CHECK") == "yes", os.environ.get("VERBOSE") == "yes"
    try:
        Group(SMALLEST).remove()
    except OSError as error:
        print(f"no memory cgroup can be made here ({error}): nothing was run")
        print("0 passed, 0 failed")
        return 0
    trained = refused = failed = 0
    fitting = []
    with tempfile.TemporaryDirectory() as folder:
        data = Data(folder)
        for number in range(first, first + count):
            draw = Draw(seed, number, data)
            group = Group(draw.limit)
            try:
                code, stdout, stderr, late = train(orrery, draw.s, folder + "/run", group)
            finally:
                group.remove()
            numbers = numbers_of_refusal("\n".join(re.findall(r"^orrery: .*$", stderr, re.M)))
            planned = re.search(r"^memory: about .*$", stderr, re.M)
            error = re.search(r"^orrery: .*$", stderr, re.M)
            told = (planned[0] if planned else "") + " | " + (error[0] if error else stderr.strip()[-500:])
            outcome = None
            if late:
                outcome = f"did not end in {PATIENCE} s"
            elif code < 0:
                outcome = f"ended by signal {-code}"
            elif code in (0, 3):  # 3: it is complete, and was too short to learn anything
                trained += 1
            elif code == 1 and not planned and numbers and numbers[0] >= numbers[1]:
                refused += 1
                if check:
                    peak = peak_without_limit(orrery, draw.s, folder + "/run")
                    if peak is not None and peak < draw.limit:
                        fitting.append((number, draw.limit, numbers, peak))
            else:
                outcome = f"exit code {code}"
            if outcome:
                failed += 1
            if outcome or verbose:
                line = " ".join(f"'--{key}={value}'" for key, value in draw.s.items())
                print(f"{'FAILED: ' + outcome if outcome else code} draw {number} in {draw.limit:.0f} MB: {line}\n"
                      f"  {told}", flush=True)
    for number, limit, numbers, peak in fitting:
        print(f"draw {number} was refused in {limit:.0f} MB (needs {numbers[0]:.0f}, free {numbers[1]:.0f}), and its "
              f"peak without a limit is {peak:.0f} MB")
    print(f"{trained} trained, {refused} refused"
          + (f", {len(fitting)} of these would have fitted" if check else ""))
    print(f"{trained + refused} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
