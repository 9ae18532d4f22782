// A JSON value as text. Of a large one the beginning is shown: browsers choke on megabytes of text in one place.
import { html, useState } from "../core/html.js";
import { bytes } from "../core/text.js";
import { CopyButton } from "./copy.js";

const SHOWN = 20000;

export function Json({ value, label = "JSON" }) {
  const [all, setAll] = useState(false);
  const text = JSON.stringify(value, null, 2);
  const isLong = text.length > SHOWN;
  return html`<div class="stack">
    <pre class="json" tabindex="0" aria-label=${label}>${isLong && !all ? `${text.slice(0, SHOWN)}…` : text}</pre>
    <div class="row"><${CopyButton} text=${text} label="Copy JSON" />
      ${isLong && !all && html`<button class="button small" type="button" onClick=${() => setAll(true)}>Show all ${bytes(text.length)}</button>`}</div>
  </div>`;
}
