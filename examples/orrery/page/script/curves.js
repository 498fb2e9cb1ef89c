// Curves over steps: smoothing, zoom, values by pointer or keys.

const allCharts = [];
let smoothing = .9;  // weight of an adjacent point; its square for the next, and so on
const dashes = ['', '7 4', '2 4', '9 4 2 4'];
const few = 40;  // curves of this many points or fewer are drawn as dots, not smoothed

class Chart {
  constructor(data, title, wide) {
    this.axis = data.axis || 'step';
    this.data = data, this.title = title, this.labels = data.x_labels || null;  // labels of 0, 1, ... on the axis
    // Labels are rotated by 60 degrees, about 6 pixels per letter.
    const longest = this.labels ? 6.2 * Math.max(...this.labels.map((name) => name.length)) : 0;
    this.under = 26 + Math.round(.87 * longest), this.beyond = 10 + Math.round(.5 * longest);
    this.height = (wide ? 330 : 236) + this.under - 26;
    // Several runs: a color per run, a dash per metric; many module paths keep their own colors.
    const names = [...new Set(data.series.map((s) => s.name))];
    const groups = [...new Set(data.series.map((s) => data.runs[s.run].group))];
    const among = new Set(data.series.map((s) => s.run)).size, several = groups.length > 1,
          byRun = several && names.length <= dashes.length;
    this.keys = byRun ? groups : names;   // entries with a color
    this.names = byRun ? names : groups;  // entries with a dash
    this.series = data.series.map((s) => {
      const {name, group} = data.runs[s.run], named = names.length > 1 ? `${s.name}, ${name}` : name;
      const [key, other] = byRun ? [group, s.name] : [s.name, group];
      return {
        ...s,
        hidden: false,
        label: among > 1 ? named : s.name,
        colour: this.keys.indexOf(key),
        other,
        dash: dashes[this.names.indexOf(other) % dashes.length]
      };
    });
    this.log = false, this.range = null, this.hover = null, this.active = this.longest(), this.faded = null;
    const steps = this.series.flatMap((s) => [s.steps[0], s.steps[s.steps.length - 1]]);
    this.whole = data.whole || [Math.min(...steps), Math.max(...steps)];
    if (this.whole[0] === this.whole[1]) this.whole = [this.whole[0] - 1, this.whole[1] + 1];
    this.redraw = once(() => this.draw());
    this.build();
    allCharts.push(this);
  }

  longest() {
    return this.series.reduce((best, s, i) => (s.steps.length > this.series[best].steps.length ? i : best), 0);
  }

  build() {
    this.plot = element('div', {class: 'plot'});
    this.svg = drawn('svg', {
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'chart',
      height: this.height,
      'aria-label': `${this.title} over ${this.axis}s, ${this.series.length} ${this.series.length === 1 ? 'line' : 'lines'}. ` +
          'Left and right read values, up and down select a line, plus and minus zoom, 0 shows all, ' +
          'L toggles the logarithmic scale.',
    });
    this.back = drawn('g'), this.lines = drawn('g'), this.front = drawn('g');
    this.svg.append(this.back, this.lines, this.front);
    this.plot.append(this.svg);
    this.logButton = element(
        'button',
        {type: 'button', 'aria-pressed': 'false', title: 'logarithmic scale', onclick: () => this.toggleLog()}, 'log');
    this.allButton = element(
        'button', {type: 'button', title: `show all ${this.axis}s`, onclick: () => this.zoomTo(null), hidden: true}, 'all');
    this.controls = element('div', {class: 'controls'}, this.allButton, this.logButton);
    this.legend = element('div', {class: 'legend', role: 'group', 'aria-label': 'Lines'});
    // A single line needs no legend if the title is its name.
    if (this.series.length > 1 || this.series[0].label !== this.title) this.buildLegend();
    this.numbers = element('details', {class: 'numbers'}, element('summary', {}, 'as a table'));
    this.numbers.addEventListener('toggle', () => this.fillNumbers(), {once: true});
    this.whole_element = element('div', {}, this.legend, this.plot, this.numbers);
    const svg = this.svg;
    svg.addEventListener('pointermove', (event) => this.moved(event));
    svg.addEventListener('pointerdown', (event) => this.pressed(event));
    svg.addEventListener('pointerup', (event) => this.released(event));
    svg.addEventListener('pointercancel', () => this.drop());
    svg.addEventListener('pointerleave', () => {
      if (!this.drag) this.leave();
    });
    svg.addEventListener('dblclick', () => this.zoomTo(null));
    svg.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
    svg.addEventListener('keydown', (event) => this.key(event));
    svg.addEventListener('blur', () => this.leave());
    this.seen = false;
    whenSeen(this.plot, () => {
      this.seen = true;
      this.draw();
    }, this.redraw);
  }

