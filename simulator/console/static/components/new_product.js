// A product with a name: all that labels and devices need.
import { post } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { ErrorBox } from "./states.js";

export function NewProduct({ onMade }) {
  const [name, setName] = useState("");
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await post("/products", { name: name.trim() });
      onMade();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<form class="row" onSubmit=${submit}>
    <div class="field"><label for="new-product">Name of the product</label>
      <input class="input" id="new-product" required maxlength="200" autocomplete="off" value=${name} onInput=${(event) => setName(event.currentTarget.value)} /></div>
    <button class="button main" type="submit" disabled=${!name.trim()}>Make the product</button>
  </form>${error && html`<${ErrorBox} error=${error} />`}`;
}
