// Which page an address means, and going to another one without loading everything again.
import { createStore } from "./store.js";
import { pages, staticBase } from "./session.js";

const routes = pages.map((page) => ({
  ...page,
  names: [...page.path.matchAll(/\{(\w+)\}/g)].map((found) => found[1]),
  pattern: new RegExp(`^${page.path.replace(/\{\w+\}/g, "([^/]+)")}$`),
}));

function find() {
  for (const page of routes) {
    const found = page.pattern.exec(location.pathname);
    if (found) {
      const values = page.names.map((name, index) => [name, decodeURIComponent(found[index + 1])]);
      return { page, params: Object.fromEntries(values), query: Object.fromEntries(new URLSearchParams(location.search)), address: location.href };
    }
  }
  return { page: null, params: {}, query: {}, address: location.href };
}

export const route = createStore(find());

/** Go to a page of the console. */
export function navigate(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  const before = route.get();
  route.set(find());
  if (before.page !== route.get().page || replace === false) scrollTo(0, 0);
}

/** Write what a page shows into the address, so that it can be sent to somebody; without empty values. */
export function keepInAddress(query) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

export const loadPage = (page) => import(`${staticBase}pages/${page.module}.js`);

addEventListener("popstate", () => route.set(find()));
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute("download") || link.origin !== location.origin || link.hash) return;
  if (!routes.some((page) => page.pattern.test(link.pathname))) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
});
