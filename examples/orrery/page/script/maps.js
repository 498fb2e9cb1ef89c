// Heat maps: a single one, or a grid of small ones with a large view of one.

// Returns the 16-bit codes of packed_values (models/reports/report.h).
function unpacked(packed) {
  const bytes = atob(packed.base64), codes = new Uint16Array(packed.count).fill(notFinite);
  const gaps = [...packed.gaps, codes.length, 0];
  for (let gap = 0, i = 0, at = 0; gap < gaps.length; gap += 2) {
    for (; i < gaps[gap]; ++i, at += 2) codes[i] = bytes.charCodeAt(at) | bytes.charCodeAt(at + 1) << 8;
    i += gaps[gap + 1];
  }
  return {codes, low: packed.low, high: packed.high};
}
const notFinite = 65535, largestCode = 65534;
function valueAt(map, i) {
  const code = map.codes[i];
  return code === notFinite ? null : map.low + (map.high - map.low) * code / largestCode;
}

// Returns the ends of a scale: the given ones, else the smallest and largest value. A signed scale
// is symmetric around zero.
function scaleOf(maps, signed, given) {
  let low = given.low ?? Math.min(...maps.map((map) => map.low)),
      high = given.high ?? Math.max(...maps.map((map) => map.high));
  if (signed) high = Math.max(Math.abs(low), Math.abs(high)), low = -high;
  return low < high ? {low, high} : {low: low - .5, high: high + .5};
}

// Paints a map. With `roots`, colors follow the square root of the scaled value: small weights
// become visible next to large ones.
function paint(canvas, map, rows, columns, scale, colours) {
  if (canvas.width !== columns || canvas.height !== rows) canvas.width = columns, canvas.height = rows;
  const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer), {codes} = map;
  const factor = (map.high - map.low) / largestCode / (scale.high - scale.low),
        offset = (map.low - scale.low) / (scale.high - scale.low);
  for (let i = 0; i < codes.length; ++i) {
    let share = Math.max(0, Math.min(1, codes[i] * factor + offset));
    if (scale.roots) share = Math.sqrt(share);
    pixels[i] = colours[codes[i] === notFinite ? 256 : share * 255 + .5 | 0];
  }
  canvas.getContext('2d').putImageData(image, 0, 0);
}
// Returns true if over 90 % of the sampled values are in the lowest tenth of the scale.
function wantsRoots(maps, scale) {
  let low = 0, all = 0;
  for (const map of maps)
    for (let i = 0; i < map.codes.length; i += 37) {
      if (map.codes[i] === notFinite) continue;
      low += valueAt(map, i) - scale.low < .1 * (scale.high - scale.low), ++all;
    }
  return low > .9 * all;
}
// Buttons above maps; `change` redraws the maps.
function mapControls(choices, change) {
  return element('div', {class: 'controls'}, ...choices.map(({name, title, on, set}) => {
    const button = element('button', {type: 'button', title, 'aria-pressed': String(on)}, name);
    button.addEventListener('click', () => {
      on = !on;
      button.setAttribute('aria-pressed', String(on));
      set(on);
      change();
    });
    return button;
  }));
}
const rootsTitle = 'colors by the square root of values, so that small values are visible';

// A legend of the colors and marks. A scale shown before the page is painted keeps its height.
function scaleBar({signed, ramp, quantity, none, slots, spans}) {
  const canvas = element('canvas', {width: 256, height: 1, 'aria-hidden': 'true'});
  const low = element('span'), high = element('span'), name = element('span', {}, quantity), roots = element('span', {}, ', square-root scale');
  const swatch = element('canvas', {width: 1, height: 1, class: 'swatch', 'aria-hidden': 'true'});
  const line = (kind) => drawn(
      'svg', {class: 'swatch', viewBox: '0 0 14 10', 'aria-hidden': 'true'},
      ...marksOf(kind === 'span' ? 'M0,5L14,5' : 'M7,0L7,10', kind));
  const entry = (picture, text) => element('span', {class: 'key'}, picture, text);
  return {
    bar: element(
        'div', {class: 'scale'}, element('span', {class: 'ramp'}, low, canvas, high),
        element('span', {}, name, signed || ramp ? null : roots), none ? entry(swatch, none) : null,
        slots ? entry(line('slots'), 'slots to its right') : null,
        spans ? entry(line('span'), 'end of the attention span') : null),
    show(scale, minus = false) {
      const colours = mapColours(signed || minus, ramp), image = new ImageData(256, 1), grey = new ImageData(1, 1);
      new Uint32Array(image.data.buffer).set(colours.subarray(0, 256));
      canvas.getContext('2d').putImageData(image, 0, 0);
      new Uint32Array(grey.data.buffer)[0] = colours[256];
      swatch.getContext('2d').putImageData(grey, 0, 0);
      name.textContent = minus ? differenceOf(quantity) : quantity;
      low.textContent = numberText(scale.low), high.textContent = numberText(scale.high);
      roots.style.visibility = scale.roots ? '' : 'hidden';  // its place stays reserved
    }
  };
}

