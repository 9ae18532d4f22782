// The first labels of an order as they will look, and what is known of them.
import { html } from "../core/html.js";
import { count, cut, plural } from "../core/text.js";

const svgAddress = (svg) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
const pngAddress = (data) => `data:image/png;base64,${data}`;

export function Good({ shown }) {
  const { labels, sheet } = shown;
  return html`
    <div class="card stack"><h2>${plural(shown.count, "label")}</h2>
      <dl class="facts">
        <dt>Proven by</dt><dd>${shown.proven_by.join(", ")}</dd>
        <dt>Code</dt><dd>${labels[0].edge_mm} mm with its quiet zone, version ${labels[0].version}, level ${labels[0].level}</dd>
        <dt>Print</dt><dd>grade ${labels[0].estimated_grade} estimated by ISO/IEC 15415's parameters, not measured</dd>
        <dt>Sheet</dt><dd>${plural(sheet.pages, "page")}, ${count(sheet.per_page)} on each; print at 100 %</dd>
        <dt>Signature</dt><dd>${shown.signed_by ? `signed by the product's key ${shown.signed_by}` : "not signed"}</dd>
      </dl>
      ${shown.warnings.map((text) => html`<p class="notice warn" key=${text}>${text}</p>`)}</div>
    <ul class="label-grid">${labels.map((one) => html`<li class="label-card" key=${one.device_identifier}>
      <img src=${svgAddress(one.svg)} alt="QR label of ${cut(one.device_identifier, 80)}" />
      <strong class="mono">${cut(one.device_identifier, 60)}</strong><code class="small quiet">${cut(one.text, 160)}</code></li>`)}</ul>
    ${labels.length < shown.count && html`<p class="quiet">The first ${count(labels.length)} are shown.</p>`}`;
}

export const Payloads = ({ shown }) => html`
  <div class="card stack"><h2>${plural(shown.count, "payload")} in ${plural(shown.classes, "class", "classes")}</h2>
    <p>Each must be refused. One of each class is shown; the archive has all of them as text and picture, and <code>corpus.json</code> with the answer that is due to each.</p>
    <p class="quiet small">To send all of them to a server: <code>fleet-simulator labels corpus --against URL</code></p></div>
  <ul class="label-grid">${shown.entries.map((one) => html`<li class="label-card" key=${one.id}>
    <img src=${pngAddress(one.png_base64)} alt="QR code: ${cut(one.what, 80)}" />
    <strong>${one.class.replaceAll("_", " ")}</strong><span>${cut(one.what, 100)}</span>
    <span class="badge warn">${one.expected ? `${one.expected.status} ${one.expected.error ?? ""}` : "no scanner hands it over"}</span></li>`)}</ul>`;

const SAID = { read: "reads it", several: "reads it, and more", misread: "reads something else", not_found: "does not read it", crashed: "crashed", timed_out: "took too long" };

export const Damaged = ({ shown }) => html`
  <div class="card stack"><h2>${plural(shown.count, "picture")} of ${plural(shown.labels, "label")}</h2>
    <p>Each kind of damage at half and at full strength, with what each decoder says about the picture as it is. The first label is shown.</p>
    <p class="quiet small">A phone app looks more than once: for pictures that provably nobody reads run <code>fleet-simulator labels damage --must-fail</code>.</p></div>
  <ul class="label-grid">${shown.entries.map((one) => html`<li class="label-card" key=${one.kind + one.severity}>
    <img src=${pngAddress(one.png_base64)} alt="Label: ${one.what}, ${one.measure}" />
    <strong>${one.kind.replaceAll("_", " ")}</strong><span class="small quiet">${one.what}, ${one.measure}</span>
    ${Object.entries(one.verdicts).map(([name, said]) => html`<span class="badge ${said === "read" ? "good" : "bad"}" key=${name}>${name} ${SAID[said] ?? said}</span>`)}</li>`)}</ul>`;
