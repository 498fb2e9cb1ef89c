#!/usr/bin/env python3
"""PyTorch's side of every speed comparison: the same work in PyTorch, one JSON line per result.

    pip install torch==2.13.0 numpy
    python pytorch_baseline.py gemm rows attention train generate [--only TEXT] [--compile [reduce-overhead]] [--bf16]
                               [--deterministic] [--device cuda] [--threads 2]

Each line: {"case", "backend", "dtype", "ms", "ms_median", "rate", "unit", ...}.  `ms` is the minimum over the
repeats.  A ratio is valid only for two results of one run on one machine: see compare.py.

"attention" names the backend that scaled_dot_product_attention chooses for the case: cudnn, flash, efficient or math.
--deterministic allows only algorithms that give equal bits on every run.  PyTorch has no deterministic backward of
cuDNN (its notes on randomness), so on a GPU that one is timed by cuDNN's own frontend: pip install
nvidia-cudnn-frontend.
"""
import argparse, json, math, os, statistics, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

parser = argparse.ArgumentParser()
parser.add_argument("groups", nargs="+", choices=["gemm", "rows", "attention", "train", "generate", "char"])
parser.add_argument("--only", default="", help="run only the cases whose name contains this text")
parser.add_argument("--compile", nargs="?", const="default", choices=["default", "reduce-overhead"], help="torch.compile, and its mode")
parser.add_argument("--deterministic", action="store_true")
parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
parser.add_argument("--precision", default="highest", help="torch.set_float32_matmul_precision")
parser.add_argument("--device", default="cpu")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=3.0, help="time per measurement")
parser.add_argument("--data", default="", help="char: the text file")
parser.add_argument("--steps", type=int, default=2000, help="char: train this many steps and report the loss")
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.set_float32_matmul_precision(args.precision)
torch.manual_seed(0)
device = args.device
if args.deterministic:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses without it
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would be timed
    torch.use_deterministic_algorithms(True)
backend = "pytorch-" + torch.__version__ + {None: "-eager", "default": "-compile", "reduce-overhead": "-reduce-overhead"}[args.compile]
backend += "-deterministic" if args.deterministic else ""
dtype_name = "bf16-autocast" if args.bf16 else "f32-" + args.precision


def sync():
    if device == "cuda":
        torch.cuda.synchronize()


def measure(fn):
    def once():
        if args.compile == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        fn()
    once(); once(); sync()
    times, end = [], time.perf_counter() + args.seconds
    while time.perf_counter() < end or len(times) < 3:
        t = time.perf_counter(); once(); sync(); times.append(time.perf_counter() - t)
    return min(times), statistics.median(times)


def attention_in(fn):
    """The backends that PyTorch's attention chooses in fn(), run eagerly, as {"attention": NAMES}; {} without attention."""
    names, attend = set(), F.scaled_dot_product_attention
    def noted(*given, **options):
        choice = SDPBackend(torch._fused_sdp_choice(*given, **options))
        names.add(choice.name.lower().replace("_attention", ""))
        return attend(*given, **options)
    F.scaled_dot_product_attention = noted
    try:
        with autocast():
            fn()
    finally:
        F.scaled_dot_product_attention = attend
    return {"attention": ", ".join(sorted(names))} if names else {}


def report(case, best, median, work, unit, by=backend, **extra):
    print(json.dumps({"case": case, "backend": by, "dtype": dtype_name, "threads": args.threads,
                      "ms": round(best * 1e3, 3), "ms_median": round(median * 1e3, 3),
                      "rate": round(work / best, 3), "unit": unit, **extra}), flush=True)


def autocast():
    return torch.autocast(device, dtype=torch.bfloat16, enabled=args.bf16)


def wanted(case):
    return args.only in case


def maybe_compile(f):
    return torch.compile(f, mode=args.compile) if args.compile else f


