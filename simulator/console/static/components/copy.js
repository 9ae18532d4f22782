// Text to take along: as it is, with a button that copies it.
import { html, useState } from "../core/html.js";

/** Copy to the clipboard; over plain http to another machine browsers have none, so the old way stands in. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function CopyButton({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const act = async () => {
    await copy(text);
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return html`<button class="button small" type="button" onClick=${act}>${done ? "Copied" : label}</button>`;
}

export const CopyBlock = ({ text, label }) => html`<div class="stack">
  <pre class="code" tabindex="0" aria-label=${label}>${text}</pre><div><${CopyButton} text=${text} /></div></div>`;
