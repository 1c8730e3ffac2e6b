"use strict";
(() => {
  // Texts only ever become textContent: a query may hold anything.
  const data = JSON.parse(document.getElementById("data").textContent);
  const arms = data.arms;
  const byName = new Map(arms.map((arm) => [arm.name, arm]));
  const lower = new Set(data.lower);
  const $ = (id) => document.getElementById(id);
  const ink = "#1c2430", better = "#1f6f8b", worse = "#c2410c", same = "#c3cad3";
  const config = { displaylogo: false, responsive: true, displayModeBar: false };
  const font = { family: "system-ui, sans-serif", size: 13, color: ink };

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  function options(select, names, chosen) {
    for (const name of names) select.append(new Option(name, name, false, name === chosen));
  }
  const said = (value) => (value === null ? "" : value.toFixed(3));
  const signed = (value) => (value > 0 ? "+" : "") + value.toFixed(3);

  // --- the plots of all arms ----------------------------------------------------------------------

  function drawArms() {
    const measure = $("measure").value;
    const title = measure + (lower.has(measure) ? " (less is better)" : "");
    const summaries = arms.map((arm) => arm.summary[measure]);
    const error = {
      type: "data", symmetric: false, color: "#8a97a6", thickness: 1.5, width: 5,
      array: summaries.map((each) => (each.high === null ? 0 : each.high - each.mean)),
      arrayminus: summaries.map((each) => (each.low === null ? 0 : each.mean - each.low)),
    };
    Plotly.react("quality", [{
      type: "scatter", mode: "markers", x: summaries.map((each) => each.mean), y: arms.map((arm) => arm.name),
      error_x: error, marker: { size: 10, color: better }, hovertemplate: "%{y}: %{x:.3f}<extra></extra>",
    }], {
      font, title: { text: title + " per arm", font: { size: 14 } }, margin: { l: 10, r: 20, t: 40, b: 40 },
      xaxis: { gridcolor: "#e7ebf0" }, yaxis: { automargin: true, autorange: "reversed", type: "category" },
    }, config);
    const timed = arms.filter((arm) => arm.p50_ms !== null);
    const x = timed.map((arm) => arm.p50_ms), y = timed.map((arm) => arm.summary[measure].mean);
    // The ranges are set, and the margins, so that it is known where a point will be.
    const least = Math.min(...y), span = Math.max(...y) - least || 0.1;
    const ranges = { x: [0, 1.1 * Math.max(...x)], y: [least - 0.1 * span, least + 1.1 * span] };
    const margin = { l: 50, r: 20, t: 40, b: 40 }, box = $("latency");
    const width = box.clientWidth - margin.l - margin.r, height = box.clientHeight - margin.t - margin.b;
    const points = timed.map((arm, at) => ({
      name: arm.name, x: (width * x[at]) / ranges.x[1],
      y: height * (1 - (y[at] - ranges.y[0]) / (ranges.y[1] - ranges.y[0])),
    }));
    Plotly.react("latency", [{
      type: "scatter", mode: "markers", x, y, text: timed.map((arm) => arm.name),
      cliponaxis: false, marker: { size: 10, color: better },
      customdata: timed.map((arm) => arm.p95_ms),
      hovertemplate: "%{text}: %{y:.3f}, p50 %{x:.1f} ms, p95 %{customdata:.1f} ms<extra></extra>",
    }], {
      font, title: { text: title + " against milliseconds (p50)", font: { size: 14 } },
      margin, xaxis: { range: ranges.x, gridcolor: "#e7ebf0" }, yaxis: { range: ranges.y, gridcolor: "#e7ebf0" },
      annotations: places(points, width, height).map(({ ax, ay }, at) => ({
        x: x[at], y: y[at], ax, ay, text: timed[at].name, xanchor: "center", yanchor: "middle", borderpad: 0,
        font: { size: LABEL }, arrowhead: 0, arrowwidth: 1, arrowcolor: same, standoff: 6,
      })),
    }, config);
  }

  // Where the names of points go, in pixels from them: near, within the plot, and over no other name and no point.
  const LABEL = 12, LINE = 18;
  function places(points, width, height) {
    const taken = points.map((point) => [point.x - 6, point.x + 6, point.y - 6, point.y + 6]);
    const apart = (a, b) => a[1] <= b[0] || b[1] <= a[0] || a[3] <= b[2] || b[3] <= a[2];
    return points.map((point) => {
      const half = (0.62 * LABEL * point.name.length) / 2 + 4;
      const tried = [];
      for (let far = 0; LINE * far <= height; far += 1) {
        for (const ay of far ? [-LINE * far, LINE * far] : [0]) {
          for (const ax of far ? [0, -half, half] : [half + 6, -half - 6]) tried.push({ ax, ay });
          if (far > 1) for (const ax of [-2 * half, 2 * half]) tried.push({ ax, ay });
        }
      }
      const around = ({ ax, ay }) =>
        [point.x + ax - half, point.x + ax + half, point.y + ay - LINE / 2, point.y + ay + LINE / 2];
      const inside = (at) => at[0] >= 0 && at[1] <= width + 16 && at[2] >= 0 && at[3] <= height;
      const free = (at) => inside(at) && taken.every((other) => apart(at, other));
      const found = tried.find((each) => free(around(each))) ?? tried[0];
      taken.push(around(found));
      return found;
    });
  }

  // --- queries ------------------------------------------------------------------------------------

  function moves() {
    const measure = $("measure").value, sign = lower.has(measure) ? -1 : 1;
    const before = byName.get($("from").value).values[measure], after = byName.get($("to").value).values[measure];
    return data.questions
      .map((question, at) => {
        const from = before[at], to = after[at];
        return { question, number: at + 1, from, to, move: to - from, gain: sign * (to - from) };
      })
      .filter((each) => each.from !== null && each.to !== null)
      .sort((a, b) => a.gain - b.gain);
  }

  function drawMoves() {
    const found = moves(), changed = found.filter((each) => each.gain !== 0);
    const worseCount = changed.filter((each) => each.gain < 0).length;
    $("count").textContent = `${worseCount} worse, ${changed.length - worseCount} better, ` +
      `${found.length - changed.length} the same`;
    Plotly.react("moves", [{
      type: "bar", x: changed.map((_, at) => at + 1), y: changed.map((each) => each.move),
      customdata: changed.map((each) => each.number),
      text: changed.map((each) => signed(each.move)), textposition: "none",
      marker: { color: changed.map((each) => (each.gain < 0 ? worse : better)) },
      hovertemplate: "query %{customdata}: %{text}<extra></extra>",
    }], {
      font, title: { text: `${$("measure").value}: ${$("to").value} minus ${$("from").value}`, font: { size: 14 } },
      margin: { l: 10, r: 20, t: 40, b: 10 }, bargap: 0.15, xaxis: { visible: false },
      yaxis: { automargin: true, gridcolor: "#e7ebf0", zerolinecolor: same },
    }, config);
    const which = $("which").value;
    const wanted = {
      worse: (each) => each.gain < 0, better: (each) => each.gain > 0, changed: (each) => each.gain !== 0,
      all: () => true,
    }[which];
    const rows = found.filter(wanted);
    if (which === "better") rows.reverse();
    $("moved").tBodies[0].replaceChildren(...rows.map((each) => {
      const row = element("tr");
      const number = each.number;
      row.dataset.query = number;
      row.tabIndex = 0;
      row.append(
        element("td", number), element("td", each.question.query, "text"), element("td", each.question.category ?? ""),
        element("td", said(each.from)), element("td", said(each.to)),
        element("td", signed(each.move), each.gain < 0 ? "worse" : each.gain > 0 ? "better" : ""),
      );
      row.addEventListener("click", () => go(number));
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") go(number); });
      return row;
    }));
  }

  // --- one query ----------------------------------------------------------------------------------

  function results(arm, at) {
    const question = data.questions[at], side = element("div");
    side.append(element("h3", arm.name));
    if (arm.failed[at] !== null) side.append(element("p", `failed: ${arm.failed[at]}`, "worse"));
    if (arm.incomplete[at] !== null) side.append(element("p", `may lack hits: ${arm.incomplete[at]}`, "worse"));
    const list = element("ol"), noise = new Set(question.noise ?? []);
    for (const [place, found] of arm.found[at].entries()) {
      const id = data.ids[found];
      const gain = Object.hasOwn(question.relevant, id) ? question.relevant[id] : 0;
      const line = element("li", undefined, gain > 0 ? "relevant" : noise.has(id) ? "noise" : "");
      line.append(element("span", id, "id"));
      if (gain > 0) line.append(element("span", gain > 1 ? `relevant, ${gain}` : "relevant", "mark"));
      if (id === question.authority) line.append(element("span", "authority", "mark"));
      if (noise.has(id)) line.append(element("span", "noise", "mark bad"));
      line.append(element("span", data.texts[arm.shown[at][place]] ?? "", "snippet"));
      list.append(line);
    }
    side.append(list);
    return side;
  }

  function show(number) {
    const at = number - 1, question = data.questions[at];
    if (!question) return;
    $("detail").hidden = false;
    $("detail-title").textContent = `Query ${number}`;
    $("detail-query").textContent = question.query;
    const judged = Object.entries(question.relevant);
    const answers = judged.filter(([, gain]) => gain > 0).map(([id, gain]) => (gain === 1 ? id : `${id} (${gain})`));
    const others = judged.filter(([, gain]) => gain === 0).map(([id]) => id);
    const parts = [`Judged relevant: ${answers.join(", ")}.`];
    if (others.length) parts.push(`Judged, and no answer: ${others.join(", ")}.`);
    if (question.authority) parts.push(`Authority: ${question.authority}.`);
    if (question.noise) parts.push(`Noise: ${question.noise.join(", ")}.`);
    if (question.category) parts.push(`Category: ${question.category}.`);
    if (question.filter) parts.push(`Filter: ${JSON.stringify(question.filter)}.`);
    $("detail-judged").textContent = parts.join(" ");
    for (const side of ["from", "to"]) {
      $(`detail-${side}`).replaceChildren(...results(byName.get($(side).value), at).childNodes);
    }
    const measures = Object.keys(arms[0].values).filter((name) => arms[0].values[name][at] !== null);
    const head = element("tr");
    head.append(...["arm", ...measures].map((name) => element("th", name)));
    $("detail-arms").tHead.replaceChildren(head);
    $("detail-arms").tBodies[0].replaceChildren(...arms.map((arm) => {
      const row = element("tr");
      row.append(element("th", arm.name), ...measures.map((name) => element("td", said(arm.values[name][at]))));
      return row;
    }));
    for (const row of $("moved").tBodies[0].rows) row.classList.toggle("chosen", Number(row.dataset.query) === number);
  }

  function go(number) {
    if (location.hash === `#query-${number}`) fromHash();
    else location.hash = `query-${number}`;
  }
  function fromHash() {
    const found = /^#query-(\d+)$/.exec(location.hash);
    if (!found) return;
    show(Number(found[1]));
    $("detail").scrollIntoView({ block: "start" });
  }
  function refresh() {
    drawMoves();
    const found = /^#query-(\d+)$/.exec(location.hash);
    if (found) show(Number(found[1]));
  }

  const names = arms.map((arm) => arm.name);
  options($("measure"), Object.keys(arms[0].summary), data.headline);
  options($("from"), names, names[0]);
  const mean = (arm) => arm.summary[data.headline].mean;
  const best = arms.slice(1).reduce((a, b) => (a && mean(a) >= mean(b) ? a : b), undefined);
  options($("to"), names, (best ?? arms[0]).name);
  drawArms();
  refresh();
  $("moves").on("plotly_click", (event) => go(event.points[0].customdata));
  $("measure").addEventListener("change", () => { drawArms(); refresh(); });
  for (const id of ["from", "to", "which"]) $(id).addEventListener("change", refresh);
  window.addEventListener("hashchange", fromHash);
  window.addEventListener("resize", drawArms);  // names keep off each other by pixels
  fromHash();
})();
