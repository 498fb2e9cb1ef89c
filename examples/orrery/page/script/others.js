// Key results, tables, texts, intervals and formulas.

function renderValues(section, head, body) {
  body.append(element(
      'dl', {class: 'values'},
      ...section.data.items.map(
          (item) => element(
              'div', {}, element('dt', {}, item.name), element('dd', {class: 'value'}, item.value),
              element('dd', {class: 'note'}, item.note)))));
}

const hash = /^[0-9a-f]{64}$/;

// Sorts by a column when its head is clicked: ascending, descending, then the original order.
function dataTable(columns, rows, marked, name, run) {
  const order = rows.map((row, i) => i), body = element('tbody');
  const asNumber = (text) => Number(String(text).replace(/,/g, '').replace('−', '-'));
  let sorted = null, falling = false;
  const fill = () => body.replaceChildren(...order.map(
      (i) => element('tr', {}, ...rows[i].map((cell, k) => {
        const classes =
            [columns[k].align === 'right' ? 'right' : hash.test(cell) ? 'hash mono' : k === 0 ? 'name' : ''];
        if (!classes[0] && String(cell).length > 40) classes[0] = 'sentence';
        const mark = k === 0 && marked.includes(i) ?
            element('span', {class: 'mark', title: 'differs'}, '●', element('span', {class: 'unseen'}, ' differs')) :
            '';
        const text = columns[k].align === 'right' ? String(cell).replace(/(^|\s)-(?=\d)/g, '$1−') : cell;
        return element(
            'td', {class: classes.join(' ').trim() || false}, k === 0 ? componentText(text, run) : text, mark);
      }))));
  const sortBy = (k, head) => {
    falling = sorted === k ? !falling : false;
    const again = sorted === k && !falling;
    sorted = again ? null : k;
    order.sort((a, b) => {
      if (again) return a - b;
      const x = rows[a][k], y = rows[b][k], both = columns[k].align === 'right';
      const way =
          both ? (asNumber(x) || 0) - (asNumber(y) || 0) : String(x).localeCompare(String(y), 'en', {numeric: true});
      return (falling ? -way : way) || a - b;
    });
    head.parentElement.childNodes.forEach((other) => other.removeAttribute('aria-sort'));
    if (!again) head.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
    fill();
  };
  const heads = columns.map((column, k) => {
    const head = element('th', {scope: 'col', class: column.align === 'right' ? 'right' : false});
    head.append(
        column.name ?
            element(
                'button', {type: 'button', title: 'sort by this column', onclick: () => sortBy(k, head)}, column.name) :
            '');
    return head;
  });
  fill();
  return element(
      'div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': name},
      element('table', {class: 'data'}, element('thead', {}, element('tr', {}, ...heads)), body));
}

// A long table starts with its marked rows, if any.
function renderTable(section, head, body) {
  const {marked} = section.data, long = 24;
  if (!section.data.rows.length) return;
  const filled =
      section.data.columns.map((column, k) => k).filter((k) => section.data.rows.some((row) => row[k] !== ''));
  const columns = filled.map((k) => section.data.columns[k]),
        rows = section.data.rows.map((row) => filled.map((k) => row[k]));
  if (rows.length <= long || !marked.length || marked.length === rows.length) {
    body.append(dataTable(columns, rows, marked.length === rows.length ? [] : marked, section.title, section.run));
    return;
  }
  const place = element('div'), button = element('button', {type: 'button', class: 'plain', 'aria-expanded': 'false'});
  let all = false;
  const fill = () => {
    place.replaceChildren(
        all ? dataTable(columns, rows, marked, section.title, section.run) :
              dataTable(columns, marked.map((i) => rows[i]), [], section.title, section.run));
    button.textContent = all ? `show only marked rows (${marked.length})` : `show all rows (${rows.length})`;
    button.setAttribute('aria-expanded', String(all));
  };
  button.addEventListener('click', () => {
    all = !all;
    fill();
  });
  fill();
  body.append(place, element('div', {class: 'more'}, button));
}

// Splits a text into pages at the last end of a line before the limit.
function pagesOf(text) {
  const longest = 3000, pages = [];
  for (let at = 0; at < text.length;) {
    let end = at + longest;
    if (end < text.length) {
      const line = text.lastIndexOf('\n', end);
      if (line > at + longest / 2)
        end = line + 1;
      else if (/[\uDC00-\uDFFF]/.test(text[end]))
        ++end;  // keeps surrogate pairs together
    }
    pages.push(text.slice(at, end));
    at = end;
  }
  return pages.length ? pages : [''];
}

// Breaks a command between words, not at their hyphens.
function unbroken(text) {
  return text.split(/( )/).map((word) => (word === ' ' ? word : element('span', {class: 'word'}, word)));
}

