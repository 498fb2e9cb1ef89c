#!/usr/bin/env python3
"""A model of one training step of gpt2-124m in bf16: the times of its kernels on a GPU, from their bounds.

    python3 model.py COUNTS [--card h100|h200|a100] [--batch 8 16 32] [--kernels] [--launches FILE]

Prints ours, torch.compile as modelled, and the ratio.  COUNTS: the output of `count.py --build ... --step --json`.
--kernels: a row for each kernel.  --launches: the output of gpu_launches for one batch; default: launches/bN.tsv.

Launches, blocks and sizes are recorded; the instructions of a warp are counted.  Three numbers were measured on a GPU,
of products by warp groups and of attention (README.md compares the model with a GPU).  A kernel that was recorded but
not counted, or whose memory traffic is unknown here, is an error.  A kernel's bound is the longest of four times: its
instructions on the issue slots, its traffic with shared memory, its products on the tensor cores, its bytes from and to
memory.  Its estimated time is the longest of these at the fractions of the peak that kernels of its kind are assumed to
reach, plus a launch.
"""
import argparse, collections, heapq, json, math, pathlib, re, sys

from names import shortened

here = pathlib.Path(__file__).resolve().parent

# ---- the GPUs (dense bf16; tensor: the fraction of its peak that mma.sync reaches: H100 arXiv:2402.13499; groups:
# whether products use warp groups, whose tiles are the same)
Card = collections.namedtuple("Card", "name multiprocessors clock bandwidth peak tensor l2 peer_gemm peer_attention "
                              "arch lanes calls_itself groups")  # lanes: f32 operations a clock of a multiprocessor
cards = {
    "h100": Card("H100 SXM", 132, 1.755e9, 3.35e12, 989e12, 0.62, 30e6, 600e12, 220e12, "sm_90", 128, "H100 80GB HBM3",
                 True),
    "h200": Card("H200 SXM", 132, 1.755e9, 4.8e12, 989e12, 0.62, 30e6, 600e12, 220e12,  # an H100 with other memory
                 "sm_90", 128, "H200$", True),
    "a100": Card("A100 SXM 80 GB", 108, 1.41e9, 2.04e12, 312e12, 1.0, 24e6, 220e12, 110e12,  # the peer's: assumed
                 "sm_80", 64, "A100-SXM4-80GB", False),
}
issue_slots = 4  # instructions a clock of a multiprocessor; 128 bytes a clock from and to its shared memory

# ---- fractions of peaks that kernels are assumed to reach
memory_share = 0.9     # of the bandwidth, by all kernels; in bounds too
smem_share = 0.85
tensor_share = 0.92    # of what mma.sync reaches
group_share = 0.87     # of the peak, by products of warp groups during their k loop: measured on an H200
tile_time = 4e-6       # seconds of one of their tiles before and after that loop: measured on an H200
gemm_issue = 0.7       # of the issue slots
odd_gemm_issue = 0.35  # in products whose rows do not begin at 16 bytes: eight dependent loads of 2 bytes a chunk,
odd_gemm = 1.76        # instructions of these products, as a multiple of the counted path
attention_issue = 0.26  # two warps per scheduler do not hide the latency of LDSM: measured on an H200
row_issue = 0.6
launch_time = 2e-6     # seconds between two kernels that the stream does not hide

# ---- assumptions about our kernels
before_loop = 640  # instructions of a warp before a product's loop and around it
loss_reads = 1.92  # of the logits, forward: a part comes from the L2 the second time
band_tiles = 16    # tiles of a product down the rows of C, before the next column of tiles
large = 64         # the memory traffic of launches with at least this many blocks must be known

# ---- gpt2-124m
layers, width, context = 12, 768, 1024
parameters = 124.44e6
of_layers = 84.93e6  # without embeddings

