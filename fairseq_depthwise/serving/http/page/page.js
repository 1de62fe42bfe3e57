"use strict";
const by = (id) => document.getElementById(id);
let running = null;

// All text goes through textContent: a translation is never read as HTML.
function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function languages() {
  const chosen = {};
  if (by("source").value) chosen.source_lang = by("source").value;
  if (by("target").value) chosen.target_lang = by("target").value;
  return chosen;
}

async function post(path, body, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const answer = await fetch(path, options);
  if (!answer.ok) {
    const document = await answer.json().catch(() => ({}));
    throw new Error(document.error || `The server answered with status ${answer.status}.`);
  }
  return answer;
}

function explained(error) {
  return error instanceof TypeError ? "The server does not answer." : error.message;
}

async function* documents(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const document = JSON.parse(line);
      if (document.error) throw new Error(document.error);
      yield document;
    }
  }
}

by("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return running.abort();
  const lines = by("text").value.split(/\r?\n/).filter((line) => line.trim());
  by("error").textContent = by("status").textContent = "";
  by("about").hidden = true;
  by("results").replaceChildren();
  if (!lines.length) { by("error").textContent = "There is no text; type a sentence."; return; }
  running = new AbortController();
  by("go").textContent = "Stop";
  by("status").textContent = "Translating";
  const started = performance.now();
  let done = 0;
  const chosen = languages();
  try {
    const body = { lines, nbest: Number(by("nbest").value), stream: true, ...chosen };
    for await (const found of documents(await post("/translate", body, running.signal))) {
      by("results").append(card(lines[done], found, chosen));
      by("about").hidden = false;
      done += 1;
      by("status").textContent = `${done} of ${lines.length} lines`;
    }
    if (done < lines.length) throw new Error(`The answer ended after ${done} of ${lines.length} lines.`);
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    by("status").textContent = `${done} ${done === 1 ? "line" : "lines"} in ${seconds} s`;
  } catch (error) {
    const stopped = error.name === "AbortError";
    by("status").textContent = stopped ? `Stopped after ${done} of ${lines.length} lines` : "";
    if (!stopped) by("error").textContent = explained(error);
  }
  running = null;
  by("go").textContent = "Translate";
});

by("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); by("form").requestSubmit(); }
});

function shown(score) { return score === null ? "none" : score.toFixed(3); }

function card(line, found, chosen) {
  const item = make("li");
  item.append(make("p", line, { class: "line soft", dir: "auto" }));
  if (found.cut_off) item.append(make("p", "As long as a translation may be, and perhaps cut off.", { class: "soft" }));
  const table = make("table", undefined, { class: "nbest" });
  const head = make("tr");
  for (const name of ["", "Score", "Translation", ""]) {
    head.append(name ? make("th", name, { scope: "col" }) : make("td"));
  }
  table.append(make("thead"), make("tbody"));
  table.tHead.append(head);
  const place = make("div", undefined, { "aria-live": "polite" });
  (found.nbest || [found]).forEach((hypothesis, rank) => {
    const row = make("tr");
    const button = make("button", "Attention", {
      type: "button", "aria-expanded": "false", "aria-label": `Attention of translation ${rank + 1}`,
    });
    button.addEventListener("click", () => toggle(place, row, button, { line, rank, ...chosen }));
    const cell = make("td");
    cell.append(button);
    row.append(make("th", String(rank + 1), { scope: "row" }), make("td", shown(hypothesis.score), { class: "score" }),
      make("td", hypothesis.text, { class: "text", dir: "auto" }), cell);
    table.tBodies[0].append(row);
  });
  item.append(...scrolled(table, "Translations"), place);
  return item;
}

async function toggle(place, row, button, request) {
  const open = button.getAttribute("aria-expanded") === "true";
  for (const other of row.parentElement.querySelectorAll("button")) other.setAttribute("aria-expanded", "false");
  for (const other of row.parentElement.rows) other.classList.remove("shown");
  place.replaceChildren();
  if (open) return;
  button.setAttribute("aria-expanded", "true");
  row.classList.add("shown");
  place.append(make("p", "Looking into the model", { class: "soft" }));
  let parts;
  try {
    parts = picture(await (await post("/explain", request)).json());
  } catch (error) {
    parts = [make("p", explained(error))];
  }
  if (button.getAttribute("aria-expanded") === "true") place.replaceChildren(...parts);
}