  sample(colour, dash) {
    const line = drawn('line', {x1: 0, x2: 18, y1: 4, y2: 4, 'stroke-width': 2.5, 'stroke-dasharray': dash});
    line.style.stroke = colour;
    return drawn('svg', {viewBox: '0 0 18 8', 'aria-hidden': 'true'}, line);
  }
  // A small chart of these lines, on the scale of all.
  small(belongs) {
    const finite = this.series.flatMap((s) => s.values.filter((x) => x !== null)).sort((a, b) => a - b);
    const low = finite[0], high = finite[Math.floor((finite.length - 1) * .99)], [first, last] = this.whole;
    const paths = this.series.filter(belongs).map((s) => {
      const every = Math.max(1, Math.floor(s.values.length / 60));
      let pen = 'M', path = '';
      s.values.forEach((value, i) => {
        if (i % every && i + 1 < s.values.length) return;
        if (value === null) return pen = 'M';
        const share = high > low ? Math.min(1, (value - low) / (high - low)) : .5;
        path +=
            `${pen}${(120 * (s.steps[i] - first) / (last - first)).toFixed(1)} ${(2 + 30 * (1 - share)).toFixed(1)}`;
        pen = 'L';
      });
      const line = drawn('path', {class: 'small', d: path});
      line.style.stroke = lineColour(s.colour, this.keys.length);
      return line;
    });
    return drawn(
        'svg', {class: 'small', viewBox: '0 0 120 34', preserveAspectRatio: 'none', 'aria-hidden': 'true'}, ...paths);
  }
  buildLegend() {
    const many = this.keys.length > lineColours.light.length;  // more than distinct colors: each has a small chart
    this.legend.classList.toggle('many', many);
    const entry = (text, picture, belongs) => {
      const button = element('button', {type: 'button', 'aria-pressed': 'true'}, picture, text);
      button.addEventListener('click', () => {
        const hidden = button.getAttribute('aria-pressed') === 'true';
        button.setAttribute('aria-pressed', String(!hidden));
        this.series.filter(belongs).forEach((s) => {
          s.hidden = hidden;
        });
        if (this.series[this.active].hidden) this.active = Math.max(0, this.series.findIndex((s) => !s.hidden));
        this.redraw();
      });
      const fade = (on) => () => {
        this.faded = on ? (s) => !belongs(s) : null;
        this.redraw();
      };
      button.addEventListener('pointerenter', fade(true));
      button.addEventListener('pointerleave', fade(false));
      return button;
    };
    this.legend.replaceChildren();
    if (this.keys.length > 1 || this.names.length === 1)
      this.keys.forEach(
          (key, i) => this.legend.append(entry(
              key, many ? this.small((s) => s.colour === i) : this.sample(lineColour(i, this.keys.length), ''),
              (s) => s.colour === i)));
    if (this.names.length > 1)
      this.names.forEach(
          (name, i) => this.legend.append(
              entry(name, this.sample('currentColor', dashes[i % dashes.length]), (s) => s.other === name)));
  }
  themed() {
    if (this.legend.childElementCount)
      this.buildLegend(), this.series.forEach((s) => {
        s.hidden = false;
      });
    if (this.seen) this.redraw();
  }

  fillNumbers() {
    const head = ['', 'rows', 'first', 'lowest', `at ${this.axis}`, 'last'];
    const rows = this.series.map((s) => {
      const finite = s.values.map((x, i) => [x, s.steps[i]]).filter(([x]) => x !== null);
      const since = this.data.runs[s.run].since, end = finite[finite.length - 1];  // values up to it: of other data
      const least =
          finite.filter(([, step]) => !since || step > since).reduce((a, b) => (a && a[0] <= b[0] ? a : b), null);
      const lowest = least ? [numberText(least[0]), this.labelText(least[1])] : ['', ''];
      const cells = finite.length ? [numberText(finite[0][0]), ...lowest, numberText(end[0])] : ['', '', '', ''];
      return [s.label, numberText(s.rows), ...cells];
    });
    this.numbers.append(
        dataTable(head.map((name, i) => ({name, align: i ? 'right' : 'left'})), rows, [], 'The lines as a table'));
  }

