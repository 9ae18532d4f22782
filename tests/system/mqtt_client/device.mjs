// A device that knows docs/protocol.md and nothing else of this project, with MQTT.js.
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import mqtt from 'mqtt'

const { DEVICE, PORT, CA } = process.env
const me = `v1/devices/${DEVICE}`
const waiting = new Map() // key -> [topic, text], until a receipt names the key

const client = mqtt.connect(`mqtts://127.0.0.1:${PORT}`, {
  protocolVersion: 5,
  clean: false,
  properties: { sessionExpiryInterval: 3600 },
  clientId: DEVICE,
  username: DEVICE,
  password: readFileSync('token', 'utf8').trim(),
  ca: readFileSync(CA),
  will: { topic: `${me}/status`, payload: '{"status":"offline"}', qos: 1, retain: true },
})

function send([topic, text]) {
  if (client.connected) client.publish(topic, text, { qos: 1 })
}

function deliver(topic, message, key) {
  waiting.set(key, [`${me}/${topic}`, JSON.stringify({ ...message, key })])
  send(waiting.get(key))
}

function carryOut(payload) {
  if (payload.command !== 'blink') return { status: 'rejected', error: 'unknown_command' }
  appendFileSync('blinked', 'blink\n')
  return { status: 'succeeded', result: { blinks: 1 } }
}

function take(command) {
  const id = encodeURIComponent(command.id)
  const file = `taken/${id}/outcome`
  const isNew = mkdirSync(`taken/${id}`, { recursive: true }) !== undefined
  if (isNew && command.status !== 'canceled') {
    writeFileSync(file, JSON.stringify(carryOut(command.command_payload)))
  }
  const interrupted = { status: 'failed', error: 'it was interrupted' }
  deliver(`commands/${id}/result`, existsSync(file) ? JSON.parse(readFileSync(file)) : interrupted, `result-${id}`)
}

client.on('connect', async () => {
  await client.subscribeAsync([`${me}/commands/+`, `${me}/receipts`], { qos: 1 })
  await client.publishAsync(`${me}/status`, '{"status":"online"}', { qos: 1, retain: true })
})
client.on('message', (topic, payload) => {
  const message = JSON.parse(payload) // the PUBACK is sent once this function has returned
  if (topic !== `${me}/receipts`) return take(message)
  for (const key of message.stored ?? []) waiting.delete(key)
  for (const { key } of message.refused ?? []) waiting.delete(key)
  if (waiting.size === 0) writeFileSync('confirmed', '')
})
client.on('error', (error) => console.error(error.message))
setInterval(() => deliver('sensor-data', { sensor_data: { temperature: 21.5 } }, `reading-${Date.now()}`), 1_000)
setInterval(() => [...waiting.values()].forEach(send), 10_000)
