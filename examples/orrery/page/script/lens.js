// The top prediction after each sublayer: the word in the cell, the color its probability.

// Returns a label that fits into this width: a path loses its first components.
function fitted(label, width) {
  let short = String(label);
  const fits = () => 8 + 6.6 * short.length <= width;
  while (!fits() && /^[^.]+\.[^.]+\./.test(short)) short = short.replace(/^[^.]+\./, '');
  return short;
}

class LensView {
  constructor(data, title, run) {
    Object.assign(
        this, data, {title, run, from: 0, shown: 1, at: null, byTarget: false, columnNames: placeNames(data.columns)});
    for (const name of ['probability', 'log_probability', 'rank']) this[name] = unpacked(data[name]);
    this.hasTargets = data.targets.some((target) => target);
    this.grid = element('div', {
      class: 'cells',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'map of words',
      'aria-label': `${title}, ${this.rows.length} rows and ${this.columns.length} positions. Arrow keys read cells.`,
    });
    const turn = (by) => this.turn(this.from + by * this.shown);
    this.place = element('span');
    this.back = element('button', {type: 'button', class: 'plain', onclick: () => turn(-1)}, 'previous');
    this.on = element('button', {type: 'button', class: 'plain', onclick: () => turn(1)}, 'next');
    this.pages = element('div', {class: 'pages'}, this.back, this.on, this.place);
    const width = element('div', {class: 'width'});
    this.element = element('div', {class: 'lens'}, width, this.grid, this.pages);
    this.point = joined(this.columns, (at) => this.pointed(at));
    this.grid.addEventListener('pointermove', (event) => {
      const cell = event.target.closest('[data-column]');
      if (cell) this.read(Number(cell.dataset.row), Number(cell.dataset.column), [event.clientX, event.clientY]);
    });
    this.grid.addEventListener('pointerleave', () => this.leave());
    this.grid.addEventListener('blur', () => this.leave());
    this.grid.addEventListener('keydown', (event) => this.key(event));
    whenSized(width, () => this.layOut(width.clientWidth));
  }
  layOut(width) {
    const longest = Math.max(...this.rows.map((name) => name.length), 6);
    this.names = Math.min(Math.max(60, Math.min(240, .42 * width)), 8 + 6.6 * longest);
    const letters = Math.max(...[...this.words, ...this.columns].map((word) => word.length));
    const least = Math.min(76, Math.max(26, 8 + 7.2 * letters));
    this.shown = Math.max(1, Math.min(this.columns.length, Math.floor((width - this.names) / least)));
    this.side = Math.min(least * 1.5, (width - this.names) / this.shown);
    this.turn(this.from);
  }
  turn(from) {
    const n = this.columns.length;
    this.from = Math.max(0, Math.min(n - this.shown, from));
    this.place.textContent = `positions ${this.from} to ${this.from + this.shown - 1} of ${n}`;
    this.back.disabled = this.from === 0, this.on.disabled = this.from + this.shown >= n;
    this.pages.hidden = this.shown >= n;
    this.draw();
  }
  // Probability whose color a cell has.
  share(i) {
    return this.byTarget ? Math.exp(valueAt(this.log_probability, i) ?? -Infinity) : valueAt(this.probability, i);
  }
  draw() {  // the texts of this window
    const n = this.columns.length, positions = Array.from({length: this.shown}, (x, i) => this.from + i);
    const name = (text, title) => element('span', {class: 'name', title: text === title ? false : title}, text);
    const linked = (row) => {
      const [id] = componentsIn(row, this.run), text = fitted(row, this.names);
      return name(id ? componentLink(id, text) : text, text === row ? text : row);
    };
    const head = (text) => element('span', {class: 'word label'}, letter(text));
    const cells = [name('', ''), ...positions.map((column) => head(this.columns[column]))];
    this.rows.forEach((row, r) => {
      cells.push(linked(row));
      for (const column of positions) {
        const i = r * n + column, word = this.words[this.word[i]], rank = valueAt(this.rank, i);
        const text = this.byTarget ? (rank === null ? '' : numberText(Math.round(rank))) : word;
        const cell = element('span', {class: 'word', 'data-row': r, 'data-column': column}, letter(text));
        cell.classList.toggle('hit', this.hasTargets && word === this.targets[column]);
        Object.assign(cell.style, shaded(this.share(i), 'share'));
        cells.push(cell);
      }
    });
    if (this.hasTargets)
      cells.push(name(this.target.replace(/^the /, ''), ''), ...positions.map((column) => head(this.targets[column])));
    this.grid.style.gridTemplateColumns = `${this.names}px repeat(${this.shown}, ${this.side}px)`;
    this.grid.replaceChildren(...cells);
  }
  mark(row, column) {
    this.grid.querySelectorAll('.at').forEach((cell) => cell.classList.remove('at'));
    if (column !== null)
      this.grid.querySelectorAll(`[data-column="${column}"]${row === null ? '' : `[data-row="${row}"]`}`)
          .forEach((cell) => cell.classList.add('at'));
  }
  see(column) {
    if (column < this.from || column >= this.from + this.shown) this.turn(column - (column % this.shown));
  }
  pointed(at) {
    const column = at && (at.query ?? at.key);
    if (column !== null) this.see(column);
    this.mark(null, column);
  }
  read(row, column, pointer) {
    this.see(column);
    this.at = [row, column];
    this.mark(row, column);
    this.point({query: column, key: column});
    const i = row * this.columns.length + column, word = this.words[this.word[i]],
          log_p = valueAt(this.log_probability, i);
    const p = numberText(Number(valueAt(this.probability, i).toPrecision(3)));
    const place = `after ${this.rows[row]}, position ${this.columnNames[column]}`;
    const target = log_p === null ?
        '' :
        `${this.target} ‘${this.targets[column]}’: p ${numberText(Number(Math.exp(log_p).toPrecision(3)))}, ` +
            `rank ${numberText(Math.round(valueAt(this.rank, i)))}`;
    const box = this.grid.querySelector('.at').getBoundingClientRect();
    showTip(
        element(
            'div', {}, element('b', {}, `‘${word}’ p ${p}`), element('div', {}, place),
            element('div', {class: 'quiet'}, target)),
        ...(pointer || [box.right, box.bottom]));
    if (!pointer) say(`${place}: ‘${word}’, p ${p}${target ? '; ' + target : ''}`);
  }
  leave() {
    this.at = null;
    this.mark(null, null);
    this.point(null);
    hideTip();
  }
  key(event) { readByKeys(event, this, this.rows.length, this.columns.length, this.from); }
}

function renderLens(section, head, body) {
  const view = new LensView(section.data, section.title, section.run), bar = scaleBar({ramp: 'share', quantity: 'probability'});
  const draw = () => {
    if (view.names) view.draw();
    bar.show({low: 0, high: 1});
  };
  if (view.hasTargets) {
    head.append(mapControls(
        [{
          name: 'target',
          title: `rank and probability of ${view.target} in place of the top prediction`,
          on: false,
          set: (on) => {
            view.byTarget = on;
          }
        }],
        draw));
    bar.bar.append(element('span', {class: 'key'}, element('span', {class: 'word hit'}, 'a'), `${view.target}`));
  }
  body.append(view.element, bar.bar);
  bar.show({low: 0, high: 1});
  redrawMaps.push(draw);
}
