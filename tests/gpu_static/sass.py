"""SASS of a kernel: its basic blocks, the branches that are decided before it runs, its loops, and the path through a
trip of a loop that does all of its work with the fewest instructions.

Which branches are decided: those that follow from constants and from the number of one thread, `thread`.  So a loop
over threadIdx.x that nvcc has unrolled counts with the trips that it makes, and what is left over costs nothing."""
import collections, itertools, re

Instruction = collections.namedtuple("Instruction", "address guard opcode operands")  # guard: "", "P0", "!UP1"
Block = collections.namedtuple("Block", "address instructions following")  # following: the next address, or None
mask = 0xFFFFFFFF

# ---- reading


def parse(line):
    """An instruction of cuobjdump's listing, or None."""
    found = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;", line)
    if not found:
        return None
    address, guard, opcode, rest = found.groups()
    return Instruction(int(address, 16), guard or "", opcode, [o.strip() for o in rest.split(",")] if rest else [])


def target(i):
    found = re.search(r"0x([0-9a-f]+)\)?$", i.operands[-1]) if i.operands else None
    return int(found.group(1), 16) if found else None


def base(i):
    return i.opcode.split(".")[0]


def with_jumps(code):
    """Makes branches of the calls without return that nvcc uses for some jumps."""
    place = {i.address: n for n, i in enumerate(code)}

    def returns(address):
        seen, todo = set(), [place[address]]
        while todo:
            n = todo.pop()
            if n in seen or n >= len(code):
                continue
            seen.add(n)
            i = code[n]
            if base(i) == "RET":
                return True
            if base(i) == "BRA" and target(i) in place:
                todo.append(place[target(i)])
            if base(i) not in ("BRA", "EXIT") or i.guard or len(i.operands) > 1:
                todo.append(n + 1)
        return False

    calls = {target(i) for i in code if base(i) == "CALL" and target(i) in place}
    jumps = {address for address in calls if not returns(address)}
    return [i._replace(opcode="BRA") if base(i) == "CALL" and target(i) in jumps else i for i in code]


def blocks_of(code):
    begins = {code[0].address}
    for i, following in itertools.zip_longest(code, code[1:]):
        if base(i) in ("BRA", "BSSY") and target(i) is not None:
            begins.add(target(i))
        if base(i) in ("BRA", "BRX", "EXIT", "RET", "BSYNC") and following:
            begins.add(following.address)
    blocks, mine = {}, []
    for i, following in itertools.zip_longest(code, code[1:]):
        mine.append(i)
        if following is None or following.address in begins:
            blocks[mine[0].address] = Block(mine[0].address, mine, following.address if following else None)
            mine = []
    return blocks


# ---- kinds of instructions

global_accesses = set("LD LDG LDGSTS ST STG ATOM ATOMG RED REDG UBLKCP UBLKPF UTMALDG UTMASTG UTMAREDG".split())
kinds = {
    "FP32": "FFMA FADD FMUL FMNMX FMNMX3 FSEL FSETP FSET FCHK FSWZADD",
    "MUFU": "MUFU",
    "CVT": "F2F F2FP I2F F2I I2FP FRND F2IP",
    "LDSM": "LDSM",
    "COPY": "LDGSTS UBLKCP UTMALDG",  # from global to shared memory
    "MEM": "LDS STS LDG STG LDL STL LDC ULDC LDCU STSM UTMASTG ATOM ATOMG ATOMS RED REDG",
    "LANES": "SHFL VOTE VOTEU",
    "CTRL": "BAR DEPBAR LDGDEPBAR SYNCS WARPSYNC BSYNC BSSY BRA EXIT CALL RET NANOSLEEP YIELD WARPGROUP WARPGROUPSET "
            "ARRIVES FENCE MEMBAR ERRBAR CCTL BREAK BRX BMOV ELECT NOP UCGABAR_WAIT UCGABAR_ARV ACQBULK UTMACMDFLUSH "
            "BPT KILL JMP USETMAXREG",
}
kind_of_opcode = {opcode: kind for kind, opcodes in kinds.items() for opcode in opcodes.split()}


def kind(i):
    """Returns INT for opcodes outside of the table: they compute integers and addresses, or move registers."""
    return "HMMA" if tensor_work(i) else kind_of_opcode.get(base(i), "INT")