function pagedText(item) {
  const pages = pagesOf(item.text),
        pre = element(
            'pre', {class: item.wrap || item.copy ? 'wrap' : false, tabindex: 0},
            ...(item.copy ? unbroken(pages[0]) : [pages[0]]));
  const caption = element('figcaption', {}, element('span', {}, item.name));
  if (item.copy) caption.append(copyButton(item.text, pre));
  const figure = element('figure', {}, caption, pre);
  if (pages.length === 1) return figure;
  let page = 0;
  const place = element('span', {'aria-live': 'polite'});
  const turn = (by) => {
    page = Math.max(0, Math.min(pages.length - 1, page + by));
    pre.textContent = pages[page];
    place.textContent = `page ${page + 1} of ${pages.length}`;
    back.disabled = page === 0, on.disabled = page === pages.length - 1;
  };
  const back = element('button', {type: 'button', class: 'plain', onclick: () => turn(-1)}, 'previous');
  const on = element('button', {type: 'button', class: 'plain', onclick: () => turn(1)}, 'next');
  turn(0);
  figure.append(element('div', {class: 'pages'}, back, on, place));
  return figure;
}

function renderText(section, head, body) {
  const {items, side} = section.data;
  body.append(element('div', {class: side && items.length > 1 ? 'side' : false}, ...items.map(pagedText)));
}

// Draws values with intervals over one axis; an interval that contains zero is gray.
function renderBars(section, head, body) {
  const {rows, shared} = section.data, ends = rows.flatMap((row) => [row.value, row.low, row.high]).filter((x) => x !== null);
  if (!ends.length) return;
  if (shared) ends.push(...shared);
  const around = rows.some((row) => row.low !== null) || Math.min(...ends) <= 0, zero = around || section.data.zero;
  if (zero) ends.push(0);
  let low = Math.min(...ends), high = Math.max(...ends);
  const room = (high - low || Math.abs(high) || 1) * .08;
  low -= room, high += room;
  const digits = Math.max(0, Math.min(9, 3 - Math.floor(Math.log10(high - low))));
  const place = (x) => 100 * (x - low) / (high - low) + '%';
  const shown = (x) => (x < 0 ? '−' : around ? '+' : '') + Math.abs(x).toFixed(digits);
  const list = element('div', {class: 'bars', role: 'list'});
  for (const row of rows) {
    const known = row.low !== null && row.high !== null, sure = known && (row.low > 0 || row.high < 0);
    const track = drawn('svg', {'aria-hidden': 'true'}), kind = sure ? 'sure' : 'unsure';
    if (zero) track.append(drawn('line', {class: 'zero', x1: place(0), x2: place(0), y1: 0, y2: 38}));
    if (known)
      track.append(drawn('line', {class: `span ${kind}`, x1: place(row.low), x2: place(row.high), y1: 19, y2: 19}));
    if (row.value !== null) track.append(drawn('circle', {class: kind, cx: place(row.value), cy: 19, r: 5}));
    list.append(element(
        'div', {class: 'bar', role: 'listitem'}, element('div', {class: 'name'}, componentText(row.name, section.run)),
        element('div', {class: 'track'}, track),
        element('div', {class: 'value'}, row.note || (row.value === null ? '' : shown(row.value))),
        element('div', {class: 'interval'}, known ? `${shown(row.low)} to ${shown(row.high)}` : '')));
  }
  const ticks = roundTicks(low, high, 5), texts = tickTexts(ticks);
  const axis = element('div', {class: 'track axis'}, ...ticks.map((tick, i) => {
    const label = element('span', {}, texts[i]);
    label.style.left = place(tick);
    return label;
  }));
  list.append(element('div', {class: 'bar', 'aria-hidden': 'true'}, axis));
  body.append(list);
}

function renderFormula(section, head, body) {
  for (const entry of section.data.entries) {
    const properties = element('dl');
    const add = (name, value) => {
      if (value) properties.append(element('dt', {}, name), element('dd', {}, value));
    };
    add('used by', element('code', {}, entry.used.split('\n').join('; ')));
    add(
        'defaults',
        entry.settings.length ?
            element('code', {}, entry.settings.map(([key, value]) => `${key}=${value}`).join(', ')) :
            '');
    const short = ([, value]) => value.length <= 16;
    for (const [key, value] of entry.properties.filter((each) => !short(each))) add(key, value);
    add('properties', entry.properties.filter(short).map(([key, value]) => `${key} ${value}`).join('; '));
    add('file', fileText(entry));
    add('source', entry.source);
    const id = formulaId(entry);
    body.append(element(
        'article', {class: 'formula', id},
        element('h3', {}, entry.name, element('small', {}, entry.family), permalink(id, entry.name)),
        entry.formula ? element('pre', {class: 'main'}, entry.formula) : '', properties,
        entry.derivation ?
            element(
                'details', {open: true}, element('summary', {}, 'formula and derivative, from the source file'),
                element('pre', {tabindex: 0}, entry.derivation.trimEnd())) :
            ''));
  }
}