# ---- torch.compile: cuBLAS, FlashAttention-2, inductor's loops, fused AdamW under autocast (estimated)
peer_launches, peer_launch = 400, 1.5e-6
peer_forward = 4 + 4 + 8                  # arrays of (tokens, width) that loops read and write in a layer
peer_backward = 12 + 6 + 6 + 6 + 7
peer_products = (4 + 2 + 5 + 5) + (5 + 5 + 5 + 5 + 2 + 2 + 4 + 4)  # and that products do
peer_attention = 15
peer_logits, peer_parameter = 3, 28 + 12 + 6  # passes over the logits; bytes a parameter


class Failure(Exception):
    """The record, the counts and the tables here do not fit together."""


Launch = collections.namedtuple("Launch", "phase operation name blocks threads times shared kernel work")


def read_launches(path):
    """The launches that gpu_launches recorded."""
    return launches_of(pathlib.Path(path).read_text().splitlines())


def launches_of(lines):
    result = []
    for line in lines:
        if not line.startswith("#"):
            phase, operation, name, blocks, threads, times, shared, kernel, work = line.split("\t")
            result.append(Launch(phase, operation, name, int(blocks), int(threads), int(times), int(shared),
                                 shortened(kernel), work.split()))
    return result


# Sizes of the model, found from launches: the product before the loss makes logits, attention reads tokens.
Sizes = collections.namedtuple("Sizes", "tokens width vocabulary parameters")


def sizes_of(launches, of_model):
    product = []
    for launch in launches:
        if launch.operation == "cross_entropy" and product:
            tokens, vocabulary, wide = map(int, product[1:4])
            return Sizes(tokens, wide, vocabulary, of_model)
        product = launch.work if launch.work[:1] == ["product"] else product
    for launch in launches:
        if launch.work[:1] == ["attention"]:
            batch, heads, queries, _, size = map(int, launch.work[1:6])
            return Sizes(batch * queries, heads * size, 0, of_model)
    return Sizes(0, 0, 0, of_model)


# Launches that move memory, except products and attention: a pattern of "phase operation launch kernel", the bytes of a
# launch from and to memory, and the bytes per which its instructions are counted (stored, or loaded if it stores none);
# 0: memory decides.  u: an array (tokens, width) of bf16.
def passes(sizes):
    u, logits = sizes.tokens * sizes.width * 2, sizes.tokens * sizes.vocabulary * 2
    width, parameters = sizes.width, sizes.parameters
    return [
        (r"^forward layer_norm rows", 2 * u, u),
        (r"^backward layer_norm rows", 4 * u, u),  # with the residual's gradient, except in the last
        (r"^backward layer_norm reduce", 2 * u, 2 * u),
        (r"^backward *block sums", 2 * 25 * 264 * width * 4, 0),  # of all normalizations
        (r"^forward cross_entropy rows", loss_reads * logits, logits),
        (r"^backward cross_entropy rows", 2 * logits, logits),
        (r"cross_entropy reduce", 0, 0),
        (r"matmul: aligned rows", 2 * logits, 0),  # of 50,257, before a product reads them
        (r" map .*AddValue", 3 * u, 0),
        (r" cast map .*Convert<bf16>, bf16\*, float", 3 * u, 0),
        (r" cast map .*Convert<float>, float\*, bf16", 6 * width * width, 0),
        (r" concatenate rows", 6 * u, 0),  # of queries, keys and values
        (r"^backward sum reduce", u, 0),
        (r"attention: inner products", 2 * u, 0),
        (r"index_select|leading_slice|scatter|sort|embedding", 2 * u, 0),
        (r"^optimizer .*reduce", 4 * parameters, 0),
        (r"^optimizer .*rows", 30 * parameters, 14 * parameters),  # of the decaying parameters, which are almost all
    ]


# Work of a block: a warp's instructions, wavefronts of shared memory, products.
Work = collections.namedtuple("Work", "instructions wavefronts flops", defaults=(0, 0, 0))


