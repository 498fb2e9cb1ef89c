#!/usr/bin/env python3
"""The pages of `orrery report` in headless Chromium, from file://.

    /usr/bin/python3 tests/browser/report.py PROGRAM [FOLDER]

Trains small runs and a sweep with PROGRAM, makes their pages, and one of synthetic maps, and checks them in a browser:
errors, every row of metrics.jsonl in its chart, every view of `inspect --json` in its section, pointer and keys,
contrast in both themes, widths 320 (400 % zoom), 400 and 1600, targets of 24 pixels, links, files of charts, frames.
Saves screenshots of all pages to FOLDER, if given.  Needs Debian's chromium, chromium-driver
and python3-selenium.
The last line is "N passed, N failed".
"""

import base64, csv, json, math, os, shutil, struct, subprocess, sys, tempfile, zlib

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

passed = failed = 0


def check(holds, what):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print("FAILED:", what)


def orrery(program, *words, stdout=subprocess.DEVNULL):
    done = subprocess.run([program, *words], stdout=stdout)
    if done.returncode not in (0, 3):  # 3: a run was too short to learn anything
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    return done.stdout


def small_run(program, folder, *more):
    orrery(
        program,
        "train",
        "--data=examples/data/tinyshakespeare.txt",
        "--layers=1",
        "--heads=2",
        "--width=16",
        "--context=16",
        "--batch_size=2",
        "--warmup_steps=10",
        "--evaluate_every=20",
        "--validation_tokens=2000",
        "--training_loss_tokens=2000",
        "--out=" + folder,
        *more,
    )


# Trains a vision transformer on three classes of 8 x 8 pixels; returns the path of an image.
def image_run(program, folder):
    os.mkdir(folder + "_data")
    for split, count in ("train", 60), ("t10k", 20):
        pixels = bytes((60 * (i % 3) + 7 * k) % 256 for i in range(count) for k in range(64))
        with open(f"{folder}_data/{split}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, 8, 8) + pixels)
        with open(f"{folder}_data/{split}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + bytes(i % 3 for i in range(count)))
    small = ["--layers=2", "--heads=2", "--width=16", "--batch_size=4", "--steps=20", "--patch=2"]
    orrery(program, "train", "--model=vit", f"--data={folder}_data", *small, "--out=" + folder)
    rows = b"".join(b"\0" + bytes(7 * (8 * y + x) % 256 for x in range(8)) for y in range(8))
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    with open(folder + ".png", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)))
        file.write(part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))
    return folder + ".png"


def rows_of(folder):
    with open(folder + "/metrics.jsonl") as log:
        return [json.loads(line) for line in log]


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in [
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
    ]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


hold_frames = """
  const frame = requestAnimationFrame.bind(window), held = [];
  window.requestAnimationFrame = (call) => held.push(call);
  window.releaseFrames = () => { window.requestAnimationFrame = frame; held.forEach(frame); };"""


class Page:
    def __init__(self, driver, path):
        self.driver, self.path = driver, path

    def load(self, width=1600, dark=False):  # only the part in the window is drawn
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("file://" + self.path)
        self.run("localStorage.clear()")
        self.driver.get("file://" + self.path)
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )
        return self

    # Returns the page's height before any work that the page put off to a later frame.
    def load_without_frames(self, width):
        self.load(width)
        held = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": hold_frames})
        self.driver.get("file://" + self.path)
        self.driver.execute_async_script("setTimeout(arguments[0], 200)")
        height = self.run("return document.documentElement.scrollHeight")
        self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", held)
        self.run("releaseFrames()")
        return height

    def open(self, width=1600, dark=False):
        self.load(width, dark)
        self.see_all()
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script):  # true as soon as the expression is
        try:
            WebDriverWait(self.driver, 10, 0.05).until(lambda driver: driver.execute_script("return " + script))
            return True
        except Exception:
            return False

    def see_all(self):  # charts are drawn when they come near the window
        self.driver.execute_async_script("""
            const done = arguments[0];
            let y = 0;
            (function on() {
              scrollTo({top: y, behavior: 'instant'});
              y += 600;
              if (y < document.documentElement.scrollHeight + 600) setTimeout(on, 30);
              else { scrollTo({top: 0, behavior: 'instant'}); setTimeout(done, 200); }
            })();""")

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def show(self, element):
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)

    def tip(self):
        return self.run("const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText")

    def spoken(self):
        return self.run("return document.getElementById('spoken').textContent")

    def picture(self, path):
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return document.documentElement.clientWidth")
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}},
        )
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))


def number_text(x):  # as the page writes it
    size = abs(x)
    if x == math.floor(x) and size < 1e12:
        text = f"{int(size):,}"
    elif size < 1e-3 or size >= 1e7:
        mantissa, exponent = f"{size:.3e}".split("e")
        text = mantissa.rstrip("0").rstrip(".") + "e" + str(int(exponent))
    elif size >= 1e4:
        text = f"{math.floor(size + .5):,}"
    else:
        text = f"{size:.{max(0, 4 - math.floor(math.log10(size)))}f}"
    return ("−" if x < 0 else "") + text


# Contrast of every text with its background: WCAG 2.1, relative luminance; AA requires 4.5.
contrast = """
  const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const luminance = (c) => { const [r, g, b] = c.map((x) => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = (e) => { const layers = []; for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), low = [];
  let count = 0, ofMaps = 0;
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement;
    if (!node.data.trim() || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(e.tagName) || e.closest('[hidden], .unseen, .skip, :disabled')) continue;
    if (!e.getClientRects().length) continue;
    const style = getComputedStyle(e), ground = behind(e);
    let colour = parse(e.ownerSVGElement ? style.fill : style.color);
    colour[3] *= Number(style.opacity);
    const a = luminance(over(colour, ground)), b = luminance(ground), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    ++count, ofMaps += e.closest('.map') !== null;
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${node.data.trim().slice(0, 40)}`);
  }
  return [count, low, ofMaps];"""


# Targets of a pointer below 24 x 24 pixels: WCAG 2.2, 2.5.8; links within sentences may be lower.
small_targets = """
  return [...document.querySelectorAll('button, a, summary, input, canvas[tabindex], svg[tabindex]')].filter((e) => {
    const b = e.getBoundingClientRect();
    return b.width && !e.closest('.skip') && (b.width < 23.9 || b.height < 23.9);
  }).map((e) => `${e.tagName} ${(e.getAttribute('aria-label') || e.textContent).slice(0, 30)} ${e.getBoundingClientRect().width.toFixed(0)} x ${e.getBoundingClientRect().height.toFixed(0)}`)"""


# Titles of one group, and numbers along one axis, that are the same.
one_of_several = """
  const twice = (texts) => texts.filter((text, i) => texts.indexOf(text) !== i), found = [];
  for (const group of document.querySelectorAll('.group'))
    found.push(...twice([...group.querySelectorAll('.section > .head > h3')].map((h) => h.textContent)));
  for (const svg of document.querySelectorAll('.plot svg'))
    found.push(...twice([...svg.querySelectorAll('text')].filter((t) => t.getAttribute('text-anchor') === 'end')
        .map((t) => `${t.getAttribute('x')}: ${t.textContent}`)));
  return found;"""

