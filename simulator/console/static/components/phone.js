// The console's address as a QR code, for a phone in the same network.
import { send, post } from "../core/api.js";
import { html, useEffect, useState } from "../core/html.js";
import { CopyBlock } from "./copy.js";
import { Dialog } from "./dialog.js";
import { ErrorBox, Loading } from "./states.js";

export function PhoneLink() {
  const [isOpen, setOpen] = useState(false);
  return html`<button class="button" type="button" onClick=${() => setOpen(true)}>Scan with a phone</button>
    ${isOpen && html`<${Dialog} title="Open the console on a phone" onClose=${() => setOpen(false)}><${Address} /><//>`}`;
}

function Address() {
  const [state, setState] = useState({});
  const load = async () => {
    try {
      const link = await post("/_emulator/console-links", undefined);
      const [address] = link.network_urls;
      const drawn = address ? await (await send("POST", "/_emulator/qr-codes", { json: { text: address } })).text() : "";
      setState({ link, address, drawn });
    } catch (error) {
      setState({ error });
    }
  };
  useEffect(() => void load(), []);
  if (state.error) return html`<${ErrorBox} error=${state.error} action=${load} />`;
  if (!state.link) return html`<${Loading} />`;
  if (!state.address) {
    return html`<div class="stack"><p>The service listens on this machine only, so no phone reaches it. End it, and start it for your network:</p>
      <${CopyBlock} text=${`fleet-simulator up --host 0.0.0.0`} label="Command" />
      <p class="quiet">Everybody in that network can then reach the service; its pages still open with a link only.</p></div>`;
  }
  return html`<div class="stack phone">
    <img class="phone-code" src=${`data:image/svg+xml;charset=utf-8,${encodeURIComponent(state.drawn)}`} alt="QR code of the address below" />
    <p>Point the phone's camera at the code. The phone has to be in the same network. The link opens the console once, within ${Math.round(state.link.expires_in_s / 60)} minutes.</p>
    ${state.link.network_urls.map((one) => html`<${CopyBlock} text=${one} label="Address" key=${one} />`)}
    <p class="quiet">${state.address.startsWith("https:") ? "Over https the phone's live camera works. A certificate of your own has to be trusted on the phone first."
      : "Over plain http the phone takes a photograph. For its live camera start the service with --tls-certificate and --tls-key."}</p>
  </div>`;
}