def tensor_work(i):
    """In units of an HMMA.16816, 2,048 multiply-adds of a warp; an HGMMA is of four warps."""
    if base(i) == "HGMMA":
        m, n, k = map(int, re.search(r"\.(\d+)x(\d+)x(\d+)", i.opcode).groups())
        return m * n * k / 4 / 2048
    if base(i) == "HMMA":
        return int(re.search(r"\.168(\d+)", i.opcode).group(1)) / 16
    return 0


def sums_of(trip):
    """Returns how many sums of a thread the tensor cores of a trip add to: stores do not show it, because those
    with a false predicate are in the path, too."""
    sums, written = 0, set()
    for i in trip:
        if work := tensor_work(i):
            held = i.operands[0 if base(i) == "HGMMA" else 3].removesuffix(".reuse")
            if held not in written:
                sums += int(work * 4) if base(i) == "HGMMA" else 4
            written.add(i.operands[0].removesuffix(".reuse"))
    return sums


def bytes_of(i, opcodes):
    """Returns the bytes that a thread moves with one of these instructions."""
    if base(i) not in opcodes:
        return 0
    flags = i.opcode.split(".")
    return next((size for flag, size in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1))
                 if flag in flags), 4)


# ---- what is known of registers: a dictionary from names to values; a name that is missing is not known


def value(operand, known):
    operand = operand.removesuffix(".reuse")
    sign = operand[0] if operand[0] in "-~!" else ""
    name = operand[len(sign):]
    if name in ("RZ", "URZ", "SRZ"):
        v = 0
    elif name in ("PT", "UPT"):
        v = True
    elif name.startswith("0x"):
        v = int(name, 16)
    else:
        v = known.get(name)
    if v is None:
        return None
    return {"": v, "-": -v & mask, "~": ~v & mask, "!": not v}[sign]


def is_register(operand):
    return re.fullmatch(r"U?R\d+", operand) is not None


def is_predicate(operand):
    return re.fullmatch(r"U?P\d", operand) is not None


def signed(v):
    return v - (1 << 32) if v >> 31 else v


def both(a, b):
    return False if a is False or b is False else None if a is None or b is None else a and b


def either(a, b):
    return True if a is True or b is True else None if a is None or b is None else a or b


def table_bit(table, inputs):
    """Returns the value of a truth table for inputs of which some are unknown."""
    results = {table >> (4 * a + 2 * b + c) & 1
               for a, b, c in itertools.product(*[(0, 1) if v is None else (int(v),) for v in inputs])}
    return bool(results.pop()) if len(results) == 1 else None


def number(name, flags, v):
    """The 32 bits that an instruction computes of its operands' values `v`; None if that is not known."""
    if name in ("MOV", "R2UR"):
        return v[0]
    if name == "IMAD" and not {"WIDE", "HI", "X"} & set(flags):
        product = 0 if 0 in v[:2] else None if None in v[:2] else v[0] * v[1]
        return None if product is None or v[2] is None else product + v[2] & mask
    if name == "LOP3":
        a, b, c, table = v[:4]
        if None in (a, b, c, table):
            return 0 if table == 0xC0 and 0 in (a, b) else None
        bits = ((a if t & 4 else ~a) & (b if t & 2 else ~b) & (c if t & 1 else ~c) for t in range(8) if table >> t & 1)
        result = 0
        for part in bits:
            result |= part
        return result & mask
    if name == "SEL":
        return None if v[2] is None else v[0 if v[2] else 1]
    if None in v or "X" in flags or "SX32" in flags:
        return None
    if name == "VIADD":
        return v[0] + v[1] & mask
    if name == "IADD3":
        return sum(v[:3]) & mask
    if name == "LEA":
        return ((v[2] << 32 | v[0]) << v[3] >> 32) + v[1] & mask if "HI" in flags else (v[0] << v[2]) + v[1] & mask
    if name == "SHF":
        lo, shift, hi = v[0], v[1] & 63, v[2]
        if "L" in flags:
            pair = (hi << 32 | lo) << shift
        else:
            pair = ((signed(hi) if "S32" in flags else hi) << 32 | lo) >> shift
        return (pair >> 32 if "HI" in flags else pair) & mask
    if name in ("VIMNMX", "IMNMX", "VIADDMNMX"):
        a, b = (v[0] + v[1] & mask, v[2]) if name == "VIADDMNMX" else v[:2]
        least, most = sorted((a, b), key=int if "U32" in flags else signed)
        return least if v[-1] else most
    return None


