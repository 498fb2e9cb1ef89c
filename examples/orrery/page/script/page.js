// The page: sections in groups, contents, theme.

const renderers = {
  values: renderValues,
  curves: renderCurves,
  table: renderTable,
  text: renderText,
  matrix: renderMatrix,
  matrices: renderMatrices,
  bars: renderBars,
  lens: renderLens,
  tokens: renderTokens,
  choices: renderChoices,
  image: renderImage,
  components: renderComponents,
  formula: renderFormula,
};

// Returns the chosen theme; until a choice is made, the page uses the system's theme.
const systemIsDark = matchMedia('(prefers-color-scheme: dark)');
function chosenTheme(choice) {
  try {  // storage may be blocked for a page opened from a file
    if (choice) localStorage.setItem('orrery-theme', choice);
    return localStorage.getItem('orrery-theme');
  } catch {
    return choice || null;
  }
}
function setTheme(name) {
  if (document.documentElement.dataset.theme === name) return;
  document.documentElement.dataset.theme = name;
  allCharts.forEach((chart) => chart.themed());
  redrawMaps.forEach((draw) => inPieces(draw));
}
setTheme(chosenTheme() || (systemIsDark.matches ? 'dark' : 'light'));
systemIsDark.addEventListener('change', () => {
  if (!chosenTheme()) setTheme(systemIsDark.matches ? 'dark' : 'light');
});

function idOf(text) { return text.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, ''); }

// Returns the section, and the number of its map, that the page's address names, as in #attention-blocks-attention:3.
function addressed() {
  const [id, map] = decodeURIComponent(location.hash.slice(1)).split(':');
  return {id, map: parseInt(map)};
}

const saved = ['curves', 'matrix', 'matrices', 'bars', 'lens', 'tokens', 'choices', 'image'];
const permalink = (id, name) => element('a', {class: 'link', href: '#' + id, 'aria-label': `link to ${name}`}, '#');

function renderSection(section, wide) {
  const head = element('div', {class: 'head'}, element('h3', {}, section.title, permalink(section.id, section.title))),
        body = element('div', {class: 'body'}),
        [component] = componentsIn(section.view || section.title, section.run);
  if (component) head.firstChild.append(componentLink(component, 'component'));
  const made = element(
      'section', {class: wide ? 'section wide' : 'section', 'data-kind': section.kind, 'aria-label': section.title},
      head, section.text ? element('p', {class: 'said'}, section.text) : null, body);
  if (renderers[section.kind])
    renderers[section.kind](section, head, body, wide);
  else
    body.append(element('p', {class: 'said'}, `This page does not support sections of kind '${section.kind}'.`));
  if (saved.includes(section.kind) && !body.querySelector('.solid')) {
    const controls = head.querySelector('.controls') || head.appendChild(element('div', {class: 'controls'}));
    controls.append(...saveButtons(section.title, body));
  }
  if (section.kind === 'curves' && section.text) made.append(made.querySelector('.said'));  // keeps charts aligned
  return made;
}

function renderGroup(name, sections) {
  const charts = sections.every((section) => section.kind === 'curves'), id = idOf(name);
  const parts = element('div', {class: charts ? 'parts of-charts' : 'parts'}),
        header = element('header', {}, element('h2', {id}, name, permalink(id, name)));
  if (charts && anySmoothed(sections)) header.append(smoothingSlider());
  let row = null;  // adjacent small maps share a row
  const rows = new Map();  // a row for the same view of several runs
  const place = (section) =>
      sections.findIndex((other) => (section.view ? other.view === section.view : other === section));
  sections = [...sections].sort((a, b) => place(a) - place(b));
  sections.forEach((section, i) => {
    // The first chart, the loss, is wide, as is a single chart.
    const made = renderSection(section, charts && (i === 0 && section.data.quantity === 'loss' || sections.length === 1));
    if (sections.length === 1 && section.kind === 'values')
      made.firstChild.className = 'unseen';  // the page has this name
    made.id = section.id;
    const small = section.kind === 'matrix' && section.data.columns.length <= 16 && section.data.rows.length <= 64;
    if (small && !row) parts.append(row = element('div', {class: 'of-maps'}));
    if (!small) row = null;
    if (section.view && !rows.has(section.view)) {
      rows.set(section.view, element('div', {class: 'beside'}));
      (row || parts).append(rows.get(section.view));
    }
    (rows.get(section.view) || row || parts).append(made);
  });
  return element('section', {class: 'group', 'aria-labelledby': id}, header, parts);
}

function renderContents(groups) {
  const list = element('ul'), links = new Map();
  for (const [name, sections] of groups) {
    const link = element('a', {href: '#' + idOf(name)}, name), item = element('li', {}, link);
    links.set(idOf(name), link);
    if (sections.length > 1 && sections.length <= 40)
      item.append(element(
          'ul', {},
          ...sections.map(
              (section) =>
                  element('li', {}, element('a', {href: '#' + section.id, title: section.title}, section.title)))));
    list.append(item);
  }
  const wide = matchMedia('(min-width: 901px)'),
        details = element('details', {}, element('summary', {}, 'Contents'), list);
  const follow = () => {
    details.open = wide.matches;
  };
  wide.addEventListener('change', follow);
  follow();
  list.addEventListener('click', () => {
    if (!wide.matches) details.open = false;
  });
  document.getElementById('contents').append(details);
  const observer = new IntersectionObserver(
      (entries) => entries.forEach((entry) => {
        if (!entry.isIntersecting) return;
        links.forEach((link) => link.removeAttribute('aria-current'));
        links.get(entry.target.getAttribute('aria-labelledby')).setAttribute('aria-current', 'true');
      }),
      {rootMargin: '-10% 0px -80% 0px'});
  document.querySelectorAll('.group').forEach((group) => observer.observe(group));
}

function start() {
  const report = JSON.parse(document.getElementById('report').textContent), main = document.getElementById('content');
  const groups = new Map();
  const ids = new Map();  // a repeated title gets a number, so that other sections do not change a link
  for (const section of report.sections) {
    groups.set(section.group, [...(groups.get(section.group) || []), section]);
    const id = `${idOf(section.group)}-${idOf(section.title)}`, times = (ids.get(id) || 0) + 1;
    ids.set(id, times);
    section.id = times > 1 ? `${id}-${times}` : id;
  }
  noteExamples(report.sections);
  noteComponents(report.sections);
  shareScales(report.sections);
  const toggle = element('button', {
    type: 'button',
    class: 'plain',
    'aria-label': 'dark or light theme',
    onclick: () => {
      const next = theme() === 'dark' ? 'light' : 'dark';
      chosenTheme(next);
      setTheme(next);
      name();
    }
  });
  const name = () => {
    toggle.textContent = theme() === 'dark' ? 'light' : 'dark';
  };
  name();
  systemIsDark.addEventListener('change', name);
  main.append(element(
      'div', {class: 'top'},
      element('div', {}, element('h1', {}, report.title), element('p', {}, `orrery ${report.version}, ${report.made}`)),
      toggle));
  for (const [group, sections] of groups) main.append(renderGroup(group, sections));
  renderContents(groups);
  addEventListener('scroll', hideTip, {passive: true});
  const go = () => {
    const target = document.getElementById(addressed().id);
    if (!target) return;
    for (let around = target; around; around = around.parentElement)
      if (around.localName === 'details') around.open = true;
    target.scrollIntoView({behavior: 'instant'});
    if (target.localName === 'details') target.firstChild.focus({preventScroll: true});
  };
  go();
  addEventListener('hashchange', go);
}
document.addEventListener('DOMContentLoaded', start);