  labelText(step) { return this.labels ? this.labels[step] : numberText(step); }

  // Drawing.
  inRange(s) {  // indices of the points in the window, plus one on each side
    const [x0, x1] = this.range || this.whole;
    return [Math.max(0, firstAtLeast(s.steps, x0) - 1), Math.min(s.steps.length, firstAtLeast(s.steps, x1 + 1e-9) + 1)];
  }
  drawable(x) { return x !== null && (!this.log || x > 0); }
  limits() {
    const values = [], [x0, x1] = this.range || this.whole;
    for (const s of this.series) {
      if (s.hidden) continue;
      const [from, to] = this.inRange(s);
      for (let i = from; i < to; ++i) {
        if (s.steps[i] < x0 || s.steps[i] > x1) continue;
        if (this.drawable(s.values[i])) values.push(this.log ? Math.log10(s.values[i]) : s.values[i]);
        if (this.drawable(s.shown[i])) values.push(this.log ? Math.log10(s.shown[i]) : s.shown[i]);
      }
    }
    if (this.data.shared && !this.range)  // of the same view of other runs
      values.push(...this.data.shared.filter((x) => this.drawable(x)).map((x) => (this.log ? Math.log10(x) : x)));
    this.above = 0;
    if (!values.length) return [0, 1];
    values.sort((a, b) => a - b);
    let low = values[0], high = values[values.length - 1];
    const usual = values[Math.floor((values.length - 1) * .99)], reach = usual - low;
    if (values.length > 200 && high > usual + 2 * reach && reach > 0) {  // outliers would flatten the rest
      high = usual + .25 * reach;
      this.above = values.length - firstAtLeast(values, high);
    }
    const room = high > low ? .06 * (high - low) : Math.abs(high) * .1 || 1;
    return [low - (low >= 0 && low - room < 0 && !this.log ? low : room), high + room];
  }
  place() {
    const [x0, x1] = this.range || this.whole, [y0, y1] = this.limits();
    const ticks = this.log ? logTicks(y0, y1, 5) : roundTicks(y0, y1, (this.height - this.under) / 41);
    const texts = tickTexts(ticks), left = 14 + 7 * Math.max(...texts.map((text) => text.length), 2);
    const width = this.plot.clientWidth, right = width - this.beyond, top = 8, bottom = this.height - this.under;
    const x = (step) => left + (step - x0) / (x1 - x0) * (right - left);
    const y = (value) => bottom - ((this.log ? Math.log10(value) : value) - y0) / (y1 - y0) * (bottom - top);
    return {x0, x1, left, right, top, bottom, x, y, ticks, texts, width};
  }
  // Returns a path with at most the smallest and largest value of each column of pixels.
  path(s, values, at) {
    const [from, to] = this.inRange(s);
    let path = '', pen = 'M', column = null, low = 0, high = 0, last = 0;
    const flush = () => {
      if (column === null) return;
      if (low !== high)
        path += `${pen}${column} ${low.toFixed(1)}L${column} ${high.toFixed(1)}L${column} ${last.toFixed(1)}`;
      else
        path += `${pen}${column} ${last.toFixed(1)}`;
      pen = 'L', column = null;
    };
    const dense = to - from > 2 * (at.right - at.left);
    for (let i = from; i < to; ++i) {
      if (!this.drawable(values[i])) {
        flush();
        pen = 'M';
        continue;
      }
      const y = Math.max(at.top - 40, Math.min(at.bottom + 40, at.y(values[i])));
      const x = dense ? Math.round(at.x(s.steps[i])) : Number(at.x(s.steps[i]).toFixed(1));
      if (x === column) {
        low = Math.min(low, y), high = Math.max(high, y), last = y;
        continue;
      }
      flush();
      column = x, low = high = last = y;
    }
    flush();
    return path;
  }
  draw() {
    for (const s of this.series) s.shown = this.data.axis ? s.values : smoothed(s.values, smoothing);
    const at = this.at = this.place(), clip = `clip${allCharts.indexOf(this)}`;
    this.svg.setAttribute('viewBox', `0 0 ${at.width} ${this.height}`);
    this.back.replaceChildren(drawn('clipPath', {id: clip}, drawn('rect', {
                                      x: at.left - 4,
                                      y: at.top - 4,
                                      width: Math.max(0, at.right - at.left + 8),
                                      height: at.bottom - at.top + 8
                                    })));
    for (const [i, tick] of at.ticks.entries()) {
      const y = Math.round(at.y(tick)) + .5;
      if (y < at.top - 1 || y > at.bottom + 1) continue;
      this.back.append(
          drawn('line', {class: 'grid', x1: at.left, x2: at.right, y1: y, y2: y}),
          drawn('text', {x: at.left - 8, y: y + 4, 'text-anchor': 'end'}, at.texts[i]));
    }
    if (this.labels)
      this.nameLabels(at);
    else
      this.nameSteps(at);
    if (this.above)
      this.back.append(
          drawn('text', {x: at.right, y: at.top + 4, 'text-anchor': 'end'}, `values above: ${this.above}`));
    this.drawLines(at, clip);
    this.drawHover();
  }
  nameSteps(at) {
    const steps = roundTicks(at.x0, at.x1, Math.max(2, Math.min(8, (at.right - at.left) / 90)))
                      .filter((x) => this.data.axis || Number.isInteger(x));
    // The axis name is below the other axis's labels; a long one replaces the first tick labels.
    const name = 6.2 * this.axis.length, long = name > at.left - 8, texts = tickTexts(steps);
    for (const [i, step] of steps.entries()) {
      if (long && at.x(step) < name + 24) continue;
      const x = at.x(step), anchor = x > at.right - 18 ? 'end' : x < at.left + 12 ? 'start' : 'middle';
      this.back.append(drawn(
          'text', {x: anchor === 'end' ? at.right : x, y: this.height - 6, 'text-anchor': anchor}, texts[i]));
    }
    this.back.append(drawn(
        'text', {x: long ? 0 : at.left - 8, y: this.height - 6, 'text-anchor': long ? 'start' : 'end'}, this.axis));
  }
  nameLabels(at) {
    const first = Math.ceil(at.x0), last = Math.floor(at.x1),
          every = Math.max(1, Math.ceil(16 * (at.x1 - at.x0) / (at.right - at.left)));
    for (let place = first; place <= last; place += every) {
      const x = at.x(place) - 3, y = at.bottom + 14;
      this.back.append(drawn('text', {x, y, transform: `rotate(60 ${x} ${y})`}, this.labels[place]));
    }
  }
  drawLines(at, clip) {
    this.lines.setAttribute('clip-path', `url(#${clip})`);
    this.lines.replaceChildren();
    for (const s of this.series) {
      if (s.hidden) continue;
      const colour = lineColour(s.colour, this.keys.length), faded = this.faded && this.faded(s) ? ' faded' : '';
      if (s.shown !== s.values) this.add(drawn('path', {class: 'raw' + faded, d: this.path(s, s.values, at)}), colour);
      this.add(
          drawn('path', {
            class: 'line' + faded,
            d: this.path(s, s.shown, at),
            'stroke-dasharray': s.dash,
            'data-key': s.key,
            'data-run': s.run,
            'data-rows': s.rows,
            'data-points': s.values.length,
            'data-axis': this.data.axis || ''
          }),
          colour);
      if (s.values.length <= few) this.addDots(s, at, colour, faded);
    }
  }
  add(line, colour) {
    line.style.stroke = colour;
    this.lines.append(line);
  }
  addDots(s, at, colour, faded) {
    s.steps.forEach((step, i) => {
      if (!this.drawable(s.values[i]) || step < at.x0 || step > at.x1) return;
      const dot =
          drawn('circle', {cx: at.x(step).toFixed(1), cy: at.y(s.values[i]).toFixed(1), r: 2.5, class: faded.trim()});
      dot.style.fill = colour;
      this.lines.append(dot);
    });
  }

