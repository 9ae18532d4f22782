// A partner application's whole flow through one of two independent clients, led by a test over standard input:
//
//   node flow.mjs oauth4webapi|openid-client
//   <- one line of JSON: {"issuer", "client_id", "client_secret" or null, "redirect_uri", "scope"}
//   -> one line: the authorization address
//   <- one line: the address that the browser came back to
//   -> one line of JSON: what came of each step
//
// Both check state, iss (RFC 9207), the metadata document (RFC 8414) and the form of every answer themselves.
import { webcrypto } from 'node:crypto'
import { createInterface } from 'node:readline'

globalThis.crypto ??= webcrypto // Node 18 has it under this name only
const oauth = await import('oauth4webapi')
const client = await import('openid-client')

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const read = async () => (await lines.next()).value
const say = (text) => process.stdout.write(`${text}\n`)

const told = JSON.parse(await read())
const issuer = new URL(told.issuer)
const api = new URL(`${told.issuer}/products`)

/** What an error of either library says in the words of OAuth. */
const wordOf = (error) => error.error ?? error.cause?.get?.('error') ?? error.cause?.[0]?.parameters?.error ?? error.code

const attempt = async (act) => {
  try {
    return await act()
  } catch (error) {
    return { error: wordOf(error) ?? String(error) }
  }
}

async function throughOauth4webapi() {
  const insecure = { [oauth.allowInsecureRequests]: true } // loopback only
  const found = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...insecure })
  const server = await oauth.processDiscoveryResponse(issuer, found)
  const app = { client_id: told.client_id }
  const proof = told.client_secret ? oauth.ClientSecretBasic(told.client_secret) : oauth.None()
  const verifier = oauth.generateRandomCodeVerifier()
  const state = oauth.generateRandomState()

  const address = new URL(server.authorization_endpoint)
  address.search = new URLSearchParams({
    client_id: told.client_id,
    redirect_uri: told.redirect_uri,
    response_type: 'code',
    scope: told.scope,
    state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
  })
  say(address)

  const answer = oauth.validateAuthResponse(server, app, new URL(await read()), state)
  const exchange = () =>
    oauth.authorizationCodeGrantRequest(server, app, proof, answer, told.redirect_uri, verifier, insecure)
  const first = await oauth.processAuthorizationCodeResponse(server, app, await exchange())
  const call = async (token) =>
    (await oauth.protectedResourceRequest(token, 'GET', api, undefined, undefined, insecure)).status
  const refresh = async (token) =>
    oauth.processRefreshTokenResponse(
      server, app, await oauth.refreshTokenGrantRequest(server, app, proof, token, insecure))
  const second = await refresh(first.refresh_token)
  const revoke = async (token) =>
    oauth.processRevocationResponse(await oauth.revocationRequest(server, app, proof, token, insecure))
  return finish({ first, second, call, refresh, revoke })
}

async function throughOpenidClient() {
  const proof = told.client_secret ? client.ClientSecretPost(told.client_secret) : client.None()
  const config = await client.discovery(issuer, told.client_id, undefined, proof, {
    algorithm: 'oauth2',
    execute: [client.allowInsecureRequests], // loopback only
  })
  const pkceCodeVerifier = client.randomPKCECodeVerifier()
  const expectedState = client.randomState()
  say(client.buildAuthorizationUrl(config, {
    redirect_uri: told.redirect_uri,
    scope: told.scope,
    state: expectedState,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
  }))

  const checks = { pkceCodeVerifier, expectedState }
  const first = await client.authorizationCodeGrant(config, new URL(await read()), checks)
  const second = await client.refreshTokenGrant(config, first.refresh_token)
  return finish({
    first,
    second,
    call: async (token) => (await client.fetchProtectedResource(config, token, api, 'GET')).status,
    refresh: (token) => client.refreshTokenGrant(config, token),
    revoke: (token) => client.tokenRevocation(config, token),
  })
}

/** The same questions through either library. */
async function finish({ first, second, call, refresh, revoke }) {
  const results = {
    expires_in: first.expires_in,
    scope: first.scope,
    rotated: first.access_token !== second.access_token && first.refresh_token !== second.refresh_token,
    call: await call(second.access_token),
    call_with_the_old_token: await attempt(() => call(first.access_token)),
  }
  await revoke(second.refresh_token)
  results.call_after_revoking = await attempt(() => call(second.access_token))
  results.refresh_after_revoking = await attempt(() => refresh(second.refresh_token))
  return results
}

const flows = { oauth4webapi: throughOauth4webapi, 'openid-client': throughOpenidClient }
say(JSON.stringify(await attempt(flows[process.argv[2]])))
process.exit(0)
