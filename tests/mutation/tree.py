"""Builds a copy of the whole tree with the mutated files, for mutants that need all tests. With ccache, only the
mutated files are compiled anew."""

import os
import subprocess

from program import Sources
from sites import mutated_text

PROGRAMS = ("engine_tests", "nn_tests", "models_tests", "examples_tests")
# Files of the copy that have another content than in the tree, or are only in the copy.
REPLACED = {"tests/support/main.cpp": "tests/mutation/main.cpp", "engine/types/mutant.cpp": "tests/mutation/mutant.cpp"}


class Tree(Sources):
    def __init__(self, source, folder, sites, jobs):
        super().__init__(source, os.path.join(folder, "source"), sites, jobs)
        self.folder = os.path.join(folder, "build")

    def paths(self):
        for where, folders, names in os.walk(self.source):
            if where == self.source:
                folders[:] = [f for f in folders if not f.startswith((".", "build", "runs"))]
                names = [n for n in names if not n.startswith(".")]
            for name in names:
                yield os.path.relpath(os.path.join(where, name), self.source)

    def content(self, path):
        if path in self.sites:
            text, self.places[path] = mutated_text(self.source, path, self.sites[path])
            return text.encode()
        with open(os.path.join(self.source, REPLACED.get(path, path)), "rb") as stream:
            return stream.read()

    def write_sources(self):
        """Only what differs is written, and what the tree no longer has goes away."""
        paths = {*self.paths(), *REPLACED}
        for where, _, names in os.walk(self.overlay):
            for name in names:
                if os.path.relpath(os.path.join(where, name), self.overlay) not in paths:
                    os.remove(os.path.join(where, name))
        for path in paths:
            target, content = os.path.join(self.overlay, path), self.content(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.exists(target):
                with open(target, "rb") as stream:
                    if stream.read() == content:
                        continue
            with open(target, "wb") as stream:
                stream.write(content)

    def compile_all(self, log):
        """Builds the test programs; sites that the compiler refuses are taken out on the way."""
        build = ["cmake", "--build", self.folder, "--parallel", str(self.jobs), "--target", *PROGRAMS]
        for _ in range(20):
            self.write_sources()
            self.execute(["cmake", "-S", self.overlay, "-B", self.folder, "-DORRERY_EMULATE_CUDA=OFF"])
            status, output = self.execute(build, may_fail=True)
            if status == 0:
                return
            self.refuse(output, self.folder)
            log(f"{len(self.refused)} places refused by the compiler so far")
        raise SystemExit("the mutated files do not compile after twenty rounds")

    def execute(self, command, may_fail=False):
        done = subprocess.run(command, env=dict(os.environ, LC_ALL="C"), text=True, errors="replace", check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode and not may_fail:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
        return done.returncode, done.stdout
