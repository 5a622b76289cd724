// Draws the curves that lie on the page as JSON: the run's path, the branches given up, and marks at steps.

const charts = new Map();
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 640px)");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function short(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(4)));
}

function columns(curve) {
  return [curve.steps, curve.high ?? curve.mean, curve.low ?? curve.mean, curve.mean];
}

function everyValue(curve, from, to) {
  const values = [];
  for (const column of columns(curve).slice(1)) {
    column.forEach((value, at) => value !== null && curve.steps[at] >= from && curve.steps[at] <= to && values.push(value));
  }
  for (const branch of curve.abandoned) {
    for (const [step, , low, high] of branch) if (low !== null && step >= from && step <= to) values.push(low, high);
  }
  return curve.log ? values.filter((value) => value > 0) : values;
}

function everyStep(curve) {
  return curve.steps.concat(curve.abandoned.flat().map(([step]) => step));
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function rangeY(state) {
  return (chart) => {
    const { min, max } = chart.scales.x;
    const [low, high] = extent(everyValue(state.curve, min ?? -Infinity, max ?? Infinity));
    if (low > high) return state.curve.log ? [0.1, 10] : [0, 1];
    return state.curve.log ? uPlot.rangeLog(low, high, 10, false) : uPlot.rangeNum(low, high, 0.08, true);
  };
}

function rangeX(state) {
  return (_chart, min, max) => {
    if (state.zoom) return state.zoom;
    const [low, high] = extent(everyStep(state.curve));
    return low > high ? [0, 1] : low === high ? [low - 1, high + 1] : [low, high];
  };
}

function drawSpans(chart, state) {
  const { ctx, bbox } = chart;
  for (const span of state.marks.spans ?? []) {
    const left = chart.valToPos(span.from, "x", true);
    const width = Math.max(3 * devicePixelRatio, chart.valToPos(span.to, "x", true) - left);
    const tone = span.severity === "critical" ? "bad" : "warn";
    ctx.fillStyle = colour(`span-${tone}`);
    ctx.fillRect(left, bbox.top, width, bbox.height);
    ctx.fillStyle = colour(tone);
    ctx.fillRect(left, bbox.top, width, 2 * devicePixelRatio);
    ctx.fillText(span.label, left + 2 * devicePixelRatio, bbox.top + 14 * devicePixelRatio);
  }
}

function drawBranches(chart, state) {
  const { ctx } = chart;
  ctx.strokeStyle = colour("lost");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([5 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const branch of state.curve.abandoned) {
    ctx.beginPath();
    let pen = false;
    for (const [step, value] of branch) {
      const drawable = value !== null && !(state.curve.log && value <= 0);
      const at = drawable ? [chart.valToPos(step, "x", true), chart.valToPos(value, "y", true)] : [];
      if (drawable) pen ? ctx.lineTo(...at) : ctx.moveTo(...at);
      pen = drawable;
    }
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

function drawReach(chart, state) {
  const { ctx } = chart;
  ctx.strokeStyle = colour("lost");
  ctx.lineWidth = 0.5 * devicePixelRatio;
  for (const [step, , low, high] of state.curve.abandoned.flat()) {
    if (low === null || low === high || (state.curve.log && low <= 0)) continue;
    const x = chart.valToPos(step, "x", true);
    ctx.beginPath();
    ctx.moveTo(x, chart.valToPos(low, "y", true));
    ctx.lineTo(x, chart.valToPos(high, "y", true));
    ctx.stroke();
  }
}

const SHAPES = {
  known_good: (path, x, y, r) => path.rect(x - r, y - r, 2 * r, 2 * r),
  suspect: (path, x, y, r) => (path.moveTo(x - r, y + r), path.lineTo(x + r, y + r), path.lineTo(x, y - r), path.closePath()),
  bad: (path, x, y, r) => (path.moveTo(x - r, y - r), path.lineTo(x + r, y + r), path.moveTo(x + r, y - r), path.lineTo(x - r, y + r)),
};

function drawMarks(chart, state) {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio;
  const bottom = bbox.top + bbox.height;
  for (const { step, state: standing } of state.marks.checkpoints ?? []) {
    const path = new Path2D();
    (SHAPES[standing] ?? SHAPES.known_good)(path, chart.valToPos(step, "x", true), bottom - 5 * ratio, 3.5 * ratio);
    ctx.lineWidth = 1.5 * ratio;
    ctx.strokeStyle = ctx.fillStyle = colour(standing === "known_good" ? "good" : standing === "bad" ? "bad" : "dim");
    standing === "known_good" ? ctx.fill(path) : ctx.stroke(path);
  }
  ctx.fillStyle = colour("warn");
  for (const step of state.marks.findings ?? []) {
    const path = new Path2D();
    const x = chart.valToPos(step, "x", true);
    path.moveTo(x - 4 * ratio, bbox.top + 18 * ratio);
    path.lineTo(x + 4 * ratio, bbox.top + 18 * ratio);
    path.lineTo(x, bbox.top + 25 * ratio);
    ctx.fill(path);
  }
  ctx.strokeStyle = colour("bad");
  ctx.lineWidth = 2 * ratio;
  for (const [step] of state.curve.nonfinite) {
    const path = new Path2D();
    SHAPES.bad(path, chart.valToPos(step, "x", true), bottom - 16 * ratio, 4 * ratio);
    ctx.stroke(path);
  }
}

function drawLines(chart, state) {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio;
  ctx.lineWidth = ratio;
  let row = 0;
  for (const { step, label } of state.marks.lines ?? []) {
    const x = chart.valToPos(step, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colour("text");
    ctx.setLineDash([2 * ratio, 2 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const text = `${label} ${step}`;
    const width = ctx.measureText(text).width + 6 * ratio;
    const left = x + width > bbox.left + bbox.width ? x - width - ratio : x + ratio;
    const top = bbox.top + 15 * row * ratio;
    ctx.fillStyle = colour("back");
    ctx.fillRect(left, top, width, 15 * ratio);
    ctx.fillStyle = colour("text");
    ctx.fillText(text, left + 3 * ratio, top + 11 * ratio);
    row += 1;
  }
  ctx.setLineDash([]);
}

function clipped(draw, state) {
  return (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    for (const each of draw) each(chart, state);
    ctx.restore();
  };
}

function read(chart, state) {
  const at = chart.cursor.idx;
  if (at === null || at === undefined) return;
  const { steps, mean, low, high } = state.curve;
  const between = high && high[at] !== low[at] ? `, ${short(low[at])} to ${short(high[at])}` : "";
  const broken = state.curve.nonfinite.find(([step]) => step === steps[at]);
  const count = broken ? `, ${broken[1]} not finite` : "";
  state.readout.textContent = `step ${steps[at].toLocaleString("en")}: ${short(mean[at])}${between}${count}`;
}

function axis(extra) {
  const font = "11px system-ui, sans-serif";
  const ticks = { stroke: colour("rule"), width: 1 };
  return { stroke: colour("dim"), font, grid: { stroke: colour("rule"), width: 1 }, ticks, ...extra };
}

function options(state) {
  const line = { stroke: colour("line"), width: 1.5, points: { show: state.curve.steps.length < 2 } };
  const edge = { points: { show: false } };
  return {
    width: state.place.clientWidth,
    height: narrow.matches ? 200 : 230,
    legend: { show: false },
    cursor: { y: false, sync: { key: "page" }, drag: { x: true, y: false } },
    scales: { x: { time: false, range: rangeX(state) }, y: { distr: state.curve.log ? 3 : 1, range: rangeY(state) } },
    axes: [
      axis({ size: 34, values: (_chart, steps) => steps.map((step) => (step % 1 ? "" : step.toLocaleString("en"))) }),
      axis({ size: 58, values: (_chart, values) => values.map((value) => (value === null ? "" : short(value))) }),
    ],
    series: [{}, edge, edge, line],
    bands: state.curve.high ? [{ series: [1, 2], fill: colour("band") }] : [],
    hooks: {
      drawClear: [clipped([drawSpans], state)],
      draw: [clipped([drawReach, drawBranches, drawMarks, drawLines], state)],
      setCursor: [(chart) => read(chart, state)],
      setSelect: [(chart) => choose(chart, state)],
    },
  };
}

function zoomTo(chart, state, range) {
  state.zoom = range;
  chart.setData(columns(state.curve));
}

function choose(chart, state) {
  if (chart.select.width < 4) return;
  const { left, width } = chart.select;
  zoomTo(chart, state, [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")]);
  chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
}

function press(chart, state, event) {
  const { steps } = state.curve;
  const { min, max } = chart.scales.x;
  const jump = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (jump) {
    const from = state.at ?? (jump > 0 ? -1 : steps.length);
    state.at = Math.min(steps.length - 1, Math.max(0, from + jump * (event.shiftKey ? 10 : 1)));
    chart.setCursor({ left: chart.valToPos(steps[state.at], "x"), top: 10 });
  } else if (event.key === "+" || event.key === "-") {
    const middle = steps[state.at] ?? (min + max) / 2;
    const half = ((max - min) / 2) * (event.key === "+" ? 0.5 : 2);
    zoomTo(chart, state, [middle - half, middle + half]);
  } else if (event.key === "Escape") {
    zoomTo(chart, state, null);
  } else {
    return;
  }
  event.preventDefault();
}

function build(state) {
  state.chart?.destroy();
  state.log = state.curve.log;
  const chart = new uPlot(options(state), columns(state.curve), state.place);
  state.chart = chart;
  chart.over.addEventListener("dblclick", () => zoomTo(chart, state, null));
}

function open(figure, curve, marks) {
  const place = figure.querySelector(".plot");
  const state = { curve, marks, place, readout: figure.querySelector(".readout"), zoom: null, at: null };
  charts.set(figure, state);
  build(state);
  place.addEventListener("keydown", (event) => press(state.chart, state, event));
  new ResizeObserver(() => {
    const width = place.clientWidth;
    if (width && width !== state.chart.width) state.chart.setSize({ width, height: state.chart.height });
  }).observe(place);
}

export function drawCurves() {
  const source = document.getElementById("curves");
  if (!source || typeof uPlot === "undefined") return;
  const { curves, marks } = JSON.parse(source.textContent);
  for (const curve of curves) {
    const figure = document.querySelector(`figure[data-curve="${CSS.escape(curve.name)}"]`);
    const state = charts.get(figure);
    if (!state) {
      open(figure, curve, marks);
      continue;
    }
    const wide = Boolean(state.curve.high) !== Boolean(curve.high);
    Object.assign(state, { curve, marks });
    if (wide || state.log !== curve.log) build(state);
    else state.chart.setData(columns(curve));
  }
}

dark.addEventListener("change", () => charts.forEach(build));
