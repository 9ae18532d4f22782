// The service itself: its clock, its accounts, its snapshots, and everything set back.
import { del, get, getAll, post, put, segment } from "./api.js";
import { bytes, cut, duration, time } from "./text.js";
import { ErrorBox, Field, html, Input, Loaded, toast, useAction, useLoaded, useState } from "./ui.js";

const CLOCK = "/_emulator/clock";
const SNAPSHOTS = "/_emulator/snapshots";
const MODES = {
  real: "the machine's time", offset: "runs, set to another time", frozen: "stands still",
};

export function Service() {
  const health = useLoaded(() => get("/_emulator/health"), [], 2000);
  return html`<div class="head"><h1>Service</h1>${health.value && html`<p
    class="quiet">up for ${duration(health.value.uptime_s)}</p>`}</div>
    ${health.error && html`<${ErrorBox} error=${health.error} title="The service could not be asked" />`}
    <div class="service-page"><${Clock} /><${Snapshots} /><${Accounts} /><${Reset} /></div>`;
}

function Clock() {
  const clock = useLoaded(() => get(CLOCK), [], 1000);
  const [seconds, setSeconds] = useState("60");
  const action = useAction();
  const change = (send) => action.run(async () => {
    await send();
    await clock.reload();
  });
  const advance = (event) => {
    event.preventDefault();
    change(() => post(`${CLOCK}/advance`, { seconds: Number(seconds) }));
  };
  const one = clock.value;
  return html`<section class="card stack" aria-labelledby="clock-title"><h2 id="clock-title">Clock</h2>
    <${Loaded} from=${clock} title="The clock could not be read">
      <p class="clock-time">${one && time(one.time)}</p><p class="quiet">${one && (MODES[one.mode] ?? one.mode)}</p>
      ${action.error && html`<${ErrorBox} error=${action.error} title="The clock was not changed" />`}
      <form class="row" onSubmit=${advance}><${Field} id="seconds" label="Advance by, s">
        <${Input} id="seconds" type="number" min="0" step="any" required value=${seconds} onText=${setSeconds} /><//>
        <button class="button" type="submit" disabled=${action.isBusy}>Advance</button></form>
      <p class="quiet small">What falls due on the way, such as the end of a command, is carried out.</p>
      <div class="row">${one?.mode !== "frozen" && html`<button class="button small" type="button"
        onClick=${() => change(() => put(CLOCK, { mode: "frozen" }))}>Freeze</button>`}
        ${one?.mode !== "real" && html`<button class="button small" type="button"
          onClick=${() => change(() => put(CLOCK, { mode: "real" }))}>Back to the machine's time</button>`}</div><//>
          </section>`;
}

function Accounts() {
  const accounts = useLoaded(() => getAll("/_emulator/accounts", {}), []);
  return html`<section class="card stack" aria-labelledby="accounts-title"><h2 id="accounts-title">Accounts</h2>
    <${Loaded} from=${accounts} title="The accounts could not be read">
      ${accounts.value?.length === 0 && html`<p class="quiet">There is none.</p>`}
      <ul class="rows">${accounts.value?.map((one) => html`<li key=${one.account_id}><div class="grow"><strong>
        ${cut(one.name, 100)}</strong>
        ${one.keys.map((key) => html`<div class="mono" key=${key.api_key}>${key.api_key}</div>`)}</div>
        <span class="quiet small">since ${time(one.created_at)}</span></li>`)}</ul><//></section>`;
}

function Snapshots() {
  const list = useLoaded(() => get(SNAPSHOTS), [], 5000);
  const [name, setName] = useState("");
  const action = useAction();
  const act = (send, said) => action.run(async () => {
    await send();
    await list.reload();
    toast(said);
  });
  const save = (event) => {
    event.preventDefault();
    act(() => post(SNAPSHOTS, name ? { name } : {}), "The snapshot is saved.");
    setName("");
  };
  const remove = (one) => act(() => del(`${SNAPSHOTS}/${segment(one.name)}`), "The snapshot is deleted.");
  const load = (one) => {
    if (!confirm(`Replace everything in the service by the snapshot ${one.name}?`)) return;
    act(() => post(`${SNAPSHOTS}/${segment(one.name)}/load`), `Everything is as it was in ${one.name}.`);
  };
  return html`<section class="card stack" aria-labelledby="snapshots-title"><h2 id="snapshots-title">Snapshots</h2>
    <p class="quiet small">Everything that the service has, under a name to come back to.</p>
    <form class="row" onSubmit=${save}><${Field} id="snapshot" label="Name">
      <${Input} id="snapshot" placeholder="Made when left empty" maxlength="100" value=${name} onText=${setName} /><//>
      <button class="button" type="submit" disabled=${action.isBusy}>Save</button></form>
    ${action.error && html`<${ErrorBox} error=${action.error} />`}
    <${Loaded} from=${list} title="The snapshots could not be read">
      ${list.value?.data.length === 0 && html`<p class="quiet">None yet.</p>`}
      <ul class="rows">${list.value?.data.map((one) => html`<li key=${one.name}><div class="grow"><strong
        class="mono">${one.name}</strong>
        <div class="quiet small">
          ${bytes(one.size_bytes)}, ${time(one.made_at)}</div></div>
        <button class="button small" type="button" aria-label="Load ${one.name}" disabled=${action.isBusy}
          onClick=${() => load(one)}>Load</button>
        <button class="button small bad" type="button" aria-label="Delete ${one.name}" disabled=${action.isBusy}
          onClick=${() => remove(one)}>Delete</button></li>`)}</ul><//></section>`;
}

function Reset() {
  const action = useAction();
  const reset = () => {
    if (!confirm("Remove all products, devices, readings, commands and faults of this service?")) return;
    action.run(async () => {
      await post("/_emulator/reset");
      toast("The service is as new.");
    });
  };
  return html`<section class="card stack" aria-labelledby="reset-title"><h2 id="reset-title">Reset</h2>
    <p class="quiet">Everything goes but the accounts and the snapshots; the clock is the machine's again.</p>
    ${action.error && html`<${ErrorBox} error=${action.error} title="Nothing was reset" />`}
    <div><button class="button bad" type="button" disabled=${action.isBusy}
      onClick=${reset}>Reset the service…</button></div></section>`;
}