def gemm():
    for m, n, k in [(2048, 2048, 2048), (1024, 3072, 768), (1024, 768, 3072), (768, 512, 128), (4096, 4096, 4096)]:
        if not wanted(f"gemm/{m}x{n}x{k}"):
            continue
        a = torch.randn(m, k, device=device); b = torch.randn(k, n, device=device)
        if args.bf16:
            a, b = a.bfloat16(), b.bfloat16()
        best, med = measure(lambda: a @ b)
        report(f"gemm/{m}x{n}x{k}", best, med, 2 * m * n * k / 1e9, "GFLOP/s")


def rows():
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    x = torch.randn(4096, 1024, device=device, dtype=dtype)
    g = torch.ones(1024, device=device, dtype=dtype); b = torch.zeros(1024, device=device, dtype=dtype)
    nbytes = x.numel() * 8 / 1e9  # read and written once, in f32: half as many are moved in bf16
    alpha = torch.tensor(0.5, device=device, dtype=dtype); shift = torch.tensor(0.0, device=device, dtype=dtype)
    table = {"copy": lambda x: x.clone(), "gelu_erf": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
             "silu": F.silu, "tanh": torch.tanh, "softmax": lambda x: F.softmax(x, -1), "layer_norm": lambda x: F.layer_norm(x, (1024,), g, b),
             "rms_norm": lambda x: F.rms_norm(x, (1024,), g), "dyt": lambda x: g * torch.tanh(alpha * x) + b,
             "derf": lambda x: g * torch.erf(alpha * x + shift) + b}
    for name, f in table.items():
        if not wanted(f"rows/{name}/4096x1024/forward") and not wanted(f"rows/{name}/4096x1024/both"):
            continue
        f = maybe_compile(f)
        best, med = measure(lambda: f(x))
        report(f"rows/{name}/4096x1024/forward", best, med, nbytes, "GB/s")
        if name == "copy":
            continue
        xr = x.clone().requires_grad_(); dy = torch.randn_like(x)
        def step():
            xr.grad = None; f(xr).backward(dy)
        best, med = measure(step)
        report(f"rows/{name}/4096x1024/both", best, med, nbytes * 2.5, "GB/s")


def relu_attention(q, k, v, causal):
    s = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    w = F.relu(s)
    L = q.shape[-2]
    if causal:
        w = torch.tril(w) / torch.arange(1, L + 1, device=q.device).view(L, 1)
    else:
        w = w / L
    return w.to(v.dtype) @ v


