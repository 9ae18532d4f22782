// Tabs: arrow keys move between them, as in the ARIA patterns. `tabs` is [{id, label}].
import { html, useRef } from "../core/html.js";

export function Tabs({ tabs, chosen, onChoose, label, children }) {
  const list = useRef(null);
  const move = (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!steps) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + steps + tabs.length) % tabs.length];
    onChoose(next.id);
    list.current.querySelector(`#tab-${next.id}`)?.focus();
  };
  return html`<div>
    <div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${move}>
      ${tabs.map((tab) => html`<button type="button" role="tab" id="tab-${tab.id}" key=${tab.id} aria-selected=${String(tab.id === chosen)}
        aria-controls="panel-${tab.id}" tabindex=${tab.id === chosen ? 0 : -1} onClick=${() => onChoose(tab.id)}>${tab.label}</button>`)}
    </div>
    <div role="tabpanel" id="panel-${chosen}" aria-labelledby="tab-${chosen}">${children}</div>
  </div>`;
}
