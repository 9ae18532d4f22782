// A request as a program would send it: the same address and body, with the public key, and the secret one from the environment.
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const headers = (apiKey) => `-H ${shell(`x-api-key: ${apiKey}`)} -H "x-secret-key: $SECRET_KEY"`;

/** A command to these devices as lines for a shell. `target` is {device_ids} or {product_id}. */
export function commandAsCurl(target, payload, ttl, apiKey) {
  const rest = `"command_payload":${JSON.stringify(payload)}${ttl ? `,"ttl_seconds":${ttl}` : ""}}`;
  const send = (body) => `curl ${headers(apiKey)} -H 'content-type: application/json' \\\n  -d ${body} ${location.origin}/commands/send`;
  if (target.device_ids?.length === 1) return send(shell(`{"device_id":${JSON.stringify(target.device_ids[0])},${rest}`));
  const each = `  ${send(`'{"device_id":"'"$device_id"'",'${shell(rest)}`).replaceAll("\n", "\n  ")}`;
  if (target.device_ids) return `for device_id in ${target.device_ids.map(shell).join(" ")}; do\n${each}\ndone`;
  const list = `${location.origin}/devices?product_id=${encodeURIComponent(target.product_id)}&limit=1000`;
  return `curl ${headers(apiKey)} ${shell(list)} | jq -r '.data[].device_id' | while read -r device_id; do\n${each}\ndone`;
}

/** JSON as a Python literal. */
export function python(value, indent = 0) {
  const inner = " ".repeat(indent + 4);
  const end = " ".repeat(indent);
  if (value === null) return "None";
  if (value === true || value === false) return value ? "True" : "False";
  if (typeof value === "string") return JSON.stringify(value).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
  if (typeof value !== "object") return String(value);
  const parts = Array.isArray(value) ? value.map((one) => python(one, indent + 4)) : Object.entries(value).map(([name, one]) => `${python(name)}: ${python(one, indent + 4)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!parts.length) return open + close;
  const line = open + parts.join(", ") + close;
  return line.length + indent < 90 && !line.includes("\n") ? line : `${open}\n${parts.map((part) => `${inner}${part},\n`).join("")}${end}${close}`;
}

export function commandAsPython(target, payload, ttl, apiKey) {
  const lines = [
    "import os",
    "",
    "import httpx",
    "",
    `keys = {"x-api-key": ${python(apiKey)}, "x-secret-key": os.environ["SECRET_KEY"]}`,
    `payload = ${python(payload)}`,
    `with httpx.Client(base_url=${python(location.origin)}, headers=keys) as service:`,
  ];
  if (target.device_ids) lines.push(`    device_ids = ${python(target.device_ids, 4)}`);
  else {
    lines.push(
      "    device_ids = []",
      `    query = {"product_id": ${python(target.product_id)}, "limit": 1000}`,
      "    while True:",
      '        page = service.get("/devices", params=query).raise_for_status().json()',
      '        device_ids += [device["device_id"] for device in page["data"]]',
      '        if not page["has_more"]:',
      "            break",
      '        query["cursor"] = page["next_cursor"]',
    );
  }
  lines.push(
    "    for device_id in device_ids:",
    `        body = {"device_id": device_id, "command_payload": payload${ttl ? `, "ttl_seconds": ${ttl}` : ""}}`,
    '        answer = service.post("/commands/send", json=body).raise_for_status()',
    "        print(answer.json())",
    "",
  );
  return lines.join("\n");
}
