// A code in its picture, and what it says: its values, and what the service answers about it.
import { CopyButton } from "./copy.js";
import { html } from "../core/html.js";
import { cut } from "../core/text.js";

const PROFILES = { json: "JSON", link: "Link", compact: "Compact" };

/** The picture with a numbered box around each code. */
export function CodePicture({ url, name, found, at }) {
  const { width, height } = found.picture;
  const line = Math.max(width, height) / 160;
  const points = (corners) => corners.map(([x, y]) => `${x},${y}`).join(" ");
  const words = found.codes.length ? `${found.codes.length} QR code(s) found in ${name}` : `No QR code read in ${name}`;
  return html`<figure class="code-picture">
    <img src=${url} alt=${words} width=${width} height=${height} />
    <svg viewBox="0 0 ${width} ${height}" aria-hidden="true">
      ${found.unread.map((corners) => html`<polygon class="unread" points=${points(corners)} stroke-width=${line} />`)}
      ${found.codes.map((code, index) => html`<polygon class=${index === at ? "chosen" : ""} points=${points(code.corners)} stroke-width=${line} />
        ${found.codes.length > 1 && html`<text x=${code.corners[0][0]} y=${code.corners[0][1] - line} font-size=${line * 6}>${index + 1}</text>`}`)}
    </svg>
  </figure>`;
}

export const CodeList = ({ codes, at, onChoose }) => html`<fieldset class="code-list"><legend>${codes.length} codes in this picture</legend>
  ${codes.map((code, index) => html`<button type="button" class="button small" aria-pressed=${String(index === at)} key=${index} onClick=${() => onChoose(index)}>
    ${index + 1}. ${cut(code.label?.device_identifier ?? code.text ?? "no text", 24)}</button>`)}
</fieldset>`;

export function WhatItSays({ code, scanned }) {
  const label = code.label ?? labelOf(scanned?.answer);
  return html`<div class="card stack">
    <${Verdict} code=${code} scanned=${scanned} />
    <dl class="facts">
      ${label && html`<dt>Device identifier</dt><dd class="mono">${label.device_identifier}</dd>
        <dt>Product id</dt><dd class="mono">${label.product_id}</dd>
        <dt>Profile</dt><dd>${PROFILES[label.profile] ?? label.profile}${label.host ? ` to ${label.host}` : ""}</dd>
        <dt>Signature</dt><dd>${label.signed ? "signed" : "not signed"}</dd>`}
      ${code.text !== null && html`<dt>Text</dt><dd><code class="label-text">${cut(code.text, 1500)}</code> <${CopyButton} text=${code.text} label="Copy text" /></dd>`}
    </dl>
  </div>`;
}

/** What is known of a label that was typed, and so was not decoded. */
function labelOf(answer) {
  const info = answer?.qr_info;
  return info && { device_identifier: info.device_identifier, product_id: info.product_id, profile: info.profile ?? "json", host: info.host, signed: Boolean(info.sig) };
}

/** Whether the service takes the label, why not, and what to do then. */
function Verdict({ code, scanned }) {
  if (code.text === null) return html`<${Refused} title="This is no device label" text=${code.problem.message}>Labels of this service are made on the page <a href="/console/labels">Labels</a>.<//>`;
  if (!scanned) return html`<p class="loading" role="status">Asking the service about it…</p>`;
  if (!scanned.error) {
    const { product, already_registered } = scanned.answer;
    return html`<div class="notice good" role="status"><strong>Valid label</strong><p>${already_registered ? "The device is registered already" : "The device is not registered yet"}.</p></div>
      <div><h2>${product.name}</h2><p class="quiet">${[product.category, product.model].filter(Boolean).join(" · ") || "No category or model is stored."}</p>
      ${product.description && html`<p>${cut(product.description, 400)}</p>`}</div>`;
  }
  const [title, next] = refusal(scanned.error);
  return html`<${Refused} title=${title} text=${scanned.error.message}>${next}<//>`;
}

const Refused = ({ title, text, children }) => html`<div class="notice bad" role="alert"><strong>${title}</strong><p>${text}</p><p>${children}</p></div>`;

/** What a refusal is called, and the next step. */
function refusal(error) {
  const make = html`<a href="/console/labels">Labels</a>`;
  if (error.code === "invalid_qr") return ["This is no device label", html`Labels of this service are made on the page ${make}.`];
  if (error.code === "product_not_found") return ["No such product in this account", "Choose another account at the top of the page if there is one, or make a label of a product of this account."];
  if (error.code === "invalid_signature" && error.message.includes("label_unsigned")) return ["The label is not signed", html`Its product has a label_key, so unsigned labels are refused. Make a signed one on the page ${make}.`];
  if (error.code === "invalid_signature") return ["The signature is wrong", html`The label was changed, or signed with another key than the product's label_key. Make a new one on the page ${make}.`];
  return ["The service refused it", "Correct what it says, and scan again."];
}
