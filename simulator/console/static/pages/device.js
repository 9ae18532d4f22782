// One device.
import { html } from "../core/html.js";
export const title = "Device";
export default ({ params }) => html`<h1>Device</h1><p>${params.device_id}</p>`;
