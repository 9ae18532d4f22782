// Snapshots: the whole state under a name.
import { ErrorBox, Loading } from "./states.js";
import { get } from "../core/api.js";
import { html } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { bytes, time } from "../core/text.js";

export function Snapshots() {
  const snapshots = useLoaded(() => get("/_emulator/snapshots", {}, { account: "" }), []);
  const rows = snapshots.value?.data;
  return html`<section class="card stack" aria-labelledby="snapshots-title"><h2 id="snapshots-title">Snapshots</h2>
    ${snapshots.error && html`<${ErrorBox} error=${snapshots.error} title="The snapshots could not be read" action=${snapshots.reload} />`}
    ${!rows && !snapshots.error && html`<${Loading} />`}
    ${rows?.length === 0 && html`<p class="quiet">None yet: POST /_emulator/snapshots saves everything, also accounts and the clock.</p>`}
    ${rows?.length > 0 && html`<ul class="snapshots">${rows.map((one) => html`<li key=${one.name}>
      <div><strong>${one.name}</strong>
        ${one.fault ? html`<p class="small wrong">${one.fault}</p>` : html`<p class="quiet small">${time(one.made_at)} · ${bytes(one.size_bytes)}</p>`}</div></li>`)}</ul>`}
  </section>`;
}
