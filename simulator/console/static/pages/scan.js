// A label from a camera, a photograph or as text: what it says, whether it is valid, and onboarding step by step.
import { Camera } from "../components/camera.js";
import { Exchanges } from "../components/exchange.js";
import { PhoneLink } from "../components/phone.js";
import { ErrorBox, Loading } from "../components/states.js";
import { Tabs } from "../components/tabs.js";
import { ApiError, request } from "../core/api.js";
import { exchange } from "../core/exchange.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { useMedia } from "../core/media.js";
import { bytes, plural } from "../core/text.js";
import { CodePicture, CodeList, WhatItSays } from "../components/label_code.js";
import { Journey } from "../components/journey.js";

export const title = "Scan";

const PICTURE_BYTES = 25_000_000;
const WAYS = [{ id: "photo", label: "Photograph" }, { id: "camera", label: "Live camera" }, { id: "text", label: "Text" }];

export const decode = (blob, isQuick) =>
  request("POST", "/_emulator/labels/decode", { body: blob, type: blob.type.startsWith("image/") && blob.type !== "image/svg+xml" ? blob.type : "application/octet-stream", query: { quick: isQuick || "" } });

export default function Scan() {
  const [way, setWay] = useState("photo");
  const [seen, setSeen] = useState(null); // {url, name, found, error, isBusy}
  const [at, setAt] = useState(0);
  const result = useRef(null);
  const isNarrow = useMedia("(max-width: 63.99rem)");
  const code = seen?.found?.codes[at] ?? null;

  const show = (next) => {
    setSeen((before) => {
      if (before?.url && before.url !== next?.url) URL.revokeObjectURL(before.url);
      return next;
    });
    setAt(0);
  };
  const take = async (blob, name) => {
    const url = URL.createObjectURL(blob);
    if (blob.size > PICTURE_BYTES) {
      const text = `${name} has ${bytes(blob.size)}, and at most ${bytes(PICTURE_BYTES)} are taken: save it smaller or as JPEG, or cut it to the label.`;
      show({ name, error: new ApiError(413, "payload_too_large", text) });
      return;
    }
    show({ url, name, isBusy: true });
    try {
      show({ url, name, found: await decode(blob, false) });
    } catch (error) {
      show({ url, name, error });
    }
  };
  const takeText = (text) => show({ found: { codes: [{ text, label: null, problem: null, corners: [] }], unread: [], advice: null } });
  usePasted(take);
  useEffect(() => {
    if (seen?.found?.codes.length && isNarrow) result.current?.scrollIntoView({ block: "start" });
  }, [seen]);

  return html`
    <div class="head"><h1>Scan a label</h1><${PhoneLink} /></div>
    <div class="scan">
      <section class="card stack" aria-label="The label">
        <${Tabs} tabs=${WAYS} chosen=${way} onChoose=${setWay} label="How the label comes in">
          ${way === "photo" && html`<${Drop} onPicture=${take} />`}
          ${way === "camera" && html`<${Camera} decode=${decode} onFound=${(blob, found, url) => show({ url, name: "camera", found })} onPicture=${take} />`}
          ${way === "text" && html`<${TypedText} onText=${takeText} />`}
        <//>
        ${seen && html`<${Picture} seen=${seen} at=${at} onChoose=${setAt} />`}
      </section>
      <section class="stack" aria-label="What it says" ref=${result}>
        ${code ? html`<${Label} key=${seen.url + code.text + at} code=${code} />` : html`<${Nothing} seen=${seen} />`}
      </section>
    </div>`;
}

function Picture({ seen, at, onChoose }) {
  if (seen.error) return html`<${ErrorBox} error=${seen.error} title="This picture could not be read" />`;
  if (seen.isBusy) return html`<${Loading} text="Reading ${seen.name}…" />`;
  const { found } = seen;
  return html`<div class="stack">
    ${seen.url && html`<${CodePicture} url=${seen.url} name=${seen.name} found=${found} at=${at} />`}
    ${found.codes.length > 1 && html`<${CodeList} codes=${found.codes} at=${at} onChoose=${onChoose} />`}
    ${found.codes.length > 0 && found.advice && html`<p class="notice warn">${found.advice}</p>`}
  </div>`;
}

function Nothing({ seen }) {
  const advice = seen?.found?.advice;
  if (advice) return html`<div class="notice warn" role="alert"><strong>No label was read</strong><p>${advice}</p></div>`;
  return html`<div class="card empty"><h2>No label yet</h2>
    <p>Drop a photograph here, choose a file, or point the camera at a label. You then see what it says, whether the service takes it, and can register the device.</p>
    <p>No label at hand? <a href="/console/labels">Make some</a>.</p></div>`;
}

/** What one code says; the service is asked about it, and each step after that is one request. */
function Label({ code }) {
  const [steps, setSteps] = useState([]);
  const scanned = steps[0];
  const step = async (method, path, json) => {
    const done = await exchange(method, path, json);
    setSteps((before) => [...before, done]);
    return done;
  };
  useEffect(() => {
    if (code.text !== null) step("POST", "/onboarding/scan-qr", { qr_data: code.text });
  }, []);
  return html`
    <${WhatItSays} code=${code} scanned=${scanned} />
    ${scanned && !scanned.error && html`<${Journey} scanned=${scanned.answer} step=${step} />`}
    ${steps.length > 0 && html`<div class="card stack"><h2>${plural(steps.length, "request")}</h2><${Exchanges} all=${steps} /></div>`}`;
}

function Drop({ onPicture }) {
  const [isOver, setOver] = useState(false);
  const choose = (event) => {
    const [file] = event.currentTarget.files;
    if (file) onPicture(file, file.name);
    event.currentTarget.value = "";
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    const [file] = event.dataTransfer.files;
    if (file) onPicture(file, file.name);
  };
  return html`<div class="drop ${isOver ? "over" : ""}" onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <p>Drop a photograph here, or paste one.</p>
    <div class="row">
      <label class="button main file">Choose a file<input class="sr" type="file" accept="image/*" onChange=${choose} /></label>
      <label class="button file only-touch">Take a photograph<input class="sr" type="file" accept="image/*" capture="environment" onChange=${choose} /></label>
    </div>
    <p class="quiet small">JPEG, PNG or WebP, up to ${bytes(PICTURE_BYTES)} and 50 million pixels. It goes to this service only, which does not keep it.</p>
  </div>`;
}

function TypedText({ onText }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) onText(text);
  };
  return html`<form class="stack" onSubmit=${submit}>
    <div class="field"><label for="label-text">Text of a label</label>
      <textarea class="input" id="label-text" rows="4" maxlength="5000" spellcheck="false" value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea>
      <span class="help">As a hand scanner types it, to the letter.</span></div>
    <div><button class="button main" type="submit">Check it</button></div>
  </form>`;
}

/** A picture on the clipboard, anywhere on the page but in a field. */
function usePasted(take) {
  const current = useRef(take);
  current.current = take;
  useEffect(() => {
    const paste = (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
      if (file) current.current(file, "the pasted picture");
    };
    document.addEventListener("paste", paste);
    return () => document.removeEventListener("paste", paste);
  }, []);
}
