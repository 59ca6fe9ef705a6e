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

// Charts: beside the pointer, and with the arrow keys, the legend shows the values of one round.
for (const chart of document.querySelectorAll(".chart")) {
  const plot = chart.querySelector(".plot svg");
  const lines = [...chart.querySelectorAll(".legend li")].map((item) => ({
    number: item.querySelector(".number"),
    last: item.querySelector(".number").textContent,
    values: new Map(item.dataset.values.split(" ").map((pair) => pair.split(",").map(Number))),
  }));
  const rounds = [...new Set(lines.flatMap((line) => [...line.values.keys()]))].sort((a, b) => a - b);
  const least = rounds[0], width = rounds.at(-1) - least;
  const caption = chart.querySelector(".round"), said = caption.textContent;
  const rule = document.createElementNS(plot.namespaceURI, "path");
  rule.classList.add("pointer");
  plot.prepend(rule);
  let at = rounds.length;
  const show = (index) => {
    at = Math.max(0, Math.min(rounds.length - 1, index));
    rule.setAttribute("d", `M${(1000 * (rounds[at] - least)) / width} 0V1000`);
    caption.textContent = `round ${rounds[at]}`;
    for (const line of lines) {
      const value = line.values.get(rounds[at]);
      const digits = line.last.split(".")[1]?.length ?? 0;
      line.number.textContent = value === undefined ? "–" : value.toFixed(digits);
    }
  };
  const leave = () => {
    at = rounds.length;
    rule.removeAttribute("d");
    caption.textContent = said;
    for (const line of lines) line.number.textContent = line.last;
  };
  const area = chart.querySelector(".plot");
  area.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const round = least + (width * (event.clientX - box.left)) / box.width;
    const distances = rounds.map((each) => Math.abs(each - round));
    show(distances.indexOf(Math.min(...distances)));
  });
  area.addEventListener("pointerleave", leave);
  area.tabIndex = 0;
  area.setAttribute("role", "group");
  area.setAttribute("aria-label", "Values of a round: left and right arrow keys");
  area.addEventListener("blur", leave);
  area.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    show(at + step);
    event.preventDefault();
  });
  const title = chart.querySelector("figcaption");
  const name = (title.firstChild.textContent || "chart").trim();
  title.append(
    saver("CSV", name, "csv", "text/csv", () => [
      ["round", ...legend(chart)],
      ...rounds.map((each) => [each, ...lines.map((line) => line.values.get(each) ?? "")]),
    ].map(row).join("")),
    saver("SVG", name, "svg", "image/svg+xml", () => drawing(chart, name)),
  );
}

function legend(chart) {
  return [...chart.querySelectorAll(".legend bdi")].map((each) => each.textContent);
}

// Several runs: boxes in the table choose whose curves are drawn, the newest ones at first.
for (const overlay of document.querySelectorAll(".overlay")) {
  const owners = overlay.dataset.owners.split(" ");
  const [items, plot] = [overlay.querySelectorAll(".legend li"), overlay.querySelector(".plot svg")];
  // The first curve is drawn last.
  const curves = [...plot.querySelectorAll(".line")].reverse();
  const show = (owner, shown) => owners.forEach((each, index) => {
    if (each !== owner) return;
    items[index].hidden = !shown;
    for (const part of [curves[index], curves[index].nextElementSibling]) {
      if (part === curves[index] || part?.matches(".dots")) part.style.display = shown ? "" : "none";
    }
  });
  const boxes = [];
  for (const line of document.querySelectorAll("tr[data-row]")) {
    if (!owners.includes(line.dataset.row)) continue;
    const box = document.createElement("input");
    box.type = "checkbox";
    box.className = "box";
    box.setAttribute("aria-label", "Draw the curves");
    box.addEventListener("change", () => show(line.dataset.row, box.checked));
    line.cells[0].prepend(box, " ");
    boxes.push(box);
    box.checked = boxes.length <= 5;
    show(line.dataset.row, box.checked);
  }
}

