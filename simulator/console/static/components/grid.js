// A long table: rows of one height, of which only those in sight exist. Rows come in windows from the service.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../core/html.js";

const SPARE = 8; // rows beyond the edges, so that a quick scroll shows no gap
const TALLEST = 15_000_000; // pixels that every browser can scroll

/**
 * @param {{columns: {id: string, label: string, width: string, sortable?: boolean, number?: boolean, cell: Function}[],
 *   total: number, rowAt: (index: number) => any, rowHeight: number, sort: {by: string, ascending: boolean},
 *   onSort: Function, onWindow: (first: number, last: number) => void, label: string, isSelected?: Function}} properties
 */
export function Grid({ columns, total, rowAt, rowHeight, sort, onSort, onWindow, label, isSelected }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const height = Math.min(total * rowHeight, TALLEST);
  const scale = (total * rowHeight) / (height || 1); // above TALLEST a pixel stands for more than one
  const first = Math.max(0, Math.floor((view.top * scale) / rowHeight) - SPARE);
  const last = Math.min(total, Math.ceil((view.top * scale + view.height) / rowHeight) + SPARE);

  useLayoutEffect(() => {
    const look = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    look();
    return () => watch.disconnect();
  }, []);
  useEffect(() => onWindow(first, last), [first, last, total]);

  const rows = [];
  for (let index = first; index < last; index++) {
    const row = rowAt(index);
    rows.push(html`<div role="row" class="grid-row ${row && isSelected?.(row) ? "selected" : ""}" key=${index} aria-rowindex=${index + 2}
      style=${{ top: `${index * rowHeight - view.top * scale + view.top}px` }}>
      ${columns.map((column) => html`<div role="cell" key=${column.id} class="grid-cell ${column.number ? "number" : ""}">
        ${row ? column.cell(row) : html`<span class="grid-waiting"></span>`}</div>`)}
    </div>`);
  }
  const template = columns.map((column) => column.width).join(" ");
  return html`<div class="grid-scroll" ref=${box} tabindex="0" role="region" aria-label=${label}
      onScroll=${(event) => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}
      style=${{ "--columns": template, "--row-height": `${rowHeight}px` }}>
    <div role="table" aria-label=${label} aria-rowcount=${total + 1}>
      <div role="rowgroup"><div class="grid-head" role="row" aria-rowindex="1">
        ${columns.map((column) => html`<div role="columnheader" key=${column.id} class=${column.number ? "number" : ""} aria-sort=${sortOf(column, sort)}>
          ${column.sortable ? html`<button type="button" onClick=${() => onSort(column.id)}>${column.label}</button>` : column.label}</div>`)}
      </div></div>
      <div class="grid-body" role="rowgroup" style=${{ height: `${height}px` }}>${rows}</div>
    </div>
  </div>`;
}

function sortOf(column, sort) {
  if (!column.sortable) return undefined;
  return sort.by === column.id ? (sort.ascending ? "ascending" : "descending") : "none";
}
