// The account whose devices the pages show: a public key. The browser never has a secret one.
import { createStore } from "./store.js";

const KEPT = "console-account";

/** The public key in use; null until the accounts are loaded. */
export const account = createStore(sessionStorage.getItem(KEPT));
/** All accounts that have a key: [{name, api_key}]. */
export const accounts = createStore([]);

export function chooseAccount(apiKey) {
  sessionStorage.setItem(KEPT, apiKey);
  account.set(apiKey);
}

/** Load them; the kept choice stands where that account is still there. */
export async function loadAccounts(get) {
  const found = await get("/_emulator/accounts", { limit: 1000 }, { account: "" });
  const listed = found.data
    .filter((one) => one.keys.length)
    .map((one) => ({ name: one.name, api_key: one.keys[0].api_key }));
  accounts.set(listed);
  if (!listed.some((one) => one.api_key === account.get()) && listed.length) chooseAccount(listed[0].api_key);
}