def in_first_column(block, down, across):
    """Returns whether a block makes a tile of C's first columns, as BlockTile in cuda/matmul/matmul.cuh does."""
    of_matrix = block % (down * across)
    first = of_matrix // (band_tiles * across) * band_tiles
    return of_matrix - first * across < min(band_tiles, down - first)


def busiest_of(works, blocks, multiprocessors):
    """Returns the work of the multiprocessor that ends last, if each takes the next block as soon as one ends."""
    def busiest(of_blocks):
        if len(of_blocks) == 1:
            return of_blocks[0] * math.ceil(blocks / multiprocessors)
        busy = [0] * multiprocessors
        for work in of_blocks:
            heapq.heapreplace(busy, busy[0] + work)
        return max(busy)

    return Work(*map(busiest, zip(*works)))


class Step:
    """others: the bytes of a launch that no pattern matches; without it such a launch is an error."""

    def __init__(self, card, sizes, launches, counts, others=None):
        self.card, self.counts, self.rows, self.unknown = card, counts, [], []
        self.tokens = sizes.tokens
        self.passes = passes(sizes) + ([("", others, 0)] if others else [])
        self.launches = sum(launch.times for launch in launches)
        for launch in launches:
            kind = launch.work[0] if launch.work else ""
            if kind == "product" and launch.name == "matmul":
                self.add_product(launch, *map(int, launch.work[1:]))
            elif kind == "attention" and "tensor core" in launch.name:
                self.add_attention(launch, *map(int, launch.work[1:6]), full="full" in launch.work)
            else:
                self.add_pass(launch)
        if self.unknown:
            raise Failure("\n".join(dict.fromkeys(self.unknown)))

    def counted(self, launch):
        row = self.counts.get(launch.kernel)
        if not row or not ("per_hmma" in row or "per_16_bytes" in row):
            self.unknown.append(f"count.py has not counted {launch.kernel}, which {launch.phase} {launch.operation} "
                                f"launches")
        return row

    def add(self, launch, name, flops, bytes_, works, issue_share, per_hmma=0, groups=False):
        """works: of each block, in starting order, or of one if all are equal.  groups: whether warp groups multiply,
        whose instructions and traffic with shared memory cost no time."""
        card = self.card
        busiest = busiest_of(works, launch.blocks, card.multiprocessors)
        issue = busiest.instructions / (issue_slots * card.clock)
        shared = busiest.wavefronts / card.clock
        tensor = busiest.flops / (card.peak * (1 if groups else card.tensor) / card.multiprocessors)
        memory = bytes_ / (card.bandwidth * memory_share)
        if groups:
            issue = shared = 0
        bound = max(issue, shared, tensor, memory)
        share = group_share if groups else tensor_share
        likely = max(issue / issue_share, shared / smem_share, tensor / share, memory)
        if groups:
            likely += math.ceil(launch.blocks / card.multiprocessors) * tile_time
        self.rows.append({"name": name, "n": launch.times, "flops": flops, "bytes": bytes_, "per_hmma": per_hmma,
                          "issue": issue, "smem": shared, "memory": memory, "bound": bound,
                          "likely": likely + launch_time})

    def add_product(self, launch, m, n, k, batch, pieces, aligned, bytes_, down, across, sums_rows):
        row = self.counted(launch)
        if not row or "outputs" not in row:
            return
        warps, area, elements = launch.threads / 32, row["outputs"] * launch.threads, m * n * batch
        in_runs = "runs" in launch.kernel  # blocks have equally many steps of all tiles
        of_block = k * down * across / launch.blocks if in_runs else k / pieces
        trips = math.ceil(of_block / (row["plain"]["hmma"] * 2048 * warps / area))

        def work_of(trip):
            warp = before_loop + trips * trip["instructions"] * (1 if aligned else odd_gemm) + row["after_loop"]
            wavefronts = trips * (warps * trip["ldsm"] * 4 + launch.threads * row["copied"] / 128)
            return Work(warps * warp, wavefronts, trips * warps * trip["hmma"] * 2 * 2048)

        works = [work_of(row["plain"])]
        if sums_rows and not in_runs:  # in the tiles of the first columns
            works = [work_of(row if in_first_column(block, down, across) else row["plain"])
                     for block in range(launch.blocks)]
        bytes_ += launch.blocks * area * 4 if in_runs else (pieces - 1) * elements * 4
        bytes_ += elements * 2 * (2 if "ActivatedBackward" in launch.kernel else "Activated" in launch.kernel)
        of_a = m * k * batch * 2
        if of_a > self.card.l2:  # read anew for each column of tiles that runs at a time
            running = max(1, 2 * self.card.multiprocessors // min(band_tiles, down))
            bytes_ += of_a * (math.ceil(across / running) - 1)
        flops = 2 * elements * k
        form = re.sub(r"^\w+<(.*)>$", r"\1", launch.kernel)
        self.add(launch, f"{launch.phase} {launch.operation} {m}x{n}x{k} {form}", flops, bytes_, works,
                 gemm_issue if aligned else odd_gemm_issue, row["per_hmma"], self.card.groups)

    def add_attention(self, launch, batch, of_heads, queries, keys, size, full):
        row = self.counted(launch)
        if not row:
            return
        kinds = {"forward": (2, 4), "queries": (3, 5), "keys": (4, 6), "": (5, 7)}
        products, arrays = next(numbers for kind, numbers in kinds.items() if kind in launch.kernel)
        warps = launch.threads / 32
        owned = batch * of_heads * queries / launch.blocks
        walked = row["hmma"] * 2048 * warps / (products * owned * size)
        seen = keys if full else (keys + owned) / 2  # tiles that hold the diagonal cost as much as the others at least
        trips = seen / walked
        warp = trips * row["instructions"] + before_loop + row["after_loop"]
        wavefronts = trips * warps * row["hmma"] * row["ldsm_per_hmma"] * 4
        flops = products * batch * of_heads * queries * keys * size * (2 if full else 1)
        array = batch * of_heads * queries * size * 2
        self.add(launch, f"{launch.phase} {launch.name}", flops, arrays * array,
                 [Work(warps * warp, wavefronts, flops / launch.blocks)], attention_issue, row["per_hmma"])

    def add_pass(self, launch):
        if not launch.kernel:  # a copy or a memset, whose blocks are bytes
            bytes_ = launch.blocks * (1 if launch.name == "memset" else 2)
            return self.add(launch._replace(blocks=1), f"{launch.phase} {launch.name}", 0, bytes_, [Work()], row_issue)
        if launch.work and launch.work[0] == "slots":
            return self.add(launch, f"{launch.phase} {launch.name}", 0, int(launch.work[1]), [Work()], row_issue)
        if launch.work and launch.work[0] == "pieces":
            m, n, batch, pieces = map(int, launch.work[1:])
            bytes_ = (pieces + 1) * m * n * batch * 4
            return self.add(launch, f"{launch.phase} {launch.operation} {launch.name}", 0, bytes_, [Work()], row_issue)
        text = f"{launch.phase} {launch.operation} {launch.name} {launch.kernel}"
        bytes_ = moved = instructions = 0
        if launch.blocks >= large:
            found = next((p for p in self.passes if re.search(p[0], text)), None)
            if not found:
                self.unknown.append(f"model.py does not know what memory is moved by {text}")
                return
            _, bytes_, moved = found
            row = moved and self.counted(launch)
            if row:
                instructions = moved / 16 / 32 * row["per_16_bytes"]
        self.add(launch, f"{launch.phase} {launch.operation} {launch.name}", 0, bytes_,
                 [Work(instructions / launch.blocks)], row_issue)

    def total(self, key):
        return sum(r[key] * r["n"] for r in self.rows)


def peer(card, batch, vocabulary=50304):
    """Returns (seconds, bytes, flops) of torch.compile; seconds by products, attention, loops, loss, optimizer."""
    rows = batch * context
    u, logits = rows * width * 2, rows * vocabulary * 2
    products = 6 * (of_layers + vocabulary * width) * rows
    attention = 3.5 * layers * 2 * rows * context * width
    loops = layers * (peer_forward + peer_backward) * u + peer_logits * logits + peer_parameter * parameters
    bytes_ = loops + layers * (peer_products + peer_attention) * u + peer_logits * logits
    seconds = (products / card.peer_gemm + attention / card.peer_attention + loops / (card.bandwidth * memory_share) +
               peer_launches * peer_launch)
    return seconds, bytes_, products + attention


def counts_of(rows, card):
    return {row["kernel"]: row for row in rows if row["arch"] == card.arch}


def step_of(rows, card, batch, launches=None):
    recorded = read_launches(launches or here / "launches" / f"b{batch}.tsv")
    return Step(card, sizes_of(recorded, parameters), recorded, counts_of(rows, card))


def ratio(rows, card, batch):
    """Returns the ratio of our time to that of torch.compile."""
    return step_of(rows, card, batch).total("likely") / peer(card, batch)[0]


def print_kernels(step):
    print(f"{'n':>3} {'GF':>7} {'MB':>8} {'ins/HMMA':>8} {'issue us':>8} {'smem us':>8} {'memory us':>9} "
          f"{'bound us':>8} {'likely us':>9} {'ms/step':>8} {'TF/s':>5}  kernel")
    for r in sorted(step.rows, key=lambda r: -r["likely"] * r["n"]):
        print(f"{r['n']:3.0f} {r['flops'] / 1e9:7.1f} {r['bytes'] / 1e6:8.1f} {r['per_hmma']:8.1f} "
              f"{r['issue'] * 1e6:8.1f} {r['smem'] * 1e6:8.1f} {r['memory'] * 1e6:9.1f} {r['bound'] * 1e6:8.1f} "
              f"{r['likely'] * 1e6:9.1f} {r['likely'] * r['n'] * 1e3:8.2f} {r['flops'] / r['likely'] / 1e12:5.0f}  "
              f"{r['name'][:100]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts")
    parser.add_argument("--card", choices=cards, default="h100")
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--launches", help="of one batch")
    parser.add_argument("--kernels", action="store_true")
    args = parser.parse_args()
    card = cards[args.card]
    rows = json.loads(pathlib.Path(args.counts).read_text())
    print(f"gpt2-124m in bf16, one training step on {card.name}; modelled, not measured")
    print(f"{'':>5} {'GB of memory':>17} {'ms of it':>15} {'TFLOP':>13} {'ms of it':>13} {'bounds':>7} {'ours':>16} "
          f"{'torch.compile':>16} {'ratio':>5} launches")
    for batch in args.batch:
        try:
            step = step_of(rows, card, batch, args.launches)
        except Failure as failure:
            sys.exit(str(failure))
        seconds, bytes_, flops = peer(card, batch)
        ours, moved, done = step.total("likely"), step.total("bytes"), step.total("flops")
        rate = step.tokens / 1e3
        print(f"B={batch:3} {moved / 1e9:7.1f} / {bytes_ / 1e9:7.1f} {moved / card.bandwidth * 1e3:6.1f} / "
              f"{bytes_ / card.bandwidth * 1e3:6.1f} {done / 1e12:5.2f} / {flops / 1e12:5.2f} "
              f"{done / card.peak * 1e3:5.1f} / {flops / card.peak * 1e3:5.1f} {step.total('bound') * 1e3:4.1f} ms "
              f"{ours * 1e3:5.1f} ms {rate / ours:4.0f}k/s {seconds * 1e3:5.1f} ms {rate / seconds:4.0f}k/s "
              f"{ours / seconds:5.2f} {step.launches:>8}")
        if args.kernels:
            print_kernels(step)


if __name__ == "__main__":
    main()
