"use strict";

// Tables: a click on a heading, or Enter on it, sorts by this column; empty cells stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    if (heading.classList.contains("dots")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.title = heading.title ? `${heading.title} (click to sort)` : "Click to sort";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(table, heading));
  }
}

function sort(table, heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const column = heading.cellIndex;
  const numeric = heading.classList.contains("number");
  const order = new Intl.Collator(undefined, { numeric: true });
  const key = (row) => {
    const cell = row.cells[column];
    if (!numeric) return (cell.querySelector("bdi") ?? cell).textContent.trim();
    return cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
  };
  const compare = (a, b) => {
    if (!numeric) return descending ? order.compare(b, a) : order.compare(a, b);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return descending ? b - a : a - b;
  };
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

// Long tables: a field shows only the rows whose name has the text that is typed.
for (const table of document.querySelectorAll("table.pinned")) {
  if (table.tBodies[0].rows.length <= 15) continue;
  const label = document.createElement("label");
  const field = document.createElement("input");
  field.type = "search";
  label.append("Filter ", field);
  label.className = "filter";
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    }
  });
  table.closest(".wide").before(label);
}

// Choices: of several parts, only the selected one is shown.
for (const chooser of document.querySelectorAll(".chooser")) {
  const select = chooser.querySelector("select");
  const parts = chooser.querySelectorAll(".choosable");
  const show = () => parts.forEach((part, index) => { part.hidden = index !== select.selectedIndex; });
  chooser.querySelector(".choice").hidden = false;
  select.addEventListener("change", show);
  show();
}

// What is folded away on the screen is printed, but for settings with their defaults.
const folded = () => document.querySelectorAll("details:not([open]):not(.defaults)");
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...folded()];
  opened.forEach((part) => { part.open = true; });
});
addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));
