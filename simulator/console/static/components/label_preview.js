// The first labels of an order as they will look, and what is known of them.
import { html } from "../core/html.js";
import { count, cut, plural } from "../core/text.js";

const svgAddress = (svg) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;

export function Good({ shown }) {
  const { labels, sheet } = shown;
  return html`
    <div class="card stack"><h2>${plural(shown.count, "label")}</h2>
      <dl class="facts">
        <dt>Proven by</dt><dd>${shown.proven_by.join(", ")}</dd>
        <dt>Code</dt><dd>${labels[0].edge_mm} mm with its quiet zone, version ${labels[0].version}, level ${labels[0].level}</dd>
        <dt>Sheet</dt><dd>${plural(sheet.pages, "page")}, ${count(sheet.per_page)} on each; print at 100 %</dd>
        <dt>Signature</dt><dd>${shown.signed_by ? `signed by the product's key ${shown.signed_by}` : "not signed"}</dd>
      </dl>
      ${shown.warnings.map((text) => html`<p class="notice warn" key=${text}>${text}</p>`)}</div>
    <ul class="label-grid">${labels.map((one) => html`<li class="label-card" key=${one.device_identifier}>
      <img src=${svgAddress(one.svg)} alt="QR label of ${cut(one.device_identifier, 80)}" />
      <strong class="mono">${cut(one.device_identifier, 60)}</strong><code class="small quiet">${cut(one.text, 160)}</code></li>`)}</ul>
    ${labels.length < shown.count && html`<p class="quiet">The first ${count(labels.length)} are shown.</p>`}`;
}
