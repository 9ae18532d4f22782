// One device: what it reads, what it was commanded, what is stored of it.
import { Badge } from "../components/badge.js";
import { DeviceCommands } from "../components/device_commands.js";
import { DeviceLabel } from "../components/device_label.js";
import { DeviceReadings } from "../components/device_readings.js";
import { Json } from "../components/json.js";
import { SendDialog } from "../components/send.js";
import { Empty, ErrorBox, Loading } from "../components/states.js";
import { get, segment } from "../core/api.js";
import { now } from "../core/clock.js";
import { html, useState } from "../core/html.js";
import { useChanges } from "../core/live.js";
import { useLoaded } from "../core/load.js";
import { ago, cut, time } from "../core/text.js";

export const title = "Device";

export default function Device({ params }) {
  const deviceId = params.device_id;
  const device = useLoaded(() => get(`/devices/${segment(deviceId)}`), [deviceId]);
  const product = useLoaded(() => (device.value ? get(`/products/${segment(device.value.product_id)}`) : null), [device.value?.product_id]);
  const [sending, setSending] = useState(null);
  useChanges((changes, isBack) => {
    if (isBack || changes.more || changes.device_ids.includes(deviceId)) device.reload();
  }, [deviceId]);

  if (device.error?.status === 404) {
    return html`<h1>This device is not there</h1><${Empty} title="It may have been removed">
      <p>Somebody may have removed it meanwhile, or it belongs to another account. Its id is <code>${cut(deviceId, 80)}</code>.</p><a class="button" href="/">All devices</a><//>`;
  }
  if (!device.value) return html`<h1>Device</h1>${device.error ? html`<${ErrorBox} error=${device.error} action=${device.reload} />` : html`<${Loading} />`}`;
  const one = device.value;
  return html`
    <p class="crumbs"><a href="/">Devices</a></p>
    <div class="head"><h1 title=${one.device_name}>${cut(one.device_name || one.device_id, 120)}</h1><${Badge} state=${one.status} />
      <button class="button main" type="button" onClick=${() => setSending({})}>Send a command</button></div>
    ${device.error && html`<${ErrorBox} error=${device.error} title="What is stored could not be read again" action=${device.reload} />`}
    <div class="device-page">
      <div class="stack"><${DeviceReadings} deviceId=${deviceId} /></div>
      <div class="stack">
        <${DeviceCommands} deviceId=${deviceId} onAgain=${(command) => setSending({ payload: command.command_payload })} />
        <${About} device=${one} product=${product.value} />
        <${DeviceLabel} device=${one} />
      </div>
    </div>
    ${sending && html`<${SendDialog} target=${{ devices: [{ device_id: deviceId, device_name: one.device_name }], product_id: one.product_id }} payload=${sending.payload} onClose=${() => setSending(null)} />`}`;
}

function About({ device, product }) {
  const [isOpened, setOpened] = useState(false);
  const when = (at) => (at ? html`<time datetime=${at} title=${at}>${time(at)}</time> <span class="quiet">(${ago(at, now())})</span>` : html`<span class="quiet">never</span>`);
  return html`<section class="card" aria-labelledby="about-title"><h2 id="about-title">About</h2>
    <dl class="facts">
      <dt>Product</dt><dd>${cut(product?.name ?? device.product_id, 200)}${product?.model && html` <span class="quiet">${cut(product.model, 80)}</span>`}</dd>
      <dt>Identifier</dt><dd class="mono">${cut(device.device_identifier, 300)}</dd>
      <dt>Device id</dt><dd class="mono">${device.device_id}</dd>
      <dt>User</dt><dd class="mono">${cut(device.user_id, 200)}</dd>
      <dt>Firmware</dt><dd>${device.firmware_version ?? html`<span class="quiet">not known</span>`}</dd>
      <dt>Last seen</dt><dd>${when(device.last_seen_at)}</dd>
      <dt>Registered</dt><dd>${when(device.created_at)}</dd>
      ${device.device_name.length > 120 && html`<dt>Whole name</dt><dd><details><summary>${device.device_name.length} characters</summary>${device.device_name}</details></dd>`}
    </dl>
    <details onToggle=${(event) => setOpened(event.currentTarget.open)}><summary>Raw JSON</summary>${isOpened && html`<${Json} value=${device} label="The device as the service answers it" />`}</details>
  </section>`;
}