// A line that is visible on all colors: a dark core in a pale halo.
function marksOf(path, kind) {
  return ['halo', 'core'].map((layer) => drawn('path', {class: `${layer} ${kind}`, d: path}));
}
// Ends of attention spans: left, and right if rows attend to later columns.
function spanPath(reach, rows, keys, both) {
  let left = '', right = '';
  for (let row = 0; row < rows; ++row) {
    const far = typeof reach === 'number' ? reach : reach[row], from = row - far, to = row + 1 + far;
    if (far !== null && from > 0) left += `${left ? 'L' : 'M'}${from},${row}L${from},${row + 1}`;
    if (far !== null && both && to < keys) right += `${right ? 'L' : 'M'}${to},${row}L${to},${row + 1}`;
  }
  return left + right;
}

// Returns names of positions: the token, with its position if the token occurs several times.
function placeNames(words) {
  const times = new Map();
  for (const word of words) times.set(word, (times.get(word) || 0) + 1);
  return words.map((word, i) => (times.get(word) > 1 ? `${word} at ${i}` : word));
}

// Returns a sentence instead of maps whose values are all the same; '' if they are not.
function solidText(packs, {quantity, none}) {
  const low = Math.min(...packs.map((each) => each.low)), high = Math.max(...packs.map((each) => each.high));
  if (high - low > 1e-5 * Math.max(Math.abs(low), Math.abs(high))) return '';
  const codes = packs.flatMap((each) => [...unpacked(each).codes]),
        known = codes.filter((code) => code !== notFinite).length;
  const same = `${quantity}: ${numberText(Number(high.toPrecision(5)))} in every cell`;
  return known === 0 ? `${quantity}: ${none || 'no value'} in every cell.` :
                       same + (known < codes.length ? ` with a value; the others: ${none}.` : '.');
}

const letter = (label) => (label === '\\n' ? '↵' : String(label));