def softmax_attention(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def attention():
    B, H, D = 1, 4, 64
    for L in (256, 1024, 4096):
        for causal in (False, True):
            q, k, v = (torch.randn(B, H, L, D, device=device, requires_grad=True) for _ in range(3))
            if args.bf16:
                q, k, v = (t.detach().bfloat16().requires_grad_() for t in (q, k, v))
            dy = torch.randn_like(q)
            for name, f in (("softmax", softmax_attention), ("relu", relu_attention)):
                case = f"attention/{name}/L{L}/{'causal' if causal else 'full'}"
                if not wanted(case):
                    continue
                chosen = attention_in(lambda: f(q, k, v, causal))
                f = maybe_compile(f)
                def step():
                    q.grad = k.grad = v.grad = None
                    f(q, k, v, causal).backward(dy)
                best, med = measure(step)
                flops = 4 * B * H * L * L * D * 3.5 * (0.5 if causal else 1)
                with torch.no_grad():
                    fwd, _ = measure(lambda: f(q, k, v, causal))
                report(case, best, med, flops / 1e9, "GFLOP/s",
                       forward_ms=round(fwd * 1e3, 3), shape=[B, H, L, D], **chosen)
                if args.deterministic and args.bf16 and device == "cuda" and name == "softmax":
                    cudnn_attention(case, flops / 1e9, q.detach(), k.detach(), v.detach(), dy, causal)


def cudnn_attention(case, work, q, k, v, dy, causal):
    """cuDNN's forward with its deterministic backward."""
    try:
        import cudnn
    except ImportError as error:
        return print(f"{case}: cuDNN's deterministic backward was not timed: {error}", file=sys.stderr)
    scale = 1 / math.sqrt(q.shape[-1])
    o, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
    stats = torch.empty(*q.shape[:-1], 1, device=device, dtype=torch.float32)

    def built(inputs, outputs, operation):
        graph = cudnn.pygraph(io_data_type=cudnn.data_type.BFLOAT16, intermediate_data_type=cudnn.data_type.FLOAT,
                              compute_data_type=cudnn.data_type.FLOAT)
        of_inputs = [graph.tensor_like(x) for x in inputs]
        of_outputs = operation(graph, *of_inputs)
        for of, x in zip(of_outputs, outputs):
            of.set_output(True).set_dim(x.shape).set_stride(x.stride())
            if x.dtype == torch.float32:
                of.set_data_type(cudnn.data_type.FLOAT)
        graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        tensors = dict(zip([*of_inputs, *of_outputs], [*inputs, *outputs]))
        workspace = torch.empty(max(1, graph.get_workspace_size()), device=device, dtype=torch.uint8)
        return lambda: graph.execute(tensors, workspace)

    try:
        forward = built([q, k, v], [o, stats], lambda graph, q, k, v: graph.sdpa(
            q=q, k=k, v=v, is_inference=False, attn_scale=scale, use_causal_mask=causal))
        backward = built([q, k, v, o, dy, stats], [dq, dk, dv], lambda graph, q, k, v, o, dy, stats: graph.sdpa_backward(
            q=q, k=k, v=v, o=o, dO=dy, stats=stats, attn_scale=scale, use_causal_mask=causal, use_deterministic_algorithm=True))
        fwd, _ = measure(forward)
        best, med = measure(lambda: (forward(), backward()))
    except Exception as error:  # a version of cuDNN without it: the other cases still count
        return print(f"{case}: cuDNN's deterministic backward was not timed: {error}", file=sys.stderr)
    report(case, best, med, work, "GFLOP/s", by=f"cudnn-{cudnn.backend_version()}-deterministic",
           forward_ms=round(fwd * 1e3, 3), shape=list(q.shape), attention="cudnn")


class Block(nn.Module):
    def __init__(self, d, h, causal, bias, norm=nn.LayerNorm, activation="tanh"):
        super().__init__()
        self.h, self.causal, self.activation = h, causal, activation
        self.n1, self.n2 = norm(d), norm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=bias), nn.Linear(d, d, bias=bias)
        self.up, self.down = nn.Linear(d, 4 * d, bias=bias), nn.Linear(4 * d, d, bias=bias)

    def forward(self, x):
        B, T, d = x.shape
        q, k, v = (t.view(B, T, self.h, d // self.h).transpose(1, 2) for t in self.qkv(self.n1(x)).split(d, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="none" if self.activation == "erf" else "tanh"))


class Gpt(nn.Module):
    def __init__(self, vocab, block, layers, heads, d, bias=False):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(block, d)
        self.blocks = nn.ModuleList(Block(d, heads, True, bias) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.head.weight = self.tok.weight
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, 0, 0.02)
        for b in self.blocks:
            nn.init.normal_(b.proj.weight, 0, 0.02 / math.sqrt(2 * layers))
            nn.init.normal_(b.down.weight, 0, 0.02 / math.sqrt(2 * layers))

    def forward(self, x, y):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1], device=x.device))
        for b in self.blocks:
            h = b(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), y.view(-1))


def adamw(model, lr=1e-3):
    decay = [p for p in model.parameters() if p.dim() >= 2]; plain = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=lr, betas=(0.9, 0.99), fused=True)


