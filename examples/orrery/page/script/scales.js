// Computations for curves: round ticks, smoothing, binary search.

// Returns about `count` round numbers from low to high.
function roundTicks(low, high, count) {
  const power = 10 ** Math.floor(Math.log10((high - low) / count)),
        misses = (step) => Math.abs((high - low) / step - count);
  const step = [1, 2, 5, 10, 20]
                   .map((factor) => factor * power)
                   .reduce((best, each) => (misses(each) < misses(best) ? each : best));
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; ++i)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}
function logTicks(low, high, count) {
  const first = Math.floor(low), last = Math.ceil(high), every = Math.max(1, Math.ceil((last - first) / count));
  const factors = high - low < .8 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8] : high - low < 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = first; power <= last; power += every)
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (Math.log10(value) >= low - 1e-9 && Math.log10(value) <= high + 1e-9) ticks.push(value);
    }
  return ticks.length >= 2 ? ticks : roundTicks(10 ** low, 10 ** high, count);
}

// Returns a two-sided exponential mean, so that a fall is not delayed; its weights sum to 1
// everywhere. Smooth values, such as a learning rate, stay unchanged.
function smoothed(values, weight) {
  weight = Math.min(weight, 1 - 30 / values.length);  // short run: less smoothing, to keep its bends
  if (weight <= 0 || values.length <= few || isSmooth(values)) return values;
  const sums = new Float64Array(values.length), weights = new Float64Array(values.length);
  const add = (order) => {
    let sum = 0, total = 0;
    for (const i of order) {
      sums[i] += weight * sum, weights[i] += weight * total;  // previous points, without the point itself
      sum *= weight, total *= weight;
      if (values[i] !== null) sum += values[i], total += 1;
    }
  };
  const forth = values.map((x, i) => i);
  add(forth), add(forth.reverse());
  return values.map((x, i) => (x === null ? null : (sums[i] + x) / (weights[i] + 1)));
}
function isSmooth(values) {
  let bends = 0, low = Infinity, high = -Infinity;
  for (let i = 1; i + 1 < values.length; ++i) {
    if (values[i] === null) return false;
    low = Math.min(low, values[i]), high = Math.max(high, values[i]);
    bends += Math.abs(values[i] - (values[i - 1] + values[i + 1]) / 2);
  }
  return bends / values.length <= .002 * (high - low);
}

// Returns the first index whose value is at least x, or the length.
function firstAtLeast(sorted, x) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = low + high >> 1;
    if (sorted[middle] < x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