  // Reading values.
  near(s, step) {  // index of the nearest point
    const after = Math.min(firstAtLeast(s.steps, step), s.steps.length - 1);
    return after > 0 && step - s.steps[after - 1] < s.steps[after] - step ? after - 1 : after;
  }
  read(step, pointer) {
    let best = null;
    for (const s of this.series) {
      if (s.hidden) continue;
      const found = s.steps[this.near(s, step)];
      if (best === null || Math.abs(found - step) < Math.abs(best - step)) best = found;
    }
    if (best === null) return;
    this.hover = {step: best, pointer};
    this.drawHover();
  }
  valuesAt(step) {
    const reach = (this.at.x1 - this.at.x0) / Math.max(1, this.at.right - this.at.left) * 3;
    return this.series.map((s, i) => ({s, i, at: this.near(s, step)}))
        .filter(({s, at}) => !s.hidden && Math.abs(s.steps[at] - step) <= reach);
  }
  drawHover() {
    this.front.replaceChildren();
    if (this.drag && this.drag.x !== this.drag.from) {
      const x0 = Math.min(this.drag.x, this.drag.from), x1 = Math.max(this.drag.x, this.drag.from);
      this.front.append(drawn(
          'rect', {class: 'select', x: x0, y: this.at.top, width: x1 - x0, height: this.at.bottom - this.at.top}));
    }
    if (!this.hover) return;
    const {step, pointer} = this.hover, at = this.at, x = Math.round(at.x(step)) + .5;
    this.front.append(drawn('line', {class: 'hair', x1: x, x2: x, y1: at.top, y2: at.bottom}));
    const found = this.valuesAt(step);
    for (const {s, at: i} of found) {
      if (!this.drawable(s.shown[i])) continue;
      const y = at.y(s.shown[i]);
      if (y < at.top - 2 || y > at.bottom + 2) continue;
      const dot = drawn('circle', {class: 'dot', cx: at.x(s.steps[i]), cy: y, r: 4});
      dot.style.fill = lineColour(s.colour, this.keys.length);
      this.front.append(dot);
    }
    const box = this.svg.getBoundingClientRect();
    const [px, py] = pointer || [box.left + x, box.top + at.top + 20];
    const most = 12, y = py - box.top,
          far = (each) => Math.abs((this.drawable(each.s.shown[each.at]) ? at.y(each.s.shown[each.at]) : 1e9) - y);
    const shown = found.length > most ?
        [...found].sort((a, b) => far(a) - far(b)).slice(0, most).sort((a, b) => a.i - b.i) :
        found;
    const table = element(
        'table', {},
        ...shown.map(
            ({s, at: i}) => element(
                'tr', {}, element('td', {}, this.sample(lineColour(s.colour, this.keys.length), s.dash)),
                element('td', {}, s.label),
                element(
                    'td', {}, numberText(s.values[i]),
                    s.shown !== s.values && s.shown[i] !== null ?
                        element('span', {class: 'quiet'}, ` ~${numberText(s.shown[i])}`) :
                        ''))));
    showTip(
        element(
            'div', {}, element('b', {}, `${this.axis} ${this.labelText(step)}`), table,
            found.length > shown.length ? element('div', {class: 'quiet'}, `and ${found.length - shown.length} more`) :
                                          ''),
        px, py);
  }
  leave() {
    this.hover = null, this.drag = null;
    hideTip();
    if (this.at) this.drawHover();
  }