def gpt_steps(case, vocab, block, layers, heads, d, batch):
    model = Gpt(vocab, block, layers, heads, d).to(device)
    opt = adamw(model)
    x = torch.randint(vocab, (batch, block), device=device); y = torch.randint(vocab, (batch, block), device=device)
    chosen = attention_in(lambda: model(x, y))
    f = maybe_compile(model)
    def step():
        with autocast():
            loss = f(x, y)
        opt.zero_grad(set_to_none=True); loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step()
    best, med = measure(step)
    n = sum(p.numel() for p in model.parameters())
    report(case, best, med, batch * block, "tokens/s", parameters=n, **chosen)


def char():
    text = open(args.data, encoding="utf-8").read()
    chars = sorted(set(text)); index = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([index[c] for c in text]); n = int(0.9 * len(data)); train, val = data[:n], data[n:]
    T, B = 64, 12
    model = Gpt(len(chars), T, 4, 4, 128); opt = adamw(model); f = maybe_compile(model)
    def batch(d):
        i = torch.randint(len(d) - T, (B,)); return torch.stack([d[j:j + T] for j in i]), torch.stack([d[j + 1:j + T + 1] for j in i])
    t0 = time.perf_counter()
    for it in range(args.steps):
        lr = 1e-3 * (it + 1) / 101 if it < 100 else 1e-4 + 0.5 * (1 + math.cos(math.pi * (it - 100) / max(1, args.steps - 100))) * 9e-4
        for group in opt.param_groups:
            group["lr"] = lr
        with autocast():
            loss = f(*batch(train))
        opt.zero_grad(set_to_none=True); loss.backward(); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step()
    seconds = time.perf_counter() - t0
    with torch.no_grad():
        losses = [f(*batch(val)).item() for _ in range(200)]
    print(json.dumps({"case": f"char/{args.steps} steps", "backend": backend, "dtype": dtype_name, "seconds": round(seconds, 2),
                      "rate": round(args.steps * B * T / seconds), "unit": "tokens/s", "val_loss": round(sum(losses) / len(losses), 4)}), flush=True)


