// Requests to the service. Each carries the console's token and the account that was chosen.
const TOKEN = "console-token";
const ACCOUNT = "console-account";

/** The token of the address, which then leaves the address, or the one that this tab has already. */
export function takeToken() {
  const found = /^#token=([\w.~-]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(TOKEN, found[1]);
    history.replaceState(null, "", "#/");
  }
  return sessionStorage.getItem(TOKEN);
}

export const account = () => sessionStorage.getItem(ACCOUNT);
export const chooseAccount = (apiKey) => sessionStorage.setItem(ACCOUNT, apiKey);

/** Why a request failed. `status` is 0 where no answer came; `code` is the service's word for it. */
export class Failure extends Error {
  constructor(status, code, message, details = []) {
    super(message);
    Object.assign(this, { status, code, details });
  }
}

/** How the service is reached: "live", "away" while it does not answer, "ended" when the token is not its own. */
export const reach = { state: "live", listeners: new Set() };

function setReach(state) {
  if (reach.state === state) return;
  reach.state = state;
  for (const listener of [...reach.listeners]) listener(state);
}

let offsetMs = 0;

/** The service's time in ms: its clock may be another than this machine's. */
export const now = () => Date.now() + offsetMs;

async function send(method, path, { query, body, headers } = {}) {
  const words = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== "" && value != null));
  const given = { "X-Emulator-Token": sessionStorage.getItem(TOKEN) ?? "", ...headers };
  if (account()) given["X-Emulator-Account"] = account();
  const isJson = body !== undefined && !(body instanceof Blob);
  if (isJson) given["Content-Type"] = "application/json";
  let response;
  try {
    const sent = isJson ? JSON.stringify(body) : body;
    const address = words.size ? `${path}?${words}` : path;
    response = await fetch(address, { method, headers: given, body: sent, cache: "no-store" });
  } catch {
    setReach("away");
    throw new Failure(0, "unreachable", "The service does not answer. It may have ended, or be too busy.");
  }
  const date = Date.parse(response.headers.get("Date"));
  // The header has whole seconds: a smaller difference says nothing.
  if (date) offsetMs = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now();
  setReach(response.status === 401 ? "ended" : "live");
  if (!response.ok) throw await failureOf(response);
  return response;
}

async function failureOf(response) {
  const { status } = response;
  try {
    const { error, message, details } = await response.json();
    return new Failure(status, error, message || error, details ?? []);
  } catch {
    return new Failure(status, "", `The service answered ${status} without saying why.`);
  }
}

async function json(method, path, options) {
  const response = await send(method, path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path, query) => json("GET", path, { query });
export const post = (path, body) => json("POST", path, { body });
export const put = (path, body) => json("PUT", path, { body });
export const del = (path) => json("DELETE", path);

/** A file's bytes go as they are. */
export const postFile = (path, blob) =>
  json("POST", path, { body: blob, headers: { "Content-Type": "application/octet-stream" } });
export const getText = async (path) => (await send("GET", path)).text();

/** Save a file of the service under a name of this machine: a plain link could not carry the token. */
export async function download(path, name) {
  const response = await send("GET", path);
  save(await response.blob(), name);
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** One segment of a path. */
export const segment = (text) => encodeURIComponent(text).replace(/^\.+$/, (dots) => "%2E".repeat(dots.length));

/** All of a list, page by page; at most `most`. */
export async function getAll(path, query, most = 2000) {
  const found = [];
  let cursor = null;
  do {
    const page = await get(path, { ...query, limit: Math.min(most, 1000), cursor });
    found.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor && found.length < most);
  return found;
}