numbers = "MOV R2UR IMAD LOP3 SEL VIADD IADD3 LEA SHF VIMNMX IMNMX VIADDMNMX".split()
compare = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "EQ": int.__eq__, "NE": int.__ne__}


def written(i, known, thread):
    """Returns the registers that an instruction writes, as a dictionary; None: unknown value."""
    name, *flags = i.opcode.split(".")
    if name[0] == "U" and name[1:] in numbers + ["ISETP", "PLOP3"]:
        name = name[1:]
    o = i.operands
    if name == "ISETP":
        a, b, joined = (value(p, known) for p in o[2:5])
        if a is None or b is None or "EX" in flags:
            result = None
        else:
            result = compare[flags[0]](*((a, b) if "U32" in flags else (signed(a), signed(b))))
        join = both if "AND" in flags else either if "OR" in flags else lambda *_: None
        opposite = None if result is None else not result
        return {o[0]: join(result, joined), o[1]: join(opposite, joined)}
    if name == "PLOP3":
        inputs = [value(p, known) for p in o[2:5]]
        return {p: table_bit(int(t, 16), inputs) for p, t in zip(o, o[5:]) if t.startswith("0x")}
    if name in numbers:
        results = {}
        first, rest, test = o[0], o[1:], None
        if name == "LOP3" and not is_register(first) and first not in ("RZ", "URZ"):
            test, first, rest = first, rest[0], rest[1:]
        while name != "LOP3" and len(rest) > 1 and is_predicate(rest[0]):  # a carry
            results[rest[0]] = None
            rest = rest[1:]
        results[first] = number(name, flags, [value(p, known) for p in rest])
        if registers_written(name, flags) == 2:
            results[re.sub(r"\d+", lambda n: str(int(n[0]) + 1), first)] = None
        if test:
            results[test] = either(None if results[first] is None else results[first] != 0, value(rest[-1], known))
        return results
    if name in ("S2R", "S2UR"):
        of_thread = {"SR_TID.X": thread, "SR_TID.Y": 0, "SR_TID.Z": 0,
                     "SR_LANEID": None if thread is None else thread % 32}
        return {o[0]: of_thread.get(o[1])}
    if name == "CALL":
        return {p: None for p in known}
    if name == "HGMMA":
        return {p: None for p in known if p[0] == "R"}
    if name == "R2P":
        return {p: None for p in known if p[0] == "P"}
    if kind(i) == "CTRL":
        return {}
    results = {}
    for operand in o[:2]:
        if is_predicate(operand):
            results[operand] = None
        elif is_register(operand) and not any(is_register(r) for r in results):
            letters, first = re.fullmatch(r"(U?R)(\d+)", operand).groups()
            v = 0 if name == "CS2R" and o[1] == "SRZ" else None
            results.update({f"{letters}{int(first) + n}": v for n in range(registers_written(name, flags))})
    return results


def registers_written(name, flags):
    if name == "HMMA" or "128" in flags or (name == "LDSM" and flags[-1] == "4"):
        return 4
    wide = {"64", "WIDE", "F64"} & set(flags) or (name == "LDSM" and flags[-1] == "2")
    return 2 if wide or name[0] == "D" or (name == "CS2R" and "32" not in flags) else 1


def run(i, known, thread):
    guard = value(i.guard, known) if i.guard else True
    if guard is False:
        return
    for name, v in written(i, known, thread).items():
        if name in ("RZ", "URZ", "PT", "UPT") or (guard is None and v is not None and known.get(name) == v):
            continue
        if v is None or guard is None:
            known.pop(name, None)
        else:
            known[name] = v


def successors(block, known):
    last = block.instructions[-1]
    onward = [block.following] if block.following is not None else []
    taken = value(last.guard, known) if last.guard else True
    if base(last) == "BRA":
        if ".DIV" in last.opcode or target(last) is None:  # lanes of a warp that stray: not on a full tile
            return onward
        for operand in last.operands[:-1]:
            taken = both(taken, value(operand, known))
        return ([target(last)] if taken is not False else []) + (onward if taken is not True else [])
    if base(last) in ("EXIT", "RET"):
        return [] if taken is True else onward
    return onward