follow_link = """
  const [at, done] = arguments, links = [...document.querySelectorAll('#contents a')],
        link = links[Math.min(links.length - 1, Math.floor(at * links.length))];
  document.querySelector('#contents details').open = true;
  link.click();
  let last = -1, still = 0;
  const target = document.getElementById(decodeURIComponent(link.hash.slice(1))), start = performance.now();
  (function wait() {
    const y = Math.round(scrollY), top = target.getBoundingClientRect().top;
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const right = 0 <= top && top <= 40 || atEnd && top > 0;
    still = y === last ? still + 1 : 0, last = y;
    // A slow machine may pause within a smooth scroll: a wrong place is the last one only after five seconds.
    if (still < 8 || !right && performance.now() - start < 5000) { setTimeout(wait, 50); return; }
    done([link.textContent, top, right]);
  })();"""


def check_contents(page, name):
    for width in (400, 1600):
        for at in (0.3, 0.6, 0.85, 1):
            page.load(width)
            title, top, right = page.driver.execute_async_script(follow_link, at)
            check(
                right,
                f"{name} at width {width}: the link '{title}' leads to {top} pixels below the window's top",
            )
        before = page.load_without_frames(width)
        page.see_all()
        after = page.run("return document.documentElement.scrollHeight")
        check(before == after, f"{name} at width {width}: seen, it is {after} and no longer {before} pixels high")


def check_everywhere(page, name, pictures):
    for width in (320, 400, 1600):
        for dark in (False, True):
            page.driver.get_log("browser")
            page.open(width, dark)
            what = f"{name} at width {width}, {'dark' if dark else 'light'}"
            errors = page.driver.get_log("browser")
            check(not errors, f"{what}: {errors}")
            check(
                page.run("return document.documentElement.scrollWidth") <= width,
                f"{what}: it is wider than the window",
            )
            count, low, of_maps = page.run(contrast)
            check(count > 50 and not low, f"{what}: of {count} texts these have little contrast: {low}")
            maps = page.run("return document.querySelectorAll('.map').length")
            check(of_maps >= 2 * maps, f"{what}: {of_maps} labels of {maps} maps are checked")
            twice = page.run(one_of_several)
            check(not twice, f"{what}: these titles or numbers appear twice: {twice}")
            check(
                page.run("return document.documentElement.dataset.theme") == ("dark" if dark else "light"),
                f"{what}: theme",
            )
            outside = page.run(
                """return [...document.querySelectorAll('.plot svg, .map canvas, .bars, h1, h2, h3')].filter((e) => {
                const b = e.getBoundingClientRect(); return b.right > innerWidth + 1 || b.left < -1; }).length"""
            )
            check(outside == 0, f"{what}: {outside} elements are outside of the window")
            small = page.run(small_targets)
            check(not small, f"{what}: these targets are smaller than 24 pixels: {small}")
            if pictures:
                page.picture(f"{pictures}/{name}_{width}_{'dark' if dark else 'light'}.png")
    unnamed = page.run(
        """return [...document.querySelectorAll('svg[role], canvas[role], button, input, nav, [role=region]')].filter((e) =>
        !(e.getAttribute('aria-label') || e.textContent || e.closest('label')?.innerText || '').trim()).length"""
    )
    check(unnamed == 0, f"{name}: {unnamed} controls without a name")
    requests = page.run("return performance.getEntriesByType('resource').length")
    check(requests == 0, f"{name}: it requests {requests} files")


def check_charts(page, folders):
    counted = {}
    for run, folder in enumerate(folders):
        for row in rows_of(folder):
            for key in row:
                if key != "step":
                    counted[(run, key)] = counted.get((run, key), 0) + 1
    # Charts with their own axis come from analyses: their x axis is not the step.
    drawn = page.run(
        "return [...document.querySelectorAll('path.line')].filter((p) => !p.dataset.axis).map((p) => [Number(p.dataset.run), p.dataset.key, Number(p.dataset.rows), p.getAttribute('d').length])"
    )
    check(
        {(run, key): rows for run, key, rows, length in drawn} == counted, f"charts have {drawn}, the logs {counted}"
    )
    check(all(length > 5 for *_, length in drawn), "a line has nothing to draw")
    series = page.run(
        """return JSON.parse(document.getElementById('report').textContent).sections.filter((s) => s.kind === 'curves' && !s.data.axis)
        .flatMap((s) => s.data.series.map((x) => [x.run, x.key, x.steps, x.values]))"""
    )
    for run, key, steps, values in series:
        logged = {row["step"]: row[key] for row in rows_of(folders[run]) if key in row}
        same = all(
            logged[step] is None and value is None or abs(logged[step] - value) <= 1e-6 * abs(value)
            for step, value in zip(steps, values)
        )
        check(same and len(steps) == len(values), f"{key} of run {run}: a value differs from the log")
    return len(drawn)


def check_reading(page, folder):
    page.open()
    losses = {row["step"]: row["loss"] for row in rows_of(folder) if "loss" in row}
    chart = page.find("section[aria-label='loss'] svg[role]")
    page.show(chart)
    ActionChains(page.driver).move_to_element(chart).perform()
    check(page.wait("!document.getElementById('tip').hidden"), "the pointer shows no values")
    tip = page.tip()
    step = int(tip.split("\n")[0].split()[1].replace(",", ""))
    check(
        number_text(float(f"{losses[step]:.7g}")) in tip,
        f"the tip says '{tip}', the log {losses[step]} at step {step}",
    )

    page.run("arguments[0].focus()", chart)
    last = max(losses)
    keys = lambda *k: ActionChains(page.driver).send_keys(*k).perform()
    keys(Keys.END)
    check(
        f"step {number_text(last)}: {number_text(float(f'{losses[last]:.7g}'))}" in page.spoken(),
        f"End says '{page.spoken()}'",
    )
    keys(Keys.ARROW_LEFT)
    check(f"step {number_text(last - 1)}:" in page.spoken(), f"an arrow says '{page.spoken()}'")
    keys(Keys.HOME)
    check("step 1:" in page.spoken(), f"Home says '{page.spoken()}'")
    keys(Keys.ARROW_DOWN)
    check("loss of each step" not in page.spoken(), f"the next line says '{page.spoken()}'")
    button = "document.querySelector(\"section[aria-label='loss'] .controls button\")"
    check(page.run(f"return {button}.hidden"), "the chart begins zoomed")
    keys("+")
    check(page.wait(f"!{button}.hidden"), "+ does not zoom")
    keys("0")
    check(page.wait(f"{button}.hidden"), "0 does not show all")
    keys("l")
    check(
        page.wait(
            "document.querySelector(\"section[aria-label='loss'] .controls button[title='logarithmic scale']\").getAttribute('aria-pressed') === 'true'"
        ),
        "L is not logarithmic",
    )
    keys("l")
    ActionChains(page.driver).move_to_element(chart).click_and_hold().move_by_offset(120, 0).release().perform()
    check(page.wait(f"!{button}.hidden"), "dragging does not zoom")
    ActionChains(page.driver).double_click(chart).perform()
    check(page.wait(f"{button}.hidden"), "a double click does not show all")
    before = page.run("return scrollY")
    ActionChains(page.driver).scroll_from_origin(
        webdriver.common.actions.wheel_input.ScrollOrigin.from_element(chart), 0, -200
    ).perform()
    check(
        page.wait(f"!{button}.hidden") and page.run("return scrollY") == before,
        "the wheel does not zoom a chart that has the focus",
    )

    path = "document.querySelector(\"section[aria-label='loss'] path.line\").getAttribute('d')"
    rough = page.run("return " + path)
    page.run(
        "const s = document.querySelector('input[type=range]'); s.value = 0; s.dispatchEvent(new Event('input'))"
    )
    check(page.wait(f"{path} !== {json.dumps(rough)}"), "the slider smooths nothing")
    sliders = page.run("return [...document.querySelectorAll('input[type=range]')].map((s) => s.value)")
    check(len(set(sliders)) == 1, f"sliders differ: {sliders}")

    toggle = page.find("button[aria-label='dark or light theme']")
    page.show(toggle)
    toggle.click()
    check(page.run("return document.documentElement.dataset.theme") == "dark", "the button does not turn it dark")
    check(not page.run(contrast)[1], "turned dark, a text has little contrast")
    page.run("localStorage.clear()")


