// Labels: make some for a product, and read one from a photograph or a text as an app would.
import { Failure, getAll, post, postFile, save } from "./api.js";
import { cut } from "./text.js";
import {
  Empty, ErrorBox, Field, html, Input, Loaded, Select, toast, useAction, useEffect, useLoaded, useState,
} from "./ui.js";

const PICTURE_BYTES = 25_000_000;

export function Labels() {
  const products = useLoaded(() => getAll("/products", {}), []);
  return html`<div class="head"><h1>Labels</h1></div>
    <div class="labels"><${Scan} />
      <${Loaded} from=${products} title="The products could not be read">
        ${products.value?.length === 0 ? html`<${Empty} title="No products yet">
          <p>A label names a product: create one with POST /products.</p><//>`
          : products.value && html`<${Make} products=${products.value} />`}<//></div>`;
}

function Make({ products }) {
  const first = { product_id: products[0].product_id, identifiers: "DEVICE-0001", profile: "json" };
  const [wanted, setWanted] = useState(first);
  const [made, setMade] = useState(null);
  const action = useAction();
  const set = (name) => (value) => setWanted({ ...wanted, [name]: value });
  const product = products.find((one) => one.product_id === wanted.product_id);
  const submit = (event) => {
    event.preventDefault();
    const identifiers = wanted.identifiers.split("\n").map((one) => one.trim()).filter(Boolean);
    action.run(async () => setMade(await post("/_emulator/labels", { ...wanted, identifiers })));
  };
  return html`<section class="card stack" aria-labelledby="make-title"><h2 id="make-title">Make labels</h2>
    <form class="stack" onSubmit=${submit}>
      <${Field} id="label-product" label="Product"
        help=${product.label_key ? "Signed by the product's key." : "Not signed: this product has no label_key."}>
        <${Select} id="label-product" value=${wanted.product_id} onChoose=${set("product_id")}
          options=${products.map((one) => [one.product_id, cut(one.name, 60)])} /><//>
      <${Field} id="identifiers" label="Device identifiers"
        help="One on each line, up to 100. Sheets, tables and printers: fleet-simulator labels make.">
        <textarea class="input" id="identifiers" rows="4" spellcheck=${false} required value=${wanted.identifiers}
          onInput=${(event) => set("identifiers")(event.currentTarget.value)}></textarea><//>
      <${Field} id="profile" label="Text in the code"><${Select} id="profile" value=${wanted.profile}
        onChoose=${set("profile")}
        options=${[["json", "JSON, read by eye"], ["compact", "Compact, for small labels"]]} /><//>
      ${action.error && html`<${ErrorBox} error=${action.error} title="The labels were not made" />`}
      <div class="row"><button class="button main" type="submit" disabled=${action.isBusy}>Make them</button>
        ${made && html`<button class="button" type="button" onClick=${() => print()}>Print</button>`}</div>
    </form>
    ${made && html`<ul class="label-grid">${made.data.map((one) => html`<${Label} key=${one.text} one=${one} />`)}
      </ul>`}</section>`;
}

/** The drawing goes through an image, so that nothing in it can run. */
function Label({ one }) {
  const blob = new Blob([one.svg], { type: "image/svg+xml" });
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [one.svg]);
  return html`<li class="label-card">${url && html`<img src=${url}
    alt="QR code of ${cut(one.device_identifier, 100)}" />`}
    <strong class="mono">${cut(one.device_identifier, 100)}</strong>
    <button class="link small" type="button" onClick=${() => save(blob, "label.svg")}
      aria-label="Save as SVG the label of ${cut(one.device_identifier, 100)}">Save as SVG</button></li>`;
}

