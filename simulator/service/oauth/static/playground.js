// The playground: a public partner application (RFC 6749 and 7636) that shows every request and answer.

const KEPT = "device-service-playground";
const steps = document.getElementById("steps");
const client = steps.dataset.client;
const here = location.origin + location.pathname;
const $ = (id) => document.getElementById(id);

/** What this tab knows: {verifier, challenge, state, scopes, came, code, tokens}. */
let kept = JSON.parse(sessionStorage.getItem(KEPT) || "{}");
let metadata;

function keep(changes) {
  kept = { ...kept, ...changes };
  sessionStorage.setItem(KEPT, JSON.stringify(kept));
}

function complain(text) {
  $("trouble").hidden = !text;
  $("trouble").firstElementChild.textContent = text;
}

const base64url = (bytes) =>
  btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

async function challengeOf(verifier) {
  return base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

async function renew() {
  const verifier = random();
  keep({ verifier, challenge: await challengeOf(verifier), state: random() });
}

// --- step 1 ---------------------------------------------------------------------------------------------------------

const boxes = () => [...document.querySelectorAll("input[name=scope]")];

function showAddress() {
  const scopes = boxes().filter((box) => box.checked).map((box) => box.value);
  keep({ scopes });
  const query = new URLSearchParams({
    response_type: "code",
    client_id: client,
    redirect_uri: here,
    scope: scopes.join(" "),
    state: kept.state,
    code_challenge: kept.challenge,
    code_challenge_method: "S256",
  });
  const address = `${metadata.authorization_endpoint}?${query}`;
  $("verifier").textContent = kept.verifier;
  $("challenge").textContent = kept.challenge;
  $("address").textContent = address.replace("?", "?\n").replaceAll("&", "\n&");
  $("go").href = address;
}

// --- step 2 ---------------------------------------------------------------------------------------------------------

/** Takes code and state out of the address bar and the history before anything else happens. */
function takeAnswer() {
  const query = new URLSearchParams(location.search);
  if (!query.has("code") && !query.has("error")) return false;
  history.replaceState(null, "", here);
  keep({ came: Object.fromEntries(query), code: null, tokens: null });
  return true;
}

function judge(came) {
  if (!kept.state || came.state !== kept.state) return "The state is not the one of this tab: the answer is not used.";
  if (came.iss !== metadata.issuer) return "iss is not this service: the answer is not used.";
  if (came.error) return `The service refused: ${came.error}. ${came.error_description ?? ""}`;
  return "";
}

function showAnswer(fresh) {
  const { came } = kept;
  if (!came) return;
  const fault = judge(came);
  document.querySelector("#back [data-empty]").hidden = true;
  document.querySelector("#back [data-full]").hidden = false;
  $("came").textContent = Object.entries(came).map(([name, value]) => `${name} = ${value}`).join("\n");
  $("verdict").className = `notice ${fault ? "bad" : "good"}`;
  $("verdict").firstElementChild.textContent = fault || "state and iss are the expected ones. The code is good for 5 minutes and once.";
  $("back").classList.toggle("done", !fault);
  $("ask").classList.toggle("done", !fault);
  if (fresh) {
    if (!fault) keep({ code: came.code });
    $("back").scrollIntoView();
    $("verdict").focus({ preventScroll: true });
  }
}

// --- steps 3 and on: one request each -------------------------------------------------------------------------------

const form = (address, parameters) => ({ method: "POST", address, parameters });
const token = (name) => kept.tokens?.[name] ?? `(${name}: none yet)`;

const REQUESTS = {
  exchange: () =>
    form(metadata.token_endpoint, {
      grant_type: "authorization_code",
      code: kept.code ?? kept.came?.code ?? "(code: none yet)",
      redirect_uri: here,
      client_id: client,
      code_verifier: kept.verifier,
    }),
  call: () => ({ method: "GET", address: location.origin + steps.dataset.service + $("path").value, bearer: token("access_token") }),
  introspect: () => form(metadata.introspection_endpoint, { token: token("access_token"), client_id: client }),
  refresh: () =>
    form(metadata.token_endpoint, { grant_type: "refresh_token", refresh_token: token("refresh_token"), client_id: client }),
  revoke: () => form(metadata.revocation_endpoint, { token: token("refresh_token"), client_id: client }),
};

function requestText({ method, address, parameters, bearer }) {
  const url = new URL(address);
  const lines = [`${method} ${url.pathname}${url.search} HTTP/1.1`, `Host: ${url.host}`];
  if (bearer) lines.push(`Authorization: Bearer ${bearer}`);
  if (parameters) {
    const body = Object.entries(parameters).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    lines.push("Content-Type: application/x-www-form-urlencoded", "", body.join("&\n"));
  }
  return lines.join("\n");
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text || "(no body)";
  }
}

