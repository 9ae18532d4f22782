// Form fields from a command's JSON Schema, and the payload from what was filled in. What no field fits is JSON text.
const SCALARS = new Set(["string", "number", "integer", "boolean"]);

/** A schema that `$ref` names within the same document (`#/$defs/...`); itself where there is none. */
function resolve(schema, root) {
  for (let turns = 0; schema && typeof schema.$ref === "string" && turns < 10; turns++) {
    if (!schema.$ref.startsWith("#/")) return {};
    schema = schema.$ref.slice(2).split("/").reduce((at, part) => at?.[part.replaceAll("~1", "/").replaceAll("~0", "~")], root) ?? {};
  }
  return schema === true || !schema ? {} : schema;
}

/**
 * @returns {{name: string, kind: string, label: string, help: string, required: boolean, nullable: boolean, schema: object,
 *   initial: string}[]} kinds: const, choice, boolean, number, integer, string, list, json
 */
export function fieldsOf(schema) {
  const root = schema ?? {};
  const top = resolve(root, root);
  const required = new Set(top.required ?? []);
  return Object.entries(top.properties ?? {}).map(([name, one]) => field(name, resolve(one, root), required.has(name), root));
}

function field(name, schema, required, root) {
  const types = [schema.type ?? []].flat();
  const type = types.find((one) => one !== "null");
  const made = { name, schema, required, nullable: types.includes("null"), label: schema.title ?? name, help: helpOf(schema) };
  if ("const" in schema) return { ...made, kind: "const", initial: JSON.stringify(schema.const) };
  if (Array.isArray(schema.enum)) {
    const choices = schema.enum.map((one) => JSON.stringify(one));
    return { ...made, kind: "choice", choices, nullable: false, initial: "default" in schema ? JSON.stringify(schema.default) : required ? choices[0] ?? "" : "" };
  }
  const initial = "default" in schema ? schema.default : undefined;
  if (SCALARS.has(type)) return { ...made, kind: type, initial: initial === undefined || initial === null ? "" : String(initial) };
  const items = type === "array" ? resolve(schema.items, root) : {};
  if (type === "array" && SCALARS.has([items.type].flat()[0]) && !items.enum) {
    return { ...made, kind: "list", items, initial: Array.isArray(initial) ? initial.join("\n") : "" };
  }
  return { ...made, kind: "json", initial: initial === undefined ? "" : JSON.stringify(initial, null, 2) };
}

function helpOf(schema) {
  const parts = schema.description ? [schema.description] : [];
  const range = (low, high, unit) => {
    if (low !== undefined && high !== undefined) return `${low} to ${high}${unit}`;
    return low !== undefined ? `at least ${low}${unit}` : high !== undefined ? `at most ${high}${unit}` : "";
  };
  const bounds = [range(schema.minimum, schema.maximum, ""), range(schema.minLength > 1 ? schema.minLength : undefined, schema.maxLength, " characters"), range(schema.minItems, schema.maxItems, " items")];
  if (schema.exclusiveMinimum !== undefined) bounds.push(`more than ${schema.exclusiveMinimum}`);
  if (schema.exclusiveMaximum !== undefined) bounds.push(`less than ${schema.exclusiveMaximum}`);
  if (schema.multipleOf !== undefined) bounds.push(`a multiple of ${schema.multipleOf}`);
  if (schema.pattern) bounds.push(`like ${schema.pattern}`);
  if (schema.format) bounds.push(schema.format);
  return [...parts, bounds.filter(Boolean).join(", ")].filter(Boolean).join(". ");
}

/** What a field says. @returns {{value?: any, isLeftOut?: boolean, fault?: string}} */
export function readField(one, text) {
  if (one.kind === "const") return { value: one.schema.const };
  if (text === null) return { value: null };
  if (text === "") {
    if (one.kind === "string" && one.required && !(one.schema.minLength > 0)) return { value: "" };
    return one.required ? { fault: "This must be filled in." } : { isLeftOut: true };
  }
  if (one.kind === "choice") return { value: JSON.parse(text) };
  if (one.kind === "boolean") return { value: text === "true" };
  if (one.kind === "number" || one.kind === "integer") return readNumber(one.schema, one.kind, text);
  if (one.kind === "string") return readString(one.schema, text);
  if (one.kind === "list") return readList(one, text);
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { fault: `This is no JSON: ${error.message}.` };
  }
}

function readNumber(schema, kind, text) {
  const value = Number(text);
  if (!Number.isFinite(value)) return { fault: "This must be a number." };
  if (kind === "integer" && !Number.isInteger(value)) return { fault: "This must be a whole number." };
  if (value < schema.minimum) return { fault: `This must be at least ${schema.minimum}.` };
  if (value > schema.maximum) return { fault: `This must be at most ${schema.maximum}.` };
  if (value <= schema.exclusiveMinimum) return { fault: `This must be more than ${schema.exclusiveMinimum}.` };
  if (value >= schema.exclusiveMaximum) return { fault: `This must be less than ${schema.exclusiveMaximum}.` };
  const times = value / schema.multipleOf;
  if (schema.multipleOf && Math.abs(times - Math.round(times)) > 1e-9) return { fault: `This must be a multiple of ${schema.multipleOf}.` };
  return { value };
}

function readString(schema, text) {
  const length = [...text].length;
  if (length < schema.minLength) return { fault: `This must have at least ${schema.minLength} characters.` };
  if (length > schema.maxLength) return { fault: `This must have at most ${schema.maxLength} characters.` };
  if (schema.pattern && !matches(schema.pattern, text)) return { fault: `This must be like ${schema.pattern}.` };
  return { value: text };
}

function matches(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true; // a pattern that browsers do not read; the service checks it
  }
}

function readList(one, text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  if (lines.length < one.schema.minItems) return { fault: `This must have at least ${one.schema.minItems} lines.` };
  if (lines.length > one.schema.maxItems) return { fault: `This must have at most ${one.schema.maxItems} lines.` };
  const kind = [one.items.type].flat()[0];
  const read = lines.map((line) => readField({ kind, schema: one.items, required: true }, line));
  const wrong = read.findIndex((line) => line.fault);
  return wrong >= 0 ? { fault: `Line ${wrong + 1}: ${read[wrong].fault}` } : { value: read.map((line) => line.value) };
}

/** The payload of a filled form. @returns {{payload: object, faults: Record<string, string>}} */
export function readForm(fields, texts, command) {
  const payload = { command };
  const faults = {};
  for (const one of fields) {
    const read = readField(one, texts[one.name] === undefined ? one.initial : texts[one.name]);
    if (read.fault) faults[one.name] = read.fault;
    else if (!read.isLeftOut) payload[one.name] = read.value;
  }
  return { payload, faults };
}
