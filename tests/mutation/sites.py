"""Finds the hand-written backward passes and their terms."""

import os
import re
from collections import defaultdict

from source import ASSIGNMENTS, CONTROL, Group, names_in, split, tree_of, units_of

FOLDERS = ("engine", "nn", "models")
# Names of backward functions, of files with nothing else, and of structs whose whole body is backward code.
FUNCTION = re.compile(r"^(\w*backward\w*|derivative|derivative_from_output|parameter_derivatives|gradients?"
                      r"|\w*slope(_at)?|differentiate|\w*_gradients?|\w*pull_?back\w*|\w*_derivative)$")
FILE = re.compile(r"(backward|gradients?)\w*\.(h|cpp)$")
STRUCT = re.compile(r"^(\w*(Backward|Gradients?|Pull[bB]ack|Slope|Derivative)(Of\w*|Times)?)$")
# Independent checks, and code that only passes gradients on.
NOT_FILE = re.compile(r"^(engine/(autograd/(autograd|recompute)|checks/gradient_check|tensor/tensor|math/(dual|scalar))\."
                      r"|nn/(base/(gradient_case|module_case)|optimizers/base/optimizer)\.)")
NOT_FUNCTION = re.compile(r"^(\w*by_dual|\w*_case|check\w*|needs_\w*|has_\w*|zero_gradients)$")
NOT_STRUCT = re.compile(r"ByDual|Case$|Report$|Row$")

ZERO = re.compile(r"^(?:[\w:]+(?:<[\w:, ]*>)?\s*[({]\s*)?(?:[-+]?0*\.?0*[fF]?)\s*[)}]?$"
                  r"|^[\w:]+(<[\w:, ]*>)?\s*[({]\s*[)}]$")
NOT_A_TERM = re.compile(r"^saved\s*(\[|\.)|^Tensor::|\.shape\(|with_constants<|^\*this$|kernels(\(\))?\.|^nullptr$"
                        r"|^(true|false)$|\bdata<|\bfind\(|->second$|^std::(min|max)<int64_t>|^&|^dispatch\b")
NOT_A_STATEMENT = re.compile(r"kernels(\(\))?\.|^(check|fail|count_|saved\.|span|static_cast<void>|std::fill"
                             r"|\w+\.(push_back|reserve|resize|append|emplace_back|clear|count)\()|^~?\w+$")
# Arguments that are terms although they are not summed.
TERM_ARGUMENTS = {"store": {1}, "select": {1, 2}, "fused": {0, 2}, "fma": {0, 2}, "where": {1, 2}, "choose": {1, 2}}
COMPARISONS = {"<", ">", "<=", ">=", "==", "!=", "&&", "||", "<<", ">>", "%", "&", "|", "!"}


class Site:
    """`kind` is how it is written: mutant(term), literal(number) or dropped() in front of a statement."""

    def __init__(self, path, function, begin, end, text, line, kind):
        self.path, self.function, self.begin, self.end = path, function, begin, end
        self.text, self.line, self.kind = text, line, kind
        self.number = 0

    def kinds(self):
        return ("drop",) if self.kind == "dropped" else ("flip", "drop")