// A map with labels; pointer or keys read values.
class MapView {
  constructor(data, title, run) {
    const {rows, columns, quantity, slots, axes} = data;
    Object.assign(this, {rows, columns, quantity, title, run, keys: columns.length - (slots || 0), at: null, seen: false});
    this.none = data.none || 'no value', this.marked = data.marked || [];
    this.rowNames = placeNames(rows), this.columnNames = placeNames(columns);
    const [down, across] = axes || ['', ''];
    this.canvas = element('canvas', {
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'heat map',
      'aria-label': `${title}, ${rows.length} rows and ${columns.length} columns. Arrow keys read values.`,
    });
    this.cell = element('div', {class: 'cell', hidden: true});
    this.marks = drawn('svg', {
      class: 'marks',
      viewBox: `0 0 ${columns.length} ${rows.length}`,
      preserveAspectRatio: 'none',
      'aria-hidden': 'true',
    });
    this.field = element('div', {class: 'field'}, this.canvas, this.marks, this.cell);
    this.left = element('div', {class: 'row-labels'});
    this.below = element('div', {class: 'column-labels', 'aria-hidden': 'true'});
    this.columnLabels = columns.map((text, i) => (i < this.keys ? letter(text) : `s${i - this.keys}`));
    this.rowLabels = rows.map(letter);
    this.widest = Math.max(...this.columnLabels.map((text) => text.length));
    this.turned = this.widest > 4 && columns.length <= 64;
    this.labelWidth = this.widest === 1 ? 9 : 7 * this.widest + 5;
    this.below.classList.toggle('turned', this.turned);
    if (this.turned) this.below.style.height = Math.min(76, 16 + 5.7 * this.widest) + 'px';
    const width = element('div', {class: 'width'});
    this.element = element(
        'div', {class: 'map'}, width, down ? element('div', {class: 'row-axis'}, element('span', {}, down)) : null,
        this.left, this.field, this.below, across ? element('div', {class: 'column-axis'}, across) : null);
    this.taken = down ? 22 : 0;  // width of the name of the rows
    this.canvas.addEventListener('pointermove', (event) => this.moved(event));
    this.canvas.addEventListener('pointerleave', () => this.leave());
    this.canvas.addEventListener('blur', () => this.leave());
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.bands = ['row', 'column'].map((name) => element('div', {class: `band ${name}`, hidden: true}));
    this.field.append(...this.bands);
    const asRows = (at) => this.band(0, at && at.query, rows.length), keys = columns.slice(0, this.keys),
          asColumns = (at) => this.band(1, at && at.key, columns.length);
    if (JSON.stringify(rows) === JSON.stringify(keys))
      this.point = [joined(rows, (at) => (asRows(at), asColumns(at)))];
    else
      this.point = [joined(rows, asRows), joined(keys, asColumns)];
    whenSized(width, () => this.layOut(width.clientWidth));
    whenSeen(this.field, () => {
      this.seen = true;
      this.label();
    }, () => {});
  }
  // Marks a row or column that another view points at.
  band(which, at, count) {
    const band = this.bands[which], [from, size] = which ? ['left', 'width'] : ['top', 'height'];
    band.hidden = at === null;
    if (at !== null) band.style[from] = 100 * at / count + '%', band.style[size] = 100 / count + '%';
  }
  weightsOf(row) {
    return Array.from({length: this.keys}, (x, k) => this.map && valueAt(this.map, row * this.columns.length + k));
  }
  // Points at this cell in the other views of the example.
  tell(row, column) {
    const key = column < this.keys ? column : null;
    const weights = row === null ? null : this.weightsOf(row);
    const [first, second] = this.point;
    first(row === null ? null : {query: row, key: second ? null : key, weights: second ? null : weights});
    if (second) second(row === null ? null : {query: null, key, weights});
  }
  show(map, scale, colours, quantity, title) {
    this.map = map, this.quantity = quantity;
    if (title) this.title = title;
    paint(this.canvas, map, this.rows.length, this.columns.length, scale, colours);
    const n = this.columns.length, rows = this.rows.length, both = n > 1 && map.codes[1] !== notFinite;
    this.marks.replaceChildren(
        ...(this.keys < n ? marksOf(`M${this.keys},0L${this.keys},${rows}`, 'slots') : []),
        ...(map.span === undefined ? [] : marksOf(spanPath(map.span, rows, this.keys, both), 'span')));
  }
  // Sets sizes before drawing. Cells are square; with few rows, at least as high as a label.
  layOut(width) {
    const gap = 8, n = this.columns.length, rows = this.rows.length;
    const longest = Math.max(...this.rowLabels.map((text) => text.length));
    // Where two or three columns or rows of labels are enough for all of them, they have so many.
    this.staggers = longest <= 3 && rows > 16 && rows <= 128;
    const names =
        this.staggers ? 3 * (7 * longest + 4) : Math.min(Math.max(60, Math.min(240, .42 * width)), 8 + 6.6 * longest);
    const room = width - names - gap - this.taken;
    const side = Math.max(2, Math.min(34, Math.floor(Math.min(room, 620) / n)));
    const across = Math.min(room, n * side), high = Math.max(across / n, rows <= 32 ? 16 : 0);
    this.names = names;
    const levels = Math.ceil(this.labelWidth / (across / n));
    this.levels = this.turned || levels > 3 ? 1 : levels;
    if (!this.turned) this.below.style.height = 6 + 14 * this.levels + 'px';
    this.left.style.width = names + 'px';
    this.field.style.width = this.below.style.width = across + 'px';
    this.canvas.style.height = rows * high + 'px';
    if (this.seen) this.label();
  }
  label() {
    const box = this.field.getBoundingClientRect(), rows = this.rows.length, columns = this.columns.length;
    const every = (count, size, room) => Math.max(1, Math.ceil(room / (size / count)));
    const columnsOfRows = every(rows, box.height, 15), levels = this.staggers && columnsOfRows <= 3 ? columnsOfRows : 1;
    const down = every(rows, box.height, 15 / levels),
          across = every(columns, box.width, this.turned ? 16 : this.labelWidth / this.levels);
    this.left.replaceChildren(
        ...this.rowLabels.map((text, i) => [text, i]).filter(([, i]) => i % down === 0).map(([text, i]) => {
          const [id] = box.height / rows >= 24 ? componentsIn(this.rows[i], this.run) : [];
          const short = fitted(text, this.names),
                label = id ? componentLink(id, short) : element('span', {'aria-hidden': 'true'}, short);
          label.style.top = 100 * (i + .5) / rows + '%';
          label.style.right = this.names / levels * (i / down % levels) + 'px';
          return label;
        }));
    // A marked column keeps its label; labels that overlap it are dropped.
    const marked = (i) => this.marked.includes(i), crowded = (i) => this.marked.some((m) => Math.abs(m - i) < across),
          labelled = (i) => marked(i) || (i % across === 0 && !crowded(i));
    this.below.replaceChildren(
        ...this.columnLabels.map((text, i) => [text, i]).filter(([, i]) => labelled(i)).map(([text, i]) => {
          const label = element('span', {}, text);
          label.style.left = 100 * (i + .5) / columns + '%';
          label.style.top = marked(i) ? 0 : 14 * (i / across % this.levels) + 'px';
          return label;
        }));
  }
  moved(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = (from, size, count) => Math.max(0, Math.min(count - 1, Math.floor((from / size) * count)));
    this.read(
        at(event.clientY - box.top, box.height, this.rows.length),
        at(event.clientX - box.left, box.width, this.columns.length), [event.clientX, event.clientY]);
  }
  read(row, column, pointer) {
    if (!this.map) return;
    const n = this.columns.length, value = valueAt(this.map, row * n + column);
    let rank = 1, ranked = 0;
    for (let k = 0; k < n; ++k) {
      const code = this.map.codes[row * n + k];
      if (code === notFinite) continue;
      ++ranked;
      if (code > this.map.codes[row * n + column]) ++rank;
    }
    this.at = [row, column];
    this.tell(row, column);
    this.cell.hidden = false;
    Object.assign(this.cell.style, {
      left: 100 * column / n + '%',
      top: 100 * row / this.rows.length + '%',
      width: 100 / n + '%',
      height: 100 / this.rows.length + '%'
    });
    const number = value === null ? this.none : numberText(value),
          place = `row ${this.rowNames[row]}, column ${this.columnNames[column]}`,
          rankText = value === null ? '' : `rank ${rank} of ${ranked} in its row`;
    const box = this.cell.getBoundingClientRect();
    showTip(
        element(
            'div', {}, element('b', {}, value === null ? number : `${this.quantity} ${number}`),
            element('div', {}, place), element('div', {class: 'quiet'}, rankText)),
        ...(pointer || [box.right, box.bottom]));
    if (!pointer) say(`${place}: ${number}${rankText ? ', ' + rankText : ''}`);
  }
  leave() {
    this.cell.hidden = true, this.at = null;
    this.tell(null, null);
    hideTip();
  }
  key(event) { readByKeys(event, this, this.rows.length, this.columns.length); }
}

