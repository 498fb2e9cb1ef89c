// The example of analyses: its tokens or image, and the most likely tokens or classes.

const tokenLists = new Set(), images = new Map();  // of the page, by the labels of their positions
function noteExamples(sections) {
  for (const {kind, data} of sections) {
    if (kind === 'tokens') tokenLists.add(JSON.stringify(data.tokens));
    if (kind === 'image') images.set(JSON.stringify(data.positions), data);
  }
}

// A text of colored tokens; pointer or keys read them. `weightsOf(i)` returns weights that color the tokens instead.
class TokenStrip {
  constructor({tokens, values, quantity, high}, title, weightsOf = null) {
    Object.assign(this, {tokens, quantity, weightsOf, at: null, names: placeNames(tokens)});
    this.values = values ? tokens.map((x, i) => valueAt(unpacked(values), i)) : [];
    this.highest = Math.max(0, high || 0, ...this.values.filter((x) => x !== null));
    this.element = element('div', {
      class: 'strip',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'text of tokens',
      'aria-label': `${title}, ${tokens.length} tokens. Left and right read them.`,
    });
    this.spans = tokens.map((token, i) => {
      const text = token.replaceAll('␣', ' ').replaceAll('\\n', '↵\n');
      return element('span', {class: 'token', 'data-at': i}, text);
    });
    this.element.append(...this.spans);
    this.point = joined(tokens, (at) => this.pointed(at));
    this.element.addEventListener('pointermove', (event) => {
      const token = event.target.closest('[data-at]');
      if (token) this.read(Number(token.dataset.at), [event.clientX, event.clientY]);
    });
    this.element.addEventListener('pointerleave', () => this.leave());
    this.element.addEventListener('blur', () => this.leave());
    this.element.addEventListener('keydown', (event) => this.key(event));
    this.colour();
  }
  // Colors the tokens by weights, else by their values.
  colour(weights = null) {
    const most = weights ? Math.max(...weights.map(Math.abs)) : this.highest, from = weights || this.values;
    this.spans.forEach((span, i) => {
      const value = from[i] ?? null;
      Object.assign(
          span.style,
          value === null || !most ? {background: '', color: ''} :
                                    shaded(Math.abs(value) / most, weights ? 'share' : 'loss'));
    });
    this.weights = weights;
  }
  pointed(at) {
    this.spans.forEach((span, i) => {
      span.classList.toggle('at', at !== null && at.query === i);
      span.classList.toggle('key', at !== null && at.key === i && at.query !== i);
    });
    if (at === null || at.weights) this.colour(at && at.weights);
  }
  read(i, pointer) {
    this.at = i;
    if (this.weightsOf) this.colour(this.weightsOf(i));
    this.pointed({query: i, key: i});
    this.point({query: i, key: i, weights: null});
    const value = this.values[i] ?? null, name = `‘${this.tokens[i]}’`;
    const number = value === null ? '' : `${this.quantity} ${numberText(Number(value.toPrecision(4)))}`;
    const box = this.spans[i].getClientRects()[0];
    showTip(
        element('div', {}, element('b', {}, name), element('div', {}, `position ${i}`), element('div', {}, number)),
        ...(pointer || [box.right, box.bottom]));
    if (!pointer) say(`position ${i}, ${name}${number ? ': ' + number : ''}`);
  }
  leave() {
    this.at = null;
    this.pointed(null);
    this.point(null);
    hideTip();
  }
  key(event) {
    const by = {ArrowRight: 1, ArrowDown: 10, ArrowLeft: -1, ArrowUp: -10}[event.key], last = this.tokens.length - 1;
    const to = {Home: 0, End: last}[event.key] ??
        (by && Math.max(0, Math.min(last, (this.at ?? (by > 0 ? -1 : last + 1)) + by)));
    if (event.key === 'Escape') this.leave();
    if (to === undefined) return;
    event.preventDefault();
    this.read(to, null);
  }
}

function renderTokens(section, head, body) {
  const strip = new TokenStrip(section.data, section.title);
  body.append(strip.element);
  redrawMaps.push(() => strip.colour());
  if (!section.data.values) return;
  const bar = scaleBar({ramp: 'loss', quantity: section.data.quantity}),
        show = () => bar.show({low: 0, high: strip.highest});
  body.append(bar.bar);
  show();
  redrawMaps.push(show);
}

