// Commands: their states, how long each step took, and following those that are under way.
import { get, post, segment } from "./api.js";

export const OPEN = new Set(["queued", "delivered", "in_progress"]);
export const isOpen = (command) => OPEN.has(command.status);

/** What a payload commands. */
export function nameOf(payload) {
  const name = payload?.command;
  return typeof name === "string" && name ? name : "unnamed command";
}

export const readCommand = (deviceId, id) => get(`/devices/${segment(deviceId)}/commands/${segment(id)}`);

export function sendCommand(deviceId, payload, ttl) {
  return post("/commands/send", { device_id: deviceId, command_payload: payload, ...(ttl ? { ttl_seconds: ttl } : {}) });
}

/** Have the device end a command that it has not ended yet: a command of its own, which agents carry out at once. */
export const cancelCommand = (command) => sendCommand(command.device_id, { command: "cancel", command_id: command.id });

/**
 * The steps of a command so far.
 * @returns {{label: string, at: number|null, after: number|null, isWaiting: boolean, state: string}[]} `after` in ms since the step before
 */
export function stepsOf(command, now) {
  const sent = Date.parse(command.created_at);
  const delivered = command.delivered_at && Date.parse(command.delivered_at);
  const ended = command.completed_at && Date.parse(command.completed_at);
  const steps = [{ label: "Sent", at: sent, after: null, state: "queued" }];
  if (delivered) steps.push({ label: "Delivered", at: delivered, after: delivered - sent, state: "delivered" });
  if (command.status === "in_progress") steps.push({ label: "In progress", at: null, after: null, state: "in_progress" });
  if (ended) steps.push({ label: LABELS[command.status] ?? command.status, at: ended, after: ended - (delivered ?? sent), state: command.status });
  else steps.push({ label: delivered ? "Waiting for the result" : "Waiting for the device", at: null, after: now - (delivered ?? sent), isWaiting: true, state: "" });
  return steps;
}

const LABELS = { succeeded: "Succeeded", failed: "Failed", rejected: "Rejected", expired: "Expired", timed_out: "Timed out", canceled: "Canceled" };

/** Whom a vocabulary is for: [{name, title, description, payload_schema}], empty for a product without one. */
export async function loadVocabulary(productId) {
  const found = await get(`/products/${segment(productId)}/commands`);
  return found.data ?? found;
}
