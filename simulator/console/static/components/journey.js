// Register, list, remove: each a request of the public interface, with its answer beside it.
import { ErrorBox } from "./states.js";
import { toast } from "./toast.js";
import { segment } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { plural } from "../core/text.js";

const USER_KEPT = "console-user";
const keptUser = () => sessionStorage.getItem(USER_KEPT) ?? "user-0001";

/** `scanned` is the answer of scan-qr; `step(method, path, json)` sends a request and keeps it for the list. */
export function Journey({ scanned, step }) {
  const [user, setUser] = useState(keptUser());
  const [name, setName] = useState(scanned.device_identifier.slice(0, 200));
  const [device, setDevice] = useState(null);
  const [listed, setListed] = useState(null);
  const [isRemoved, setRemoved] = useState(false);
  const [failed, setFailed] = useState(null);
  const [isBusy, setBusy] = useState(false);

  const act = (work) => async (event) => {
    event?.preventDefault();
    setBusy(true);
    setFailed(null);
    try {
      await work();
    } finally {
      setBusy(false);
    }
  };
  const send = async (method, path, json) => {
    const done = await step(method, path, json);
    if (done.error) setFailed(done.error);
    return done;
  };
  const register = act(async () => {
    sessionStorage.setItem(USER_KEPT, user);
    const body = { user_id: user, product_id: scanned.product.product_id, device_name: name, device_identifier: scanned.device_identifier, qr_info: scanned.qr_info };
    const done = await send("POST", "/onboarding/device", body);
    if (done.error) return;
    setDevice(done.answer);
    setRemoved(false);
    setListed(null);
    toast(done.status === 201 ? "Registered" : "This user had it already: the same record was answered", "good");
  });
  const list = act(async () => {
    const done = await send("GET", `/onboarding/user/${segment(user)}/devices?limit=1000`);
    if (!done.error) setListed(done.answer.data ?? []);
  });
  const remove = (deviceId) => act(async () => {
    const done = await send("DELETE", `/onboarding/device/${segment(deviceId)}`);
    if (done.error) return;
    setDevice(null);
    setListed(null);
    setRemoved(true);
    toast("Removed", "good");
  });
  const mine = device ?? listed?.find((one) => one.device_identifier === scanned.device_identifier && one.product_id === scanned.product.product_id);

  return html`<div class="card stack"><h2>Onboarding</h2>
    <form class="stack" onSubmit=${register}>
      <div class="pair">
        <div class="field"><label for="user">User</label><input class="input" id="user" required maxlength="200" autocomplete="off" value=${user} onInput=${(event) => setUser(event.currentTarget.value)} /></div>
        <div class="field"><label for="device-name">Name of the device</label><input class="input" id="device-name" maxlength="200" autocomplete="off" value=${name} onInput=${(event) => setName(event.currentTarget.value)} /></div>
      </div>
      <div class="row">
        <button class="button main" type="submit" disabled=${isBusy || !user.trim()}>${mine ? "Register again" : "Register"}</button>
        <button class="button" type="button" disabled=${isBusy || !user.trim()} onClick=${list}>List the user's devices</button>
        ${mine && html`<button class="button bad" type="button" disabled=${isBusy} onClick=${remove(mine.device_id)}>Remove</button>`}
      </div>
    </form>
    ${failed && html`<${ErrorBox} error=${failed} title="Not done" text=${`${failed.message} ${nextStep(failed)}`} />`}
    ${isRemoved && html`<p class="notice good" role="status">Removed: its open commands are canceled, and the label may be registered again, under a new device id.</p>`}
    ${device && html`<p class="notice good" role="status">Registered as <a href="/console/devices/${segment(device.device_id)}">${device.device_name || device.device_id}</a> for ${device.user_id}.</p>`}
    ${listed && html`<${Listed} devices=${listed} user=${user} />`}
  </div>`;
}

function nextStep(error) {
  if (error.code === "device_already_registered") return "List that user's devices under the user's name above, and remove it there first.";
  if (error.code === "user_not_found") return "Register a device for this user first.";
  if (error.code === "device_not_found") return "Somebody else removed it meanwhile: register it again.";
  return "";
}

const Listed = ({ devices, user }) => html`<div><h3>${plural(devices.length, "device")} of ${user}</h3>
  ${devices.length ? html`<ul class="device-list">${devices.slice(0, 50).map((one) => html`<li key=${one.device_id}>
    <a href="/console/devices/${segment(one.device_id)}">${one.device_name || one.device_id}</a> <span class="quiet mono">${one.device_identifier}</span></li>`)}</ul>` : html`<p class="quiet">None.</p>`}
  ${devices.length > 50 && html`<p class="quiet small">The first 50 are shown; the answer below has them all.</p>`}</div>`;
