// Small words that everything else is written in: elements, numbers, what is said aloud, the tip beside the pointer.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith('on'))
      made.addEventListener(key.slice(2), value);
    else
      made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Five digits, thousands apart, with a true minus.
function numberText(x) {
  if (x === null || !Number.isFinite(x)) return 'not finite';
  const size = Math.abs(x);
  let text;
  if (Number.isInteger(x) && size < 1e12)
    text = size.toLocaleString('en');
  else if (size !== 0 && (size < 1e-3 || size >= 1e7))
    text = size.toExponential(3).replace(/\.?0+e/, 'e').replace('e+', 'e');
  else if (size >= 1e4)
    text = Math.round(size).toLocaleString('en');
  else
    text = size.toPrecision(5);
  return (x < 0 ? '−' : '') + text;
}

// Labels of ticks, short: 0.5 and not 0.50000; but as many digits as tell them apart.
function tickTexts(ticks) {
  for (let digits = 1;; ++digits) {
    const texts = ticks.map((tick) => tickText(tick, digits));
    if (digits === 7 || new Set(texts).size === ticks.length) return texts;
  }
}
function tickText(x, digits) {
  const size = Math.abs(x);
  let text;
  if (size === 0) return '0';
  if (size >= 1e6 || size < 1e-4)
    text = size.toExponential(digits).replace(/\.0e/, 'e').replace('e+', 'e');
  else
    text = size >= 1000 ? size.toLocaleString('en') : String(Number(size.toPrecision(5 + digits)));
  return (x < 0 ? '−' : '') + text;
}

function say(text) { document.getElementById('spoken').textContent = text; }

// Beside a point of the window, inside of it.
function showTip(content, x, y) {
  const tip = document.getElementById('tip');
  tip.replaceChildren(content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth - 8 ? x - 16 - box.width : x + 16;
  tip.style.left = Math.max(8, Math.min(left, innerWidth - box.width - 8)) + 'px';
  tip.style.top = Math.max(8, Math.min(y + 14, innerHeight - box.height - 8)) + 'px';
}
function hideTip() { document.getElementById('tip').hidden = true; }

// Calls `draw` once before the next frame, however often it is asked for.
function once(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

// Work that may be long, piece by piece: a frame gives it about eight milliseconds.
const inPieces = (() => {
  const waiting = [];
  function work() {
    const end = performance.now() + 8;
    while (waiting.length && performance.now() < end) waiting.shift()();
    if (waiting.length) requestAnimationFrame(work);
  }
  return (piece) => {
    waiting.push(piece);
    if (waiting.length === 1) requestAnimationFrame(work);
  };
})();

// Calls `draw` when the element gets a width, before it is painted, and whenever that changes.
function whenSized(watched, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (watched.clientWidth === width) return;
    width = watched.clientWidth;
    draw();
  }).observe(watched);
}

// Calls `first` when the element first comes near the window, and `again` whenever its width changes after that.  What
// is drawn so late may not change its height: links of the contents would miss what they lead to.
function whenSeen(watched, first, again) {
  let seen = false;
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    seen = true;
    first();
  }, {rootMargin: '300px'}).observe(watched);
  whenSized(watched, () => {
    if (seen) again();
  });
}

// A button that copies a text; where a page may not, it selects the text.
function copyButton(text, place) {
  const button = element(
      'button', {
        type: 'button',
        onclick: async () => {
          try {
            await navigator.clipboard.writeText(text);
            button.textContent = 'copied';
          } catch {
            getSelection().selectAllChildren(place);
            button.textContent = 'selected';
          }
          say(button.textContent);
          setTimeout(() => {
            button.textContent = 'copy';
          }, 1500);
        }
      },
      'copy');
  return button;
}
