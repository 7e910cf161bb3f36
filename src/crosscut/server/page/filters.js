// Conditions on metadata as they are written on the command line: `language=en, year>=2000, topic=law, topic=tax`.

const BOUNDS = { ">=": "gte", "<=": "lte", "!=": "ne", ">": "gt", "<": "lt" };

export function parseFilter(text) {
  const conditions = Object.create(null);  // a key may be called "constructor"
  for (const part of text.match(/(?:"(?:[^"\\]|\\.)*"|[^,"])+/g) ?? []) {
    if (!part.trim()) continue;
    const [, key, sign, raw] = /^\s*(.+?)\s*(>=|<=|!=|=|>|<)\s*(.+?)\s*$/s.exec(part) ?? [];
    if (!key) throw new Error(`A filter is key=value or key>=value (also <=, <, >, !=), with commas between; got ${part.trim()}`);
    const wanted = value(raw);
    const known = conditions[key];
    if (known && Array.isArray(known) !== (sign === "=")) throw new Error(`The filter on ${key} has both values and bounds; give one of them`);
    if (sign === "=") conditions[key] = [...(known ?? []), wanted];
    else conditions[key] = { ...known, [BOUNDS[sign]]: wanted };
  }
  return Object.keys(conditions).length ? conditions : null;
}

function value(text) {
  try {
    const found = JSON.parse(text);
    return ["number", "string", "boolean"].includes(typeof found) ? found : text;
  } catch {
    return text;
  }
}

// One more condition: what a click on a metadata value adds.
export function condition(key, wanted) {
  const plain = typeof wanted === "string" && wanted === wanted.trim() && !/[,"]/.test(wanted) && typeof value(wanted) === "string";
  return `${key}=${plain ? wanted : JSON.stringify(wanted)}`;
}