class Finder:
    """Walks the body of one backward function and collects its terms."""

    def __init__(self, path, text, unit):
        self.path, self.text, self.unit, self.sites = path, text, unit, []
        self.body(unit.body.children)

    def written(self, run):
        return re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", self.text[run[0].begin:run[-1].end]))

    def add(self, run, kind="mutant"):
        text = self.written(run)
        if kind == "mutant" and (run[0].kind == "string" or (run[0].text == "[" and isinstance(run[0], Group))):
            return
        if kind == "mutant" and len(run) == 1 and re.fullmatch(r"\d+", text):
            kind = "literal"
        line = self.text.count("\n", 0, run[0].begin) + 1
        self.sites.append(Site(self.path, self.unit.full_name(), run[0].begin, run[-1].end, text, line, kind))

    # ---- statements

    @staticmethod
    def is_lambda(before):
        """Returns whether a brace after these children is the body of a lambda."""
        i = len(before) - 1
        while i >= 0 and (before[i].kind == "name" and before[i].text in ("mutable", "const", "noexcept")):
            i -= 1
        while i >= 1 and isinstance(before[i], Group) and before[i].open == "(":  # attributes, then parameters
            if before[i - 1].text == "__attribute__":
                i -= 2
            else:
                i -= 1
                break
        if i >= 0 and isinstance(before[i], Group) and before[i].open == "<":
            i -= 1
        if i < 0 or not isinstance(before[i], Group) or before[i].open != "[":
            return False
        return i == 0 or not (before[i - 1].kind in ("name", "group")) or before[i - 1].text in ("return", "(", "{")

    def body(self, children):
        statement = []
        for child in children:
            if isinstance(child, Group) and child.open == "{" and not self.is_lambda(statement):
                before = statement[-1] if statement else None
                block = before is None or before.text in ("else", "do", "(") or before.text == ")"
                if block:
                    self.statement(statement, whole=False)
                    self.body(child.children)
                    statement = []
                    continue
            if child.text == ";" and child.kind == "sign":
                self.statement(statement)
                statement = []
            else:
                statement.append(child)
        self.statement(statement)

    def statement(self, run, whole=True):
        while run and run[0].kind == "name" and run[0].text in CONTROL | {"else", "do", "case", "default", "constexpr"}:
            if run[0].text in ("case", "default"):
                at = next((i for i, c in enumerate(run) if c.text == ":"), len(run) - 1)
                run = run[at + 1:]
                continue
            drop = 1
            while drop < len(run) and (run[drop].text == "constexpr" or
                                       (isinstance(run[drop], Group) and run[drop].open == "(" and drop < 3)):
                drop += 1
                if run[drop - 1].text == "(":
                    break
            run = run[drop:]
        if not run or not whole and not run:
            return
        if run[0].text in ("static", "using", "constexpr", "typedef", "static_assert", "break", "continue"):
            return
        if run[0].text == "return":
            if len(run) > 1:
                self.expression(run[1:], True)
            return
        declares = False
        for number, (_, piece) in enumerate(split(run, {","})):
            declares = declares or (number == 0 and self.declaration(piece))
            at = [i for i, c in enumerate(piece) if c.kind == "sign" and c.text in ASSIGNMENTS]
            if at and at[-1] + 1 < len(piece):
                self.expression(piece[at[-1] + 1:], True)
            elif piece:
                if not declares:
                    self.call(piece)
                self.groups(piece)

    @staticmethod
    def declaration(piece):
        """Two names in a row: a variable, followed by its arguments."""
        return any((a.kind == "name" or a.text in ("<", "*", "&")) and b.kind == "name"
                   for a, b in zip(piece, piece[1:]))

    def call(self, piece):
        """A statement that is a call, such as one that adds a product to a gradient, may be dropped as a whole."""
        last = piece[-1]
        if not (isinstance(last, Group) and last.open == "(" and len(piece) > 1 and piece[0].kind == "name"):
            return
        text = self.written(piece)
        if NOT_A_STATEMENT.search(text) or "[&]" in text or "[=]" in text or "[this]" in text:
            return
        self.add(piece, "dropped")

    # ---- expressions

    def expression(self, run, value):
        """`value`: a single term counts, too, because it is returned or stored."""
        if not run:
            return
        question = next((i for i, c in enumerate(run) if c.text == "?" and c.kind == "sign"), None)
        if question is not None:
            depth = 0
            for i in range(question + 1, len(run)):
                depth += (run[i].text == "?") - (run[i].text == ":" and run[i].kind == "sign")
                if depth < 0:
                    self.groups(run[:question])
                    self.expression(run[question + 1:i], True)
                    self.expression(run[i + 1:], True)
                    return
        if any(c.kind == "sign" and (c.text in COMPARISONS - {"&"} or c.text in ASSIGNMENTS) for c in run):
            self.groups(run)
            return
        terms, term = [], []
        for i, child in enumerate(run):
            binary = child.kind == "sign" and child.text in ("+", "-") and term and not (
                term[-1].kind == "sign")
            if binary:
                terms.append(term)
                term = []
            else:
                term.append(child)
        terms.append(term)
        if any(c.kind == "string" for c in run):
            self.groups(run)
            return
        for term in terms:
            if not term:
                continue
            text = self.written(term)
            if ZERO.match(text) or isinstance(term[0], Group) and term[0].open == "{":
                continue
            if len(terms) > 1 or (value and not NOT_A_TERM.search(text) and not re.fullmatch(r"\d+", text)):
                self.add(term)
            elif value and re.fullmatch(r"\d+", text):
                self.lone_number(term)
        self.groups(run)

    def lone_number(self, term):
        """`return 1;` in a formula."""
        before = self.text[:term[0].begin].rstrip()
        if before.endswith("return"):
            self.add(term)

    def groups(self, run):
        for i, child in enumerate(run):
            if not isinstance(child, Group) or child.open == "<":
                continue
            before = run[i - 1] if i else None
            if child.open == "[":
                continue
            if child.open == "(":
                callee = before.text if before is not None and before.kind == "name" else None
                if before is not None and before.text == "<" and i > 1 and run[i - 2].kind == "name":
                    callee = run[i - 2].text
                if callee in ("decltype", "sizeof", "alignof", "__attribute__", "requires"):
                    continue
                wanted = TERM_ARGUMENTS.get(callee, ())
                for number, (_, piece) in enumerate(split(child.children, {","})):
                    self.expression(piece, number in wanted)
            elif self.is_lambda(run[:i]):
                self.body(child.children)
            elif before is None or before.text != "requires":
                self.elements(child)

    def elements(self, group):
        for _, piece in split(group.children, {","}):
            if len(piece) > 2 and piece[0].text == "." and piece[2].text == "=":
                piece = piece[3:]
            self.expression(piece, len(piece) != 1 or not isinstance(piece[0], Group))


