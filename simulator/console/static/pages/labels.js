// Labels of a product: seen before they are made, downloaded as a sheet or an archive.
import { LabelKey } from "../components/label_key.js";
import { Good } from "../components/label_preview.js";
import { NewProduct } from "../components/new_product.js";
import { Empty, ErrorBox, Loading } from "../components/states.js";
import { get, post, send } from "../core/api.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { keepInAddress } from "../core/router.js";

export const title = "Labels";

const FORMATS = [["png", "PNG"], ["svg", "SVG"], ["pdf", "Sheet (PDF)"], ["zpl", "Zebra (ZPL)"]];
const FIRST = { count: "12", template: "SIM-{serial:06d}", first_serial: "1", profile: "json", link_host: "onboard.example.com",
  signed: true, size_mm: "25", dpi: "300", paper: "a4", formats: ["png", "svg", "pdf"] };

/** The body of POST /_emulator/labels. What is no number goes as it is: the service says what to write instead. */
function bodyOf(wanted, product, output) {
  const number = (text) => (text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text));
  return {
    product_id: product.product_id, count: number(wanted.count), template: wanted.template, first_serial: number(wanted.first_serial), profile: wanted.profile,
    ...(wanted.profile === "link" ? { link_host: wanted.link_host } : {}), ...(product.label_key && !wanted.signed ? { signed: false } : {}),
    size_mm: number(wanted.size_mm), dpi: number(wanted.dpi), paper: wanted.paper, output, ...(output === "zip" ? { formats: wanted.formats } : {}),
  };
}

export default function Labels({ query }) {
  const products = useLoaded(async () => (await get("/products", { limit: 1000 })).data, []);
  const [chosen, setChosen] = useState(query.product_id ?? "");
  if (products.error && !products.value) return html`<h1>Labels</h1><${ErrorBox} error=${products.error} title="The products could not be read" action=${products.reload} />`;
  if (!products.value) return html`<h1>Labels</h1><${Loading} />`;
  if (products.value.length === 0) {
    return html`<h1>Labels</h1><${Empty} title="No product yet"><p>A label names a product and a device of it. Make a product first; everything else about it can come later.</p>
      <${NewProduct} onMade=${products.reload} /><//>`;
  }
  const product = products.value.find((one) => one.product_id === chosen) ?? products.value[0];
  const choose = (id) => {
    setChosen(id);
    keepInAddress({ product_id: id });
  };
  return html`<div class="head"><h1>Labels</h1></div>
    <${Making} products=${products.value} product=${product} onChoose=${choose} onChanged=${products.reload} />`;
}

