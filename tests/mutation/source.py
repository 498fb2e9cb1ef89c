"""C++ text as a tree: tokens, and bracketed groups of tokens.  Enough of the language for the style of this repository,
which clang-format keeps: no space before the < of a template argument list, spaces around the < of a comparison."""

import re
from collections import Counter

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      |(?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\s]*)\(.*?\)(?P=mark)"|(?:u8|[uUL])?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      |(?P<number>(?:0[xX][0-9a-fA-F']+|(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[a-zA-Z]*)
      |(?P<name>[A-Za-z_]\w*)
      |(?P<sign>->\*?|::|\.\.\.|<<=|>>=|<=>|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|.)""",
    re.VERBOSE | re.DOTALL)
OPEN = {"(": ")", "[": "]", "{": "}"}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/="}
CONTROL = {"if", "for", "while", "switch", "catch"}


class Token:
    def __init__(self, kind, text, begin, end):
        self.kind, self.text, self.begin, self.end = kind, text, begin, end

    def __repr__(self):
        return self.text


class Group:
    """The children between two brackets; `open` is one of ( [ { <."""

    def __init__(self, opening, children, begin, end):
        self.open, self.children, self.begin, self.end = opening, children, begin, end
        self.kind, self.text = "group", opening

    def __repr__(self):
        return f"{self.open}{self.children}"


def blank_directives(text):
    """Replaces preprocessor lines by spaces of the same length."""
    pattern = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n(?:[^\n\\]|\\.)*)*", re.MULTILINE)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def tokens_of(text):
    result, at = [], 0
    text = blank_directives(text)
    while at < len(text):
        match = TOKEN.match(text, at)
        if match.lastgroup != "skip":
            kind = "string" if match["string"] else match.lastgroup
            result.append(Token(kind, match.group(), at, match.end()))
        at = match.end()
    return result


def closing_angle(tokens, first):
    """The index of the > that closes tokens[first] as a template bracket, or None: it is a comparison or a shift."""
    token = tokens[first]
    before = tokens[first - 1] if first else None
    if before is None or before.kind != "name" and before.text != "]":
        return None
    if before.end != token.begin and before.text != "template":
        return None
    depth = 0
    for i in range(first, min(first + 400, len(tokens))):
        text = tokens[i].text
        if text == "<":
            depth += 1
        elif text in (">", ">>"):
            depth -= len(text)
            if depth <= 0:
                return i if depth == 0 else None
        elif text in (";", "{", "}", "&&", "||") and before.text != "template":
            return None
    return None


def tree_of(text):
    tokens, position = tokens_of(text), 0

    def read(closing, stop):
        nonlocal position
        children = []
        while position < len(tokens):
            token = tokens[position]
            if stop is not None and position == stop:
                return children
            if token.text == closing and stop is None:
                return children
            if token.text in OPEN:
                position += 1
                inner = read(OPEN[token.text], None)
                end = tokens[position].end if position < len(tokens) else len(text)
                children.append(Group(token.text, inner, token.begin, end))
                position += 1
            elif token.text == "<" and (at := closing_angle(tokens, position)) is not None:
                children.append(Group("<", tokens[position + 1:at], token.begin, tokens[at].end))
                position = at + 1
            else:
                children.append(token)
                position += 1
        return children

    return read(None, None)


def split(children, separators):
    """Runs of children between tokens of these texts: pairs (separator before or None, run)."""
    runs, run, before = [], [], None
    for child in children:
        if child.kind == "sign" and child.text in separators:
            runs.append((before, run))
            run, before = [], child.text
        else:
            run.append(child)
    runs.append((before, run))
    return runs


class Unit:
    """A function with its body, or a struct (then functions is what it holds)."""

    def __init__(self, name, struct, body, owner, local):
        self.name, self.struct, self.body, self.owner, self.local = name, struct, body, owner, local

    def full_name(self):
        return f"{self.owner.full_name()}::{self.name}" if self.owner else self.name


def name_of_function(header):
    for i, child in enumerate(header):
        if child.kind == "name" and child.text == "operator":
            return "operator"
        if isinstance(child, Group) and child.open == "(" and i and header[i - 1].kind == "name":
            if header[i - 1].text not in CONTROL | {"decltype", "alignas", "__attribute__", "requires", "noexcept"}:
                return header[i - 1].text
    return None


def units_of(children, owner=None, local=False):
    """All structs and functions below, in order; `local`: inside an unnamed namespace."""
    found, header = [], []
    for child in children:
        if isinstance(child, Group) and child.open == "{":
            words = [c.text for c in header if c.kind == "name"]
            if "namespace" in words or not header:
                found += units_of(child.children, owner, local or words == ["namespace"])
            elif any(w in words for w in ("struct", "class", "union")) and name_of_function(header) is None:
                at = next(i for i, w in enumerate(words) if w in ("struct", "class", "union"))
                name = words[at + 1] if len(words) > at + 1 else ""
                unit = Unit(name, True, child, owner, local)
                found.append(unit)
                found += units_of(child.children, unit, local)
            elif name_of_function(header) and not any(c.text in ASSIGNMENTS for c in header):
                found.append(Unit(name_of_function(header), False, child, owner, local))
            else:  # an initial value goes on to its semicolon
                header.append(child)
                continue
            header = []
        elif child.text == ";" or (child.text == ":" and len(header) == 1):
            header = []
        else:
            header.append(child)
    return found


def names_in(children, without=()):
    """Counts each identifier below these children, except in these groups."""
    names = Counter()
    for child in children:
        if isinstance(child, Group) and child not in without:
            names += names_in(child.children, without)
        elif child.kind == "name":
            names[child.text] += 1
    return names
