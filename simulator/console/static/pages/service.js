// The service itself: its clock, snapshots of its state, and the accounts on it.
import { Accounts } from "../components/accounts.js";
import { Clock } from "../components/clock.js";
import { Snapshots } from "../components/snapshots.js";
import { html } from "../core/html.js";

export const title = "Service";

export default function Service() {
  return html`<div class="head"><h1>Service</h1><a class="button" href="/docs" target="_blank" rel="noopener">Documents of its interface</a></div>
    <div class="service-page"><${Clock} /><${Snapshots} /><${Accounts} /></div>`;
}