async function send(name) {
  const section = $(name);
  const request = REQUESTS[name]();
  const sent = requestText(request);
  const headers = { Accept: "application/json" };
  if (request.bearer) headers.Authorization = `Bearer ${request.bearer}`;
  let status, text, good = false;
  try {
    const body = request.parameters && new URLSearchParams(request.parameters);
    const answer = await fetch(request.address, { method: request.method, headers, body, credentials: "omit" });
    status = `Answer: ${answer.status} ${answer.statusText}`.trim();
    text = pretty(await answer.text());
    good = answer.ok;
  } catch (error) {
    status = "No answer";
    text = `The request did not reach the service: ${error.message}`;
  }
  if (good && (name === "exchange" || name === "refresh")) keep({ tokens: JSON.parse(text), code: null });
  section.classList.toggle("done", good);
  refreshRequests();
  section.querySelector("[data-request]").textContent = sent; // what was sent, until something else changes it
  const outcome = section.querySelector("[data-status]");
  outcome.textContent = status;
  outcome.hidden = false;
  const shown = section.querySelector("[data-answer]");
  shown.textContent = text;
  shown.hidden = false;
}

function refreshRequests() {
  for (const [name, make] of Object.entries(REQUESTS)) {
    const section = $(name);
    section.querySelector("[data-request]").textContent = requestText(make());
    const ready = name === "exchange" ? kept.came?.code && !judge(kept.came) : kept.tokens;
    section.querySelector("[data-send]").disabled = !ready;
  }
}

// --- the start ------------------------------------------------------------------------------------------------------

async function begin() {
  $("no-script").hidden = true;
  $("again").hidden = false;
  if (!globalThis.crypto?.subtle) {
    complain(`The browser computes no SHA-256 on ${location.origin}: use https, or 127.0.0.1 on the same machine.`);
    return;
  }
  const answer = await fetch(steps.dataset.metadata, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`${steps.dataset.metadata} answered ${answer.status}`);
  metadata = await answer.json();
  if (metadata.issuer !== location.origin + steps.dataset.service) {
    complain(`Open this page at ${metadata.issuer}/playground: the service goes by that name.`);
    return;
  }
  const fresh = takeAnswer();
  if (!kept.verifier) await renew();
  for (const box of boxes()) {
    if (kept.scopes) box.checked = kept.scopes.includes(box.value);
    box.addEventListener("change", showAddress);
  }
  $("path").addEventListener("change", refreshRequests);
  for (const name of Object.keys(REQUESTS)) {
    $(name).querySelector("[data-send]").addEventListener("click", () => send(name));
  }
  steps.hidden = false;
  showAddress();
  showAnswer(fresh);
  refreshRequests();
}

$("go").addEventListener("click", async (event) => {
  if (!kept.came) return;
  event.preventDefault(); // a verifier and a state serve one request: the next one gets new ones
  keep({ came: null, code: null, tokens: null });
  await renew();
  showAddress();
  location.assign($("go").href);
});

$("again").addEventListener("click", () => {
  sessionStorage.removeItem(KEPT);
  location.assign(here);
});

begin().catch((error) => complain(`The page could not start: ${error.message}`));