// A line of a CSV file. Spreadsheets calculate what begins with these characters.
function row(cells) {
  return `${cells.map((cell) => {
    const text = String(cell);
    const inert = typeof cell === "string" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))
      ? `'${text}` : text;
    return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
  }).join(",")}\n`;
}

// A button that saves a file.
function saver(label, name, ending, type, content) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "save";
  button.textContent = label;
  button.setAttribute("aria-label", `Save ${name} as ${label}`);
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content()], { type }));
    link.download = `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  return button;
}

// A chart as a picture of its own: axes, curves and legend.
function drawing(chart, name) {
  const [left, top, width, height, line] = [50, 40, 560, 320, 18];
  const lines = [...chart.querySelectorAll(".legend li")];
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const add = (parent, kind, values, content = "") => {
    const made = document.createElementNS(picture.namespaceURI, kind);
    for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
    made.textContent = content;
    return parent.appendChild(made);
  };
  const whole = { width: left + width + 20, height: top + height + 50 + line * lines.length };
  for (const [key, value] of Object.entries(whole)) picture.setAttribute(key, value);
  picture.setAttribute("font-family", "sans-serif");
  picture.setAttribute("font-size", 12);
  add(picture, "rect", { ...whole, fill: "white" });
  add(picture, "text", { x: left, y: 22, "font-size": 14, "font-weight": 600 }, name);
  const area = add(picture, "svg", {
    x: left, y: top, width, height, viewBox: "0 0 1000 1000", preserveAspectRatio: "none", overflow: "visible",
  });
  for (const path of chart.querySelectorAll(".plot path:not(.pointer)")) {
    const style = getComputedStyle(path);
    if (style.display === "none") continue;
    const copy = add(area, "path", { d: path.getAttribute("d"), "vector-effect": "non-scaling-stroke" });
    for (const key of ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity"]) {
      copy.setAttribute(key, style.getPropertyValue(key));
    }
  }
  for (const each of chart.querySelectorAll(".ys span")) {
    const y = top + height * (1 - parseFloat(each.style.bottom) / 100) + 4;
    add(picture, "text", { x: left - 6, y, "text-anchor": "end" }, each.textContent);
  }
  for (const each of chart.querySelectorAll(".xs span")) {
    const x = left + (width * parseFloat(each.style.left)) / 100;
    add(picture, "text", { x, y: top + height + 18, "text-anchor": "middle" }, each.textContent);
  }
  add(picture, "text", { x: left + width / 2, y: top + height + 34, "text-anchor": "middle" }, "round");
  lines.filter((item) => !item.hidden).forEach((item, index) => {
    const y = top + height + 56 + line * index;
    const style = getComputedStyle(item.querySelector("path"));
    const key = add(picture, "path", { d: `M${left} ${y - 4}h32`, "stroke-width": 2.5 });
    for (const each of ["stroke", "stroke-dasharray"]) key.setAttribute(each, style.getPropertyValue(each));
    const words = `${item.querySelector("bdi").textContent}  ${item.querySelector(".number").textContent}`;
    add(picture, "text", { x: left + 40, y }, words);
  });
  return new XMLSerializer().serializeToString(picture);
}

// Tables: a button saves what they show, sorted as they are.
for (const table of document.querySelectorAll("table.sortable")) {
  const name = table.caption?.textContent ?? "table";
  const shown = (cell) => (cell.querySelector("bdi") ?? cell).textContent.trim();
  const save = saver("CSV", name, "csv", "text/csv", () => {
    const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((each) => !each.hidden)];
    return rows.map((each) => row(
      [...each.cells]
        .filter((cell) => !cell.matches(".dots, .bar"))
        .map((cell) => (cell.dataset.value === undefined ? shown(cell) : Number(cell.dataset.value))),
    )).join("");
  });
  table.closest(".wide").after(save);
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