// Arrow keys read the next cell of a view, with shift ten cells farther; the first one reads its first cell.
function readByKeys(event, view, rows, columns, first = 0) {
  const moves = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}, move = moves[event.key];
  if (event.key === 'Escape') view.leave();
  if (!move) return;
  event.preventDefault();
  const stride = event.shiftKey ? 10 : 1, [row, column] = view.at || [-move[0], first - move[1]];
  const clamp = (x, n) => Math.max(0, Math.min(n - 1, x));
  view.read(clamp(row + move[0] * stride, rows), clamp(column + move[1] * stride, columns), null);
}

const redrawMaps = [];  // redraw functions of all maps, for theme changes

// What the same view of several runs has in common: the chosen map and the colors. A section alone has its own.
const viewStates = new Map();
function stateOf(section) {
  const name = section.view ? `${section.group}: ${section.view}` : section;
  if (!viewStates.has(name)) viewStates.set(name, {chosen: null, own: false, roots: null, members: []});
  return viewStates.get(name);
}

// Gives the views of several runs the same ends of their scales and axes.
function shareScales(sections) {
  const groups = new Map();
  for (const section of sections.filter((each) => each.view)) {
    const name = `${section.kind} ${section.group}: ${section.view}`;
    groups.set(name, [...(groups.get(name) || []), section.data]);
  }
  const ends = (values) => [Math.min(...values), Math.max(...values)], known = (x) => x !== null && x !== undefined;
  for (const [name, all] of groups) {
    if (/^matri/.test(name)) {
      const signed = all.some((data) => data.signed);
      const each = all.map((data) => scaleOf(
          (data.maps || [data]).map((map) => map.values), signed, data)).flatMap(({low, high}) => [low, high]);
      const [low, high] = ends(each);
      all.forEach((data) => Object.assign(data, {signed, low, high}));
    }
    if (/^tokens/.test(name)) all.forEach((data) => {
      data.high = Math.max(0, ...all.map((each) => (each.values ? each.values.high : 0)));
    });
    const values = /^bars/.test(name) ? all.flatMap(({rows}) => rows.flatMap((row) => [row.value, row.low, row.high])) :
        /^curves/.test(name)          ? all.flatMap(({series}) => series.flatMap((line) => line.values)) :
                                        [];
    const steps = /^curves/.test(name) ? all.flatMap(({series}) => series.flatMap((line) => line.steps)) : [];
    all.forEach((data) => Object.assign(
        data, values.some(known) && {shared: ends(values.filter(known))}, steps.length && {whole: ends(steps)}));
  }
}

