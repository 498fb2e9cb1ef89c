"""Runs the command lines of the Markdown pages.  python3 tests/pages.py PROGRAM [PAGE...]

A command line is a line of a block that begins with ```sh, or a line after "$ " of one that begins with ```console.
The lines of a page run in their order in a new folder, which has a copy of examples/, small data at the paths that the
pages name, and PROGRAM as `orrery`; with few steps, so that each takes seconds.  A block after <!-- file NAME --> is
written to NAME there.  An exit code of 0 is expected (3 of a training, which is too short to learn anything; 1 of one
that --nan_guard stops).

Lines of `orrery`, cp and export are run.  Any other line, and one that cannot run here, stands in the table "Command
lines that no test runs" of tests/README.md with the reason.  It is only parsed, and so is a command in `backticks`: the
options of `orrery` must be in the help of its command, those of a script in its text, and the shell must accept it.

The last line reads "N passed, N failed".
"""

import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = "## Command lines that no test runs"
GENERATED = {"nn/CATALOGUE.md", "models/CATALOGUE.md", "engine/API.md", "examples/studies/README.md"}
HELP_OF_TRAIN = ["gpt", "stream", "encoder_decoder", "vit", "resnet"]  # models whose settings train has


def pages():
    found = [ROOT / "README.md"]
    for folder in ("cuda", "engine", "examples", "models", "nn", "tests"):
        found += sorted((ROOT / folder).rglob("*.md"))
    names = [str(path.relative_to(ROOT)) for path in found]
    return [name for name in names if name not in GENERATED and not name.startswith("tests/cases/")]


def without_comment(line):
    """Drops a comment: # after a space, outside of quotes."""
    quote = ""
    for i, c in enumerate(line):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#" and (i == 0 or line[i - 1] == " "):
            return line[:i].rstrip()
    return line.rstrip()


def parts_of(page):
    """Yields ("command", line), ("file", name, text) and ("span", text) in the order of the page."""
    block, lines, name = None, [], ""
    text = (ROOT / page).read_text()
    if page == "tests/README.md":
        text = text.replace(table_section(), "")
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            if block is None:
                block, lines = line.strip()[3:], []
                continue
            if name:
                yield "file", name, "\n".join(lines) + "\n"
            elif block in ("sh", "console"):
                text = "\n".join(lines).replace("\\\n", " ")
                for command in text.splitlines():
                    if block == "console":
                        command = command[2:] if command.startswith("$ ") else ""
                    command = " ".join(without_comment(command.strip()).split())
                    if command:
                        yield "command", command
            block, name = None, ""
        elif block is not None:
            lines.append(line)
        elif match := re.fullmatch(r"<!-- file (\S+) -->", line):
            name = match[1]
        else:
            for span in re.findall(r"`([^`]+)`", line):
                yield "span", span


def table_section():
    text = (ROOT / "tests/README.md").read_text()
    return TABLE + text.split(TABLE)[1].split("\n## ")[0]


def table():
    """Returns the commands that no test runs, with their reasons."""
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", table_section(), re.M)
    return {command.replace("\\|", "|"): reason for command, reason in rows}


def row_of(command, rows):
    """Returns the row of a command: itself, or one that ends with " ..." and begins it."""
    begins = [row for row in rows if row.endswith(" ...") and command.startswith(row[:-3])]
    return command if command in rows else next(iter(begins), None)


# --- parsing ------------------------------------------------------------------------------------------------------------


class Parser:
    def __init__(self, program):
        self.program = program
        self.helps = {}

    def output(self, *words):
        result = subprocess.run([self.program, *words], capture_output=True, text=True, check=False)
        return result.stdout + result.stderr

    def help_of(self, command):
        if command not in self.helps:
            calls = [[command, "--help=all"]]
            if command in ("train", "sweep", "replay"):
                calls = [["train", "--model=" + model, "--help=all"] for model in HELP_OF_TRAIN] + calls
                calls.append(["train", "--task=algorithmic", "--help=all"])
            self.helps[command] = "".join(self.output(*words) for words in calls)
        return self.helps[command]

    def error_in(self, command, page):
        """Returns what is wrong with a command line of a page, or nothing."""
        try:
            words = shlex.split(command)
        except ValueError as error:
            return str(error)
        result = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        if result.returncode:
            return result.stderr.strip()
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if not words:
            return ""
        options = [re.match(r"--([A-Za-z_.-]+)", word)[1] for word in words[1:] if re.match(r"--[A-Za-z]", word)]
        if pathlib.Path(words[0]).name == "orrery":
            if len(words) == 1 or words[1] in ("help", "COMMAND", "--help", "--version"):
                return ""
            if "Usage: orrery " + words[1] not in self.help_of(words[1]):
                return "unknown command " + words[1]
            known = self.help_of(words[1])
            for option in options:
                if option in ("help", "plugin") or option.startswith("losses."):
                    continue
                if not re.search(r"--" + re.escape(option) + r"[=\s]", known):
                    return "unknown option --" + option
            return ""
        is_interpreter = re.fullmatch("sh|bash|python3?", pathlib.Path(words[0]).name) and len(words) > 1
        script = words[1] if is_interpreter else words[0]
        if not re.search(r"\.(sh|py)$|^\.ci/run$", script):
            return ""
        path = next((at / script for at in (ROOT, (ROOT / page).parent) if (at / script).exists()), None)
        if path is None:
            return "there is no " + script
        text = path.read_text()
        for option in options:
            if "--" + option not in text:
                return script + " has no option --" + option
        return ""


