// Accounts on the service: which one the console shows.
import { ErrorBox, Loading } from "./states.js";
import { toast } from "./toast.js";
import { account, chooseAccount } from "../core/account.js";
import { get } from "../core/api.js";
import { html } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { useStore } from "../core/store.js";
import { count, cut } from "../core/text.js";

export function Accounts() {
  const accounts = useLoaded(() => get("/_emulator/accounts", { limit: 1000 }, { account: "" }), []);
  const current = useStore(account);
  const rows = accounts.value?.data;
  return html`<section class="card stack service-accounts" aria-labelledby="accounts-title"><h2 id="accounts-title">Accounts</h2>
    ${accounts.error && html`<${ErrorBox} error=${accounts.error} title="The accounts could not be read" action=${accounts.reload} />`}
    ${!rows && !accounts.error && html`<${Loading} />`}
    ${rows && html`<ul class="snapshots">${rows.map((one) => html`<li key=${one.account_id}>
      <div><strong>${cut(one.name, 100)}</strong>${one.keys.some((key) => key.api_key === current) && html` <span class="badge accent">shown in this console</span>`}
        <p class="quiet small">${one.quota === null ? "quota of the service" : one.quota === 0 ? "no quota" : `${count(one.quota)} requests a minute`} · answers as ${one.profile}</p>
        <p class="small"><code>${one.keys.map((key) => key.api_key).join(" ")}</code></p></div>
      ${!one.keys.some((key) => key.api_key === current) && one.keys.length > 0 && html`<button class="button small" type="button" aria-label="Show the devices of ${one.name}" onClick=${() => { chooseAccount(one.keys[0].api_key); toast(`The console shows ${one.name}.`, "good"); }}>Show its devices</button>`}</li>`)}</ul>`}
  </section>`;
}
