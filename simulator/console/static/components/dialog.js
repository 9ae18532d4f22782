// A dialog above the page: the browser's own, so focus stays inside and Escape closes it.
import { html, useEffect, useRef } from "../core/html.js";

export function Dialog({ title, onClose, children }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    const dialog = box.current;
    dialog.showModal();
    return () => {
      dialog.close(); // while it is open, nothing else takes the focus
      before?.focus?.();
    };
  }, []);
  return html`<dialog ref=${box} aria-labelledby="dialog-title" onCancel=${(event) => { event.preventDefault(); onClose(); }}>
    <div class="dialog-head"><h2 id="dialog-title">${title}</h2>
      <button class="button small" type="button" onClick=${onClose}>Close</button></div>
    <div class="dialog-body">${children}</div>
  </dialog>`;
}
