// The tree of a model's components, and links between it and the sections that name them.

const trees = [];              // {run, id, paths}: the longest paths first
const shownIn = new Map();     // by a component's id: names of the sections and maps that name it, by group and address
const formulaIds = new Set();  // of the articles about formulas
const componentId = (tree, path) => `${tree.id}-${path ? idOf(path) : 'model'}`;

// Returns the ids of the components, in the tree of this run or of all, whose path begins the text, or the last part
// of a metric's name.
function componentsIn(text, run) {
  const name = String(text).replace(/^.*\//, ''), of = (tree) => run === undefined || tree.run === run;
  const begins = (path) => /[._]/.test(path) && name.startsWith(path) && !/\w/.test(name[path.length] || '');
  return trees.filter(of).map((tree) => [tree, tree.paths.find(begins)]).filter(([, path]) => path)
      .map(([tree, path]) => componentId(tree, path));
}
const componentLink = (id, text) => element('a', {class: 'component', href: '#' + id}, text);
// Returns the text, as a link to the component that it names, if it names one.
function componentText(text, run) {
  const [id] = componentsIn(text, run);
  return id ? componentLink(id, text) : text;
}

// Returns the texts of a section that may name components, with the number of their map.
function namesIn({title, view, kind, data}) {
  const names = [[view || title, null]];
  if (kind === 'matrices') data.maps.forEach((map, i) => names.push([map.name, i]));
  for (const row of data.rows || []) names.push([Array.isArray(row) ? row[0] : row.name ?? row, null]);
  for (const line of data.series || []) names.push([line.key, null]);
  return names;
}
function noteComponents(sections) {
  for (const {kind, run, id, data} of sections) {
    if (kind === 'components')
      trees.push({run, id, paths: data.components.map(({path}) => path).sort((a, b) => b.length - a.length)});
    if (kind === 'formula') data.entries.forEach((entry) => formulaIds.add(formulaId(entry)));
  }
  for (const section of sections)
    for (const [name, map] of namesIn(section))
      for (const id of componentsIn(name, section.run)) {
        const title = section.view || section.title, href = section.id + (map === null ? '' : ':' + map);
        if (!shownIn.has(id)) shownIn.set(id, new Map());
        const groups = shownIn.get(id);
        if (!groups.has(section.group)) groups.set(section.group, new Map());
        groups.get(section.group).set(href, map === null ? title : name.replace(/^.*, /, ''));
      }
}

const formulaId = ({family, name}) => `formula-${idOf(family)}-${idOf(name)}`;
// Returns a source file as a link, or as a text to copy if no address of it is known.
function fileText({file, link}) {
  const path = element('code', {}, file);
  if (!file) return '';
  return link ? element('a', {class: 'source', href: link}, path) : element('span', {}, path, copyButton(file, path));
}

function factsOf(component, formulas, id) {
  const facts = element('dl');
  const add = (name, ...values) => facts.append(element('dt', {}, name), element('dd', {}, ...values));
  if (component.path) add('path', element('code', {}, component.path));
  add('kind', component.kind.replaceAll('_', ' '));
  if (component.spec) add('made by', element('code', {}, component.spec));
  for (const number of component.formulas) {
    const formula = formulas[number], article = formulaId(formula), name = formula.name.replaceAll('_', ' ');
    const title = formulaIds.has(article) ? componentLink(article, name) : element('span', {}, name, ' ');
    if (formula.formula) add(formula.family.replaceAll('_', ' '), title, element('code', {}, formula.formula));
    if (formula.file) add('file', fileText(formula));
  }
  if (component.parameters) add('parameters', numberText(component.parameters));
  if (component.tensors.length) add('tensors', element('code', {}, component.tensors.join('; ')));
  for (const name of ['heads', 'units', 'slots'])
    if (component[name]) add(name, numberText(component[name]));
  if (component.span.length)
    add('span', component.span.map((x) => Number(x.toPrecision(4))).join(', ') + ' tokens' +
        (component.span.length > 1 ? ', by head' : ''));
  for (const [group, links] of shownIn.get(id) || [])
    add(group, ...[...links].map(([href, name]) => componentLink(href, name)));
  return facts;
}

// Arrow keys go through the components that are open, as in a tree of files.
function walkTree(event) {
  const all = [...event.currentTarget.querySelectorAll('summary')].filter((each) => each.checkVisibility()),
        at = all.indexOf(event.target), details = event.target.parentElement;
  if (at < 0) return;
  const above = details.parentElement.closest('details'), inner = details.querySelector(':scope > ul summary');
  const to = {
    ArrowDown: all[at + 1],
    ArrowUp: all[at - 1],
    Home: all[0],
    End: all[all.length - 1],
    ArrowRight: details.open && inner,
    ArrowLeft: !details.open && above && above.firstChild,
  };
  if (!(event.key in to)) return;
  event.preventDefault();
  if (to[event.key])
    to[event.key].focus();
  else if (event.key === 'ArrowRight' || event.key === 'ArrowLeft')
    details.open = event.key === 'ArrowRight';
}

function renderComponents(section, head, body) {
  const {components, formulas} = section.data, tree = {id: section.id}, open = [];  // the modules around this one
  const root = element('ul', {class: 'tree', onkeydown: walkTree}), all = [];
  for (const component of components) {
    const {path, parameters, kind, spec} = component, id = componentId(tree, path);
    while (open.length && open[open.length - 1].path && !path.startsWith(open[open.length - 1].path + '.')) open.pop();
    const around = open[open.length - 1], list = element('ul');
    const name = !path ? 'model' : around.path ? path.slice(around.path.length + 1) : path;
    const details = element(
        'details', {id, open: !path},
        element(
            'summary', {}, element('span', {class: 'name mono'}, name),
            element('span', {class: 'made mono'}, spec || kind.replaceAll('_', ' ')),
            element('span', {class: 'count'}, parameters ? numberText(parameters) : '')),
        factsOf(component, formulas, id), list);
    (around ? around.list : root).append(element('li', {}, details));
    open.push({path, list});
    all.push(details);
  }
  all.forEach((details) => details.lastChild.childElementCount || details.lastChild.remove());
  head.append(mapControls([{
    name: 'open all',
    title: 'open or close all components',
    on: false,
    set: (on) => all.forEach((details, i) => {
      details.open = on || i === 0;
    })
  }], () => {}));
  body.append(root);
}
