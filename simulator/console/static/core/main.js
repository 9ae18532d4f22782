// The frame around every page: navigation, the state of the connection, messages.
import { Banner } from "../components/banner.js";
import { ErrorBox, Loading } from "../components/states.js";
import { Toasts } from "../components/toast.js";
import { account, accounts, chooseAccount, loadAccounts } from "./account.js";
import { get } from "./api.js";
import { html, render, useEffect, useRef, useState } from "./html.js";
import { connect, latest, liveState } from "./live.js";
import { loadPage, route } from "./router.js";
import { pages } from "./session.js";
import { useStore } from "./store.js";
import { decimals } from "./text.js";

const STATES = { connecting: "Connecting", on: "Live", off: "Offline", ended: "Ended" };

function Live() {
  const state = useStore(liveState);
  const rates = useStore(latest)?.rates;
  return html`
    ${rates && state === "on" && html`<span class="live-rates" title="Over the last second">
      ${rates.requests !== null && html`${decimals(rates.requests)} requests/s · `}${decimals(rates.readings)} readings/s · ${decimals(rates.commands)} commands/s</span>`}
    <span class="live live-${state}" role="status">${STATES[state]}</span>`;
}

function AccountChoice() {
  const listed = useStore(accounts);
  const chosen = useStore(account);
  if (listed.length < 2) return null;
  return html`<label><span class="sr">Account</span>
    <select class="input" value=${chosen} onChange=${(event) => chooseAccount(event.currentTarget.value)}>
      ${listed.map((one) => html`<option value=${one.api_key} key=${one.api_key}>${one.name.slice(0, 60)}</option>`)}
    </select></label>`;
}

function Bar({ current }) {
  return html`<header class="bar">
    <a class="brand" href="/"><span class="brand-mark" aria-hidden="true"></span>Console</a>
    <nav aria-label="Pages"><ul>
      ${pages.filter((page) => page.nav).map((page) => html`<li key=${page.path}>
        <a href=${page.path} aria-current=${isWithin(current, page) ? "page" : undefined}>${page.nav}</a></li>`)}
    </ul></nav>
    <div class="bar-end"><${AccountChoice} /><${Live} /></div>
  </header>`;
}

/** A device belongs to "Devices", a run to "Runs": the part of the navigation whose module's name it begins with. */
function isWithin(current, page) {
  return current?.path === page.path || (current && !current.nav && page.module.startsWith(current.module));
}

function Page({ current }) {
  const [loaded, setLoaded] = useState({});
  const main = useRef(null);
  const first = useRef(true);
  const chosen = useStore(account);
  const { page } = current;
  useEffect(() => {
    if (!page) return;
    loadPage(page).then(
      (module) => setLoaded({ page, module }),
      () => setLoaded({ page, failed: true }),
    );
  }, [page]);
  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} · Console`;
    if (!first.current) main.current.focus({ preventScroll: true }); // so that a screen reader hears of the new page
    first.current = false;
  }, [page, JSON.stringify(current.params)]);
  let content;
  if (!page) content = html`<h1>There is no such page</h1><p class="lead"><a href="/">All devices</a></p>`;
  else if (loaded.page !== page) content = html`<h1>${page.title}</h1><${Loading} />`;
  else if (loaded.failed) {
    content = html`<h1>${page.title}</h1><${ErrorBox} title="The page could not be loaded" text="The service may have been updated."
      action=${() => location.reload()} label="Load it again" />`;
  } else content = html`<${loaded.module.default} key=${chosen + JSON.stringify(current.params)} params=${current.params} query=${current.query} />`;
  return html`<main id="main" tabindex="-1" ref=${main}>${content}</main>`;
}

function App() {
  const current = useStore(route);
  return html`<${Bar} current=${current.page} /><${Banner} /><${Page} current=${current} /><${Toasts} />`;
}

async function begin() {
  connect();
  try {
    await loadAccounts(get);
  } catch {
    /* the banner says it; pages say what they could not load */
  }
  render(html`<${App} />`, document.getElementById("app"));
}

begin();
