// Whether a product's labels are signed, and a key for one that has none.
import { put, segment } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { Dialog } from "./dialog.js";
import { ErrorBox } from "./states.js";
import { toast } from "./toast.js";

const KEY_BYTES = 32;

function makeKey() {
  const random = String.fromCharCode(...crypto.getRandomValues(new Uint8Array(KEY_BYTES)));
  return `hmac-sha256:${btoa(random).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

export function LabelKey({ product, isSigned, onSigned, onChanged }) {
  const [isOpen, setOpen] = useState(false);
  if (product.label_key) {
    return html`<label class="check"><input type="checkbox" checked=${isSigned} onChange=${() => onSigned(!isSigned)} />
      <span>Signed by the product's key <span class="quiet small">· unsigned labels of it are refused</span></span></label>`;
  }
  return html`<p class="quiet small">This product has no <code>label_key</code>: its labels are not signed, so anybody can make one.${" "}
    <button class="link" type="button" onClick=${() => setOpen(true)}>Give it a key</button></p>
    ${isOpen && html`<${Dialog} title="A key for the product's labels" onClose=${() => setOpen(false)}>
      <${Give} product=${product} onDone=${() => { setOpen(false); onChanged(); }} /><//>`}`;
}

function Give({ product, onDone }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const give = async () => {
    setBusy(true);
    try {
      await put(`/products/${segment(product.product_id)}`, { label_key: makeKey() });
      toast("Labels of this product are signed from now on", "good");
      onDone();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<div class="stack">
    <p>A secret key is made in this browser and stored with ${product.name} on the service, which then signs labels and checks them.</p>
    <p class="notice warn">From then on every label of this product that is not signed is refused: also those that are printed already.</p>
    <p class="quiet small">For a key pair whose private half never leaves your machine: <code>fleet-simulator labels keygen</code>.</p>
    ${error && html`<${ErrorBox} error=${error} />`}
    <div class="row"><button class="button main" type="button" disabled=${isBusy} onClick=${give}>Make the key</button></div>
  </div>`;
}
