// One pass over every endpoint: starts a server of its own with seed.example.json, exits 0 when all went well.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const dir = mkdtempSync(join(tmpdir(), 'express-smoke-'))
const keys = { 'x-api-key': 'mk_smoke', 'x-secret-key': 'msk_smoke' }
let base

async function start(more = {}) {
  const child = spawn(process.execPath, ['server.js'], {
    cwd: here,
    env: {
      ...process.env,
      PORT: '0',
      API_KEY: 'mk_smoke',
      SECRET_KEY: 'msk_smoke',
      RATE_LIMIT: '1000',
      DATA: join(dir, 'data.jsonl'),
      SEED: join(here, 'seed.example.json'),
      ...more,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  running.add(child)
  child.once('exit', () => running.delete(child))
  const line = await new Promise((resolve, reject) => {
    child.stdout.once('data', (data) => resolve(String(data)))
    child.once('exit', (code) => reject(new Error(`server ended with ${code}`)))
  })
  base = /^listening on (http:\S+)\n$/.exec(line)[1]
  return child
}

async function stop(child) {
  const ended = new Promise((resolve) => child.once('exit', (code, signal) => resolve([code, signal])))
  child.kill('SIGTERM')
  assert.deepEqual(await ended, [0, null])
}

// -> body of the answer: parsed when JSON, otherwise the text
async function call(status, method, path, body, headers = keys) {
  const answer = await fetch(base + path, {
    method,
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  const text = await answer.text()
  assert.equal(answer.status, status, `${method} ${path}: ${answer.status} ${text}`)
  return (answer.headers.get('content-type') || '').startsWith('application/json') ? JSON.parse(text) : text
}

const form = (path, fields) =>
  fetch(base + path, { method: 'POST', body: new URLSearchParams(fields), redirect: 'manual' })

async function manufacturer() {
  // the two ways to be refused, in order
  assert.match((await call(401, 'GET', '/products', undefined, {})).message, /[Bb]oth/)
  await call(401, 'GET', '/products', undefined, { 'x-api-key': 'mk_smoke' })
  await call(401, 'GET', '/products', undefined, { ...keys, 'x-secret-key': 'msk_wrong' })
  assert.match(await call(404, 'GET', '/nowhere'), /<pre>Cannot GET/)

  // products, vocabulary, dashboard
  const definition = { name: 'Fan', category: 'air', model: 'F-1', description: 'A fan', commands: [{ name: 'spin' }] }
  const { productId } = (await call(201, 'POST', '/products', definition)).data
  const p = `/products/${productId}`
  assert.equal((await call(400, 'POST', '/products', {})).message, 'name is required')
  assert.equal((await call(200, 'GET', '/products')).count, 2)
  const changed = (await call(200, 'PUT', p, { model: 'F-2' })).data
  assert.deepEqual([changed.name, changed.model], ['Fan', 'F-2'])
  assert.deepEqual((await call(200, 'GET', `${p}/commands`)).data, [{ name: 'spin' }])
  assert.deepEqual(await call(200, 'GET', `${p}/dashboard`), { widgets: [] })
  await call(200, 'PUT', `${p}/dashboard`, { widgets: [{ type: 'chart' }] })
  assert.deepEqual(await call(200, 'GET', `${p}/dashboard`), { widgets: [{ type: 'chart' }] })
  await call(404, 'PUT', '/products/none', {})

  // onboarding
  const qr = { product_id: productId, device_identifier: 'FAN-7' }
  const scanned = await call(200, 'POST', '/onboarding/scan-qr', { qr_data: JSON.stringify(qr) })
  assert.deepEqual([scanned.product.name, scanned.device_identifier], ['Fan', 'FAN-7'])
  const url = `https://qr.example/x?p=${productId}&d=FAN-7`
  assert.deepEqual(await call(200, 'POST', '/onboarding/scan-qr', { qr_data: url }), scanned)
  await call(400, 'POST', '/onboarding/scan-qr', { qr_data: 'hello' })
  const registration = { user_id: 'user_ann', device_name: 'My fan', qr_info: qr, ...qr }
  const { device_id } = (await call(201, 'POST', '/onboarding/device', registration)).device
  await call(409, 'POST', '/onboarding/device', registration)
  assert.equal((await call(200, 'GET', '/onboarding/user/user_ann/devices')).devices[0].device_id, device_id)
  await call(404, 'GET', '/onboarding/user/nobody/devices')

  // devices, commands, sensor data
  assert.deepEqual((await call(200, 'GET', '/devices')).map((d) => d.device_id), ['dev_lamp1', device_id])
  const sent = []
  for (const speed of [1, 2]) {
    sent.push((await call(202, 'POST', '/commands/send', { device_id, command_payload: { speed } })).command_id)
  }
  await call(400, 'POST', '/commands/send', { device_id })
  await call(404, 'POST', '/commands/send', { device_id: 'none', command_payload: {} })
  const { commands } = await call(200, 'GET', `/devices/${device_id}/commands`)
  assert.deepEqual(commands.map((c) => c._id), sent.reverse())
  await call(404, 'GET', '/devices/none/commands')
  assert.equal(await call(201, 'POST', '/sensor-data', { device_id, sensor_data: { rpm: 900 } }), 'Created')
  assert.deepEqual((await call(200, 'GET', `/sensor-data?device_id=${device_id}`))[0].sensor_data, { rpm: 900 })

  // database
  const schema = await call(201, 'POST', `${p}/database/schemas`, { name: 'main' })
  assert.deepEqual((await call(200, 'GET', `${p}/database/schemas`)).schemas, [schema])
  await call(201, 'POST', '/database/tables', { schema_id: schema.id, table_name: 'runs', columns: [{ name: 'rpm' }] })
  const row = { product_id: productId, device_id, table_name: 'runs', data_payload: { rpm: 1 } }
  await call(404, 'POST', '/database/runtime-data', { ...row, table_name: 'none' })
  const { id } = await call(201, 'POST', '/database/runtime-data', row)
  await call(200, 'PUT', `/database/runtime-data/${id}`, { data_payload: { rpm: 2 } })
  const found = await call(200, 'GET', `/database/runtime-data?product_id=${productId}&table_name=runs`)
  assert.deepEqual([found.pagination.total, found.data[0].data_payload], [1, { rpm: 2 }])
  await call(204, 'DELETE', `/database/runtime-data/${id}`)
  await call(404, 'DELETE', `/database/runtime-data/${id}`)

  // other groups
  assert.equal((await call(200, 'GET', '/rules')).rules.length, 1)
  assert.equal((await call(200, 'GET', '/analytics/devices')).onlineDevices, 1)
  assert.equal(
    (await call(200, 'POST', '/auth/signin', { email: 'ann@example.com', password: 'ann-password' })).user.id,
    'user_ann',
  )
  await call(401, 'POST', '/auth/signin', { email: 'ann@example.com', password: 'no' })

  assert.equal(await call(200, 'DELETE', `/onboarding/device/${device_id}`), 'OK')
  await call(404, 'DELETE', `/onboarding/device/${device_id}`)
  await call(200, 'DELETE', p)
  await call(404, 'DELETE', p)
}

async function partner(client_id, redirect_uri, email, password, client_secret) {
  const code_verifier = randomBytes(32).toString('base64url')
  const query = { client_id, redirect_uri, scope: 'manufacturer:products', response_type: 'code', state: 's t&1' }
  if (!client_secret) {
    query.code_challenge = createHash('sha256').update(code_verifier).digest('base64url')
    query.code_challenge_method = 'S256'
  }
  const authorize = (more) => `/partner-oauth-authorize?${new URLSearchParams({ ...query, ...more })}`
  await call(400, 'GET', authorize({ redirect_uri: 'http://evil.example/' }), undefined, {})
  await call(400, 'GET', authorize({ scope: 'manufacturer:everything' }), undefined, {})
  const html = await call(200, 'GET', authorize(), undefined, {})
  const hidden = Object.fromEntries(
    [...html.matchAll(/name="(\w+)" value="([^"]*)">/g)].map(([, k, v]) => [
      k,
      v.replace(/&#(\d+);/g, (_, n) => String.fromCharCode(n)),
    ]),
  )
  const filled = { ...hidden, email, password, decision: 'approve' }
  assert.equal((await form('/partner-oauth-authorize', { ...filled, password: 'no' })).status, 401)
  const consent = await form('/partner-oauth-authorize', filled)
  assert.equal(consent.status, 302)
  const back = new URL(consent.headers.get('location'))
  assert.equal(back.origin + back.pathname, redirect_uri)
  assert.equal(back.searchParams.get('state'), 's t&1')

  const token = '/functions/v1/partner-oauth-token'
  const proof = client_secret ? { client_secret } : { code_verifier }
  const exchange = {
    grant_type: 'authorization_code', code: back.searchParams.get('code'), redirect_uri, client_id, ...proof,
  }
  const answer = await form(token, exchange)
  assert.equal(answer.status, 200)
  const first = await answer.json()
  assert.deepEqual([first.token_type, first.expires_in, first.scope], ['Bearer', 3600, 'manufacturer:products'])
  assert.equal((await call(400, 'POST', token, exchange, {})).error, 'invalid_grant')

  const bearer = (t) => ({ authorization: `Bearer ${t.access_token}` })
  const { count } = await call(200, 'GET', '/products', undefined, bearer(first))
  await call(201, 'POST', '/products', { name: 'Partner product' }, bearer(first))
  assert.equal((await call(200, 'GET', '/products', undefined, bearer(first))).count, count + 1)
  await call(401, 'GET', '/devices', undefined, bearer(first))

  const refresh = { grant_type: 'refresh_token', refresh_token: first.refresh_token, client_id, ...proof }
  const second = await call(200, 'POST', token, refresh, {})
  await call(400, 'POST', token, refresh, {})
  await call(401, 'GET', '/products', undefined, bearer(first))
  assert.equal((await call(200, 'GET', '/products', undefined, bearer(second))).count, count + 1)
  return bearer(second)
}

const running = new Set()
try {
  let server = await start()
  await manufacturer()
  const ann = ['ann@example.com', 'ann-password']
  await partner('partner_web', 'http://127.0.0.1:9999/callback', ...ann, 'partner-web-secret')
  const headers = await partner('partner_spa', 'http://127.0.0.1:9999/spa', ...ann)
  await stop(server)

  // what was stored is there again; then the rate limit
  server = await start({ RATE_LIMIT: '3' })
  assert.equal((await call(200, 'GET', '/products', undefined, headers)).count, 2)
  const statuses = []
  for (let i = 0; i < 8; i++) {
    const answer = await fetch(`${base}/devices`, { headers: keys })
    await answer.arrayBuffer()
    statuses.push(answer.status)
  }
  assert.ok(statuses[0] === 200 && statuses.includes(429), String(statuses))
  await stop(server)
  console.log('smoke: all well')
} finally {
  for (const child of running) child.kill('SIGKILL')
  rmSync(dir, { recursive: true, force: true })
}
