// Positions of an example: views with the same labels show the position that one of them points at.

const viewsOf = new Map();

// Adds a view of these labels. Returns a function that calls `show` of all others with
// {query, key, weights}: positions or null, and weights of all keys if the view has them; null: none.
function joined(labels, show) {
  const name = JSON.stringify(labels);
  if (!viewsOf.has(name)) viewsOf.set(name, []);
  const views = viewsOf.get(name);
  views.push(show);
  return (at) => views.forEach((other) => other !== show && other(at));
}
