"""files_alone.py SOURCE FOLDER: checks that each file that the build compiles in a group compiles alone too: that it
includes what it uses.  Configures in FOLDER; the last line reads "N passed, N failed"."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

GROUPED = re.compile(r"/(models|program)_objects\.dir/")  # of orrery_add_objects


def main():
    source, folder = map(os.path.abspath, sys.argv[1:3])
    options = ["-DORRERY_UNITY=OFF", "-DORRERY_WERROR=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    subprocess.run(["cmake", "-S", source, "-B", folder, *options], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as stream:
        commands = [c for c in json.load(stream) if GROUPED.search("/" + c["command"]) and os.path.exists(c["file"])]

    def check(command):
        alone = re.sub(r" -o \S+", " -fsyntax-only", command["command"])
        return subprocess.run(alone, shell=True, cwd=command["directory"], capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, commands))
    for result in results:
        if result.returncode:
            print(result.stderr)
    failed = sum(result.returncode != 0 for result in results)
    print(f"{len(results) - failed} passed, {failed + (not results)} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