const differenceOf = (quantity) => `difference of ${quantity} from the first run`;
// Returns the map of b - a.
function difference(a, b) {
  const values = [...b.codes].map((code, i) => {
    const x = valueAt(a, i), y = valueAt(b, i);
    return x === null || y === null ? null : y - x;
  });
  const finite = values.filter((x) => x !== null), low = Math.min(0, ...finite), high = Math.max(0, ...finite);
  const codes = values.map((x) => (x === null ? notFinite : Math.round((x - low) / (high - low || 1) * largestCode)));
  return {codes: Uint16Array.from(codes), low, high};
}

// The maps of a section, the colors that it shares with other runs, and its difference from the first run.
class MapSet {
  constructor(section, draw) {
    const {data} = section, packed = data.maps || [data];
    Object.assign(this, {packed, draw, of: data.quantity, signed: data.signed, minus: false, state: stateOf(section)});
    this.maps = new Array(packed.length), this.state.members.push(this);
    this.first = this.state.members[0];
    this.names = JSON.stringify([data.rows, data.columns, packed.map((x) => x.name)]);
    this.common = scaleOf(packed.map((each) => each.values), data.signed, data);
    this.colour();
  }
  unpack(i) { this.maps[i] = {...unpacked(this.packed[i].values), span: this.packed[i].span}; }
  at(i) { return (this.minus ? this.differences : this.maps)[i]; }
  get quantity() { return this.minus ? differenceOf(this.of) : this.of; }
  colour() { this.colours = mapColours(this.signed || this.minus); }
  scale(i) {
    const {own, roots} = this.state, signed = this.signed || this.minus, map = this.at(i);
    if (own && map) return {...scaleOf([map], signed, {}), roots: roots && !signed};
    if (this.minus) return scaleOf(this.differences, true, {});
    return {...this.common, roots: roots && !signed};
  }
  // The first run's buttons are for the colors of all runs, those of another for its difference from the first.
  controls() {
    const choices = [], all = () => this.state.members.forEach((each) => each.draw());
    if (this.first !== this)
      return this.names !== this.first.names ? null : mapControls(
          [{
            name: 'difference',
            title: 'values minus those of the first run',
            on: false,
            set: (on) => {
              this.minus = on;
              this.differences ||=
                  this.maps.map((map, i) => ({...difference(this.first.maps[i], map), span: map.span}));
            }
          }],
          () => this.draw());
    if (this.packed.length > 1)
      choices.push({
        name: 'own scales',
        title: 'scale each map to its own smallest and largest value',
        on: false,
        set: (on) => {
          this.state.own = on;
        }
      });
    if (!this.signed)
      choices.push({
        name: 'square root',
        title: rootsTitle,
        on: this.state.roots,
        set: (on) => {
          this.state.roots = on;
        }
      });
    return mapControls(choices, all);
  }
}