def meet(a, b):
    return {name: v for name, v in a.items() if b.get(name) == v}


# ---- the graph


class Flow:
    """The blocks that thread `thread` can reach, from `start` on with what is known there, and what it knows at their
    ends.  `inside`: stay in these blocks, and do not go back to `start`: one trip of a loop."""

    def __init__(self, blocks, thread, start, known, inside=None):
        self.blocks, self.at_end, self.edges = blocks, {}, collections.defaultdict(list)
        at_begin, todo = {start: known}, [start]
        while todo:
            a = todo.pop()
            here = dict(at_begin[a])
            for i in blocks[a].instructions:
                run(i, here, thread)
            self.at_end[a] = here
            self.edges[a] = successors(blocks[a], here)
            for b in self.edges[a]:
                if b not in blocks or (inside is not None and (b not in inside or b == start)):
                    continue
                both_ways = meet(at_begin[b], here) if b in at_begin else here
                if b not in at_begin or len(both_ways) < len(at_begin[b]):
                    at_begin[b] = both_ways
                    todo.append(b)


class Loop:
    def __init__(self, header):
        self.header, self.body, self.latches = header, {header}, []

    def trips(self, flow, thread):
        """Returns the number of trips if it is known, else None."""
        outside = [known for a, known in flow.at_end.items() if self.header in flow.edges[a] and a not in self.body]
        if not outside:
            return None
        known = outside[0]
        for other in outside[1:]:
            known = meet(known, other)
        for trips in range(1, 257):
            trip = Flow(flow.blocks, thread, self.header, known, self.body)
            again = [end for a, end in trip.at_end.items() if self.header in trip.edges[a]]
            leaves = any(b not in self.body for a in trip.at_end for b in trip.edges[a])
            if not again:
                return trips
            if leaves:
                return None
            known = again[0]
            for other in again[1:]:
                known = meet(known, other)
        return None


def order_of(edges, start):
    """The blocks in reverse postorder."""
    seen, order, stack = {start}, [], [(start, iter(edges[start]))]
    while stack:
        a, rest = stack[-1]
        b = next((b for b in rest if b not in seen), None)
        if b is None:
            order.append(a)
            stack.pop()
        else:
            seen.add(b)
            stack.append((b, iter(edges[b])))
    return order[::-1]


def loops_of(edges, start):
    order = order_of(edges, start)
    place = {a: n for n, a in enumerate(order)}
    before = collections.defaultdict(list)
    for a in order:
        for b in edges[a]:
            before[b].append(a)
    above = {start: start}  # immediate dominators (Cooper, Harvey and Kennedy)

    def common(a, b):
        while a != b:
            while place[a] > place[b]:
                a = above[a]
            while place[b] > place[a]:
                b = above[b]
        return a

    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            known = [a for a in before[b] if a in above]
            best = known[0]
            for a in known[1:]:
                best = common(a, best)
            if above.get(b) != best:
                above[b], changed = best, True
    loops = {}
    for a in order:
        for b in edges[a]:
            if place[b] <= place[a] and common(a, b) == b:
                loop = loops.setdefault(b, Loop(b))
                loop.latches.append(a)
                todo = [a]
                while todo:
                    c = todo.pop()
                    if c not in loop.body:
                        loop.body.add(c)
                        todo += before[c]
    return sorted(loops.values(), key=lambda l: len(l.body))


# ---- paths