class Vit(nn.Module):
    def __init__(self, size=224, patch=16, d=384, layers=12, heads=6, classes=1000, channels=3):
        super().__init__()
        self.patch = nn.Conv2d(channels, d, patch, patch); self.pos = nn.Parameter(torch.randn(1, (size // patch) ** 2, d) / math.sqrt(d))
        self.blocks = nn.ModuleList(Block(d, heads, False, True, activation="erf") for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x, y):
        h = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        for b in self.blocks:
            h = b(h)
        return F.cross_entropy(self.head(self.norm(h).mean(1)).float(), y)


def steps(case, model, batch, work, unit):
    opt = adamw(model)
    chosen = attention_in(lambda: model(*batch))
    f = maybe_compile(model)
    def step():
        with autocast():
            loss = f(*batch)
        opt.zero_grad(set_to_none=True); loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step()
    best, med = measure(step)
    report(case, best, med, work, unit, parameters=sum(p.numel() for p in model.parameters()), **chosen)


def vit(case, B, size, channels, classes, **sizes):
    model = Vit(size=size, classes=classes, channels=channels, **sizes).to(device)
    x = torch.randn(B, channels, size, size, device=device); y = torch.randint(classes, (B,), device=device)
    steps(case, model, (x, y), B, "images/s")


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.a, self.na = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.b, self.nb = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.beside = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.beside(x))


class Resnet8(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Residual(16, 16, 1),
                                  Residual(16, 32, 2), Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))

    def forward(self, x, y):
        return F.cross_entropy(self.body(x).float(), y)


def resnet(B=128):
    x = torch.randn(B, 3, 32, 32, device=device); y = torch.randint(10, (B,), device=device)
    steps("train/resnet8", Resnet8().to(device), (x, y), B, "images/s")


class Translator(nn.Module):
    """nn.Transformer with one table for both languages and the head."""
    def __init__(self, V=6000, d=192, heads=4, layers=3):
        super().__init__()
        self.d, self.e = d, nn.Embedding(V, d)
        nn.init.normal_(self.e.weight, 0, d ** -0.5)
        self.t = nn.Transformer(d, heads, layers, layers, 4 * d, 0.1, batch_first=True, norm_first=True)
        pos = torch.arange(128)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
        self.register_buffer("p", torch.cat([pos.sin(), pos.cos()], 1))

    def embed(self, x):
        return self.e(x) * math.sqrt(self.d) + self.p[:x.shape[1]]

    def forward(self, a, b, y, padding, mask):
        o = self.t(self.embed(a), self.embed(b), tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True)
        return F.cross_entropy((o @ self.e.weight.T).flatten(0, 1).float(), y.flatten(), label_smoothing=0.1)


def translate(B=96, T=16, V=6000):
    a, b, y = (torch.randint(V, (B, T), device=device) for _ in range(3))
    padding = torch.zeros(B, T, dtype=torch.bool, device=device)
    mask = torch.triu(torch.ones(T, T, dtype=torch.bool, device=device), 1)
    steps("train/translate", Translator(V).to(device), (a, b, y, padding, mask), 2 * B * T, "tokens/s")


def train():
    cpu = device == "cpu"
    if wanted("train/gpt-char-small"):
        gpt_steps("train/gpt-char-small", 65, 64, 4, 4, 128, 12)
    if wanted("train/gpt-char-medium"):
        gpt_steps("train/gpt-char-medium", 65, 256, 6, 6, 384, 4 if cpu else 64)
    if wanted("train/gpt2-124m"):
        gpt_steps("train/gpt2-124m", 50304, 256 if cpu else 1024, 12, 12, 768, 2 if cpu else 32)
    if wanted("train/gpt2-124m/batch8") and not cpu:
        gpt_steps("train/gpt2-124m/batch8", 50304, 1024, 12, 12, 768, 8)
    if wanted("train/vit-s16"):
        vit("train/vit-s16", 8 if cpu else 256, 224, 3, 1000)
    if wanted("train/vit-fashion"):
        vit("train/vit-fashion", 128, 28, 1, 10, patch=4, d=96, layers=4, heads=4)
    if wanted("train/resnet8"):
        resnet()
    if wanted("train/translate"):
        translate()


@torch.inference_mode()
def generate():
    """Incremental decoding of one text with a KV cache of fixed size; eager."""
    if not wanted("generate/gpt2-124m"):
        return
    prompt, new, layers, heads, d = 64, 64, 12, 12, 768
    model = Gpt(50257, 1024, layers, heads, d).to(device).eval()
    first = torch.randint(50257, (1, prompt), device=device)
    kept = [[torch.empty(1, heads, prompt + new, d // heads, device=device, dtype=torch.bfloat16 if args.bf16 else torch.float32) for _ in range(2)] for _ in range(layers)]
    if args.bf16:
        model = model.bfloat16()
    def text():
        x, before = first, 0
        for _ in range(new):
            T = x.shape[1]
            h = model.tok(x) + model.pos(torch.arange(before, before + T, device=device))
            for block, (K, V) in zip(model.blocks, kept):
                q, k, v = (t.view(1, T, heads, d // heads).transpose(1, 2) for t in block.qkv(block.n1(h)).split(d, -1))
                K[:, :, before:before + T], V[:, :, before:before + T] = k, v
                a = F.scaled_dot_product_attention(q, K[:, :, :before + T], V[:, :, :before + T], is_causal=T > 1)
                h = h + block.proj(a.transpose(1, 2).reshape(1, T, d))
                h = h + block.down(F.gelu(block.up(block.n2(h)), approximate="tanh"))
            x, before = model.head(model.norm(h[:, -1:])).argmax(-1), before + T
    chosen = attention_in(text)
    best, med = measure(text)
    report("generate/gpt2-124m", best, med, new, "tokens/s", parameters=sum(p.numel() for p in model.parameters()), **chosen)


for group in args.groups:
    globals()[group]()