function Making({ products, product, onChoose, onChanged }) {
  const [wanted, setWanted] = useState(FIRST);
  const [made, setMade] = useState(null); // {shown} or {error}
  const [busy, setBusy] = useState("");
  const turn = useRef(0);
  const section = useRef(null);
  const set = (name) => (event) => setWanted({ ...wanted, [name]: event.currentTarget.value });

  const preview = async (event) => {
    event?.preventDefault();
    const isAsked = Boolean(event); // else it comes by itself, and nothing moves
    const mine = ++turn.current;
    setBusy("preview");
    try {
      const shown = await post("/_emulator/labels", bodyOf(wanted, product, "preview"));
      if (mine === turn.current) setMade({ shown });
      if (mine === turn.current && isAsked) section.current?.scrollIntoView({ block: "start" });
    } catch (error) {
      if (mine === turn.current) setMade({ error });
    }
    if (mine === turn.current) setBusy("");
  };
  const download = async (output) => {
    const mine = ++turn.current;
    setBusy(output);
    try {
      const answer = await send("POST", "/_emulator/labels", { json: bodyOf(wanted, product, output) });
      save(await answer.blob(), nameOf(answer));
    } catch (error) {
      if (mine === turn.current) setMade({ error });
    }
    if (mine === turn.current) setBusy("");
  };
  useEffect(() => void preview(), [product.product_id, product.label_key]);

  return html`<div class="labels">
    <form class="card stack" onSubmit=${preview} noValidate>
      <div class="field"><label for="product">Product</label>
        <select class="input" id="product" value=${product.product_id} onChange=${(event) => onChoose(event.currentTarget.value)}>
          ${products.map((one) => html`<option value=${one.product_id} key=${one.product_id}>${one.name.slice(0, 80)}</option>`)}</select></div>
      <${LabelKey} product=${product} isSigned=${wanted.signed} onSigned=${(signed) => setWanted({ ...wanted, signed })} onChanged=${onChanged} />
      <${Identifiers} wanted=${wanted} set=${set} />
      <${Profile} wanted=${wanted} set=${set} />
      <${Print} wanted=${wanted} set=${set} />
      <fieldset class="choices"><legend>In the archive</legend><div class="row">
        ${FORMATS.map(([id, label]) => html`<label class="check" key=${id}><input type="checkbox" checked=${wanted.formats.includes(id)} onChange=${() => setWanted({ ...wanted, formats: toggled(wanted.formats, id) })} />${label}</label>`)}</div></fieldset>
      <div class="row">
        <button class="button main" type="submit" disabled=${busy !== ""}>Preview</button>
        <button class="button" type="button" disabled=${busy !== ""} onClick=${() => download("sheet")}>Download the sheet</button>
        <button class="button" type="button" disabled=${busy !== "" || wanted.formats.length === 0} onClick=${() => download("zip")}>Download as zip</button>
      </div>
      ${wanted.formats.length === 0 && html`<p class="quiet small">Choose a format for the archive.</p>`}
      ${busy && html`<p class="quiet" role="status">${busy === "preview" ? "Making the preview…" : "Making the labels. Some hundred take half a minute."}</p>`}
      ${made?.error && !busy && html`<${ErrorBox} error=${made.error} title="No labels were made" />`}
    </form>
    <section class="stack" aria-label="Preview" aria-busy=${String(busy !== "")} ref=${section}>
      ${!made && html`<${Loading} text="Making the preview…" />`}
      ${made?.shown && html`<${Good} shown=${made.shown} />`}
    </section>
  </div>`;
}

const toggled = (all, one) => (all.includes(one) ? all.filter((other) => other !== one) : [...all, one]);

const Field = ({ id, label, help, children }) => html`<div class="field"><label for=${id}>${label}</label>${children}${help && html`<span class="help" id="${id}-help">${help}</span>`}</div>`;

const Text = ({ name, label, help, wanted, set, ...more }) => html`<${Field} id=${name} label=${label} help=${help}>
  <input class="input" id=${name} autocomplete="off" aria-describedby=${help ? `${name}-help` : undefined} value=${wanted[name]} onInput=${set(name)} ...${more} /><//>`;

const Choice = ({ name, label, options, wanted, set }) => html`<${Field} id=${name} label=${label}>
  <select class="input" id=${name} value=${wanted[name]} onChange=${set(name)}>${options.map(([id, text]) => html`<option value=${id} key=${id}>${text}</option>`)}</select><//>`;

const Identifiers = ({ wanted, set }) => html`<div class="pair">
  <${Text} name="count" label="How many (1 to 1,000)" inputmode="numeric" wanted=${wanted} set=${set} />
  <${Text} name="first_serial" label="First serial" inputmode="numeric" wanted=${wanted} set=${set} />
  <${Text} name="template" label="Identifiers" help="{serial:06d} is the serial with six digits; {check} adds a check character." spellcheck=${false} wanted=${wanted} set=${set} /></div>`;

const Profile = ({ wanted, set }) => html`<div class="pair">
  <${Choice} name="profile" label="Profile" options=${[["json", "JSON: read by eye"], ["link", "Link: phones without the app"], ["compact", "Compact: small labels"]]} wanted=${wanted} set=${set} />
  ${wanted.profile === "link" && html`<${Text} name="link_host" label="Host of the link" spellcheck=${false} wanted=${wanted} set=${set} />`}</div>`;

const Print = ({ wanted, set }) => html`<div class="pair">
  <${Text} name="size_mm" label="Edge of a code (mm)" inputmode="decimal" wanted=${wanted} set=${set} />
  <${Text} name="dpi" label="Printer (dots per inch)" inputmode="numeric" wanted=${wanted} set=${set} />
  <${Choice} name="paper" label="Paper" options=${[["a4", "A4"], ["letter", "Letter"]]} wanted=${wanted} set=${set} /></div>`;

function nameOf(answer) {
  return /filename="([^"]+)"/.exec(answer.headers.get("content-disposition") ?? "")?.[1] ?? "labels";
}

/** Have the browser save a file. */
function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
