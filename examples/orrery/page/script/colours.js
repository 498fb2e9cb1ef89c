// Color-blind-safe colors, in a light and a dark variant.

// Okabe and Ito 2008; colors too pale for a white page are darker.
const lineColours = {
  light: ['#0072b2', '#d55e00', '#00845f', '#a64d86', '#8f6700', '#3a8fbf', '#4d4d4d'],
  dark: ['#56b4e9', '#e69f00', '#2fbf98', '#e08fc0', '#f0e442', '#ff8a4a', '#c4c9cf'],
};
// Smith and van der Walt 2015: viridis at equal distances.
const viridis = [
  '#440154', '#482475', '#414487', '#355f8d', '#2a788e', '#21918c', '#22a884', '#44bf70', '#7ad151', '#bddf26',
  '#fde725'
];
// Two hues that common color blindness does not confuse; zero has the page's color.
const twoSided = {
  light: ['#08407a', '#2f79b5', '#9cc4e2', '#f7f7f7', '#f5c08a', '#d9791f', '#8a3d00'],
  dark: ['#a9d7ff', '#4ea0e0', '#1f4f78', '#1d2126', '#744414', '#e08a33', '#ffd9a8'],
};

// From the page's color to one hue: shares behind words, and losses.
const oneHue = {
  share: {
    light: ['#ffffff', '#d3e5f3', '#9cc4e2', '#2f79b5', '#08407a'],
    dark: ['#13161a', '#1b3850', '#1f4f78', '#4ea0e0', '#a9d7ff']
  },
  loss: {
    light: ['#ffffff', '#fbe3ca', '#f5c08a', '#d9791f', '#8a3d00'],
    dark: ['#13161a', '#40290f', '#744414', '#e08a33', '#ffd9a8']
  },
};

const theme = () => document.documentElement.dataset.theme;

function channels(colour) { return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)); }
function between(stops, share) {
  const place = Math.max(0, Math.min(1, share)) * (stops.length - 1),
        low = Math.min(Math.floor(place), stops.length - 2);
  const a = channels(stops[low]), b = channels(stops[low + 1]);
  return a.map((value, i) => Math.round(value + (b[i] - value) * (place - low)));
}

// Returns the color of line i of n: distinct hues, or a ramp for many lines, which have an order.
function lineColour(i, n) {
  const hues = lineColours[theme()];
  if (n <= hues.length) return hues[i];
  const share = i / Math.max(1, n - 1);
  return `rgb(${between(viridis, theme() === 'dark' ? .3 + .7 * share : .82 * share).join(' ')})`;
}

// Returns the style of a cell with a text: a color of the ramp, and black or white, which is legible on it.
function shaded(share, ramp) {
  const colour = between(oneHue[ramp][theme()], share);
  const [r, g, b] = colour.map((x) => (x /= 255, x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4));
  return {background: `rgb(${colour.join(' ')})`, color: .2126 * r + .7152 * g + .0722 * b > .179 ? '#000' : '#fff'};
}

// Returns 256 colors as little-endian RGBA pixels; the last entry, of non-finite values, is the page's color.
function mapColours(signed, ramp) {
  const stops = ramp ? oneHue[ramp][theme()] : signed ? twoSided[theme()] : viridis, table = new Uint32Array(257);
  for (let i = 0; i < 256; ++i) {
    const [r, g, b] = between(stops, i / 255);
    table[i] = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  }
  table[256] = theme() === 'dark' ? 0xff1a1613 : 0xffffffff;
  return table;
}