def unpacked(packed):
    codes = list(struct.unpack(f"<{len(base64.b64decode(packed['base64'])) // 2}H", base64.b64decode(packed["base64"])))
    for at, length in zip(packed["gaps"][::2], packed["gaps"][1::2]):
        codes[at:at] = [65535] * length
    assert len(codes) == packed["count"]
    step = (packed["high"] - packed["low"]) / 65534
    return [None if code == 65535 else packed["low"] + code * step for code in codes], step / 2


def flat(values):
    return [x for each in values for x in (flat(each) if isinstance(each, list) else [each])]


def same_numbers(packed, numbers, of=""):
    found, error = unpacked(packed)
    numbers = flat(numbers)
    return len(found) == len(numbers) and all(
        (x is None) == (y is None) and (x is None or abs(x - y) <= error + 1e-6 * abs(y))
        for x, y in zip(found, numbers)
    )


# A section has the numbers of its view, and draws all of them.
def check_view(page, view, section):
    data, kind, what = section["data"], view["kind"], f"{view['analysis']}: {view['title']}"
    drawn = lambda script: page.run(
        f"const s = document.getElementById(arguments[0]); return {script}",
        page.ids[(section["group"], section["title"])],
    )
    same = True
    if kind == "map":
        maps = data.get("maps", [data])
        same = len(maps) == len(view["maps"]) and all(
            same_numbers(a["values"], b["values"]) for a, b in zip(maps, view["maps"])
        )
        values = [x for each in view["maps"] for x in flat(each["values"]) if x is not None]
        if max(values) - min(values) <= 1e-5 * max(abs(x) for x in values):
            text = drawn("s.querySelector('.solid').textContent")
            check(
                f"{view['quantity']}: " in text and "every cell" in text,
                f"{what}: values are all {values[0]}, it says {text}",
            )
            check(not drawn("s.querySelector('canvas')"), f"{what}: it draws a map of one value")
        else:
            size = drawn(
                "[s.querySelector('.map canvas').width, s.querySelector('.map canvas').height, s.querySelectorAll('.thumbs canvas').length]"
            )
            check(
                size == [len(view["columns"]), len(view["rows"]), len(maps) if len(maps) > 1 else 0],
                f"{what}: it draws {size}",
            )
    elif kind == "bars":
        rows = drawn("[...s.querySelectorAll('.bar[role=listitem] .name')].map((e) => e.textContent)")
        same = rows == [bar["name"] for bar in view["bars"]] and [row["value"] for row in data["rows"]] == [
            bar["value"] for bar in view["bars"]
        ]
    elif kind == "table":
        same = data["rows"] == view["rows"]
        rows = drawn("s.querySelectorAll('tbody tr').length")
        check(rows == len(view["rows"]), f"{what}: it draws {rows} rows")
    elif kind == "lines":
        same = [s["values"] for s in data["series"]] == [line["y"] for line in view["lines"]]
        lines = drawn("s.querySelectorAll('path.line').length")
        check(lines == len(view["lines"]), f"{what}: it draws {lines} lines")
    elif kind == "lens":
        same = all(same_numbers(data[name], view[name]) for name in ("probability", "log_probability", "rank"))
        check(data["targets"] == view["targets"], f"{what}: targets {data['targets']}")
        seen = {}
        page.run(
            "document.getElementById(arguments[0]).querySelectorAll('.pages button')[0].click()",
            page.ids[(section["group"], section["title"])],
        )
        for _ in range(len(view["columns"])):
            for row, column, text, background in drawn(
                "[...s.querySelectorAll('[data-column]')].map((e) => [+e.dataset.row, +e.dataset.column, e.textContent, e.style.background])"
            ):
                seen[(row, column)] = (text, background)
            if drawn("s.querySelectorAll('.pages button')[1].disabled"):
                break
            drawn("s.querySelectorAll('.pages button')[1].click()")
        words = {
            (r, c): word.replace("\\n", "↵") for r, row in enumerate(view["words"]) for c, word in enumerate(row)
        }
        check({at: text for at, (text, _) in seen.items()} == words, f"{what}: it draws the words {seen}")
        colours = page.run(
            "return arguments[0].map((p) => { const e = document.createElement('i'); Object.assign(e.style, shaded(p, 'share')); return e.style.background; })",
            [view["probability"][r][c] for r, c in seen],
        )
        check(
            colours == [background for _, background in seen.values()],
            f"{what}: colors are not those of the probabilities",
        )
    elif kind == "tokens":
        same = same_numbers(data["values"], view["values"]) if view["values"] else "values" not in data
        texts = drawn("[...s.querySelectorAll('.token')].map((e) => e.textContent)")
        check(
            texts == [t.replace("␣", " ").replace("\\n", "↵\n") for t in view["tokens"]], f"{what}: it draws {texts}"
        )
    elif kind == "choices":
        same = same_numbers(data["probability"], [[c["probability"] for c in each] for each in view["choices"]])
        for i in range(len(view["positions"])):
            if i == 0:
                drawn("[...Array(99)].forEach(() => s.querySelector('.pages button')?.click())")
            else:
                drawn("s.querySelectorAll('.pages button')[1].click()")
            rows = drawn(
                "[...s.querySelectorAll('.choice:not(.target)')].map((e) => [e.querySelector('.name').textContent, e.querySelector('.value').textContent])"
            )
            check(
                [name for name, _ in rows] == [c["name"] for c in view["choices"][i]],
                f"{what}: position {i} has {rows}",
            )
            check(
                all(abs(float(p) - c["probability"]) < 6e-4 for (_, p), c in zip(rows, view["choices"][i])),
                f"{what}: position {i} has {rows}",
            )
            target = drawn("s.querySelector('.choice.target')?.textContent")
            if view["targets"][i]:
                check(target.startswith("target: " + view["targets"][i]["name"]), f"{what}: the target is {target}")
    elif kind == "components":
        without_links = [{**formula, "link": ""} for formula in data["formulas"]]
        same = data["components"] == view["components"] and without_links == view["formulas"]
        drawn("s.querySelector('.controls button').click()")
        rows = drawn(
            "[...s.querySelectorAll('.tree details')].map((d) => [d.id, d.parentElement.closest('details')?.id ?? '', d.querySelector('summary .name').textContent, d.querySelector('summary .count').textContent, d.checkVisibility(), d.querySelector('dl').innerText])"
        )
        check(len(rows) == len(view["components"]), f"{what}: it draws {len(rows)} components")
        paths = {}
        for (id, above, name, count, visible, facts), each in zip(rows, view["components"]):
            around = paths.get(above, "")
            paths[id] = each["path"]
            check(
                visible and each["path"] == (f"{around}.{name}" if around else "" if name == "model" else name),
                f"{what}: {each['path']} is drawn as {name} in {around}",
            )
            numbers = [each["parameters"], each["heads"], each["units"], each["slots"]]
            expected = [each["spec"], *each["tensors"], *(number_text(x) for x in numbers if x)]
            for i in each["formulas"]:
                expected += [view["formulas"][i]["formula"], view["formulas"][i]["file"]]
            check(
                all(" ".join(text.split()) in " ".join(facts.split()) for text in expected)
                and count == (number_text(numbers[0]) if numbers[0] else ""),
                f"{what}: {each['path']} has {facts} and {count}, not {expected}",
            )
        drawn("s.querySelector('.controls button').click()")
    elif kind == "image":
        same = data["shape"] == view["shape"]
        size = drawn("[s.querySelector('canvas').height, s.querySelector('canvas').width]")
        check(size == view["shape"][:2], f"{what}: the image has {size} pixels")
    else:
        check(False, f"{what}: a kind {kind} without a test")
    check(same, f"{what}: its numbers differ from the JSON")
    return kind