function renderMatrix(section, head, body) {
  const solid = solidText([section.data.values], section.data);
  if (solid) return body.append(element('p', {class: 'solid'}, solid));
  const view = new MapView(section.data, section.title, section.run), bar = scaleBar(section.data);
  const draw = () => {
    set.colour();
    view.show(set.at(0), set.scale(0), set.colours, set.quantity), bar.show(set.scale(0), set.minus);
  };
  const set = new MapSet(section, draw);
  set.unpack(0);
  if (set.first === set) set.state.roots = !set.signed && wantsRoots(set.maps, set.common);
  const controls = set.controls();
  if (controls) head.append(controls);
  body.append(view.element, bar.bar, ...examplesOf(view, view.rows, section.data.columns.slice(0, view.keys)));
  bar.show(set.scale(0));
  redrawMaps.push(draw);
  inPieces(draw);
}

function renderMatrices(section, head, body) {
  const {rows, columns, down, across, shape: [R, C]} = section.data, packed = section.data.maps;
  const solid = solidText(packed.map((map) => map.values), section.data);
  if (solid) return body.append(element('p', {class: 'solid'}, solid));
  const caption = element('h3'), view = new MapView(section.data, section.title, section.run),
        bar = scaleBar(section.data), link = head.querySelector('.link');
  let chosen = 0;
  const thumbs =
      element('div', {class: 'thumbs', role: 'radiogroup', 'aria-label': `${section.title}: ${down} and ${across}`});
  thumbs.style.gridTemplateColumns = `max-content repeat(${C}, minmax(24px, 1fr))`;
  thumbs.append(element('span', {class: 'axis'}, ''));
  for (let c = 0; c < C; ++c) thumbs.append(element('span', {class: 'axis'}, `${across} ${c}`));
  const choose = (i) => {
    chosen = i;
    link.href = '#' + section.id + (i ? ':' + i : '');
    buttons.forEach((button, k) => {
      button.setAttribute('aria-checked', String(k === i));
      button.tabIndex = k === i ? 0 : -1;
    });
    caption.replaceChildren(componentText(packed[i].name, section.run));
    if (!set.maps[i]) return;
    view.show(set.at(i), set.scale(i), set.colours, set.quantity, packed[i].name);
    bar.show(set.scale(i), set.minus);
  };
  const chooseAll = (i) => set.state.members.forEach((each) => each.packed[i] && each.choose(i));
  const buttons = packed.map(
      (map, i) => element(
          'button', {
            type: 'button',
            role: 'radio',
            'aria-checked': 'false',
            'aria-label': map.name,
            tabindex: -1,
            onclick: () => chooseAll(i),
          },
          element('canvas', {width: 1, height: 1})));
  buttons.forEach((button, i) => {
    if (i % C === 0) thumbs.append(element('span', {class: 'axis'}, `${down} ${i / C}`));
    thumbs.append(button);
  });
  thumbs.addEventListener('keydown', (event) => {
    const move = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: C, ArrowUp: -C}[event.key];
    const next = chosen + move;
    if (!move || next < 0 || next >= R * C) return;
    event.preventDefault();
    chooseAll(next);
    buttons[next].focus();
  });
  const left = element(
      'div', {}, element('div', {class: 'scroll'}, thumbs), ...examplesOf(view, rows, columns.slice(0, view.keys)));
  body.append(element(
      'div', {class: 'atlas'}, left,
      element('div', {}, element('div', {class: 'head'}, caption), view.element, bar.bar)));
  const draw = () => {
    set.colour();
    buttons.forEach(
        (button, i) => inPieces(
            () => paint(button.firstChild, set.at(i), rows.length, columns.length, set.scale(i), set.colours)));
    inPieces(() => choose(chosen));
  };
  // All that has a size is there before the page is painted; values are unpacked later.
  const set = new MapSet(section, draw), controls = set.controls(), roots = controls && controls.lastChild;
  set.choose = choose;
  if (controls) head.append(controls);
  const follow = () => {
    const {id, map} = addressed();
    if (id === section.id && packed[map]) chooseAll(map);
  };
  choose(chosen);
  follow();
  addEventListener('hashchange', follow);
  bar.show(set.scale(chosen));
  packed.forEach((each, i) => inPieces(() => set.unpack(i)));
  inPieces(() => {
    if (set.first === set && !set.signed && wantsRoots(set.maps, set.common))
      roots.click();
    else
      draw();
    redrawMaps.push(draw);
  });
}
