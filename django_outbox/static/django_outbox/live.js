// The live page of the outbox: asks for a reading every other second and draws it.
// Text of rows only ever becomes text: nothing here is written as HTML.
"use strict";
(() => {
  const POLL = 2000; // milliseconds between two readings
  const TIMEOUT = 10000; // milliseconds until an answer counts as missing
  const SPAN = 300; // seconds that a chart shows at most ...
  const LEAST_SPAN = 60; // ... and at least
  const RATE_WINDOW = 10; // seconds over which a rate is an average
  const HEIGHT = 120, LEFT = 44, BOTTOM = 16, TOP = 6; // pixels of a chart
  const SVG = "http://www.w3.org/2000/svg";

  const root = document.getElementById("outbox-live");
  const locale = document.documentElement.lang || "en";
  const at = (id) => document.getElementById(`outbox-${id}`);
  const whole = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat(locale, { notation: "compact", maximumFractionDigits: 1 });

  const seconds = (s) => s === 0 ? "0" : s < 1 ? `${whole.format(s * 1000)} ms`
    : s < 120 ? `${s.toFixed(1)} s`
    : s < 7200 ? `${whole.format(s / 60)} min`
    : s < 172800 ? `${whole.format(s / 3600)} h` : `${whole.format(s / 86400)} days`;
  const count = (n, capped) => whole.format(n) + (capped ? "+" : "");

  function element(name, attributes = {}, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // A scale that ends at 1, 2 or 5 times a power of ten.
  function rounded(top) {
    const power = 10 ** Math.floor(Math.log10(top));
    return power * [1, 2, 5, 10].find((step) => step * power >= top);
  }

  // Lines that move to the left. A gap in the readings is a gap in the line.
  class Chart {
    constructor(name, labels, format, least) {
      this.figure = root.querySelector(`[data-chart="${name}"]`);
      this.labels = labels;
      this.format = format;
      this.least = least;
      this.points = [];
      this.legend = document.createElement("div");
      this.legend.className = "outbox-legend";
      this.svg = element("svg", { role: "img" });
      this.figure.append(this.legend, this.svg);
      this.cursor = null;
      this.svg.addEventListener("pointermove", (event) => {
        this.cursor = event.clientX - this.svg.getBoundingClientRect().left;
        this.draw();
      });
      this.svg.addEventListener("pointerleave", () => { this.cursor = null; this.draw(); });
      new ResizeObserver(() => this.draw()).observe(this.figure);
    }

    add(time, values) {
      this.points.push({ time, values });
      while (this.points.length && this.points[0].time < time - SPAN) this.points.shift();
      this.draw();
    }

    say(text) {
      this.legend.textContent = text;
      this.svg.replaceChildren();
      this.svg.setAttribute("aria-label", text);
    }

    draw() {
      const last = this.points.at(-1);
      const width = this.svg.clientWidth;
      if (!last || !width) return;
      const known = this.points.flatMap((point) => point.values).filter((v) => v !== null);
      const top = rounded(Math.max(this.least, ...known));
      const span = Math.max(LEAST_SPAN, last.time - this.points[0].time);
      const x = (time) => width - (last.time - time) / span * (width - LEFT);
      const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
      const drawn = [];
      for (const value of [0, top / 2, top]) {
        drawn.push(element("line", { class: "outbox-grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }));
        drawn.push(element("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, this.format(value, true)));
      }
      drawn.push(element("text", { x: LEFT, y: HEIGHT - 2 }, `−${span < 120 ? `${whole.format(span)} s` : seconds(span)}`));
      drawn.push(element("text", { x: width, y: HEIGHT - 2, "text-anchor": "end" }, "now"));
      this.labels.forEach((_, n) => {
        const colour = n ? "outbox-second" : "outbox-first";
        for (const run of this.runs(n)) {
          const path = run.map((p) => `${x(p.time).toFixed(1)},${y(p.values[n]).toFixed(1)}`).join("L");
          if (!n) {
            const ends = [run.at(-1), run[0]].map((p) => `${x(p.time).toFixed(1)},${y(0)}`).join("L");
            drawn.push(element("path", { class: `outbox-area ${colour}`, d: `M${path}L${ends}Z` }));
          }
          drawn.push(element("path", { class: `outbox-line ${colour}`, d: `M${path}` }));
        }
      });
      let shown = last;
      if (this.cursor !== null) {
        const distance = (point) => Math.abs(x(point.time) - this.cursor);
        shown = this.points.reduce((best, point) => distance(point) < distance(best) ? point : best);
        drawn.push(element("line", { class: "outbox-cursor", x1: x(shown.time), x2: x(shown.time), y1: TOP, y2: HEIGHT - BOTTOM }));
      }
      this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      this.svg.replaceChildren(...drawn);
      this.describe(shown, last);
    }

    // Points next to each other, without those whose value is not known.
    runs(n) {
      const runs = [[]];
      let before = null;
      for (const point of this.points) {
        const isGap = before && point.time - before.time > 3 * POLL / 1000 + TIMEOUT / 1000;
        if (point.values[n] === null || isGap) runs.push([]);
        if (point.values[n] !== null) runs.at(-1).push(point);
        before = point;
      }
      return runs.filter((run) => run.length > 1);
    }

    describe(shown, last) {
      const items = this.labels.map((label, n) => {
        const item = document.createElement("span");
        const mark = document.createElement("i");
        mark.className = n ? "outbox-second" : "outbox-first";
        const value = shown.values[n];
        item.append(mark, `${label} ${value === null ? "–" : this.format(value, false)}`);
        return item;
      });
      if (shown !== last) items.push(clock(shown.time));
      this.legend.replaceChildren(...items);
      this.svg.setAttribute("aria-label", items.map((item) => item.textContent ?? item).join(", "));
    }
  }

  const number = (value, isShort) => (isShort ? short : whole).format(value);
  const charts = {
    rate: new Chart("rate", ["written", "sent"], number, 10),
    backlog: new Chart("backlog", ["waiting"], number, 10),
    age: new Chart("age", ["oldest"], seconds, 1),
    latency: new Chart("latency", ["p50", "p99"], seconds, 0.01),
  };

  const clock = (time) => new Date(time * 1000).toLocaleTimeString(locale, { hourCycle: "h23" });

  // The counters of the last seconds; they begin again when the server's statistics do.
  let counted = [];
  function rates(time, counters) {
    if (!counters) return [null, null];
    const point = [time, counters.inserted, counters.deleted];
    const last = counted.at(-1);
    if (last && (point[1] < last[1] || point[2] < last[2])) counted = [];
    counted.push(point);
    while (counted.length > 2 && counted[1][0] <= time - RATE_WINDOW) counted.shift();
    const elapsed = time - counted[0][0];
    return elapsed > 0 ? [1, 2].map((n) => (point[n] - counted[0][n]) / elapsed) : [null, null];
  }

  function tile(id, text, isBad = false, isQuiet = false) {
    const shown = at(id);
    shown.textContent = text;
    shown.classList.toggle("outbox-bad", isBad);
    shown.classList.toggle("outbox-quiet", isQuiet);
  }

  function table(id, rows) {
    const section = at(id);
    section.hidden = !rows.length;
    section.querySelector("tbody").replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((cell) => {
        const made = document.createElement("td");
        if (typeof cell === "object") {
          const link = document.createElement("a");
          link.href = cell.href;
          link.textContent = cell.text;
          made.append(link);
        } else {
          made.textContent = cell;
          if (/^[\d.,+]+( \w+)?$/.test(cell)) made.className = "outbox-number";
        }
        return made;
      }));
      return row;
    }));
  }

  // What only this page saw: the tables do not say who led before.
  const seen = [];
  let leader;
  function watchLeader(state, time) {
    const isKnown = state.leader !== null;
    tile("leader", isKnown ? state.leader : `unknown: ${state.reason}`, false, !isKnown);
    if (state.reason === "listening" || state.leader === leader) return;
    if (leader !== undefined || !isKnown) {
      const text = isKnown ? `${state.leader} leads` : `Nobody is known to lead: ${state.reason}`;
      seen.unshift({ time: new Date(time * 1000).toISOString(), text });
      seen.splice(10);
    }
    leader = state.leader;
  }

  function events(listed) {
    const all = [...seen, ...listed].sort((a, b) => Date.parse(b.time) - Date.parse(a.time));
    if (!all.length) return;
    at("events").replaceChildren(...all.slice(0, 10).map((event) => {
      const item = document.createElement("li");
      const time = document.createElement("time");
      time.dateTime = event.time;
      time.textContent = clock(Date.parse(event.time) / 1000);
      time.title = new Date(event.time).toLocaleString(locale);
      item.append(time, event.text);
      return item;
    }));
  }

  function show(reading) {
    const time = Date.parse(reading.time) / 1000;
    const { backlog, blocked, parked, latency } = reading;
    const [written, sent] = rates(time, reading.counters);
    watchLeader(reading.leader, time);
    tile("rate", sent === null ? "…" : `${whole.format(sent)}/s`);
    tile("backlog", count(backlog.records, backlog.is_capped));
    tile("age", backlog.records ? seconds(backlog.oldest_age) : "–");
    tile("blocked", count(blocked.rows.length, blocked.is_capped), blocked.rows.length > 0);
    tile("parked", count(parked.records, parked.is_capped), parked.records > 0);
    const paused = reading.paused.map((p) => p.reason ? `${p.what} (${p.reason})` : p.what);
    at("paused").hidden = !paused.length;
    at("paused").textContent = at("paused").dataset.text.replace("{what}", paused.join(", "));
    charts.rate.add(time, [written, sent]);
    charts.backlog.add(time, [backlog.records]);
    charts.age.add(time, [backlog.oldest_age]);
    if (latency === null) charts.latency.say("Not known: the outbox archives nothing (setting ARCHIVE).");
    else charts.latency.add(time, [latency.p50, latency.p99]);
    const list = root.dataset.list;
    table("blocked-rows", blocked.rows.map((row) => [
      { href: `${list}${row.id}/change/`, text: row.id }, row.kafka_topic,
      String(row.attempts), row.last_error || "no error recorded",
    ]));
    const shares = (rows, ...columns) => rows.map((row) => [
      { href: `${list}?topic=${encodeURIComponent(row.kafka_topic)}`, text: row.kafka_topic },
      ...columns.map((column) => ({ href: `${list}?q=${encodeURIComponent(row[column])}`, text: row[column] })),
      whole.format(row.records), row.oldest_age === null ? "–" : seconds(row.oldest_age),
    ]);
    table("topics", shares(reading.topics));
    const sample = at("topics").querySelector("[data-sample]");
    sample.hidden = backlog.records <= reading.sample;
    sample.textContent = sample.dataset.sample.replace("{n}", whole.format(reading.sample));
    table("keys", shares(reading.keys ?? [], "kafka_key"));
    events(reading.events);
  }

  let answered = Date.now();
  function trouble(text) {
    at("trouble").hidden = !text;
    if (text) at("trouble").textContent = `${text} The figures are ${seconds((Date.now() - answered) / 1000)} old.`;
  }

  async function poll() {
    try {
      const answer = await fetch(root.dataset.url, {
        signal: AbortSignal.timeout(TIMEOUT), cache: "no-store", headers: { Accept: "application/json" },
      });
      const isJson = (answer.headers.get("Content-Type") ?? "").startsWith("application/json");
      if (answer.redirected || answer.status === 403) trouble("You are logged out, or may not see this page any more: load it again.");
      else if (!isJson) trouble(`The server answers with ${answer.status}.`);
      else if (!answer.ok) trouble((await answer.json()).error ?? `The server answers with ${answer.status}.`);
      else {
        show(await answer.json());
        answered = Date.now();
        trouble("");
      }
    } catch (error) {
      trouble(error.name === "TimeoutError" ? "The server does not answer in time." : "The server cannot be reached.");
    }
  }

  // A page that nobody looks at asks for nothing.
  let timer = null;
  async function run() {
    timer = null;
    await poll();
    if (!document.hidden && timer === null) timer = setTimeout(run, POLL);
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && timer === null) run();
    else if (document.hidden && timer !== null) { clearTimeout(timer); timer = null; }
  });
  run();
})();
