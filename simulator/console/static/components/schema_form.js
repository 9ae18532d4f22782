// Fields of a payload. An optional field that is left empty is left out; a field that may be null says so beside it.
import { html } from "../core/html.js";
import { cut } from "../core/text.js";

/** @param {{fields: object[], texts: object, faults: object, onChange: (name: string, text: string|null) => void}} properties */
export function SchemaForm({ fields, texts, faults, onChange }) {
  const shown = fields.filter((one) => one.kind !== "const");
  if (!shown.length) return html`<p class="quiet">This command takes nothing else.</p>`;
  return html`${shown.map((one) => html`<${Field} key=${one.name} field=${one} text=${texts[one.name] === undefined ? one.initial : texts[one.name]} fault=${faults[one.name]} onChange=${(text) => onChange(one.name, text)} />`)}`;
}

function Field({ field, text, fault, onChange }) {
  const id = `field-${field.name}`;
  const help = [field.help, field.required ? "" : "May be left out.", field.kind === "list" ? "One on each line." : "", field.kind === "json" ? "As JSON." : ""].filter(Boolean).join(" ");
  const common = { id, class: "input", value: text ?? "", disabled: text === null, "aria-invalid": Boolean(fault), "aria-describedby": `${id}-help ${id}-fault`, required: field.required, onInput: (event) => onChange(event.currentTarget.value) };
  return html`<div class="field"><label for=${id}>${cut(field.label, 80)}${field.required ? "" : html` <span class="quiet">(optional)</span>`}</label>
    <${Control} field=${field} common=${common} />
    ${field.nullable && html`<label class="check small"><input type="checkbox" checked=${text === null} onChange=${(event) => onChange(event.currentTarget.checked ? null : "")} />null</label>`}
    <span class="help" id="${id}-help">${cut(help, 500)}</span>${fault && html`<span class="fault" id="${id}-fault">${fault}</span>`}</div>`;
}

function Control({ field, common }) {
  const { schema } = field;
  if (field.kind === "choice") {
    return html`<select ...${common}>${!field.required && html`<option value="">leave out</option>`}${field.choices.map((one) => html`<option value=${one} key=${one}>${cut(labelOf(one), 80)}</option>`)}</select>`;
  }
  if (field.kind === "boolean") return html`<select ...${common}><option value="">${field.required ? "choose" : "leave out"}</option><option value="true">true</option><option value="false">false</option></select>`;
  if (field.kind === "number" || field.kind === "integer") return html`<input type="number" ...${common} min=${schema.minimum} max=${schema.maximum} step=${field.kind === "integer" ? 1 : "any"} />`;
  if (field.kind === "list" || field.kind === "json") return html`<textarea rows="4" spellcheck=${false} ...${common}></textarea>`;
  return html`<input type="text" autocomplete="off" ...${common} />`;
}

const labelOf = (json) => (json.startsWith('"') ? JSON.parse(json) : json);
