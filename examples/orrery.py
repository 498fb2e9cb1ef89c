"""Runs of orrery in Python: logs, weights and analyses as numpy arrays, and pages in a notebook.

    import orrery                                   # this file, anywhere on the path; it needs numpy alone
    run = orrery.Run("runs/mine")
    steps, loss = run.log["loss"]                   # arrays
    weight = run.tensors()["blocks.0.attention.output.weight"]
    found = run.inspect(text="To be", analysis="attention, heads")
    found.metrics["heads/induction/blocks.0.attention.0"]
    found["attention/blocks.attention"].values      # (maps, rows, columns), with .rows and .columns, their words
    found                                           # in a notebook: the page; found["Attention"] shows a part of it
    run.inspect(text="To be", edits="blocks.0.attention.3*0", hooks="logits").values["logits"]

Analyses run the program `orrery`: that of the environment variable ORRERY, on the PATH, or in build/ beside this folder.
"""

import html
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile

import numpy as np


class Error(Exception):
    """What orrery reports: its message names what is wrong and the way out."""


def program():
    """Returns the path of the program orrery."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "orrery")
    for path in os.environ.get("ORRERY"), shutil.which("orrery"), beside:
        if path and os.path.exists(path):
            return path
    raise Error("there is no program orrery; build it, and set ORRERY to its path or add it to the PATH")


def read_safetensors(path):
    """Returns the tensors of a .safetensors file as {name: array}; bfloat16 becomes float32, with the same values."""
    types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
             "I8": "i1", "U8": "u1", "BOOL": "?"}
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    content = np.memmap(path, np.uint8, "r", offset=8 + size) if os.path.getsize(path) > 8 + size else np.zeros(0, np.uint8)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = np.frombuffer(content[begin:end].tobytes(), types[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        tensors[name] = values
    return tensors


def read_log(path):
    """Returns a metrics.jsonl as {metric: (steps, values)}, two arrays each."""
    rows = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                break  # a run that is training writes it now
            row = json.loads(line)
            for name, value in row.items():
                if name != "step" and (value is None or isinstance(value, (int, float))):
                    rows.setdefault(name, []).append((row.get("step", 0), np.nan if value is None else value))
    return {name: (np.array([s for s, _ in pairs]), np.array([v for _, v in pairs], float))
            for name, pairs in rows.items()}


class View:
    """A result of an analysis: `title`, `description`, `kind`, and its numbers with their words.

    kind map: values (maps, rows, columns), NaN for none; names, rows, columns.  bars: names, values, low, high.
    table: columns, rows (texts).  lines: lines as {name: (x, y)}.  lens: words, probability, log_probability and rank
    (rows, columns), targets.  tokens: tokens, values.  choices: choices and target of each position as (name,
    probability).  image: positions.  components: components as {path: its data}.
    """

    def __init__(self, data, page=""):
        self.data, self.page = data, page
        self.title, self.name, self.kind = data["title"], data["name"], data["kind"]
        self.analysis, self.description = data["analysis"], data["description"]
        if self.kind == "map":
            self.values = np.array([each["values"] for each in data["maps"]], float)
            self.names = [each["name"] for each in data["maps"]]
            self.rows, self.columns = data["rows"], data["columns"]
        elif self.kind == "bars":
            self.names = [bar["name"] for bar in data["bars"]]
            self.values, self.low, self.high = (np.array([bar[key] for bar in data["bars"]], float)
                                                for key in ("value", "low", "high"))
        elif self.kind == "table":
            self.columns, self.rows = data["columns"], data["rows"]
        elif self.kind == "lines":
            self.lines = {line["name"]: (np.array(line["x"], float), np.array(line["y"], float))
                          for line in data["lines"]}
        elif self.kind == "lens":
            self.rows, self.columns, self.words, self.targets = (data[key] for key in
                                                                 ("rows", "columns", "words", "targets"))
            self.probability, self.log_probability, self.rank = (np.array(data[key], float) for key in
                                                                 ("probability", "log_probability", "rank"))
        elif self.kind == "tokens":
            self.tokens, self.values = data["tokens"], np.array(data["values"], float)
        elif self.kind == "choices":
            pair = lambda choice: choice and (choice["name"], choice["probability"])
            self.positions, self.targets = data["positions"], [pair(target) for target in data["targets"]]
            self.choices = [[pair(choice) for choice in each] for each in data["choices"]]
        elif self.kind == "image":
            self.positions = data["positions"]
        elif self.kind == "components":
            self.components = {each["path"]: dict(each, formulas=[data["formulas"][i] for i in each["formulas"]])
                               for each in data["components"]}

    def __repr__(self):
        return f"<{self.kind} {self.title!r}>"

    def _repr_html_(self):
        return _frame(_part_of(self.page, {self.title}))


class Inspection:
    """The results of orrery inspect: `views`, `metrics` by name, and `values` of hooks by name, as arrays; `axes` of
    each value as (name, labels), without labels where its elements have numbers alone."""

    def __init__(self, data, values, page):
        self.views = [View(view, page) for view in data["views"]]
        self.metrics, self.values, self.page = data["metrics"], values, page
        self.axes = {each["name"]: [(axis["name"], axis["labels"]) for axis in each["axes"]] for each in data["values"]}

    def __getitem__(self, name):
        """Returns the view of this name or title; of a heading such as "Attention" an Inspection of its views."""
        for view in self.views:
            if name and name in (view.name, view.title):
                return view
        part = [view for view in self.views if view.analysis == name]
        if not part:
            known = sorted({each for view in self.views for each in (view.name, view.title, view.analysis) if each})
            raise KeyError(f"{name!r}; there are {', '.join(known)}")
        found = Inspection({"views": [], "metrics": self.metrics, "values": []}, self.values, self.page)
        found.views, found.axes = part, self.axes
        return found

    def __repr__(self):
        return "\n".join(repr(view) for view in self.views) or f"<{len(self.values)} values>"

    def _repr_html_(self):
        return _frame(_part_of(self.page, {view.title for view in self.views}))


class Run:
    """The folder of a run, or of one of its checkpoints."""

    def __init__(self, folder):
        if not os.path.isdir(folder):
            raise Error(f"{folder} is not a folder; give that of a run")
        self.folder = folder
        self._checkpoint = os.path.exists(os.path.join(folder, "weights.safetensors"))
        self._run = os.path.dirname(os.path.abspath(folder)) if self._checkpoint else folder  # what the two share

    def __repr__(self):
        return f"Run({self.folder!r})"

    @property
    def settings(self):
        """The settings of the run, as {name: value}."""
        import tomllib  # Python 3.11

        with open(self._file_of_run("settings.toml"), "rb") as file:
            return tomllib.load(file)

    @property
    def log(self):
        """The metrics, as {name: (steps, values)}."""
        return read_log(self._file_of_run("metrics.jsonl"))

    def _file_of_run(self, name):
        path = os.path.join(self._run, name)
        if not os.path.exists(path):
            raise Error(f"{self._run} has no {name}, as a run has that was not imported")
        return path

    @property
    def checkpoints(self):
        """The steps of the checkpoints, in order."""
        found = (re.fullmatch(r"step_(\d+)", name) for name in os.listdir(self._run))
        return sorted(int(match[1]) for match in found if match)

    def tensors(self, step=None, optimizer=False):
        """Returns the weights at a step, or the last ones, as {path: array}; with `optimizer` its state."""
        name = "optimizer.safetensors" if optimizer else "weights.safetensors"
        if self._checkpoint and step is None:
            return read_safetensors(os.path.join(self.folder, name))
        steps = self.checkpoints
        if not steps or (step is not None and step not in steps):
            raise Error(f"{self.folder} has no checkpoint{'' if step is None else f' of step {step}'}; it has {steps}")
        return read_safetensors(os.path.join(self._run, f"step_{steps[-1] if step is None else step:06d}", name))

    def inspect(self, **settings):
        """Runs orrery inspect with these settings (`orrery inspect --help`) and returns an Inspection."""
        for own in "json", "html", "out":
            if own in settings:
                raise Error(f"leave {own} out: the results come as arrays, and the page as _repr_html_()")
        with tempfile.TemporaryDirectory() as folder:
            page, numbers = os.path.join(folder, "page.html"), os.path.join(folder, "numbers.safetensors")
            words = ["inspect", self.folder, "--json=yes"]
            draws = "analysis" in settings or "hooks" not in settings
            words += [f"--html={page}"] if draws else []
            words += [f"--out={numbers}"] if "hooks" in settings else []
            data = json.loads(_call(words + [f"--{key}={_word(value)}" for key, value in settings.items()]))
            values = read_safetensors(numbers) if "hooks" in settings else {}
            text = ""
            if draws:
                with open(page, encoding="utf-8") as file:
                    text = file.read()
            return Inspection(data, {each["name"]: values[each["name"]] for each in data["values"]}, text)


def _word(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _call(words):
    done = subprocess.run([program(), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Error(done.stderr.strip() or f"orrery {words[0]} ended with code {done.returncode}")
    return done.stdout


_data = re.compile(r'(<script type="application/json" id="report">)(.*?)(</script>)', re.DOTALL)


def _part_of(page, titles):
    """Returns the page with the sections of these titles alone."""
    match = _data.search(page)
    if not match:
        return ""
    report = json.loads(match[2])
    report["sections"] = [section for section in report["sections"] if section.get("title") in titles]
    data = json.dumps(report, ensure_ascii=False).replace("<", "\\u003c")
    return page[: match.start(2)] + data + page[match.end(2) :]


def _frame(page):
    """Returns a page as a frame of a notebook, with its own styles and script."""
    return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 40em; border: 0"></iframe>' if page else None