function picture(found) {
  const parts = [make("h3", "Attention of the last decoder layer to the source, in percent")];
  if (found.models > 1) parts.push(make("p", `Of the first of ${found.models} models.`, { class: "soft" }));
  parts.push(...heat(found.source, found.target, found.attention, (weight) => weight,
    (weight) => (weight >= 0.095 ? String(Math.round(100 * weight)) : ""), (weight) => `${Math.round(100 * weight)} %`));
  if (found.gates) {
    const sides = make("div", undefined, { class: "gates" });
    for (const [side, rows] of Object.entries(found.gates)) {
      const part = make("div");
      part.append(...scrolled(bars(side, rows), `Gates of the ${side}`));
      sides.append(part);
    }
    parts.push(make("h3", "Mean gates of the depth-wise LSTM, by layer"), sides);
  }
  if (found.units) {
    const most = Math.max(...found.units.flat().map(Math.abs), 1e-9);
    const name = (number) => number.toFixed(2);
    parts.push(make("h3", "Weights of the units, by encoder layer"), ...heat(found.units[0].map((_, unit) => `unit ${unit + 1}`),
      found.units.map((_, layer) => `layer ${layer + 1}`), found.units, (weight) => Math.abs(weight) / most, name, name));
  }
  return parts;
}

function heat(columns, rows, values, strength, text, label) {
  const table = make("table", undefined, { class: "heat" });
  const head = make("tr");
  head.append(make("td"));
  for (const column of columns) {
    const cell = make("th", undefined, { scope: "col" });
    cell.append(make("span", column));
    head.append(cell);
  }
  table.append(make("thead"), make("tbody"));
  table.tHead.append(head);
  rows.forEach((name, row) => {
    const line = make("tr");
    line.append(make("th", name, { scope: "row" }));
    values[row].forEach((value, column) => {
      const about = `${name}, ${columns[column]}: ${label(value)}`;
      const cell = make("td", text(value), { title: about, "aria-label": about });
      cell.style.setProperty("--weight", strength(value));
      line.append(cell);
    });
    table.tBodies[0].append(line);
  });
  return scrolled(table, "Table");
}

// A table that scrolls sideways if it is wider than the page, faded where it goes on, below a line that says so.
function scrolled(table, name) {
  const wide = make("div", undefined, { class: "wide", tabindex: "0", role: "region", "aria-label": name });
  const hint = make("p", "The table goes on to the right: scroll it sideways.", { class: "soft" });
  const show = () => {
    const hidden = wide.scrollWidth - wide.clientWidth;
    hint.hidden = hidden < 2;
    wide.classList.toggle("more", hidden - wide.scrollLeft >= 2);
  };
  hint.hidden = true;
  wide.append(table);
  wide.addEventListener("scroll", show);
  new ResizeObserver(show).observe(wide);
  return [hint, wide];
}

function bars(side, rows) {
  const table = make("table", undefined, { class: "bars" });
  table.append(make("caption", side), make("thead"), make("tbody"));
  const head = make("tr");
  const gates = Object.keys(rows[0] ?? {}).filter((name) => name !== "layer");
  for (const name of ["layer", ...gates]) head.append(make("th", name, { scope: "col" }));
  table.tHead.append(head);
  for (const row of rows) {
    const line = make("tr");
    line.append(make("th", row.layer, { scope: "row" }));
    for (const name of gates) {
      const cell = make("td");
      const bar = make("span", undefined, { class: "bar" });
      bar.style.setProperty("--weight", row[name]);
      cell.append(bar, make("span", row[name].toFixed(2)));
      line.append(cell);
    }
    table.tBodies[0].append(line);
  }
  return table;
}

(async () => {
  try {
    const found = await (await fetch("/health")).json();
    by("languages").textContent = `from ${found.source_lang} into ${found.target_lang}`;
    // A model of one direction has no choice of languages.
    for (const [id, language] of [["source", found.source_lang], ["target", found.target_lang]]) {
      by(id).replaceChildren(...found.languages.map((name) => make("option", name)));
      if (found.languages.length) by(id).value = language;
      by(id).parentElement.hidden = !found.languages.length;
    }
    const counts = Array.from({ length: found.most_nbest }, (_, number) => make("option", String(number + 1)));
    by("nbest").replaceChildren(...counts);
    by("nbest").value = String(found.nbest);
  } catch (error) {
    by("error").textContent = explained(error);
  }
})();
