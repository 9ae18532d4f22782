// One logged request with its answer: where it came from, headers, bodies, and what became of it.
import { Badge } from "./badge.js";
import { html } from "../core/html.js";
import { bytes, duration, time } from "../core/text.js";

const OUTCOMES = { no_answer: "no answer", cut: "answer cut", caller_gone: "caller gone" };
const kindOf = (status) => (status >= 500 ? "failed" : status >= 400 ? "rejected" : status >= 300 ? "queued" : "succeeded");

/** Status and what else is worth a word: an answer that did not arrive, a fault that was wanted. */
export function Outcome({ request }) {
  const status = request.answer?.status;
  return html`${status ? html`<${Badge} state=${kindOf(status)} text=${String(status)} />` : html`<${Badge} state="failed" text=${OUTCOMES[request.outcome] ?? request.outcome} />`}
    ${status && request.outcome !== "answered" ? html` <${Badge} state="failed" text=${OUTCOMES[request.outcome] ?? request.outcome} />` : ""}
    ${request.faults.length > 0 && html` <${Badge} state="rejected" text="fault" />`}`;
}

export function Exchange({ request }) {
  return html`<dl class="facts">
      <dt>Outcome</dt><dd><${Outcome} request=${request} /></dd>
      <dt>Received</dt><dd><time datetime=${request.received_at}>${time(request.received_at)}</time>, answered after ${duration(request.duration_ms)}</dd>
      <dt>Path</dt><dd class="mono">${request.path}${request.query && `?${request.query}`}</dd>
      <dt>Caller</dt><dd class="mono">${request.caller ?? "nobody known"}${request.client && html` <span class="quiet">from ${request.client}</span>`}</dd>
      <dt>Request id</dt><dd class="mono">${request.request_id || "none"}</dd>
      ${request.faults.length > 0 && html`<dt>Faults</dt><dd>${request.faults.map((one) => (one === "header" ? "of its header" : one)).join(", ")}</dd>`}
    </dl>
    <div class="columns">
      <${Message} name="Request" message=${request.request} />
      ${request.answer ? html`<${Message} name="Answer" message=${request.answer} />` : html`<section><h3>Answer</h3><p class="quiet">None was sent.</p></section>`}
    </div>`;
}

function Message({ name, message }) {
  return html`<section class="stack"><h3>${name}</h3>
    ${message.body ? html`<pre class="json" tabindex="0" aria-label="${name}'s body">${bodyText(message)}</pre>` : html`<p class="quiet">No body.</p>`}
    ${message.truncated && html`<p class="quiet small">The log kept the beginning of ${bytes(message.body_bytes)}.</p>`}
    ${message.body_encoding === "base64" && html`<p class="quiet small">No text: shown as Base64.</p>`}
    <details><summary>${message.headers.length} headers</summary><dl class="facts small">${message.headers.map((one, index) => html`<dt class="mono" key=${index}>${one.name}</dt><dd class="mono" key=${`${index}v`}>${one.value}</dd>`)}</dl></details></section>`;
}

function bodyText(message) {
  if (message.body_encoding === "base64" || message.truncated) return message.body;
  try {
    return JSON.stringify(JSON.parse(message.body), null, 2);
  } catch {
    return message.body;
  }
}
