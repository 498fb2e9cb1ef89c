// Helpers for all scripts: elements, numbers, text for screen readers, the tip at the pointer.

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

// Returns 5 digits with thousands separators and a true minus.
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

// Returns short tick labels: 0.5, not 0.50000, but enough digits to distinguish them.
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

// Shows the tip next to a point of the window, inside of it.
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

// Calls `draw` once before the next frame, even if requested several times.
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

// Runs long work in pieces, about 8 ms per frame.
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

// Calls `draw` when the element gets a width, before it is painted, and when the width changes.
function whenSized(watched, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (watched.clientWidth === width) return;
    width = watched.clientWidth;
    draw();
  }).observe(watched);
}

// Calls `first` when the element first comes near the window, then `again` when its width changes.
// Both must keep its height, or the links of the contents would miss their targets.
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

// Returns a button that copies a text, or selects it if the page may not copy.
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
