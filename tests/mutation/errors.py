"""Mutants of error paths. For each call check(condition, message...) or check_usage(condition, message...):

  gone      the condition is true: no error any more
  part      one part of a conjunction is true
  unnamed   an argument of the message that is not a literal is left out: a setting, its value, or what is allowed
"""

import difflib
import os
import re

from sites import File, Site
from source import Group, split

FOLDERS = ("engine", "nn", "models", "examples/orrery")
CALLS = ("check", "check_usage")
WRITTEN = {"gone": "holds", "part": "holds", "unnamed": "shown"}  # the functions of mutant.h
SITES_OF_A_FILE = 1000


class ErrorSite(Site):
    """`mutant`: gone, part or unnamed; `call`: begin and end of the whole call."""

    def __init__(self, file, run, mutant, call):
        begin, end = run[0].begin, run[-1].end
        text = re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", file.text[begin:end]))
        super().__init__(file.path, function_at(file, begin), begin, end, text, file.text.count("\n", 0, begin) + 1,
                         WRITTEN[mutant])
        self.mutant, self.call = mutant, call

    def kinds(self):
        return (self.mutant,)


def function_at(file, offset):
    """The name of the innermost function around the offset, or nothing."""
    around = [u for u in file.units if not u.struct and u.body.begin <= offset < u.body.end]
    return max(around, key=lambda u: u.body.begin).full_name() if around else ""


def calls_in(children):
    """The name and the parentheses of each call below, but not of a method or a definition."""
    for i, child in enumerate(children):
        if not isinstance(child, Group):
            continue
        yield from calls_in(child.children)
        if child.open != "(" or i == 0 or children[i - 1].text not in CALLS:
            continue
        first = i - 3 if [c.text for c in children[max(i - 3, 0):i - 1]] == ["orrery", "::"] else i - 1
        before = children[first - 1] if first else None
        if before is None or before.text in (";", ":", "else") or isinstance(before, Group):
            yield children[i - 1], child


def sites_of_call(file, name, parentheses):
    condition, *message = [run for _, run in split(parentheses.children, {","}) if run]
    call = (name.begin, parentheses.end)
    yield ErrorSite(file, condition, "gone", call)
    parts = [run for _, run in split(condition, {"&&"})]
    if len(parts) > 1 and not any(c.text in ("||", "?") for c in condition):  # && binds more tightly
        for part in parts:
            yield ErrorSite(file, part, "part", call)
    for argument in message:
        if any(token.kind not in ("string", "number") for token in argument):
            yield ErrorSite(file, argument, "unnamed", call)


def find_error_sites(root):
    """All sites by file, numbered so that a change of one file leaves the numbers of the others."""
    sites, index = {}, 0
    for folder in FOLDERS:
        for where, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(n for n in names if n.endswith((".h", ".cpp"))):
                file = File(root, os.path.relpath(os.path.join(where, name), root))
                index += 1
                found = [site for call in calls_in(file.tree) for site in sites_of_call(file, *call)]
                for number, site in enumerate(found):
                    site.number = SITES_OF_A_FILE * index + number
                if found:
                    sites[file.path] = found
    return sites


def diff(root, site):
    """The changed lines of the call."""
    with open(os.path.join(root, site.path), encoding="utf-8") as stream:
        text = stream.read()
    begin, end = site.call
    after = text[begin:site.begin] + ('""' if site.mutant == "unnamed" else "true") + text[site.end:end]
    changed = difflib.unified_diff(text[begin:end].splitlines(), after.splitlines(), n=0, lineterm="")
    lines = [line[0] + " " + line[1:].strip() for line in changed if not line.startswith(("---", "+++", "@@"))]
    return "\n".join(lines)