# --- running ------------------------------------------------------------------------------------------------------------


def shortened(command):
    """Returns the command with few steps and tokens."""
    if not re.match(r"\S*orrery ", command):
        return command
    verb = command.split()[1]
    if verb in ("train", "sweep") and "--plan" not in command:
        steps = 12 if "--resume" in command or "--nan_guard" in command else 4
        if "--steps=" in command:
            command = re.sub(r"--steps=\d+", f"--steps={steps}", command)
        elif "--resume" not in command:
            command += f" --steps={steps}"
        if verb == "train" and not re.search("--(resume|warmup_steps)", command):
            command += " --warmup_steps=1"
    if verb == "try":
        command += " --steps=0"
    if verb == "study":
        command += " --smoke"
    if verb == "verify_resume":
        command += " --steps=2"
    return re.sub(r"--(tokens|sample_tokens)=\d+", r"--\1=20", command)


def write_idx(path, array, shape):
    head = struct.pack(">HBB", 0, 8, len(shape)) + b"".join(struct.pack(">I", n) for n in shape)
    path.write_bytes(gzip.compress(head + bytes(array)))


def make_data(folder):
    """Writes small data to the paths that pages name."""
    text = (ROOT / "examples/data/tinyshakespeare.txt").read_text()
    novels = folder / "data/text/novels"
    novels.mkdir(parents=True)
    for name in ("train", "valid"):
        (novels / (name + ".txt.gz")).write_bytes(gzip.compress(text[:20000].encode()))
    pairs = folder / "data/multi30k"
    pairs.mkdir(parents=True)
    lines = [line for line in text.splitlines() if len(line) > 20][:400]
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("de", "en"):
            chosen = lines if name == "train" else lines[:3]
            chosen = [line.upper() if language == "de" else line for line in chosen]
            (pairs / f"{name}.{language}.gz").write_bytes(gzip.compress(("\n".join(chosen) + "\n").encode()))
    documents = [{"body": "\n".join(lines[i : i + 10])} for i in range(0, len(lines), 10)]
    (folder / "data/pages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    shutil.copytree(ROOT / "tests/models/images/fashion", folder / "data/fashion")
    shutil.copytree(ROOT / "tests/models/images/shapes", folder / "data/shapes")
    cifar = folder / "data/cifar"
    cifar.mkdir()
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records = [bytes([i % 10]) + bytes((i * j) % 251 for j in range(3072)) for i in range(40)]
        (cifar / name).write_bytes(b"".join(records))


def new_folder(page, folder):
    shutil.copytree(ROOT / "examples", folder / "examples")
    text = folder / "examples/data/tinyshakespeare.txt"
    text.write_text(text.read_text()[:60000])
    (folder / "tests").symlink_to(ROOT / "tests")
    make_data(folder)
    if page not in ("README.md", "examples/README.md"):  # these write it themselves
        shutil.copy(text, folder / "mine.txt")


def run_page(page, program, parser, left_out, used):
    """Returns the number of commands that passed, and messages about the others."""
    passed, failed = 0, []
    with tempfile.TemporaryDirectory(prefix="orrery_page.") as name:
        folder = pathlib.Path(name)
        new_folder(page, folder)
        programs = folder / "build"
        programs.mkdir()
        (programs / "orrery").symlink_to(program)
        environment = dict(os.environ, PATH=str(programs) + ":" + os.environ["PATH"], OMP_NUM_THREADS="2", COLUMNS="80")
        for kind, *part in parts_of(page):
            if kind == "file":
                (folder / part[0]).write_text(part[1])
                continue
            command = part[0]
            if kind == "span" and not re.match(r"(orrery|sh|python3|\.ci/run) \S", command):
                continue
            row = row_of(command, left_out)
            if kind == "span" or row:
                used.add(row)
                error = parser.error_in(command, page)
            elif re.match(r"(orrery|cp|export) ", command):
                error = run(shortened(command), folder, environment)
            else:
                error = "this line is not in the table of tests/README.md, and no test runs it"
            if error:
                failed.append(f"{page}: {command}\n    {error}")
            else:
                passed += 1
    return passed, failed


def run(command, folder, environment):
    try:
        result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "takes more than 300 s"
    is_trained = result.returncode == 3 and re.match(r"orrery (train|verify_resume)", command)
    is_stopped = result.returncode == 1 and "--nan_guard" in command
    if result.returncode == 0 or is_trained or is_stopped:
        return ""
    return f"exit code {result.returncode}: " + "\n    ".join((result.stdout + result.stderr).splitlines()[-4:])


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or pages()
    left_out, used, parser = table(), set(), Parser(str(program))
    passed, failed = 0, []
    for wrong in ("orrery train --no_such=1", "orrery no_such", "sh tests/no_such.sh", "sh tests/run.sh --no_such", "a 'b"):
        if not parser.error_in(wrong, "README.md"):
            failed.append("tests/pages.py: accepted " + wrong)
    for page in names:
        page_passed, page_failed = run_page(page, program, parser, left_out, used)
        print(f"{page}: {page_passed} passed, {len(page_failed)} failed", flush=True)
        passed += page_passed
        failed += page_failed
    if not sys.argv[2:]:
        stale = [command for command in left_out if command not in used]
        failed += [f"tests/README.md: no page has the command line {command}" for command in stale]
    for message in failed:
        print(message)
    print(f"{passed} passed, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