class Kernel:
    """`thread`: whose path is followed; in a kernel whose threads have roles, one that multiplies: the first of
    `threads` that does.  moves: opcodes whose bytes decide between paths."""

    def __init__(self, code, threads=(0, 128, 256, None), moves=None):
        self.code = with_jumps(code)
        self.blocks = blocks_of(self.code)
        # What warps of a group multiply alone, for rows that are not finite, is no work of the path.
        works = (lambda i: tensor_work(i) * (base(i) == "HGMMA")) if has_tasks(code) else tensor_work
        tensor = {a for a, b in self.blocks.items() if any(map(works, b.instructions))}
        for self.thread in threads:
            self.flow = Flow(self.blocks, self.thread, code[0].address, {})
            if not tensor or tensor & set(self.flow.at_end):
                break
        self.edges = self.flow.edges
        self.loops = loops_of(self.edges, code[0].address)
        self.trips = {loop.header: loop.trips(self.flow, self.thread) for loop in self.loops}
        copies = any(base(i) == "LDGSTS" for i in code)
        moves = moves or (("LDGSTS",) if tensor and (copies or has_tasks(code)) else ("LDGSTS", "LDG", "STG"))
        # Criteria of a path: the most work for tensor cores, the most bytes, the fewest instructions.
        self.weights = {a: (sum(map(works, b.instructions)), sum(bytes_of(i, moves) for i in b.instructions),
                            -len(b.instructions)) for a, b in self.blocks.items()}

    def trip(self, loop):
        """The blocks of one trip, with inner loops as often as they run."""
        return self.path(loop.header, loop.body, loop.latches, loop)

    def least_trip(self, way):
        """Returns the path through the same loop without the HMMA that only some trips execute."""
        loop = next(l for l in self.loops if l.header == way[0])
        weights = {a: (-work, copied, instructions) for a, (work, copied, instructions) in self.weights.items()}
        return self.path(loop.header, loop.body, loop.latches, loop, weights)

    def after(self, way):
        """The path from the loop's end to the kernel's that stores the most with the fewest instructions; in a kernel
        whose groups have different tasks, the one that also reads the most (the bias)."""
        body = next(l.body for l in self.loops if l.header == way[0])
        stores, reads = (("STG", "STSM"), ("LDS",)) if has_tasks(self.code) else (("STG",), ())
        weights = {a: (sum(bytes_of(i, stores) for i in b.instructions), sum(bytes_of(i, reads) for i in b.instructions),
                       -len(b.instructions)) for a, b in self.blocks.items()}
        ways = []
        for start in {b for a in body for b in self.edges[a]} - body:
            beyond = set(order_of(self.edges, start)) - body
            ends = [a for a in beyond if any(base(i) == "EXIT" for i in self.blocks[a].instructions)]
            ways.append(self.path(start, beyond, ends, weights=weights))
        return max(ways, key=lambda w: tuple(map(sum, zip((0, 0, 0), *[weights[a] for a in w]))), default=[])

    def path(self, start, body, ends, outer=None, weights=None):
        weights = weights or self.weights
        inner = {l.header: l for l in self.loops if l is not outer and l.header in body and l.body <= body}
        again = {}
        for header, loop in inner.items():
            trips = self.trips[header]
            again[header] = self.trip(loop) * (trips - 1) if trips and trips > 1 else []
        edges = collections.defaultdict(list)
        for a in body:
            edges[a] = [b for b in self.edges[a]
                        if b in body and b != start and not (b in inner and a in inner[b].body)]
        best, came, via = {}, collections.defaultdict(list), {}
        for a in order_of(edges, start):
            via[a] = max(came[a], key=best.get, default=None)
            own = [weights[b] for b in [*again.get(a, []), a]]
            best[a] = tuple(map(sum, zip(best.get(via[a], (0, 0, 0)), *own)))
            for b in edges[a]:
                came[b].append(a)
        end = max((a for a in ends if a in best), key=best.get, default=None)
        way = []
        while end is not None:
            way = [*again.get(end, []), end, *way]
            end = via[end]
        return way

    def instructions(self, way):
        return [i for a in way for i in self.blocks[a].instructions]

    def main_loop(self, useful):
        """Returns the innermost loop whose number of trips depends on the arguments and whose trip does useful work;
        of several, the one with the most work."""
        candidates = [l for l in self.loops
                      if self.trips[l.header] is None and any(map(useful, self.instructions(l.body)))]
        innermost = [l for l in candidates if not any(o is not l and o.body < l.body for o in candidates)]
        ways = [self.trip(l) for l in innermost]
        return max(ways, key=lambda way: tuple(map(sum, zip(*[self.weights[a] for a in way]))), default=None)


def has_tasks(code):
    """Whether the kernel's warp groups have different tasks: they pass registers to each other."""
    return any(base(i) == "USETMAXREG" for i in code)


def finishing(code):
    """The instructions for a tile of a warp of group 3, not its first, which finishes what others have multiplied
    (cuda/matmul/tensor_core_pipeline.cuh); none if the kernel has no such group or it only stores."""
    if not has_tasks(code):
        return []
    kernel = Kernel(code, (3 * 128 + 32,), ("STS",))
    way = kernel.main_loop(lambda i: bytes_of(i, ("STS",)))
    return kernel.instructions(way) if way else []