def check_views(page, views):
    sections = page.run("return JSON.parse(document.getElementById('report').textContent).sections")
    page.ids = {
        tuple(key): value
        for key, value in page.run(
            "return [...document.querySelectorAll('.section')].map((s) => [[s.closest('.group').querySelector('h2').firstChild.data, s.querySelector('h3').firstChild.data], s.id])"
        )
    }
    kinds = set()
    for view in views:
        same = [s for s in sections if (s["group"], s["title"]) == (view["analysis"], view["title"])]
        check(len(same) == 1, f"{len(same)} sections are named {view['title']}")
        kinds.add(check_view(page, view, same[0]))
    return kinds


# The tokens, the maps and the lens of one example point at the same position, by pointer and by keys.
def check_linked(page):
    strip = page.find("section[aria-label='Input'] .strip")
    page.show(strip)
    token = page.driver.find_elements("css selector", "section[aria-label='Input'] .token")[5]
    ActionChains(page.driver).move_to_element(token).perform()
    state = """return [...document.querySelectorAll('.atlas .map .band')].map((b) => !b.hidden && Math.round(parseFloat(b.style.top || b.style.left) * %d / 100))
        .concat(document.querySelector("section[aria-label='Most likely tokens'] .pages span").textContent.split(' ')[1],
        document.querySelector('.lens .at')?.dataset.column)"""
    count = page.run("return document.querySelectorAll(\"section[aria-label='Input'] .token\").length")
    check(page.run(state % count) == [5, 5, "5", "5"], f"a token at 5 shows {page.run(state % count)}")
    check("position 5" in page.tip(), f"the tip of a token says {page.tip()}")
    page.run("arguments[0].focus()", strip)
    ActionChains(page.driver).send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    check(page.run(state % count) == [2, 2, "2", "2"], f"keys at token 2 show {page.run(state % count)}")
    check(page.spoken().startswith("position 2, "), f"keys at a token say {page.spoken()}")
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    canvas = page.find(".atlas .map canvas")
    page.show(canvas)
    page.run("arguments[0].focus()", canvas)
    ActionChains(page.driver).send_keys(*[Keys.ARROW_DOWN] * 5, *[Keys.ARROW_RIGHT] * 3).perform()
    marked = page.run(
        "return ['at', 'key'].map((c) => [...document.querySelectorAll('.strip .' + c)].map((t) => t.dataset.at))"
    )
    check(set(marked[0]) == {"4"} and set(marked[1]) == {"3"}, f"cell 4, 3 of a map marks tokens {marked}")
    weights, _ = unpacked(
        page.run(
            "return JSON.parse(document.getElementById('report').textContent).sections.find((s) => s.kind === 'matrices').data.maps[0].values"
        )
    )
    shown = page.run(
        "return [...document.querySelectorAll('section[data-kind=matrices] .strip .token')].map((t) => t.style.background)"
    )
    row = weights[4 * count : 5 * count]
    check(
        [bool(colour) for colour in shown] == [w is not None and sum(x or 0 for x in row) > 0 for w in row],
        f"tokens that a row cannot see are colored: {shown}",
    )
    ground = page.run(
        "const c = document.querySelector('.atlas .map canvas').getContext('2d').getImageData(1, 0, 1, 1).data; return `rgb(${c[0]}, ${c[1]}, ${c[2]})` + getComputedStyle(document.body).backgroundColor"
    )
    check(ground.count(ground[: len(ground) // 2]) == 2, f"a masked cell and the page have the colors {ground}")
    lens = page.find(".lens .cells")
    page.show(lens)
    page.run("arguments[0].focus()", lens)
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN).perform()
    check(
        "after " in page.spoken() and "position " in page.spoken() and " p " in page.spoken(),
        f"a cell of the lens says {page.spoken()}",
    )
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()


# A row of an attention map darkens the patches of the image, and a patch marks its row and column.
def check_patches(page):
    picture = page.find("section[data-kind=matrices] .picture")
    page.show(picture)
    page.run("arguments[0].focus()", picture)
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN).perform()
    check(page.spoken() == "patch 1,1", f"keys at an image say {page.spoken()}")
    labels = page.run(
        "return JSON.parse(document.getElementById('report').textContent).sections.find((s) => s.kind === 'matrices').data.rows"
    )
    i = labels.index("1,1")
    bands = page.run(
        "return [...document.querySelectorAll('.atlas .map .band')].map((b) => !b.hidden && parseFloat(b.style.top || b.style.left))"
    )
    check(all(abs(at - 100 * i / len(labels)) < 1e-3 for at in bands), f"a patch {i} marks {bands}")
    maps = page.run(
        "return JSON.parse(document.getElementById('report').textContent).sections.find((s) => s.kind === 'matrices').data.maps[0].values"
    )
    row = unpacked(maps)[0][i * len(labels) : (i + 1) * len(labels)]
    shades = page.run(
        "return [...arguments[0].querySelectorAll('.shade')].map((e) => Number(e.getAttribute('fill-opacity')))",
        picture,
    )
    expected = [0.9 * (1 - w / max(row)) for w, label in zip(row, labels) if label != "class"]
    check(
        len(shades) == len(expected) and all(abs(a - b) < 1e-3 for a, b in zip(shades, expected)),
        f"weights {expected} have the shades {shades}",
    )


# Every chart and map can be saved, with the texts that it shows; every section has a link that leads to it.
def check_saved(page, name):
    saved = page.driver.execute_async_script("""
        const done = arguments[0], all = [];
        window.download = (name, address) => all.push([name, address]);
        const sections = [...document.querySelectorAll('.section')].filter((s) => s.querySelector('.save'));
        sections.forEach((s) => s.querySelectorAll('.save').forEach((button) => button.click()));
        (function wait() {
          if (all.length < 2 * sections.length) return setTimeout(wait, 50);
          done(all.map(([name, address]) => {
            if (address.startsWith('data:image/png')) return [name, address.length, ''];
            const svg = new DOMParser().parseFromString(decodeURIComponent(address.slice(address.indexOf(',') + 1)), 'image/svg+xml');
            return [name, svg.querySelectorAll('parsererror').length ? 0 : svg.querySelectorAll('*').length, [...svg.querySelectorAll('text')].map((t) => t.textContent).join(' ')];
          }));
        })();""")
    drawn = page.run(
        "return [...document.querySelectorAll('.section')].filter((s) => s.querySelector('.body canvas, .plot, .bars, .lens, .strip, .choices')).length"
    )
    check(len(saved) == 2 * drawn > 0, f"{name}: {len(saved)} files of {drawn} charts and maps")
    check(all(size > 3 for _, size, _ in saved), f"{name}: files without a drawing: {[x[:2] for x in saved]}")
    texts = page.run(
        "return [...document.querySelectorAll('.section')].filter((s) => s.querySelector('.save')).map((s) => (s.querySelector('.row-labels span, .token, .lens .name:not(:empty), .choice .name, .bar .name, .plot text') || s.querySelector('h3').firstChild).textContent.trim())"
    )
    svgs = [text for file, _, text in saved if file.endswith(".svg")]
    check(all(text in svg for text, svg in zip(texts, svgs)), f"{name}: a file lacks the text of its drawing")
    ids = page.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    links = page.run("return [...document.querySelectorAll('main .link')].map((a) => a.hash.slice(1))")
    check(len(ids) == len(set(ids)) and set(links) <= set(ids) and len(links) > 5, f"{name}: links {links} of {ids}")
    target = links[2 * len(links) // 3]
    page.driver.get("about:blank")
    page.driver.get("file://" + page.path + "#" + target)
    page.driver.execute_async_script("setTimeout(arguments[0], 400)")
    top = page.run(
        "return [document.getElementById(arguments[0]).getBoundingClientRect().top, innerHeight + scrollY >= document.documentElement.scrollHeight - 2]",
        target,
    )
    check(0 <= top[0] <= 40 or top[1], f"{name}: the address of {target} opens the page {top} pixels above it")


# The link of a grid of maps leads to the chosen one.
def check_address(page):
    page.run("document.querySelectorAll('.thumbs button')[1].click()")
    address, name = page.run(
        "return [document.querySelector('.thumbs').closest('.section').querySelector('.link').hash, document.querySelector('.atlas h3').textContent]"
    )
    page.driver.get("about:blank")
    page.driver.get("file://" + page.path + address)
    page.driver.execute_async_script("setTimeout(arguments[0], 400)")
    shown, top = page.run(
        "return [document.querySelector('.atlas h3').textContent, document.querySelector('.thumbs').closest('.section').getBoundingClientRect().top]"
    )
    check(
        address.endswith(":1") and shown == name and 0 <= top <= 40,
        f"the address {address} shows '{shown}', not '{name}', at {top}",
    )


# The tree of components, by keys and by links: a component leads to its maps, and a map to its component.
def check_components(page):
    tree = page.find(".tree")
    summary = page.find(".tree summary")
    page.show(summary)
    page.run("arguments[0].focus()", summary)
    focused = "const d = document.activeElement.parentElement; return [d.querySelector('summary .name').textContent, d.open]"
    keys = lambda *k: ActionChains(page.driver).send_keys(*k).perform()
    check(page.run(focused) == ["model", True], f"the tree begins with {page.run(focused)}")
    keys(Keys.END)
    last = page.run(focused)
    keys(Keys.HOME, Keys.ARROW_DOWN)
    first = page.run(focused)
    check(first[0] != last[0] and not first[1], f"Down reads {first}, End {last}")
    while page.run(focused)[0] != "blocks.0":
        keys(Keys.ARROW_DOWN)
    keys(Keys.ARROW_RIGHT)
    check(page.run(focused) == ["blocks.0", True], f"Right opens {page.run(focused)}")
    keys(Keys.ARROW_RIGHT)
    check(page.run(focused) == ["attention_norm", False], f"Right again reads {page.run(focused)}")
    keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    check(page.run(focused) == ["blocks.0", False], f"Left twice reads {page.run(focused)}")
    # From a component to the maps of its heads and back.
    id = page.run("return [...document.querySelectorAll('.tree details')].find((d) => d.id.endsWith('-blocks-0-attention')).id")
    links = page.run(
        "return [...document.getElementById(arguments[0]).querySelectorAll('dl a')].map((a) => [a.textContent, a.hash])", id
    )
    heads = [href for name, href in links if name.startswith("head ")]
    check(len(heads) == 2 and heads[1].endswith(":1"), f"the attention's heads are {links}")
    targets = page.run(
        "return arguments[0].filter((href) => !document.getElementById(href.slice(1).split(':')[0]))",
        [href for _, href in links if href],
    )
    check(len(links) > 5 and not targets, f"links of the attention lead nowhere: {targets}")
    page.run("location.hash = arguments[0]", heads[1])
    check(
        page.wait("document.querySelector('.atlas h3').textContent.endsWith('head 1')"),
        "the link of a head does not choose its map",
    )
    page.run("document.querySelector('.atlas h3 a').click()")
    check(
        page.wait(f"document.activeElement === document.getElementById('{id}').firstChild")
        and page.run("return document.getElementById(arguments[0]).checkVisibility() && document.getElementById(arguments[0]).open", id),
        "the name of a map does not lead to its component",
    )
    back = page.run("return [...document.querySelectorAll('.section[data-kind=table] td a.component, .bar a.component, .lens a.component, .map a.component')].length")
    check(back > 4, f"{back} names in tables, bars and maps are links to components")
    wrong = page.run(
        "return [...document.querySelectorAll('a.component')].filter((a) => !document.getElementById(a.hash.slice(1).split(':')[0])).map((a) => a.hash)"
    )
    check(not wrong, f"links lead to no component: {wrong}")


# Links to source files lead to files; without a link the path is there to copy.
def check_sources(page, linked):
    found = page.run(
        "return [...document.querySelectorAll('.formula dd code, .tree dd code')].filter((c) => /^(nn|models)\\/.*\\.(cpp|h)$/.test(c.textContent)).map((c) => [c.textContent, c.closest('a')?.href ?? '', c.parentElement.querySelector('button')?.textContent ?? ''])"
    )
    check(len(found) > 20, f"{page.path}: {len(found)} formulas have a file")
    for file, link, button in found:
        check(os.path.exists(file), f"{page.path}: there is no {file}")
        if linked:
            check(link.startswith("file://") and os.path.samefile(link[len("file://") :], file), f"{file} has the link {link}")
        else:
            check(not link and button == "copy", f"{file} has the link {link} and the button {button}")


# Two runs have one example, the same colors and axes, and a difference of maps of the same tokens.
def check_scales(page):
    sections = page.run("return JSON.parse(document.getElementById('report').textContent).sections")
    pair = lambda kind: [s for s in sections if s["kind"] == kind and "view" in s]
    tokens = [s["data"]["tokens"] for s in pair("tokens")]
    check(len(tokens) == 2 and tokens[0] == tokens[1], f"the runs have the tokens {tokens}")
    check("the same as of first" in pair("tokens")[1]["text"], f"it says {pair('tokens')[1]['text']}")
    ends = page.run(
        """return [...document.querySelectorAll('.beside')].filter((row) => row.children.length > 1).map((row) => [row.firstChild.dataset.kind,
        ...[...row.children].map((s) => [...s.querySelectorAll('.ramp span, .axis span, .plot text[text-anchor=end]')].map((e) => e.textContent).join(' '))])"""
    )
    kinds = {kind for kind, left, right in ends if left}
    check({"matrices", "matrix", "tokens", "bars"} <= kinds, f"scales of the kinds {kinds} are compared")
    differ = [each for each in ends if each[1] != each[2] and each[0] not in ("table", "components")]
    check(not differ, f"scales of two runs differ: {differ}")
    maps = [unpacked(s["data"]["maps"][1]["values"])[0] for s in pair("matrices")]
    row = "[...document.querySelectorAll('.beside')].find((r) => r.firstChild.dataset.kind === 'matrices')"
    page.run(f"{row}.firstChild.querySelectorAll('.thumbs button')[1].click()")
    names = page.run(f"return [...{row}.children].map((s) => s.querySelector('.atlas h3').textContent)")
    check(names[0] == names[1], f"the runs show the maps {names}")
    button = f"[...{row}.children[1].querySelectorAll('.controls button')].find((b) => b.textContent === 'difference')"
    page.run(f"{button}.click()")
    canvas = page.driver.execute_script(f"return {row}.children[1].querySelector('.map canvas')")
    page.show(canvas)
    page.run("arguments[0].focus()", canvas)
    ActionChains(page.driver).send_keys(*[Keys.ARROW_RIGHT] * 3, *[Keys.ARROW_DOWN] * 5).perform()
    n, spoken = len(tokens[0]), page.spoken()
    number = float(spoken.split(": ")[1].split(",")[0].replace("−", "-"))
    expected = maps[1][5 * n + 2] - maps[0][5 * n + 2]
    check(abs(number - expected) < 1e-3, f"the difference at 5, 2 is {expected}, it says {spoken}")


# Views of two runs are side by side, many lines have small charts, and formulas their files and links.
def check_layout(page):
    tops = page.run(
        """return [...document.querySelectorAll('.beside')].filter((row) => row.children.length > 1)
        .map((row) => [...row.children].map((s) => [s.querySelector('h3').firstChild.data, s.getBoundingClientRect().top]))"""
    )
    check(len(tops) > 5, f"{len(tops)} views are side by side")
    page.open(400)
    below = page.run(
        "return [...document.querySelectorAll('.beside')].every((row) => [...row.children].every((s, i, all) => i === 0 || s.getBoundingClientRect().top >= all[i - 1].getBoundingClientRect().bottom))"
    )
    check(below, "at width 400 two runs are not below each other")
    page.open()
    for (first, left), (second, right) in tops:
        check(
            first[len("first: ") :] == second[len("second: ") :] and left == right,
            f"side by side are '{first}' and '{second}' at {left} and {right}",
        )
    small = page.run(
        "return [...document.querySelectorAll('.legend.many')].map((l) => l.querySelectorAll('svg.small path').length)"
    )
    check(16 in small, f"legends have {small} small charts")
    files = page.run(
        "return [...document.querySelectorAll('.formula')].map((f) => [f.id, f.querySelector('.link').hash, f.innerText])"
    )
    check(len(files) > 3 and all("#" + id == hash for id, hash, _ in files), f"formulas have the links {files}")
    check(
        any("nn/optimizers/adamw.cpp" in text for *_, text in files) and os.path.exists("nn/optimizers/adamw.cpp"),
        "the formula of adamw does not name its file",
    )


# The Tab key reaches every control, and each has a visible focus.
def check_tabs(page, name):
    page.load(1600)
    count = page.run(
        "return [...document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]')].filter((e) => !e.disabled && e.tabIndex >= 0 && e.checkVisibility()).length"
    )
    page.run(
        "document.activeElement.blur(); window.reached = new Set(); window.unseen = []; document.addEventListener('keyup', () => { const e = document.activeElement; reached.add(e); if (e !== document.body && getComputedStyle(e).outlineStyle === 'none') unseen.push(e.outerHTML.slice(0, 80)); })"
    )
    for _ in range(0, count + 20, 20):
        ActionChains(page.driver).send_keys(*[Keys.TAB] * 20).perform()
    reached, unseen = page.run("return [reached.size, unseen]")
    check(reached >= count, f"{name}: Tab reaches {reached} of {count} controls")
    check(not unseen, f"{name}: a focus is not visible: {unseen[:3]}")


def packed(values):
    finite = [x for x in values if math.isfinite(x)]
    low, high = min(finite), max(finite)
    codes = [round((x - low) / (high - low) * 65534) if math.isfinite(x) else 65535 for x in values]
    return {
        "low": low,
        "high": high,
        "count": len(values),
        "gaps": [],
        "base64": base64.b64encode(struct.pack(f"<{len(codes)}H", *codes)).decode(),
    }


def with_data(page, data, path):  # the same page with other data
    begin = page.index('<script type="application/json" id="report">') + len(
        '<script type="application/json" id="report">'
    )
    with open(path, "w") as file:
        file.write(page[:begin] + json.dumps(data).replace("<", "\\u003c") + page[page.index("</script>", begin) :])
    return path


def synthetic(n=256):  # attention of 4 x 4 heads: rows that add up to 1, each head with its own distance
    maps = []
    for layer in range(4):
        for head in range(4):
            period, reach, values = 3 + 5 * head + layer, 4 + 12 * layer, []
            for i in range(n):
                row = [
                    math.exp(-(i - k) / reach) * (1 + math.cos((i - k) * 2 * math.pi / period)) + 1e-3
                    for k in range(i + 1)
                ]
                total = sum(row)
                values += [x / total for x in row] + [math.nan] * (n - i - 1)
            maps.append({"name": f"layer {layer}, head {head}", "values": packed(values), "span": reach + 0.5})
    tokens = [str(i) for i in range(n)]
    signed = [math.sin(r / 2) * (c - 5) for r in range(8) for c in range(12)]
    signed[5] = math.nan
    long_text = "\n".join(f"line {i} of a text that is long enough to need pages" for i in range(400))
    section = lambda kind, title, data: {"group": "Maps", "kind": kind, "title": title, "text": "", "data": data}
    return {
        "title": "synthetic",
        "made": "now",
        "version": "0",
        "sections": [
            section(
                "matrices",
                "attention",
                {
                    "rows": tokens,
                    "columns": tokens,
                    "signed": False,
                    "quantity": "weight",
                    "axes": ["place", "reads"],
                    "none": "not visible",
                    "slots": 4,
                    "spans": True,
                    "down": "layer",
                    "across": "head",
                    "shape": [4, 4],
                    "maps": maps,
                },
            ),
            section(
                "matrix",
                "ablation",
                {
                    "rows": [f"block {r}" for r in range(8)],
                    "columns": [f"token {c}" for c in range(12)],
                    "signed": True,
                    "quantity": "effect",
                    "values": packed(signed),
                },
            ),
            section(
                "matrix",
                "entropy",
                {
                    "rows": ["a", "b"],
                    "columns": ["0", "1"],
                    "signed": False,
                    "quantity": "entropy",
                    "axes": ["", "head"],
                    "low": 0,
                    "high": 3,
                    "values": packed([2.5485, 2.54855, 2.5486, 2.5486]),
                },
            ),
            section(
                "matrix",
                "patching",
                {
                    "rows": ["embedding", "block 0"],
                    "columns": ["Paris|Rome" if c == 7 else str(c) for c in range(100)],
                    "signed": True,
                    "quantity": "recovered",
                    "marked": [7],
                    "values": packed([math.sin(c) for c in range(200)]),
                },
            ),
            section("text", "long", {"items": [{"name": "long", "text": long_text + "</script><b>", "wrap": True}]}),
            section(
                "bars",
                "differences",
                {
                    "quantity": "difference",
                    "rows": [
                        {"name": "first", "value": 0, "low": None, "high": None, "note": "baseline"},
                        {"name": "second", "value": -0.2, "low": -0.3, "high": -0.1, "note": ""},
                        {"name": "third", "value": 0.05, "low": -0.1, "high": 0.2, "note": ""},
                    ],
                },
            ),
        ],
    }, signed


frames = """
  const done = arguments[0], times = [], buttons = [...document.querySelectorAll('.thumbs button')];
  let last = performance.now(), i = 0;
  requestAnimationFrame(function frame(now) {
    times.push(now - last);
    last = now;
    if (i < 64) {
      buttons[i % 16].click();
      const canvas = document.querySelector('.atlas .map canvas'), box = canvas.getBoundingClientRect();
      canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + i * 5, clientY: box.top + i * 5}));
      ++i;
      requestAnimationFrame(frame);
    } else done(times.slice(1));
  });"""


# From the top to the end of a page that has just been loaded, 150 pixels a frame.
scroll_frames = """
  const done = arguments[0], times = [];
  let last = performance.now();
  requestAnimationFrame(function frame(now) {
    times.push(now - last);
    last = now;
    scrollBy({top: 150, behavior: 'instant'});
    if (innerHeight + scrollY < document.documentElement.scrollHeight - 2) requestAnimationFrame(frame);
    else done(times.slice(1));
  });"""


# Another program of this machine may delay a frame; the page's own delay repeats every time.
def check_frames(measure, what):
    worst = []
    while len(worst) < 8 and (not worst or min(worst) > 50):
        worst.append(max(measure()))
    print(f"{what}: longest frames {', '.join(f'{x:.1f}' for x in worst)} ms")
    check(min(worst) <= 50, f"{what}: frames of {worst} ms")


def check_scrolling(page, name):
    def measure():
        page.load()
        return page.driver.execute_async_script(scroll_frames)

    check_frames(measure, "scrolling through " + name)


def check_marks(maps):
    paths = maps.run(
        "return ['slots', 'span'].map((k) => document.querySelectorAll(`.atlas .marks path.core.${k}[d^=M]`).length)"
    )
    check(paths == [1, 1], f"slots and span are {paths} lines")
    keys = maps.run("return document.querySelector('.atlas .scale').innerText")
    check("not visible" in keys and "slots" in keys and "span" in keys, f"the legend of a map is '{keys}'")
    colours = maps.run("""const canvas = document.querySelector("section[aria-label='entropy'] .map canvas"),
              data = [...canvas.getContext('2d').getImageData(0, 0, 2, 2).data];
        return [0, 1, 2].map((k) => {
          const each = data.filter((x, i) => i % 4 === k);
          return Math.max(...each) - Math.min(...each);
        })""")
    check(max(colours) <= 2, f"heads that are alike differ by {colours} in their colours")
    axis = maps.run("return document.querySelector(\"section[aria-label='entropy'] .column-axis\").innerText")
    check(axis == "head", f"columns are called '{axis}'")
    labels = maps.run(
        """return [...document.querySelectorAll("section[aria-label='patching'] .column-labels span")].map((e) => {
        const b = e.getBoundingClientRect(); return [e.textContent, b.left, b.right]; })"""
    )
    names = [name for name, *_ in labels]
    check("Paris|Rome" in names and 2 < len(names) < 50, f"columns with a marked one have the labels {names}")
    overlaps = [(a, b) for a, b in zip(labels, labels[1:]) if a[2] > b[1]]
    check(not overlaps, f"labels of columns overlap: {overlaps}")
    canvas = maps.find(".atlas .map canvas")
    maps.show(canvas)
    maps.run("arguments[0].focus()", canvas)
    keys = [Keys.ARROW_RIGHT] * 2 + [Keys.ARROW_DOWN] * 4
    ActionChains(maps.driver).send_keys(*keys).perform()
    check(" of 5 in its row" in maps.spoken(), f"a cell of row 4 says '{maps.spoken()}'")
    ActionChains(maps.driver).send_keys(*[Keys.ARROW_RIGHT] * 6).perform()
    check(maps.spoken().endswith(": not visible"), f"a masked cell says '{maps.spoken()}'")


def check_maps(driver, page, path, pictures):
    data, signed = synthetic()
    maps = Page(driver, with_data(page, data, path))
    check_everywhere(maps, "maps", pictures)

    # From the load on: a page that paints 16 maps of 65,536 cells must not stop.
    def measure():
        driver.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument",
            {
                "source": """
            window.stops = []; new PerformanceObserver((list) => list.getEntries().forEach((e) => stops.push(e.duration))).observe({type: 'longtask', buffered: true});"""
            },
        )
        maps.open()
        check(
            maps.wait("[...document.querySelectorAll('.thumbs canvas')].every((c) => c.width === 256)"),
            "a map of 16 is not painted",
        )
        times = driver.execute_async_script(frames)
        print(
            f"4 x 4 heads over 256 tokens: {len(times)} frames, tasks above 50 ms since the load: {maps.run('return stops')}"
        )
        return times

    check_frames(measure, "4 x 4 heads over 256 tokens")
    check_scrolling(maps, "maps")
    check_contents(maps, "maps")
    check_marks(maps.open())

    canvas = maps.find("section[aria-label='ablation'] canvas[role]")
    maps.show(canvas)
    maps.run("arguments[0].focus()", canvas)
    ActionChains(driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN).perform()
    said = maps.spoken()
    row, column = 2, 1
    value = signed[row * 12 + column]
    rank = 1 + sum(x > value for x in signed[row * 12 : row * 12 + 12])
    check(
        f"row block {row}, column token {column}:" in said and f"rank {rank} of 12" in said,
        f"a cell says '{said}', not rank {rank}",
    )
    number = float(said.split(": ")[1].split(",")[0].replace("−", "-"))
    check(abs(number - value) < 1e-3, f"a cell says {number}, it is {value}")
    ends = maps.run("return document.querySelector(\"section[aria-label='ablation'] .scale\").innerText")
    most = max(abs(x) for x in signed if math.isfinite(x))
    check(number_text(most)[:4] in ends and "−" in ends, f"the scale's ends read '{ends}'")
    radio = maps.find(".thumbs button[aria-checked=true]")
    maps.show(radio)
    maps.run("arguments[0].focus()", radio)
    before = maps.run("return document.querySelector('.atlas h3').textContent")
    ActionChains(driver).send_keys(Keys.ARROW_UP if "layer 3" in before else Keys.ARROW_DOWN).perform()
    check(maps.run("return document.querySelector('.atlas h3').textContent") != before, "keys choose no other map")
    buttons = driver.find_elements("css selector", ".pages button")
    maps.show(buttons[1])
    first = maps.run("return document.querySelector('figure pre').textContent")
    buttons[1].click()
    check(
        maps.run("return document.querySelector('figure pre').textContent") != first
        and "page 2 of" in maps.find(".pages").text,
        "pages do not turn",
    )


claim_text = """
source = "a test"
sentence = "A small model learns more in thirty steps than in two."
kind = "trained"
seeds = [1, 2, 3]
metric = "validation_loss"
refuted_if = "thirty > two - 0.1"
[base]
data = "examples/data/tinyshakespeare.txt"
layers = 1
heads = 2
width = 16
context = 16
batch_size = 2
validation_tokens = 2000
[sweep]
learning_rate = [1e-3, 3e-3]
[variants.thirty]
steps = 30
[variants.two]
steps = 2
"""


def check_study(page, folder):
    with open(folder + "/verdict.json") as file:
        verdict = json.load(file)
    text = page.run("return document.body.innerText")
    check(verdict["verdict"] in text and "more in thirty steps" in text, "the page does not state the tested claim")
    with open(folder + "/table.csv") as file:
        for row in csv.DictReader(file):
            check(f"{float(row['mean']):.4f}" in text, f"the page lacks the mean of {row}")


def main():
    program, pictures = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    if pictures:
        os.makedirs(pictures, exist_ok=True)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    with tempfile.TemporaryDirectory() as folder:
        a, b, sweep = (os.path.join(folder, name) for name in ("first", "second", "sweep"))
        small_run(program, a, "--steps=200")
        small_run(program, b, "--steps=100", "--attention=softmax(span=adaptive_span(16))", "--learning_rate=3e-3")
        with open(b + "/metrics.jsonl", "a") as log:  # metrics of modules, a non-finite one, and an incomplete row
            for step in range(101, 161):
                parts = {
                    f"entropy/blocks.{i}.attention.{k}": 2 + math.sin(step / 9 + i + k)
                    for i in range(4)
                    for k in range(4)
                }
                parts["loss/entropy_regularizer"] = 0.1
                log.write(json.dumps({"step": step, "loss": None if step == 130 else 2.5, **parts}) + "\n")
        small = [
            "--layers=1",
            "--heads=2",
            "--width=16",
            "--context=16",
            "--batch_size=2",
            "--steps=20",
            "--validation_tokens=2000",
        ]
        orrery(
            program,
            "sweep",
            "--data=examples/data/tinyshakespeare.txt",
            *small,
            "--attention={softmax,pointwise(relu)}",
            "--seed={0..2}",
            "--out=" + sweep,
            "--runs=" + os.path.join(folder, "pool"),
        )
        claim = os.path.join(folder, "claim.toml")
        with open(claim, "w") as file:
            file.write(claim_text)
        study = os.path.join(folder, "study")
        orrery(program, "study", claim, "--out=" + study, "--runs=" + os.path.join(folder, "pool"))
        pages = {}
        for name, folders in {"run": [a], "runs": [a, b], "sweep": [sweep], "study": [study]}.items():
            pages[name] = os.path.join(folder, name + ".html")
            orrery(program, "report", *folders, "--out=" + pages[name])
        pages["looks"] = os.path.join(folder, "looks.html")
        tree = os.path.join(folder, "tree")  # a page in a source tree
        os.makedirs(os.path.join(tree, "runs"))
        for name in ("nn", "models"):
            os.symlink(os.path.abspath(name), os.path.join(tree, name))
        pages["linked"] = os.path.join(tree, "runs", "linked.html")
        orrery(program, "report", a, "--out=" + pages["linked"])
        pages["patches"] = os.path.join(folder, "patches.html")
        images = os.path.join(folder, "images")
        examples = {
            "looks": [b, "--text=First Citizen:"],
            "patches": [images, "--image=" + image_run(program, images), "--label=1"],
        }
        views = {}
        for name, words in examples.items():
            words = ["inspect", *words, "--analysis=all"]
            orrery(program, *words, "--html=" + pages[name])
            views[name] = json.loads(orrery(program, *words, "--json=yes", stdout=subprocess.PIPE))["views"]
        for name in pages:
            check(os.path.getsize(pages[name]) < 5e6, f"{name}: {os.path.getsize(pages[name])} bytes")
        driver = browser()
        driver.set_script_timeout(60)
        try:
            for name, path in pages.items():
                check_everywhere(Page(driver, path), name, pictures)
            print(
                check_charts(Page(driver, pages["run"]).open(), [a]),
                "lines of one run,",
                check_charts(Page(driver, pages["runs"]).open(), [a, b]),
                "of two, all with every row of their logs",
            )
            check_reading(Page(driver, pages["run"]), a)
            for name in ("runs", "looks"):
                check_contents(Page(driver, pages[name]), name)
            check_scrolling(Page(driver, pages["looks"]), "looks")
            kinds = set()
            for name, made in views.items():
                kinds |= check_views(Page(driver, pages[name]).open(), made)
            check(
                kinds == {"map", "bars", "table", "lines", "lens", "tokens", "choices", "image", "components"},
                f"views of the kinds {kinds} are compared",
            )
            check_layout(Page(driver, pages["runs"]).open())
            check_scales(Page(driver, pages["runs"]).open())
            check_components(Page(driver, pages["looks"]).open())
            check_sources(Page(driver, pages["looks"]).open(), False)
            check_sources(Page(driver, pages["linked"]).open(), True)
            check_linked(Page(driver, pages["looks"]).open())
            check_patches(Page(driver, pages["patches"]).open())
            check_address(Page(driver, pages["looks"]).open())
            for name in ("run", "sweep", "looks", "patches"):
                check_saved(Page(driver, pages[name]).open(), name)
                check_tabs(Page(driver, pages[name]), name)
            alone = (
                Page(driver, pages["runs"])
                .open()
                .run("return [...document.querySelectorAll(\"section[aria-label='loss'] .legend\")].pop().innerText")
            )
            check("entropy_regularizer" in alone, f"a line of a part has the legend '{alone}'")
            page = Page(driver, pages["sweep"]).open()
            with open(sweep + "/table.csv") as file:
                table = list(csv.DictReader(file))
            check(
                not page.run("return document.querySelector('input[type=range]')"),
                "lines of 20 points have a slider that smooths none of them",
            )
            bars = page.run("return [...document.querySelectorAll('.bar[role=listitem]')].map((b) => b.innerText)")
            check(
                len(bars) == len(table) and f"{abs(float(table[1]['difference'])):.4f}"[:5] in bars[1],
                f"bars {bars}, table {table}",
            )
            check_study(Page(driver, pages["study"]).open(), study)
            with open(pages["run"]) as file:
                check_maps(driver, file.read(), os.path.join(folder, "maps.html"), pictures)
        finally:
            driver.quit()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
