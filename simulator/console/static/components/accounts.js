// Accounts on the service with their key pairs. A secret key is fetched when it is asked for, and is in no page before.
import { CopyBlock } from "./copy.js";
import { Dialog } from "./dialog.js";
import { ErrorBox, Loading } from "./states.js";
import { toast, toastError } from "./toast.js";
import { account, chooseAccount, loadAccounts } from "../core/account.js";
import { del, get, post, segment } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { useStore } from "../core/store.js";
import { count, cut, plural } from "../core/text.js";

const PATH = "/_emulator/accounts";
const CONTROL = { account: "" };

export function Accounts() {
  const accounts = useLoaded(() => get(PATH, { limit: 1000 }, CONTROL), []);
  const current = useStore(account);
  const [made, setMade] = useState(null);
  const [asked, setAsked] = useState(null);
  const [name, setName] = useState("");
  const changed = async () => {
    accounts.reload();
    await loadAccounts(get);
  };
  const attempt = async (act) => {
    try {
      await act();
    } catch (error) {
      toastError(error);
    }
    await changed().catch(toastError);
  };
  const add = (event) => {
    event.preventDefault();
    attempt(async () => {
      const one = await post(PATH, name ? { name } : {}, CONTROL);
      setName("");
      setMade({ title: `Account ${one.name}`, pair: one.keys[0] });
    });
  };
  const addPair = (one) => attempt(async () => setMade({ title: `Another key pair of ${one.name}`, pair: await post(`${PATH}/${segment(one.account_id)}/keys`, {}, CONTROL) }));
  const show = (one, key) => attempt(async () => setMade({ title: `Keys of ${one.name}`, pair: await get(`${PATH}/${segment(one.account_id)}/keys/${segment(key.api_key)}`, {}, CONTROL) }));
  const rows = accounts.value?.data;
  return html`<section class="card stack service-accounts" aria-labelledby="accounts-title"><h2 id="accounts-title">Accounts</h2>
    <form class="row" onSubmit=${add}><label class="small" for="account-name">Name</label>
      <input class="input" id="account-name" maxlength="100" autocomplete="off" placeholder="Made when it is empty" value=${name} onInput=${(event) => setName(event.currentTarget.value)} />
      <button class="button main" type="submit">Add an account</button></form>
    ${accounts.error && html`<${ErrorBox} error=${accounts.error} title="The accounts could not be read" action=${accounts.reload} />`}
    ${!rows && !accounts.error && html`<${Loading} />`}
    ${rows && html`<ul class="snapshots">${rows.map((one, index) => html`<li key=${one.account_id}>
      <div><strong>${cut(one.name, 100)}</strong>${one.keys.some((key) => key.api_key === current) && html` <span class="badge accent">shown in this console</span>`}
        <p class="quiet small">${one.quota === null ? "quota of the service" : one.quota === 0 ? "no quota" : `${count(one.quota)} requests a minute`} · answers as ${one.profile} · ${plural(one.keys.length, "key pair")}</p>
        <ul class="keys">${one.keys.map((key) => html`<li class="row" key=${key.api_key}><code>${key.api_key}</code>
          <button class="link small" type="button" aria-label="Show the secret of ${key.api_key}" onClick=${() => show(one, key)}>Show the secret</button>
          ${one.keys.length > 1 && html`<button class="link small" type="button" aria-label="End ${key.api_key}" onClick=${() => attempt(() => del(`${PATH}/${segment(one.account_id)}/keys/${segment(key.api_key)}`, CONTROL))}>End it</button>`}</li>`)}</ul></div>
      <div class="row">${!one.keys.some((key) => key.api_key === current) && one.keys.length > 0 && html`<button class="button small" type="button" aria-label="Show the devices of ${one.name}" onClick=${() => { chooseAccount(one.keys[0].api_key); toast(`The console shows ${one.name}.`, "good"); }}>Show its devices</button>`}
        <button class="button small" type="button" aria-label="Another key pair of ${one.name}" onClick=${() => addPair(one)}>Another key pair</button>
        ${index > 0 && html`<button class="button small bad" type="button" aria-label="Delete ${one.name}" onClick=${() => setAsked(one)}>Delete</button>`}</div></li>`)}</ul>`}
    ${made && html`<${Dialog} title=${made.title} onClose=${() => setMade(null)}><${Pair} pair=${made.pair} /><//>`}
    ${asked && html`<${Dialog} title="Delete ${asked.name}?" onClose=${() => setAsked(null)}><div class="stack"><p>Its devices, commands, readings, people and keys go with it.</p>
      <div class="row"><button class="button bad" type="button" onClick=${() => { const one = asked; setAsked(null); attempt(() => del(`${PATH}/${segment(one.account_id)}`, CONTROL)); }}>Delete</button></div></div><//>`}
  </section>`;
}

function Pair({ pair }) {
  const lines = `export API_KEY='${pair.api_key}'\nexport SECRET_KEY='${pair.secret_key}'\ncurl -H "x-api-key: $API_KEY" -H "x-secret-key: $SECRET_KEY" ${location.origin}/devices`;
  return html`<div class="stack"><dl class="facts"><dt>x-api-key</dt><dd class="mono">${pair.api_key}</dd><dt>x-secret-key</dt><dd class="mono">${pair.secret_key}</dd></dl>
    <${CopyBlock} text=${lines} label="Lines for a shell" />
    <p class="quiet small">The secret belongs on a server of yours. The service keeps its hash alone and may show it no more once it was started again.</p></div>`;
}
