// Requests to the service: the public interface and the control paths, as anybody's program would send them. In place
// of keys they carry the session, and the account that the page shows.
import { account } from "./account.js";
import { csrf, sessionEnded } from "./session.js";

/** A request that was not carried out; `message` is a sentence for a person. */
export class ApiError extends Error {
  constructor(status, code, message, details = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }
}

const OFFLINE = "The service cannot be reached. It may have ended; this page goes on when it is back.";

/**
 * Send a request.
 * @param {string} method of HTTP
 * @param {string} path such as /devices
 * @param {{query?: object, json?: any, body?: any, type?: string, headers?: object, signal?: AbortSignal, account?: string}} options
 *   `query` without what is null or empty; `json` or a raw `body` of media `type`; another `account` than the page's
 * @returns {Promise<Response>} of status 200 to 299, or 304
 */
export async function send(method, path, options = {}) {
  const headers = { "X-Console": csrf, ...options.headers };
  const key = options.account ?? account.get();
  if (key) headers["X-Console-Account"] = key;
  let body = options.body;
  if (options.json !== undefined) {
    body = JSON.stringify(options.json);
    headers["Content-Type"] = "application/json";
  } else if (options.type) headers["Content-Type"] = options.type;
  let answer;
  try {
    answer = await fetch(path + queryOf(options.query), { method, headers, body, signal: options.signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", OFFLINE);
  }
  if (answer.ok || answer.status === 304) return answer;
  throw await errorOf(answer);
}

async function errorOf(answer) {
  const text = await answer.text().catch(() => "");
  let said = {};
  try {
    said = JSON.parse(text);
  } catch {
    /* no JSON: the status has to do */
  }
  if (answer.status === 401 && said.error === "session_ended") sessionEnded.set(true);
  const message = said.message || `The service answered ${answer.status}${text ? `: ${text.slice(0, 200)}` : ""}.`;
  return new ApiError(answer.status, said.error || `http_${answer.status}`, message, said.details);
}

/** As `send`, and the JSON that is answered; null for an answer without a body. */
export async function request(method, path, options) {
  const answer = await send(method, path, options);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path, query, options) => request("GET", path, { query, ...options });
export const post = (path, json, options) => request("POST", path, { json, ...options });
export const put = (path, json, options) => request("PUT", path, { json, ...options });
export const del = (path, options) => request("DELETE", path, options);

/** "?a=1" of what is neither null nor empty. */
export function queryOf(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

/** A part of a path. */
export const segment = (text) => encodeURIComponent(text);
