// Short messages about what was done, at the lower edge; they go by themselves, errors stay until closed.
import { html } from "../core/html.js";
import { createStore, useStore } from "../core/store.js";

const shown = createStore([]);
const LONGEST_MS = 6000;
let last = 0;

/** Show a message. `kind` is "good", "bad" or empty. */
export function toast(text, kind = "") {
  const one = { id: ++last, text, kind };
  shown.set([...shown.get().slice(-3), one]);
  if (kind !== "bad") setTimeout(() => close(one.id), LONGEST_MS);
}

export const toastError = (error) => toast(error.message, "bad");
const close = (id) => shown.set(shown.get().filter((one) => one.id !== id));

export function Toasts() {
  const all = useStore(shown);
  return html`<div class="toasts" role="region" aria-label="Messages" aria-live="polite">
    ${all.map((one) => html`<div class="toast ${one.kind}" key=${one.id}><p>${one.text}</p>
      <button class="link small" type="button" onClick=${() => close(one.id)}>Close</button></div>`)}
  </div>`;
}
