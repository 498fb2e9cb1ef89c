// Heat maps: one, or a grid of small ones of which one is shown large.

// The numbers of packed_values (models/study/report.h) as they lie there: 16 bits each.
function unpacked(packed) {
  const bytes = atob(packed.base64), codes = new Uint16Array(packed.count);
  for (let i = 0; i < codes.length; ++i) codes[i] = bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8;
  return {codes, low: packed.low, high: packed.high};
}
const notFinite = 65535, largestCode = 65534;
function valueAt(map, i) {
  const code = map.codes[i];
  return code === notFinite ? null : map.low + (map.high - map.low) * code / largestCode;
}

// The ends of a scale: of a signed one as far below zero as above.
function scaleOf(maps, signed) {
  let low = Math.min(...maps.map((map) => map.low)), high = Math.max(...maps.map((map) => map.high));
  if (signed) high = Math.max(Math.abs(low), Math.abs(high)), low = -high;
  return low < high ? {low, high} : {low: low - .5, high: high + .5};
}

// With roots the colour goes by the square root of the share of the scale: small weights become visible beside
// large ones.
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
// Whether nearly all values lie in the lowest tenth of the scale.
function wantsRoots(maps, scale) {
  let low = 0, all = 0;
  for (const map of maps)
    for (let i = 0; i < map.codes.length; i += 37, ++all)
      low += valueAt(map, i) - scale.low < .1 * (scale.high - scale.low);
  return low > .9 * all;
}
// Buttons above maps; `change` draws them again.
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
const rootsTitle = 'colours by the square root, so that small values show';

function scaleBar(signed) {
  const canvas = element('canvas', {width: 256, height: 1, 'aria-hidden': 'true'});
  const low = element('span'), high = element('span'), bar = element('div', {class: 'scale'}, low, canvas, high);
  return {
    bar,
    show(scale, figure) {
      const image = new ImageData(256, 1);
      new Uint32Array(image.data.buffer).set(mapColours(signed).subarray(0, 256));
      canvas.getContext('2d').putImageData(image, 0, 0);
      low.textContent = numberText(scale.low),
      high.textContent = `${numberText(scale.high)}  ${figure}${scale.roots ? ', by roots' : ''}`;
    }
  };
}

