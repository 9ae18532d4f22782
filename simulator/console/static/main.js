// The frame around the pages: navigation, the account, how the service is reached, and which page is shown.
import { account, chooseAccount, get, getAll, reach, takeToken } from "./api.js";
import { Device } from "./device.js";
import { Devices } from "./devices.js";
import { Faults } from "./faults.js";
import { Labels } from "./labels.js";
import { Requests } from "./requests.js";
import { Run } from "./run.js";
import { Runs } from "./runs.js";
import { Service } from "./service.js";
import { cut } from "./text.js";
import { Empty, ErrorBox, html, Loading, render, Toasts, useEffect, useLoaded, useRef, useState } from "./ui.js";

const PAGES = [
  { path: /^\/$/, page: Devices, title: "Devices", nav: "#/" },
  { path: /^\/devices\/([^/]+)$/, page: Device, title: "Device" },
  { path: /^\/labels$/, page: Labels, title: "Labels", nav: "#/labels" },
  { path: /^\/requests$/, page: Requests, title: "Requests", nav: "#/requests" },
  { path: /^\/faults$/, page: Faults, title: "Faults", nav: "#/faults" },
  { path: /^\/runs$/, page: Runs, title: "Runs", nav: "#/runs" },
  { path: /^\/runs\/([^/]+)$/, page: Run, title: "Run" },
  { path: /^\/service$/, page: Service, title: "Service", nav: "#/service" },
];
const REACHED = { live: "live", away: "not reached", ended: "link ended" };

/** Where the address leads: a page, what its path names, and the filters behind it. */
function place() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  for (const one of PAGES) {
    const found = one.path.exec(path);
    const filters = Object.fromEntries(new URLSearchParams(query));
    if (found) return { ...one, key: location.hash, id: found[1] && decode(found[1]), query: filters };
  }
  return { page: NotThere, title: "Not there", key: location.hash, query: {} };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const NotThere = () => html`<h1>There is no such page</h1><p><a href="#/">All devices</a></p>`;

function useReach() {
  const [state, setState] = useState(reach.state);
  useEffect(() => {
    reach.listeners.add(setState);
    return () => reach.listeners.delete(setState);
  }, []);
  return state;
}

function App() {
  const [here, setHere] = useState(place);
  const [apiKey, setApiKey] = useState(account);
  const state = useReach();
  const accounts = useLoaded(() => readAccounts(setApiKey), []);
  const main = useRef(null);
  useEffect(() => {
    const onMove = () => {
      if (/^#token=/.test(location.hash)) return location.reload();
      setHere(place());
    };
    const skip = (event) => {
      event.preventDefault();
      main.current.focus();
    };
    addEventListener("hashchange", onMove);
    document.querySelector(".skip").addEventListener("click", skip);
    return () => removeEventListener("hashchange", onMove);
  }, []);
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${here.title} · Console`;
    if (!isFirst.current) main.current.focus();
    isFirst.current = false;
    scrollTo(0, 0);
  }, [here.key]);
  const choose = (event) => {
    chooseAccount(event.currentTarget.value);
    setApiKey(event.currentTarget.value);
    if (here.title === "Device") location.hash = "#/";
  };
  return html`
    <header class="bar">
      <a class="brand" href="#/"><span class="brand-mark" aria-hidden="true"></span>Console</a>
      <nav aria-label="Pages"><ul>${PAGES.filter((one) => one.nav).map((one) => html`<li key=${one.nav}>
        <a href=${one.nav} aria-current=${one.title.startsWith(here.title) ? "page" : null}>${one.title}</a></li>`)}
          </ul></nav>
      <div class="bar-end">
        ${accounts.value?.length > 1 && html`<label class="account"><span class="sr">Account</span>
          <select class="input small" value=${apiKey} onChange=${choose}>${accounts.value.map((one) => html`
            <option key=${one.api_key} value=${one.api_key} selected=${one.api_key === apiKey}>${cut(one.name, 40)}
              </option>`)}</select></label>`}
        <span class="live live-${state}" role="status">${REACHED[state]}</span></div>
    </header>
    ${state === "away" && html`<p class="banner bad"
      role="alert">The service does not answer. What is shown may be old; it is asked again by itself.</p>`}
    <main id="main" ref=${main} tabindex="-1">
      ${state === "ended" ? html`<${Entry} isOver />`
        : accounts.error ? html`<h1>Console</h1><${ErrorBox} error=${accounts.error}
          title="The service could not be asked" onAgain=${accounts.reload} />`
        : accounts.value === null ? html`<${Loading} />`
        : apiKey === null ? html`<h1>${here.title}</h1><${Empty} title="This service has no account">
          <p>Make one, then load this page again.</p><//>`
        : html`<${here.page} key=${`${apiKey} ${here.key}`} id=${here.id} query=${here.query} />`}
    </main>
    <${Toasts} />`;
}

/** The accounts with one of their keys each; the chosen one, or the first, is used from now on. */
async function readAccounts(setApiKey) {
  const found = (await getAll("/_emulator/accounts", {})).filter((one) => one.keys.length);
  const rows = found.map((one) => ({ name: one.name, api_key: one.keys[0].api_key }));
  const chosen = rows.find((one) => one.api_key === account()) ?? rows[0];
  if (!chosen) return [];
  chooseAccount(chosen.api_key);
  await get("/devices", { limit: 1 }); // says 401 where the token is not this service's
  setApiKey(chosen.api_key);
  return rows;
}

function Entry({ isOver }) {
  const [fault, setFault] = useState("");
  const open = (event) => {
    event.preventDefault();
    const token = /token=([\w.~-]+)/.exec(new FormData(event.currentTarget).get("link"));
    if (!token) return setFault("This address has no #token=... at its end.");
    location.hash = `#token=${token[1]}`;
    location.reload();
  };
  return html`<div class="entry stack">
    <h1>${isOver ? "This link has ended" : "Open the console by its link"}</h1>
    <p class="lead">${isOver ? "The service was started anew since, and has a new link." : "This tab has no token."} The
      service prints the link when it starts; it looks like <code>${location.origin}/console/#token=…</code></p>
    <form class="row" onSubmit=${open}><label class="sr" for="link">Link</label>
      <input class="input" id="link" name="link" autocomplete="off" placeholder="Paste the link"
        aria-invalid=${Boolean(fault)} />
      <button class="button main" type="submit">Open</button></form>
    ${fault && html`<p class="fault" role="alert">${fault}</p>`}
    <p class="quiet">Every new tab needs it once.</p></div>`;
}

const root = document.getElementById("app");
root.textContent = "";
if (takeToken()) render(html`<${App} />`, root);
else render(html`<main id="main"><${Entry} /></main>`, root);
