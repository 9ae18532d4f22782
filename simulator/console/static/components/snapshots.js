// Snapshots: the whole state under a name, to come back to.
import { Dialog } from "./dialog.js";
import { ErrorBox, Loading } from "./states.js";
import { toast, toastError } from "./toast.js";
import { del, get, post, segment } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { bytes, count, time } from "../core/text.js";

const PATH = "/_emulator/snapshots";
const CONTROL = { account: "" };
const COUNTED = [["devices", "devices"], ["commands", "commands"], ["readings", "readings"]];

export function Snapshots() {
  const snapshots = useLoaded(() => get(PATH, {}, CONTROL), []);
  const [name, setName] = useState("");
  const [busy, setBusy] = useState("");
  const [asked, setAsked] = useState(null);
  const act = async (what, change, done) => {
    setBusy(what);
    try {
      await change();
      toast(done, "good");
    } catch (error) {
      toastError(error);
    }
    setBusy("");
    snapshots.reload();
  };
  const save = (event) => {
    event.preventDefault();
    act("save", () => post(PATH, name ? { name } : {}, CONTROL), "The state is saved.").then(() => setName(""));
  };
  const confirmed = () => {
    const { kind, one } = asked;
    setAsked(null);
    if (kind === "load") act(one.name, () => post(`${PATH}/${segment(one.name)}/load`, undefined, CONTROL), `The state is that of ${one.name} again.`);
    else act(one.name, () => del(`${PATH}/${segment(one.name)}`, CONTROL), `${one.name} is deleted.`);
  };
  const rows = snapshots.value?.data;
  return html`<section class="card stack" aria-labelledby="snapshots-title"><h2 id="snapshots-title">Snapshots</h2>
    <form class="row" onSubmit=${save}><label class="small" for="snapshot">Name</label>
      <input class="input" id="snapshot" maxlength="100" pattern="[A-Za-z0-9._\\-]+" title="Letters, digits, dots, hyphens and underscores" autocomplete="off" placeholder="Made when it is empty" value=${name} onInput=${(event) => setName(event.currentTarget.value)} />
      <button class="button main" type="submit" disabled=${busy !== ""}>${busy === "save" ? "Saving…" : "Save the state"}</button></form>
    ${snapshots.error && html`<${ErrorBox} error=${snapshots.error} title="The snapshots could not be read" action=${snapshots.reload} />`}
    ${!rows && !snapshots.error && html`<${Loading} />`}
    ${rows?.length === 0 && html`<p class="quiet">None yet. One holds everything: devices, commands, readings, accounts, the clock.</p>`}
    ${rows?.length > 0 && html`<ul class="snapshots">${rows.map((one) => html`<li key=${one.name}>
      <div><strong>${one.name}</strong>
        ${one.fault ? html`<p class="small wrong">${one.fault}</p>` : html`<p class="quiet small">${time(one.made_at)} · ${bytes(one.size_bytes)} · ${contents(one.rows)}</p>`}</div>
      <div class="row"><button class="button small" type="button" disabled=${busy !== "" || Boolean(one.fault)} onClick=${() => setAsked({ kind: "load", one })}>${busy === one.name ? "Working…" : "Load"}</button>
        <button class="button small bad" type="button" disabled=${busy !== ""} aria-label="Delete ${one.name}" onClick=${() => setAsked({ kind: "delete", one })}>Delete</button></div></li>`)}</ul>`}
    ${asked && html`<${Dialog} title=${asked.kind === "load" ? `Load ${asked.one.name}?` : `Delete ${asked.one.name}?`} onClose=${() => setAsked(null)}>
      <div class="stack"><p>${asked.kind === "load" ? "Everything that the service has now is replaced: devices, commands, readings, accounts and the clock. Save the state first to come back to it." : "Its file is deleted."}</p>
        <div class="row"><button class="button ${asked.kind === "load" ? "main" : "bad"}" type="button" onClick=${confirmed}>${asked.kind === "load" ? "Load" : "Delete"}</button></div></div><//>`}
  </section>`;
}

function contents(rows) {
  const found = Object.entries(rows).filter(([, many]) => many > 0);
  const known = COUNTED.map(([table, label]) => [label, rows[table] ?? rows[table.slice(0, -1)]]).filter(([, many]) => many !== undefined);
  return known.length ? known.map(([label, many]) => `${count(many)} ${label}`).join(", ") : `${count(found.reduce((sum, [, many]) => sum + many, 0))} rows`;
}
