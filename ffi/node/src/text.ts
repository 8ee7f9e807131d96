/** Names and values in messages. */

/** A name in a message: 'caller'. */
export function quoted(name: string): string {
  return `'${JSON.stringify(name).slice(1, -1).replace(/\\"/g, '"').replace(/'/g, "\\'")}'`;
}

/** Names in a message: 'caller', 'tokens'. */
export function listed(names: Iterable<string>): string {
  return [...names].map(quoted).join(", ") || "none";
}

/** What a value is, for a message: "a string", "null", "an Array", … Never runs code of the value. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === "object") return Array.isArray(value) ? "an array" : "an object";
  return typeof value === "undefined" ? "undefined" : `a ${typeof value}`;
}

/** A number in a message; of other values, what they are. */
export function shown(value: unknown): string {
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  return typeof value === "string" ? quoted(value.slice(0, 80)) : kindOf(value);
}