// An image in its patches; weights of a position darken the patches that have less.
class Picture {
  constructor({shape: [height, width, depth], base64, positions}, title, weightsOf = null) {
    Object.assign(this, {height, width, positions, weightsOf, at: null});
    this.patches = positions.map((name) => /^\d+,\d+$/.test(name) ? name.split(',').map(Number) : null);
    this.across = Math.max(0, ...this.patches.map((patch) => (patch ? patch[1] + 1 : 0)));
    const bytes = atob(base64), image = new ImageData(width, height);
    for (let i = 0; i < width * height; ++i) {
      for (let k = 0; k < 3; ++k) image.data[4 * i + k] = bytes.charCodeAt(depth * i + (depth < 3 ? 0 : k));
      image.data[4 * i + 3] = 255;
    }
    const canvas =
        element('canvas', {width, height, role: 'img', 'aria-label': `${title}, ${width} × ${height} pixels`});
    canvas.getContext('2d').putImageData(image, 0, 0);
    const named = this.across ? {
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'image of patches',
      'aria-label': `${title}, ${this.across} patches in a row. Arrow keys select patches.`
    } :
                                {};
    this.cover = drawn(
        'svg',
        {viewBox: `0 0 ${this.across || 1} ${this.across || 1}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
    this.element = element('div', {class: 'picture', ...named}, canvas, this.cover);
    this.element.style.aspectRatio = `${width} / ${height}`;
    this.point = joined(positions, (at) => this.pointed(at));
    if (!this.across) return;
    this.element.addEventListener('pointermove', (event) => {
      const box = this.element.getBoundingClientRect();
      const place = (from, size) => Math.max(0, Math.min(this.across - 1, Math.floor(this.across * from / size)));
      this.read(
          place(event.clientY - box.top, box.height), place(event.clientX - box.left, box.width),
          [event.clientX, event.clientY]);
    });
    this.element.addEventListener('pointerleave', () => this.leave());
    this.element.addEventListener('blur', () => this.leave());
    this.element.addEventListener('keydown', (event) => readByKeys(event, this, this.across, this.across));
  }
  pointed(at) {
    const square = (i, attributes) => this.patches[i] ?
        [drawn('rect', {x: this.patches[i][1], y: this.patches[i][0], width: 1, height: 1, ...attributes})] :
        [];
    const weights = at && at.weights, most = weights ? Math.max(...weights.map(Math.abs)) || 1 : 1;
    this.cover.replaceChildren(
        ...(weights ?
                weights.flatMap(
                    (w, i) => square(i, {class: 'shade', 'fill-opacity': (.9 * (1 - Math.abs(w) / most)).toFixed(3)})) :
                []),
        ...[at && at.query, at && at.key].flatMap(
            (i) =>
                (i === null || i === undefined ? [] : [...square(i, {class: 'halo'}), ...square(i, {class: 'core'})])));
  }
  read(row, column, pointer) {
    const i = this.positions.indexOf(`${row},${column}`), weights = this.weightsOf && this.weightsOf(i);
    this.at = [row, column];
    this.pointed({query: i, key: i, weights});
    this.point({query: i, key: i, weights: null});
    const box = this.element.getBoundingClientRect();
    showTip(element('b', {}, `patch ${row},${column}`), ...(pointer || [box.right, box.top]));
    if (!pointer) say(`patch ${row},${column}`);
  }
  leave() {
    this.at = null;
    this.pointed(null);
    this.point(null);
    hideTip();
  }
}

function renderImage(section, head, body) { body.append(new Picture(section.data, section.title).element); }

// Returns the texts or the image whose positions are the rows and columns of a map, linked with it.
function examplesOf(view, rows, keys) {
  const names = [JSON.stringify(rows), JSON.stringify(keys)], weightsOf = (i) => view.weightsOf(i);
  if (images.has(names[0]) && names[0] === names[1])
    return [new Picture(images.get(names[0]), 'Image', weightsOf).element];
  if (!names.every((name) => tokenLists.has(name))) return [];
  if (names[0] === names[1]) return [new TokenStrip({tokens: rows}, 'Text', weightsOf).element];
  const target = new TokenStrip({tokens: keys}, 'Keys');
  return [
    new TokenStrip({tokens: rows}, 'Queries', (i) => (target.colour(weightsOf(i)), null)).element, target.element
  ];
}

// The most likely tokens or classes at one position, with their probabilities.
function renderChoices(section, head, body) {
  const {positions, words, word, targets, shown} = section.data, count = word.length / positions.length;
  const p = unpacked(section.data.probability), targetP = unpacked(section.data.target_probability);
  const list = element('div', {class: 'choices', role: 'list'}), place = element('span', {'aria-live': 'polite'});
  const context = element('p', {class: 'context mono'}),
        plain = (text) => text.replaceAll('␣', ' ').replaceAll('\\n', '↵');
  let at = shown;
  const row = (name, value, kind) => {
    const bar = element('span', {class: 'fill'});
    bar.style.width = 100 * (value ?? 0) + '%';
    return element(
        'div', {class: `choice ${kind}`, role: 'listitem'}, element('span', {class: 'name mono'}, name),
        element('span', {class: 'track'}, bar), element('span', {class: 'value'}, value?.toFixed(3) ?? ''));
  };
  const show = (i) => {
    at = i;
    const rows = [];
    for (let k = at * count; k < (at + 1) * count; ++k)
      rows.push(row(words[word[k]], valueAt(p, k), words[word[k]] === targets[at] ? 'hit' : ''));
    if (targets.some((target) => target))
      rows.push(
          targets[at] ? row(`target: ${targets[at]}`, valueAt(targetP, at), 'target') : row('no target', null, 'target'));
    list.replaceChildren(...rows);
    back.disabled = at === 0, on.disabled = at === positions.length - 1;
    place.textContent = `position ${at} of ${positions.length}, ‘${positions[at]}’`;
    context.textContent = `…${plain(positions.slice(Math.max(0, at - 40), at + 1).join('')).slice(-40)}`;
  };
  const turn = (by) => {
    show(Math.max(0, Math.min(positions.length - 1, at + by)));
    point({query: at, key: at, weights: null});
  };
  const back = element('button', {type: 'button', class: 'plain', onclick: () => turn(-1)}, 'previous');
  const on = element('button', {type: 'button', class: 'plain', onclick: () => turn(1)}, 'next');
  const point = joined(positions, (where) => {
    const i = where && (where.query ?? where.key);
    if (i !== null && i < positions.length) show(i);
  });
  if (positions.length > 1) body.append(element('div', {class: 'pages'}, back, on, place));
  if (tokenLists.has(JSON.stringify(positions))) body.append(context);
  body.append(list);
  show(at);
}
