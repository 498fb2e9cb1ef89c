"""Compiles the mutated files and all files that include them, and links them with the objects of an ordinary build."""

import json
import os
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from sites import mutated_text

PROGRAMS = {"nn_tests": "-DWITH_GRADIENT_CASES", "engine_tests": "-DWITHOUT_GRADIENT_CASES"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
LOCATION = re.compile(r"([^\s:]+):(\d+):(\d+):")


class Sources:
    """The mutated files of `source`, below `overlay`."""

    def __init__(self, source, overlay, sites, jobs):
        self.source, self.overlay, self.sites, self.jobs = source, overlay, sites, jobs
        self.places, self.refused = {}, []

    def write_sources(self):
        """Writes only changed files, and removes files without sites."""
        for where, _, names in os.walk(self.overlay):
            for name in names:
                if os.path.relpath(os.path.join(where, name), self.overlay) not in self.sites:
                    os.remove(os.path.join(where, name))
        for path, sites in self.sites.items():
            text, self.places[path] = mutated_text(self.source, path, sites)
            target = os.path.join(self.overlay, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.exists(target) or open(target, encoding="utf-8").read() != text:
                with open(target, "w", encoding="utf-8") as stream:
                    stream.write(text)

    def refuse(self, output, directory):
        """Takes out the sites that the compiler's output is about; returns their files."""
        changed, culprits = set(), self.culprits(output, directory)
        if not culprits:
            raise SystemExit(f"the mutated files do not compile:\n{output[-3000:]}")
        for site in culprits:
            if site in self.sites[site.path]:
                self.sites[site.path].remove(site)
                self.refused.append(site)
                changed.add(site.path)
        return changed

    def culprits(self, output, directory):
        """Returns for each error the innermost site at its location, else the innermost sites on its lines."""
        found, pending = set(), []
        for line in output.splitlines():
            location = LOCATION.match(line.strip())
            if not location:
                continue
            file = os.path.join(directory, location.group(1))
            sites = self.sites_at(file, int(location.group(2)), int(location.group(3)))
            if ": error:" in line:
                found |= sites or set(pending[:1])
                pending = []
            elif sites:
                pending += list(sites)
        if not found:
            found |= set(pending[:1])
        return found

    def sites_at(self, file, line, column):
        path = os.path.relpath(os.path.realpath(file), os.path.realpath(self.overlay))
        around = [(p[2] - p[0], p[3] - p[1], s) for s, p in self.places.get(path, {}).items()
                  if (p[0], p[1]) <= (line, column) <= (p[2], p[3])]
        if around:
            return {min(around, key=lambda a: a[:2])[2]}
        return {s for s, p in self.places.get(path, {}).items() if p[0] <= line <= p[2]}


class Program(Sources):
    """`source`: the tree; `build`: its build folder; `folder`: for all mutated files."""

    def __init__(self, source, build, folder, sites, jobs):
        super().__init__(source, os.path.join(folder, "source"), sites, jobs)
        self.build, self.folder = build, folder
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
            self.commands = [self.command_of(entry) for entry in json.load(stream)]
        self.commands = [c for c in self.commands if c["target"] in ("orrery_core", "test_main", *PROGRAMS)]

    def command_of(self, entry):
        words = shlex.split(entry["command"])
        at = words.index("-o")
        target = re.search(r"CMakeFiles/(\w+)\.dir/", words[at + 1])
        return {"words": words[:at], "object": os.path.join(entry["directory"], words[at + 1]),
                "target": target.group(1) if target else "", "file": os.path.relpath(entry["file"], self.source),
                "directory": entry["directory"]}

    def includes(self, path, known):
        """Returns every file of the tree that this one includes, directly or not."""
        if path not in known:
            known[path] = set()
            with open(os.path.join(self.source, path), encoding="utf-8") as stream:
                direct = [p for p in INCLUDE.findall(stream.read()) if os.path.exists(os.path.join(self.source, p))]
            for p in direct:
                known[path] |= {p} | self.includes(p, known)
        return known[path]

    # ---- compilation

    def object_of(self, command):
        return os.path.join(self.folder, "objects", command["target"], command["file"] + ".o")

    def compile_words(self, command):
        mutated = command["file"] in self.sites
        file = os.path.join(self.overlay if mutated else self.source, command["file"])
        words = [w for w in command["words"] if w not in ("-O3", "-Werror", "-Wall", "-Wextra")]
        # -O1 compiles in half the time; with -fexpensive-optimizations it joins products and sums as -O3 does.
        words[1:1] = ["-I" + self.overlay]
        words += ["-I" + self.source, "-O1", "-fexpensive-optimizations", "-w", "-fmax-errors=0"]
        cache = [shutil.which("ccache")] if shutil.which("ccache") and not words[0].endswith("ccache") else []
        return cache + words + ["-o", self.object_of(command), "-c", file]

    def compile(self, command):
        os.makedirs(os.path.dirname(self.object_of(command)), exist_ok=True)
        environment = dict(os.environ, LC_ALL="C")
        done = subprocess.run(self.compile_words(command), cwd=command["directory"], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout

    def compile_all(self, log):
        """Compiles until every file succeeds; removes the sites that the compiler refuses."""
        known = {}
        wanted = [c for c in self.commands
                  if c["file"] in self.sites or self.includes(c["file"], known) & set(self.sites)]
        for extra in ("tests/mutation/mutant.cpp", "tests/mutation/main.cpp"):
            for target in (PROGRAMS if extra.endswith("main.cpp") else ("orrery_core",)):
                like = next(c for c in self.commands if c["target"] == target)
                words = like["words"] + [PROGRAMS[target]] if target in PROGRAMS else like["words"]
                wanted.append(dict(like, words=words, file=extra, object=""))
        self.replaced = {c["object"] for c in wanted}
        self.recompiled = wanted
        self.write_sources()
        todo = wanted
        for _ in range(20):
            with ThreadPoolExecutor(self.jobs) as pool:
                results = list(pool.map(self.compile, todo))
            failed = [(c, output) for c, (status, output) in zip(todo, results) if status]
            if not failed:
                return
            changed = set()
            for command, output in failed:
                changed |= self.refuse(output, command["directory"])
            log(f"{len(self.refused)} places refused by the compiler so far")
            self.write_sources()
            todo = [c for c in wanted if c["file"] in changed or self.includes(c["file"], known) & changed
                    or any(c is f for f, _ in failed)]
        raise SystemExit("the mutated files do not compile after twenty rounds")

    # ---- linking

    def cached(self, name):
        with open(os.path.join(self.build, "CMakeCache.txt"), encoding="utf-8") as stream:
            match = re.search(rf"^{name}:\w+=(.*)$", stream.read(), re.MULTILINE)
        if not match:
            raise SystemExit(f"{self.build}/CMakeCache.txt has no {name}")
        return match.group(1)

    def link(self):
        compiler = self.commands[0]["words"][0]
        library = os.path.join(self.folder, "liborrery_core.so")
        blas = self.cached("ORRERY_OPENBLAS_LIBRARY")

        def objects(target):
            return [self.object_of(c) for c in self.recompiled if c["target"] == target] + [
                c["object"] for c in self.commands if c["target"] == target and c["object"] not in self.replaced]

        subprocess.run([compiler, "-shared", "-o", library, *objects("orrery_core"), blas, "-lcrypto", "-ltbb", "-pthread",
                        "-Wl,-rpath," + os.path.dirname(blas)], check=True)
        # What all tests share; tests/mutation/main.cpp replaces their main.
        shared = [c["object"] for c in self.commands
                  if c["target"] == "test_main" and not c["file"].endswith("/main.cpp")]
        for name in PROGRAMS:
            subprocess.run([compiler, "-o", os.path.join(self.folder, name), *objects(name), *shared, library,
                            "-pthread", "-Wl,-rpath," + self.folder], check=True)
