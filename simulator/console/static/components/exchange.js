// Requests and answers in the order in which they were sent, the newest open.
import { asCurl } from "../core/exchange.js";
import { html } from "../core/html.js";
import { duration } from "../core/text.js";
import { CopyButton } from "./copy.js";
import { Json } from "./json.js";

const kindOf = (status) => (status === 0 ? "bad" : status < 300 ? "good" : status < 500 ? "warn" : "bad");

export function Exchange({ one, isOpen }) {
  return html`<details class="exchange" open=${isOpen}>
    <summary><span class="badge ${kindOf(one.status)}">${one.status || "no answer"}</span>
      <code>${one.method} ${one.path}</code><span class="quiet small nowrap">${duration(one.ms)}</span></summary>
    <div class="stack exchange-body">
      ${one.json !== undefined && html`<div><h3>Request</h3><${Json} value=${one.json} label="Request" /></div>`}
      <div><h3>Answer</h3>${one.answer === null ? html`<p class="quiet">${one.error?.status === 0 ? one.error.message : "No body."}</p>` : html`<${Json} value=${one.answer} label="Answer" />`}</div>
      <div><${CopyButton} text=${asCurl(one)} label="Copy as curl" /></div>
    </div>
  </details>`;
}

export const Exchanges = ({ all }) => html`<div class="stack exchanges">
  ${all.map((one, index) => html`<${Exchange} one=${one} isOpen=${index === all.length - 1} key=${index} />`)}
</div>`;