function Scan() {
  const [text, setText] = useState("");
  const [codes, setCodes] = useState(null);
  const action = useAction();
  const read = (file) => action.run(async () => {
    setCodes(null);
    if (file.size > PICTURE_BYTES) {
      throw new Failure(413, "payload_too_large", "This picture has more than 25 MB: scale it down, or cut it to the label.");
    }
    const found = (await postFile("/_emulator/labels/read", file)).codes;
    setCodes(found);
    if (found.length) setText(found[0]);
  });
  useEffect(() => {
    const paste = (event) => {
      const picture = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
      if (picture) read(picture);
    };
    addEventListener("paste", paste);
    return () => removeEventListener("paste", paste);
  }, []);
  const drop = (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) read(event.dataTransfer.files[0]);
  };
  return html`<section class="card stack" aria-labelledby="scan-title" onDragOver=${(event) => event.preventDefault()}
    onDrop=${drop}>
    <h2 id="scan-title">Scan a label</h2>
    <${Field} id="picture" label="Photograph" help="Choose a file, drop it here, or paste a picture.">
      <input class="input" id="picture" type="file" accept="image/*"
        onChange=${(event) => event.currentTarget.files[0] && read(event.currentTarget.files[0])} /><//>
    ${action.isBusy && html`<p class="loading" role="status">Looking for codes…</p>`}
    ${action.error && html`<${ErrorBox} error=${action.error} title="The picture could not be read" />`}
    ${codes?.length === 0 && html`<p class="notice warn"
      role="status">There is no QR code in this picture that can be read. Take it nearer and sharper, without glare,
      with white around the code.</p>`}
    ${codes?.length > 1 && html`<${Field} id="code" label="${codes.length} codes are in this picture"><${Select}
      id="code" value=${text} onChoose=${setText}
      options=${codes.map((one) => [one, cut(one, 80)])} /><//>`}
    <${Field} id="label-text" label="Text of the code">
      <textarea class="input" id="label-text" rows="3" spellcheck=${false} value=${text}
        onInput=${(event) => setText(event.currentTarget.value)}></textarea><//>
    ${text.trim() && html`<${Scanned} text=${text.trim()} />`}</section>`;
}

/** What the service says of a label, and the next step: the device is registered. */
function Scanned({ text }) {
  const scanned = useLoaded(() => post("/onboarding/scan-qr", { qr_data: text }), [text]);
  if (scanned.error) return html`<${ErrorBox} error=${scanned.error} title="The service refuses this label" />`;
  if (!scanned.value) return html`<p class="loading" role="status">Asking the service about it…</p>`;
  const { product, device_identifier: identifier, qr_info: info, already_registered: isThere } = scanned.value;
  return html`<div class="notice good" role="status"><strong>Valid label</strong>
      <p>${isThere ? "The device is registered already." : "The device is not registered yet."}${" "}
      ${info.sig ? "The label is signed." : "The label is not signed."}
        </p></div>
    <dl class="facts"><dt>Product</dt><dd>${cut(product.name, 200)}</dd><dt>Identifier</dt><dd class="mono">
      ${cut(identifier, 300)}</dd></dl>
    ${isThere ? html`<a href="#/?device_identifier=${encodeURIComponent(identifier)}">Show it</a>`
      : html`<${Register} scanned=${scanned.value} onDone=${scanned.reload} />`}`;
}

function Register({ scanned, onDone }) {
  const [user, setUser] = useState("console-user");
  const [name, setName] = useState("");
  const action = useAction();
  const register = async () => {
    const { product, device_identifier: identifier, qr_info: info } = scanned;
    await post("/onboarding/device", {
      user_id: user, product_id: product.product_id, device_name: name || identifier, device_identifier: identifier,
      qr_info: info,
    });
    toast("The device is registered.");
    onDone();
  };
  const submit = (event) => {
    event.preventDefault();
    action.run(register);
  };
  return html`<form class="stack" onSubmit=${submit}><div class="pair">
      <${Field} id="user" label="User"><${Input} id="user" required value=${user} onText=${setUser} /><//>
      <${Field} id="name" label="Name"><${Input} id="name" placeholder=${cut(scanned.device_identifier, 60)}
        value=${name} onText=${setName} /><//></div>
    ${action.error && html`<${ErrorBox} error=${action.error} title="It was not registered" />`}
    <div><button class="button" type="submit" disabled=${action.isBusy}>Register the device</button></div></form>`;
}