  // The pointer.
  stepAt(event) {
    const at = this.at, x = event.clientX - this.svg.getBoundingClientRect().left;
    return at.x0 + (Math.max(at.left, Math.min(at.right, x)) - at.left) / (at.right - at.left) * (at.x1 - at.x0);
  }
  moved(event) {
    if (!this.at) return;
    if (this.drag) {
      if (this.drag.pan) {
        const shift = (this.drag.clientX - event.clientX) / (this.at.right - this.at.left) * (this.at.x1 - this.at.x0);
        this.zoomTo([this.drag.range[0] + shift, this.drag.range[1] + shift]);
        return;
      }
      this.drag.x = this.at.x(this.stepAt(event));
    }
    this.read(this.stepAt(event), [event.clientX, event.clientY]);
  }
  pressed(event) {
    if (!this.at || event.button !== 0 || event.pointerType === 'touch') return;
    this.svg.setPointerCapture(event.pointerId);
    const x = this.at.x(this.stepAt(event));
    this.drag = {
      from: x,
      x,
      step: this.stepAt(event),
      pan: event.shiftKey,
      clientX: event.clientX,
      range: this.range || this.whole
    };
  }
  released(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag || drag.pan || Math.abs(drag.x - drag.from) < 6) {
      if (this.at) this.drawHover();
      return;
    }
    const end = this.stepAt(event);
    this.zoomTo([Math.min(drag.step, end), Math.max(drag.step, end)]);
  }
  drop() { this.drag = null; }
  wheel(event) {  // does not capture scrolling unless the chart has the focus
    if (!event.ctrlKey && document.activeElement !== this.svg) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.stepAt(event));
  }
  zoom(factor, around) {
    const [x0, x1] = this.range || this.whole;
    this.zoomTo([around - (around - x0) * factor, around + (x1 - around) * factor]);
  }
  zoomTo(range) {
    const [first, last] = this.whole;
    if (range) {
      const width = Math.max(Math.min(4, last - first), range[1] - range[0]);
      let x0 = (range[0] + range[1] - width) / 2;
      x0 = Math.max(first, Math.min(x0, last - width));
      range = width >= last - first ? null : [x0, x0 + width];
    }
    this.range = range;
    this.allButton.hidden = !range;
    this.redraw();
  }
  toggleLog() {
    this.log = !this.log;
    this.logButton.setAttribute('aria-pressed', String(this.log));
    say(this.log ? 'logarithmic scale' : 'linear scale');
    this.redraw();
  }

  // Keys.
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.at) return;
    const s = this.series[this.active], now = this.hover ? this.near(s, this.hover.step) : -1;
    const middle = this.hover ? this.hover.step : (this.at.x0 + this.at.x1) / 2, stride = event.shiftKey ? 10 : 1;
    const go = (index) => this.speak(Math.max(0, Math.min(s.steps.length - 1, index)));
    const actions = {
      ArrowRight: () => go(this.hover ? now + stride : firstAtLeast(s.steps, this.at.x0)),
      ArrowLeft: () => go(this.hover ? now - stride : firstAtLeast(s.steps, this.at.x1)),
      Home: () => go(0),
      End: () => go(s.steps.length - 1),
      ArrowDown: () => this.change(1, middle),
      ArrowUp: () => this.change(-1, middle),
      '+': () => this.zoom(1 / 1.5, middle),
      '=': () => this.zoom(1 / 1.5, middle),
      '-': () => this.zoom(1.5, middle),
      0: () => this.zoomTo(null),
      l: () => this.toggleLog(),
      L: () => this.toggleLog(),
      Escape: () => this.leave(),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
  change(by, step) {
    const shown = this.series.map((s, i) => i).filter((i) => !this.series[i].hidden);
    if (!shown.length) return;
    this.active = shown[(shown.indexOf(this.active) + by + shown.length) % shown.length];
    this.speak(this.near(this.series[this.active], step));
  }
  speak(index) {
    const s = this.series[this.active], step = s.steps[index];
    if (this.range && (step < this.range[0] || step > this.range[1])) {
      const half = (this.range[1] - this.range[0]) / 2;
      this.zoomTo([step - half, step + half]);
      this.draw();
    }
    this.hover = {step, pointer: null};
    this.drawHover();
    say(`${s.label}, ${this.axis} ${this.labelText(step)}: ${numberText(s.values[index])}`);
  }
}

function renderCurves(section, head, body, wide) {
  const chart = new Chart(section.data, section.title, wide);
  head.append(chart.controls);
  body.append(chart.whole_element);
}

// Returns true if the slider changes any of these lines.
function anySmoothed(sections) {
  return sections.some((section) => section.data.series.some((s) => s.values.length > few && !isSmooth(s.values)));
}

// The slider sets the smoothing of all curves.
const sliders = [];
function smoothingSlider() {
  const shown = element('output'), input = element('input', {type: 'range', min: 0, max: .99, step: .01});
  const show = () => {
    input.value = smoothing, shown.textContent = smoothing.toFixed(2);
  };
  input.addEventListener('input', () => {
    smoothing = Number(input.value);
    sliders.forEach((each) => each());
    allCharts.forEach((chart) => {
      if (chart.seen) chart.redraw();
    });
  });
  sliders.push(show);
  show();
  return element(
      'label', {
        class: 'slider',
        title: 'weight of each adjacent point in an exponential mean; original values stay visible behind it; ' +
            `lines of ${few} points or fewer are not smoothed`
      },
      'smoothing', input, shown);
}
