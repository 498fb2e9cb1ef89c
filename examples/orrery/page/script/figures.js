// Charts and maps as files: SVG and PNG of what the page shows.

const drawnStyles = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'opacity', 'font-size',
  'font-family', 'vector-effect'
];

// Returns an SVG of the texts, backgrounds, canvases and drawings in `root`, where they are in the window.
function figureSvg(root, title) {
  const frame = root.getBoundingClientRect(), top = 34, edge = 8;
  const x = (left) => (left - frame.left + edge).toFixed(2), y = (above) => (above - frame.top + top).toFixed(2);
  const width = Math.ceil(frame.width + 2 * edge), height = Math.ceil(frame.height + top + edge),
        page = getComputedStyle(document.body);
  const svg = drawn('svg', {
    xmlns: 'http://www.w3.org/2000/svg',
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    'font-family': page.fontFamily
  });
  svg.append(
      drawn('title', {}, title), drawn('rect', {width, height, fill: page.backgroundColor}),
      drawn('text', {x: edge, y: 22, fill: page.color, 'font-size': 15, 'font-weight': 600}, title));
  const copied = (from) => {
    const copy = from.cloneNode(false), style = getComputedStyle(from);
    if (from.localName !== 'svg')
      drawnStyles.forEach((name) => copy.style.setProperty(name, style.getPropertyValue(name)));
    copy.append(...[...from.childNodes].map(
        (child) => (child.nodeType === Node.TEXT_NODE ? child.cloneNode() : copied(child))));
    return copy;
  };
  const text = (node) => {
    const parent = node.parentElement, style = getComputedStyle(parent), range = document.createRange();
    const look = {
      fill: style.color,
      'font-size': style.fontSize,
      'font-family': style.fontFamily,
      'font-weight': style.fontWeight,
      'xml:space': 'preserve'
    };
    if (style.textDecorationLine === 'underline') look['text-decoration'] = 'underline';
    const write = (content, more) => svg.append(drawn('text', {...look, ...more}, content));
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()], matrix = new DOMMatrix(style.transform),
          size = parseFloat(style.fontSize);
    if (!boxes.length || !node.data.trim()) return;
    const box = boxes[0];
    if (style.writingMode === 'vertical-rl')
      return write(node.data, {
        transform:
            `translate(${x((box.left + box.right) / 2 + size / 3)} ${y((box.top + box.bottom) / 2)}) rotate(-90)`,
        'text-anchor': 'middle'
      });
    if (matrix.b) {
      const turn = Math.atan2(matrix.b, matrix.a), high = parent.offsetHeight;
      const all = parent.getBoundingClientRect();
      return write(node.data, {
        transform: `translate(${x(all.left + high * Math.sin(turn))} ${y(all.top)}) rotate(${
            (turn * 180 / Math.PI).toFixed(1)})`,
        y: (.75 * high).toFixed(1)
      });
    }
    // One text per line.
    for (let from = 0, i = 1; i <= node.length; ++i) {
      const boxOf = (at) => (range.setStart(node, at), range.setEnd(node, at + 1), range.getBoundingClientRect());
      if (i < node.length && (boxes.length === 1 || Math.abs(boxOf(i).top - boxOf(from).top) < 3)) continue;
      const line = boxes.length === 1 ? box : boxOf(from),
            narrow = style.overflow !== 'visible' && parent.scrollWidth > parent.clientWidth;
      const squeezed = narrow ? {
        x: x(parent.getBoundingClientRect().left),
        textLength: parent.clientWidth,
        lengthAdjust: 'spacingAndGlyphs'
      } :
                                {};
      write(node.data.slice(from, i), {x: x(line.left), y: y(line.top + .78 * line.height), ...squeezed});
      from = i;
    }
  };
  const visit = (from) => {
    const style = getComputedStyle(from), box = from.getBoundingClientRect();
    if (style.display === 'none' || style.visibility === 'hidden' || from.matches('details, .pages, .unseen')) return;
    const place = {x: x(box.left), y: y(box.top), width: box.width, height: box.height};
    if (from.localName === 'canvas')
      return svg.append(drawn(
          'image',
          {...place, href: from.toDataURL(), preserveAspectRatio: 'none', style: 'image-rendering: pixelated'}));
    if (from.localName === 'svg') {
      const copy = copied(from);
      for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
      copy.setAttribute('overflow', 'visible');
      return svg.append(copy);
    }
    if (style.backgroundColor !== 'rgba(0, 0, 0, 0)')
      svg.append(drawn('rect', {...place, fill: style.backgroundColor}));
    for (const child of from.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) text(child);
      if (child.nodeType === Node.ELEMENT_NODE) visit(child);
    }
  };
  visit(root);
  return new XMLSerializer().serializeToString(svg);
}

function download(name, address) {
  const link = element('a', {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
}
const addressOf = (svg) => 'data:image/svg+xml,' + encodeURIComponent(svg);

// Calls `take` with a PNG of twice the size, for print.
function asPng(svg, take) {
  const image = new Image();
  image.onload = () => {
    const canvas = element('canvas', {width: 2 * image.width, height: 2 * image.height}),
          context = canvas.getContext('2d');
    context.scale(2, 2);
    context.drawImage(image, 0, 0);
    take(canvas.toDataURL());
  };
  image.src = addressOf(svg);
}

// Buttons that save what `body` shows.
function saveButtons(title, body) {
  const button = (kind, save) => element(
      'button', {
        type: 'button',
        class: 'save',
        title: `save as ${kind}`,
        'aria-label': `save ${title} as ${kind}`,
        onclick: () => {
          save(figureSvg(body, title));
          say(`${title} saved as ${kind}`);
        }
      },
      kind);
  return [
    button('SVG', (svg) => download(`${idOf(title)}.svg`, addressOf(svg))),
    button('PNG', (svg) => asPng(svg, (address) => download(`${idOf(title)}.png`, address))),
  ];
}
