// A request with its answer, kept to be shown: also when the answer is a refusal.
import { account } from "./account.js";
import { ApiError, send } from "./api.js";

/** Send a request; {method, path, json, status, answer, ms, error}. `error` is an ApiError, or null. Never throws. */
export async function exchange(method, path, json) {
  const began = performance.now();
  const made = (status, answer, error = null) => ({ method, path, json, status, answer, error, ms: performance.now() - began });
  try {
    const answer = await send(method, path, { json });
    const text = await answer.text();
    return made(answer.status, text ? JSON.parse(text) : null);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const details = error.details?.length ? { details: error.details } : {};
    return made(error.status, error.status ? { error: error.code, message: error.message, ...details } : null, error);
  }
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The same request for a terminal. The secret key is the reader's own: the browser never has it. */
export function asCurl({ method, path, json }) {
  const parts = ["curl", ...(method === "GET" ? [] : ["-X", method]), quoted(location.origin + path)];
  if (path.startsWith("/_emulator/")) parts[0] = "curl";
  else parts.push(`-H ${quoted(`x-api-key: ${account.get()}`)}`, `-H "x-secret-key: $SECRET_KEY"`);
  if (json !== undefined) parts.push("-H 'content-type: application/json'", `-d ${quoted(JSON.stringify(json))}`);
  return parts.join(" ");
}
