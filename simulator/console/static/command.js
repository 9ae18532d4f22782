// The form that sends a command: fields from the product's vocabulary, or the payload as JSON.
import { get, post, segment } from "./api.js";
import { cut } from "./text.js";
import { ErrorBox, Field, html, Input, Loading, Select, useAction, useLoaded, useState } from "./ui.js";

const SCALARS = new Set(["string", "number", "integer", "boolean"]);
const NUMBERS = new Set(["number", "integer"]);
const BOUNDS = [
  ["minimum", "at least"], ["maximum", "at most"], ["exclusiveMinimum", "more than"], ["exclusiveMaximum", "less than"],
];
const BY_HAND = ""; // chosen instead of a word of the vocabulary

export function SendCommand({ device, payload, onSent }) {
  const path = `/products/${segment(device.product_id)}/commands`;
  const vocabulary = useLoaded(async () => (await get(path)).data, [path]);
  if (vocabulary.error) return html`<${ErrorBox} error=${vocabulary.error}
    title="The product's commands could not be read" onAgain=${vocabulary.reload} />`;
  if (!vocabulary.value) return html`<${Loading} />`;
  return html`<${Form} device=${device} vocabulary=${vocabulary.value} payload=${payload} onSent=${onSent} />`;
}

function Form({ device, vocabulary, payload, onSent }) {
  const [name, setName] = useState(payload ? BY_HAND : vocabulary[0]?.name ?? BY_HAND);
  const [texts, setTexts] = useState({});
  const [json, setJson] = useState(JSON.stringify(payload ?? { command: "" }, null, 2));
  const [ttl, setTtl] = useState("");
  const [faults, setFaults] = useState({});
  const action = useAction();
  const chosen = vocabulary.find((one) => one.name === name);
  const fields = chosen ? fieldsOf(chosen.payload_schema) : [];
  const choose = (word) => {
    setName(word);
    setTexts({});
    setFaults({});
  };
  const submit = (event) => {
    event.preventDefault();
    const read = chosen ? readFields(name, fields, texts) : readObject(json);
    setFaults(read.faults);
    if (Object.keys(read.faults).length) return;
    const body = { device_id: device.device_id, command_payload: read.payload };
    if (ttl) body.ttl_seconds = Number(ttl);
    action.run(async () => onSent(await post("/commands/send", body)));
  };
  const words = [...vocabulary.map((one) => [one.name, cut(one.title || one.name, 80)]), [BY_HAND, "Other, as JSON"]];
  return html`<form class="stack" onSubmit=${submit} noValidate>
    <${Field} id="command-name" label="Command" help=${chosen?.description && cut(chosen.description, 500)}>
      <${Select} id="command-name" value=${name} options=${words} onChoose=${choose} /><//>
    ${fields.map((field) => html`<${SchemaField} key=${`${name} ${field.name}`} field=${field}
      text=${texts[field.name] ?? ""} fault=${faults[field.name]}
      onText=${(text) => setTexts({ ...texts, [field.name]: text })} />`)}
    ${!chosen && html`<${Field} id="payload" label="Payload" help='A JSON object; "command" names what is to be done.'
      fault=${faults.payload}>
      <textarea class="input" id="payload" rows="9" spellcheck=${false} aria-describedby="payload-help" value=${json}
        onInput=${(event) => setJson(event.currentTarget.value)}></textarea><//>`}
    <${Field} id="ttl" label="Ends after (seconds)"
      help="What is not done by then ends as expired. One hour when left empty.">
      <${Input} id="ttl" type="number" min="1" placeholder="3600" value=${ttl} onText=${setTtl} /><//>
    ${action.error && html`<${ErrorBox} error=${action.error} title="The command was not sent" />`}
    <div><button class="button main" type="submit"
      disabled=${action.isBusy}>Send to ${cut(device.device_name || device.device_id, 60)}</button></div>
  </form>`;
}

/** The fields of a JSON Schema: its properties but for `command`. What no input fits is written as JSON. */
function fieldsOf(schema) {
  const required = new Set(schema?.required ?? []);
  return Object.entries(schema?.properties ?? {}).filter(([name]) => name !== "command").map(([name, one]) => {
    const type = [one?.type ?? []].flat().find((word) => word !== "null");
    const kind = Array.isArray(one?.enum) ? "choice" : SCALARS.has(type) ? type : "json";
    return { name, kind, schema: one ?? {}, required: required.has(name) };
  });
}

function SchemaField({ field, text, fault, onText }) {
  const { name, kind, schema, required } = field;
  const id = `field-${name}`;
  const bounds = BOUNDS.filter(([key]) => schema[key] !== undefined).map(([key, words]) => `${words} ${schema[key]}`);
  const parts = [schema.description && cut(schema.description, 300), bounds.join(", "), kind === "json" && "as JSON"];
  const help = parts.filter(Boolean).join("; ");
  const label = `${cut(schema.title ?? name, 80)}${required ? "" : " (optional)"}`;
  const listed = kind === "boolean" ? [true, false] : kind === "choice" ? schema.enum : null;
  const choices = listed?.map((one) => JSON.stringify(one));
  return html`<${Field} id=${id} label=${label} help=${help} fault=${fault}>${choices
    ? html`<${Select} id=${id} value=${text} onChoose=${onText}
      options=${[["", "not given"], ...choices.map((one) => [one, one])]} />`
    : html`<${Input} id=${id} inputmode=${NUMBERS.has(kind) ? "decimal" : "text"}
      maxlength="60000"
        aria-invalid=${Boolean(fault)} value=${text} onText=${onText} />`}<//>`;
}

/** The payload of a form; the service checks it against the schema once more. */
function readFields(command, fields, texts) {
  const payload = { command };
  const faults = {};
  for (const { name, kind, required } of fields) {
    const text = texts[name] ?? "";
    if (text === "") {
      if (required) faults[name] = "This must be filled in.";
      continue;
    }
    try {
      payload[name] = kind === "string" ? text : JSON.parse(text);
    } catch {
      faults[name] = kind === "json" ? "This is no JSON." : "This must be a number.";
    }
    const isNumber = typeof payload[name] === "number" || payload[name] === null;
    if (NUMBERS.has(kind) && !isNumber) faults[name] = "This must be a number.";
  }
  return { payload, faults };
}

function readObject(text) {
  try {
    const payload = JSON.parse(text);
    const isObject = payload !== null && typeof payload === "object" && !Array.isArray(payload);
    return { payload, faults: isObject ? {} : { payload: "This must be a JSON object." } };
  } catch (error) {
    return { payload: null, faults: { payload: `This is no JSON: ${error.message}.` } };
  }
}
