// A device's QR label: made and proven on demand, as the labels page would make it.
import { post, send } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { CopyButton } from "./copy.js";
import { ErrorBox } from "./states.js";

const bodyOf = (device) => ({ product_id: device.product_id, identifiers: [device.device_identifier] });

/** An SVG document as the address of a picture: in a picture no script of it runs. */
const pictureOf = (svg) => URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));

export function DeviceLabel({ device }) {
  const [state, setState] = useState({ label: null, error: null, isWorking: false });
  const make = async () => {
    setState({ label: null, error: null, isWorking: true });
    try {
      const made = await post("/_emulator/labels", bodyOf(device));
      const [label] = made.labels;
      setState({ label: { ...label, picture: pictureOf(label.svg), provenBy: made.proven_by }, error: null, isWorking: false });
    } catch (error) {
      setState({ label: null, error, isWorking: false });
    }
  };
  const download = async () => {
    try {
      const answer = await send("POST", "/_emulator/labels", { json: { ...bodyOf(device), output: "sheet" } });
      const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await answer.blob()), download: "label.pdf" });
      link.click();
    } catch (error) {
      setState({ ...state, error });
    }
  };
  const { label, error, isWorking } = state;
  return html`<section class="card" aria-labelledby="label-title"><div class="head"><h2 id="label-title">Label</h2>
      <button class="button small" type="button" disabled=${isWorking} onClick=${make}>${isWorking ? "Making it…" : label ? "Make it again" : "Show its label"}</button></div>
    ${error && html`<${ErrorBox} error=${error} title="The label could not be made" />`}
    ${!label && !error && html`<p class="quiet">The QR label with which this device is registered, proven to read.</p>`}
    ${label && html`<div class="device-label"><img src=${label.picture} alt="QR code with the text ${label.text}" />
      <div class="stack"><pre class="code" tabindex="0" aria-label="The label's text">${label.text}</pre>
        <p class="small quiet">${label.edge_mm} mm wide, version ${label.version}, read by ${label.provenBy.join(", ")}.</p>
        <div class="row"><${CopyButton} text=${label.text} label="Copy the text" /><button class="button small" type="button" onClick=${download}>As PDF</button></div></div></div>`}
  </section>`;
}