// One map with labels, read with the pointer or with keys.
class MapView {
  constructor(rows, columns, figure, title) {
    Object.assign(this, {rows, columns, figure, title, at: null});
    this.canvas = element('canvas', {
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'heat map',
      'aria-label': `${title}, ${rows.length} rows and ${columns.length} columns. Arrow keys read values.`,
    });
    this.cell = element('div', {class: 'cell', hidden: true});
    this.field = element('div', {class: 'field'}, this.canvas, this.cell);
    this.left = element('div', {class: 'row-labels', 'aria-hidden': 'true'});
    this.below = element('div', {class: 'column-labels', 'aria-hidden': 'true'});
    this.element = element('div', {class: 'map'}, this.left, this.field, this.below);
    this.canvas.addEventListener('pointermove', (event) => this.moved(event));
    this.canvas.addEventListener('pointerleave', () => this.leave());
    this.canvas.addEventListener('blur', () => this.leave());
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    whenSeen(this.field, () => this.layOut(), () => this.label());
  }
  show(map, scale, colours, title) {
    this.map = map;
    if (title) this.title = title;
    paint(this.canvas, map, this.rows.length, this.columns.length, scale, colours);
  }
  layOut() {
    const names = Math.min(120, 8 + 7 * Math.max(...this.rows.map((text) => String(text).length)));
    this.left.style.width = names + 'px';
    const gap = 8, room = this.element.parentElement.clientWidth - names - gap, n = this.columns.length;
    const side = Math.max(2, Math.min(34, Math.floor(Math.min(room, 620) / n)));
    this.field.style.width = Math.min(room, n * side) + 'px';
    this.canvas.style.aspectRatio = `${n} / ${this.rows.length}`;
    this.label();
  }
  label() {
    const box = this.field.getBoundingClientRect(), rows = this.rows.length, columns = this.columns.length;
    const every = (count, size, room) => Math.max(1, Math.ceil(room / (size / count)));
    const down = every(rows, box.height, 15), widest = Math.max(...this.columns.map((text) => String(text).length));
    const turned = widest > 4 && columns <= 64;
    const across = every(columns, box.width, turned ? 16 : 8 * Math.max(2, widest) + 8);
    this.left.replaceChildren(
        ...this.rows.map((text, i) => [text, i]).filter(([, i]) => i % down === 0).map(([text, i]) => {
          const label = element('span', {}, String(text));
          label.style.top = 100 * (i + .5) / rows + '%';
          return label;
        }));
    this.below.classList.toggle('turned', turned);
    this.below.replaceChildren(
        ...this.columns.map((text, i) => [text, i]).filter(([, i]) => i % across === 0).map(([text, i]) => {
          const label = element('span', {}, String(text));
          label.style.left = 100 * (i + .5) / columns + '%';
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
    let rank = 1;
    for (let k = 0; k < n; ++k) {
      const code = this.map.codes[row * n + k];
      if (code !== notFinite && code > this.map.codes[row * n + column]) ++rank;
    }
    this.at = [row, column];
    this.cell.hidden = false;
    Object.assign(this.cell.style, {
      left: 100 * column / n + '%',
      top: 100 * row / this.rows.length + '%',
      width: 100 / n + '%',
      height: 100 / this.rows.length + '%'
    });
    const ranked = value === null ? '' : `rank ${rank} of ${n} in its row`;
    const box = this.cell.getBoundingClientRect();
    showTip(
        element(
            'div', {}, element('b', {}, `${this.figure} ${numberText(value)}`),
            element('div', {}, `row ${this.rows[row]}, column ${this.columns[column]}`),
            element('div', {class: 'quiet'}, ranked)),
        ...(pointer || [box.right, box.bottom]));
    if (!pointer) say(`row ${this.rows[row]}, column ${this.columns[column]}: ${numberText(value)}, ${ranked}`);
  }
  leave() {
    this.cell.hidden = true, this.at = null;
    hideTip();
  }
  key(event) {
    const moves = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]},
          move = moves[event.key];
    if (event.key === 'Escape') this.leave();
    if (!move) return;
    event.preventDefault();
    const stride = event.shiftKey ? 10 : 1, [row, column] = this.at || [-move[0], -move[1]];
    const clamp = (x, n) => Math.max(0, Math.min(n - 1, x));
    this.read(
        clamp(row + move[0] * stride, this.rows.length), clamp(column + move[1] * stride, this.columns.length), null);
  }
}

const redrawMaps = [];  // of all maps, when the theme changes

function renderMatrix(section, head, body) {
  const {rows, columns, signed, figure} = section.data, map = unpacked(section.data.values),
                                scale = scaleOf([map], signed);
  scale.roots = !signed && wantsRoots([map], scale);
  const view = new MapView(rows, columns, figure, section.title), bar = scaleBar(signed);
  const draw = () => {
    view.show(map, scale, mapColours(signed)), bar.show(scale, figure);
  };
  if (!signed)
    head.append(mapControls(
        [{
          name: 'roots',
          title: rootsTitle,
          on: scale.roots,
          set: (on) => {
            scale.roots = on;
          }
        }],
        draw));
  body.append(view.element, bar.bar);
  redrawMaps.push(draw);
  inPieces(draw);
}

function renderMatrices(section, head, body) {
  const {rows, columns, signed, figure, down, across, shape: [R, C]} = section.data, packed = section.data.maps;
  const maps = new Array(packed.length), bar = scaleBar(signed);
  const caption = element('h3'), view = new MapView(rows, columns, figure, section.title);
  let chosen = 0, common = null, colours = mapColours(signed), own = false, roots = null;
  const scaleAt = (i) => ({...(own ? scaleOf([maps[i]], signed) : common), roots});
  const thumbs =
      element('div', {class: 'thumbs', role: 'radiogroup', 'aria-label': `${section.title}: ${down} and ${across}`});
  thumbs.style.gridTemplateColumns = `max-content repeat(${C}, minmax(0, 1fr))`;
  thumbs.append(element('span', {class: 'axis'}, ''));
  for (let c = 0; c < C; ++c) thumbs.append(element('span', {class: 'axis'}, `${across} ${c}`));
  const choose = (i) => {
    chosen = i;
    buttons.forEach((button, k) => {
      button.setAttribute('aria-checked', String(k === i));
      button.tabIndex = k === i ? 0 : -1;
    });
    caption.textContent = packed[i].name;
    if (!common) return;
    view.show(maps[i], scaleAt(i), colours, packed[i].name);
    bar.show(scaleAt(i), figure);
  };
  const buttons = packed.map(
      (map, i) => element(
          'button', {
            type: 'button',
            role: 'radio',
            'aria-checked': 'false',
            'aria-label': map.name,
            tabindex: -1,
            onclick: () => choose(i),
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
    choose(next);
    buttons[next].focus();
  });
  body.append(element(
      'div', {class: 'atlas'}, element('div', {}, thumbs),
      element('div', {}, element('div', {class: 'head'}, caption), view.element, bar.bar)));
  const draw = () => {
    colours = mapColours(signed);
    buttons.forEach(
        (button, i) =>
            inPieces(() => paint(button.firstChild, maps[i], rows.length, columns.length, scaleAt(i), colours)));
    inPieces(() => choose(chosen));
  };
  packed.forEach((each, i) => inPieces(() => {
                   maps[i] = unpacked(each.values);
                 }));
  inPieces(() => {
    common = scaleOf(maps, signed);
    roots = !signed && wantsRoots(maps, common);
    const choices = [{
      name: 'own scales',
      title: 'each map by its own least and largest value',
      on: false,
      set: (on) => {
        own = on;
      }
    }];
    if (!signed)
      choices.push({
        name: 'roots',
        title: rootsTitle,
        on: roots,
        set: (on) => {
          roots = on;
        }
      });
    head.append(mapControls(choices, draw));
    draw();
    redrawMaps.push(draw);
  });
}
