// What stands where data would: while it loads, when there is none, when it could not be read.
import { html } from "../core/html.js";

export const Loading = ({ text = "Loading…" }) => html`<p class="loading" role="status">${text}</p>`;

/** Nothing is there yet: says what would be, and what to do about it. */
export const Empty = ({ title, children }) => html`<div class="card empty"><h2>${title}</h2>${children}</div>`;

/** Something was not carried out. `error` is an ApiError, or `title` and `text` say it. */
export function ErrorBox({ error, title = "This could not be done", text, action, label = "Try again" }) {
  return html`<div class="notice bad stack" role="alert">
    <div><strong>${title}</strong><p>${text ?? error?.message}</p>
      ${error?.details?.length > 1 && html`<ul>${error.details.map((one) => html`<li><code>${one.field}</code>: ${one.issue}</li>`)}</ul>`}</div>
    ${action && html`<div><button class="button small" type="button" onClick=${action}>${label}</button></div>`}
  </div>`;
}
