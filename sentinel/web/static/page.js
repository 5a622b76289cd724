// Keeps a page up to date: asks the daemon for the same page while somebody looks, and changes the parts that differ.
import { drawCurves } from "./curve.js";

const LOOK_EVERY_MS = 2000;
const SLOWEST_MS = 30000;
const SHARE = 10; // a page that costs the daemon long to make is asked for so much less often

const root = document.documentElement;
const news = document.getElementById("news");
const ahead_s = Date.now() / 1000 - Number(root.dataset.now); // this machine's clock before the daemon's
let tag = root.dataset.tag;
let timer = 0;
let failures = 0;
let heardAt = Date.now();

function span(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

function tellAges() {
  const now = Date.now() / 1000 - ahead_s;
  for (const each of document.querySelectorAll("[data-age]")) {
    each.textContent = `${span(now - Number(each.dataset.age))} ago`;
  }
}

function tellNews() {
  const lost = failures > 0;
  news.classList.toggle("lost", lost);
  const told = lost ? `No answer for ${span((Date.now() - heardAt) / 1000)}: what you see is old` : "Live";
  if (news.textContent !== told) news.textContent = told;
}

function take(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
    if (other && other.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) {
      part.replaceChildren(...other.childNodes);
    }
  }
  const curves = document.querySelectorAll("figure[data-curve]").length;
  if (fresh.querySelectorAll("figure[data-curve]").length !== curves) return location.reload();
  const data = fresh.getElementById("curves");
  if (data) {
    document.getElementById("curves").textContent = data.textContent;
    drawCurves();
  }
  document.title = fresh.title;
  tag = fresh.documentElement.dataset.tag;
}

async function look() {
  const began = performance.now();
  try {
    const options = { headers: { "If-None-Match": tag }, cache: "no-store", redirect: "manual" };
    const answer = await fetch(location.href, options);
    if (answer.type === "opaqueredirect") return location.reload(); // the token is asked for again
    if (answer.status === 200) take(await answer.text());
    else if (answer.status !== 304) throw new Error(`HTTP ${answer.status}`);
    failures = 0;
    heardAt = Date.now();
  } catch {
    failures += 1;
  }
  tellAges();
  tellNews();
  plan(performance.now() - began);
}

function plan(took_ms) {
  clearTimeout(timer);
  if (document.hidden) return;
  timer = setTimeout(look, Math.min(SLOWEST_MS, Math.max(LOOK_EVERY_MS * 2 ** Math.min(failures, 4), took_ms * SHARE)));
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()));
setInterval(() => document.hidden || (tellAges(), failures && tellNews()), 1000);
drawCurves();
tellNews();
plan(0);