class File:
    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8") as stream:
            self.text = stream.read()
        self.tree = tree_of(self.text)
        self.units = units_of(self.tree)
        bodies = {u.body for u in self.units if not u.struct}
        self.elsewhere = names_in(self.tree, bodies)  # declarations, members, registrations
        for unit in self.units:
            self.elsewhere[unit.name] -= 1


def by_name(file, unit):
    """Returns whether the name of the function, its struct or its file marks backward code."""
    if NOT_FUNCTION.search(unit.name):
        return False
    owner = unit.owner
    while owner:
        if NOT_STRUCT.search(owner.name):
            return False
        if STRUCT.search(owner.name) and not owner.name.endswith("Kernels"):
            return True
        owner = owner.owner
    return bool(FUNCTION.search(unit.name) or (FILE.search(file.path) and file.path.endswith(".h")))


def backward_functions(files):
    """Returns functions by name, then every helper that only backward code uses, until none is new."""
    chosen = {(f, u) for f in files for u in f.units if not u.struct and not NOT_FILE.search(f.path) and by_name(f, u)}
    users = defaultdict(list)  # identifier: functions that mention it
    for file in files:
        for unit in file.units:
            for name in names_in(unit.body.children) if not unit.struct else ():
                users[name].append((file, unit))
    candidates = [(f, u, members) for f in files if not NOT_FILE.search(f.path) for u in f.units
                  if (members := functions_of(f, u)) is not None]
    while True:
        before = len(chosen)
        for file, unit, functions in candidates:
            near = [file] if unit.local else files
            mentions = [(f, u) for f, u in users[unit.name] if f in near and u is not unit and u.owner is not unit]
            if mentions and all(m in chosen for m in mentions) and not any(f.elsewhere[unit.name] > 0 for f in near):
                chosen |= {(file, f) for f in functions}
        if len(chosen) == before:
            return chosen


def functions_of(file, unit):
    """Returns the function itself, or those of a functor; None if it cannot be a helper."""
    if NOT_FUNCTION.search(unit.name):
        return None
    if not unit.struct:
        return None if unit.name in ("operator", "row", "visit", "forward") else [unit]
    members = [u for u in file.units if u.owner is unit and not u.struct]
    return None if any(u.name in ("forward", "backward", unit.name) for u in members) else members


def find_sites(root):
    """Returns all sites by file, numbered so that a change of one file keeps the numbers of the others."""
    files = []
    for folder in FOLDERS:
        for where, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            files += [File(root, os.path.relpath(os.path.join(where, n), root)) for n in sorted(names)
                      if n.endswith((".h", ".cpp"))]
    chosen = backward_functions(files)
    sites = {}
    for index, file in enumerate(files):
        found = [s for u in file.units if (file, u) in chosen for s in Finder(file.path, file.text, u).sites]
        for number, site in enumerate(found):
            site.number = 1000 * (index + 1) + number
        if found:
            sites[file.path] = found
    return sites


def mutated_text(root, path, sites):
    """Returns the file with its sites, on the same lines, and their locations: (line, first column, last column)."""
    with open(os.path.join(root, path), encoding="utf-8") as stream:
        text = stream.read()
    inserts = []  # (position, order, text, site): what closes comes before what opens, the inner before the outer
    for site in sites:
        if site.kind == "dropped":
            opening, closing = f"(::orrery::mutants::dropped<{site.number}>() ? void() : void(", "))"
        else:
            opening, closing = f"::orrery::mutants::{site.kind}<{site.number}>(", ")"
        length = site.end - site.begin
        inserts.append((site.begin, 1, -length, opening, site))
        inserts.append((site.end, 0, length, closing, site))
    inserts.sort(key=lambda i: i[:3])
    pieces, at = [], 0
    starts, ends = {}, {}
    size = 0
    for position, opens, _, insert, site in inserts:
        pieces.append(text[at:position])
        size += position - at
        at = position
        if opens:
            starts[site] = size
        pieces.append(insert)
        size += len(insert)
        if not opens:
            ends[site] = size
    pieces.append(text[at:])
    mutated = "".join(pieces)
    places = {}
    for site in sites:
        line = mutated.count("\n", 0, starts[site]) + 1
        column = starts[site] - mutated.rfind("\n", 0, starts[site])
        last = mutated.count("\n", 0, ends[site]) + 1
        places[site] = (line, column, last, ends[site] - mutated.rfind("\n", 0, ends[site]))
    return '#include "tests/mutation/mutant.h"\n#line 1\n' + mutated, places
