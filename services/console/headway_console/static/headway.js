// What makes the pages pleasant; each of them works without it.
"use strict";
(() => {
  // Times: relative in the viewer's zone, the exact one on hover.
  const UNITS = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });
  const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
  const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
  const plain = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

  // The server reads times in filters in the viewer's zone, of which only the browser knows.
  const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  if (!document.cookie.split("; ").includes(`headway-zone=${zone}`)) {
    document.cookie = `headway-zone=${zone}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  }

  function written(at, now) {
    const seconds = Math.round((at - now) / 1000);
    if (Math.abs(seconds) < 1) return "now";
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size);
    return relative.format(Math.trunc(seconds / size), unit);
  }

  function writeTimes(root) {
    const now = Date.now();
    for (const time of root.querySelectorAll("time[datetime]:not([data-fixed])")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      if (!time.title) time.title = `${exact.format(at)} (${at.toISOString()})`;
      const text = "clock" in time.dataset ? clock.format(at) : "exact" in time.dataset ? plain.format(at) : written(at, now);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // Lists with boxes: check all (also a stretch, with shift), and how many are checked.
  function boxes(form) {
    return [...document.querySelectorAll(`input[type=checkbox][form="${CSS.escape(form)}"]`)];
  }

  function countChecked() {
    for (const form of document.querySelectorAll("form[data-bulk]")) {
      const id = form.getAttribute("id");  // not form.id: a field may be called id
      const all = boxes(id), checked = all.filter((box) => box.checked).length;
      form.querySelector("[data-count]").textContent = checked;
      for (const button of form.querySelectorAll("button[name]")) button.disabled = !checked;
      const every = document.querySelector(`[data-check-all="${CSS.escape(id)}"]`);
      if (every) {
        every.checked = checked > 0 && checked === all.length;
        every.indeterminate = checked > 0 && checked < all.length;
      }
    }
  }

  let lastBox = null;
  document.addEventListener("click", (event) => {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || box.type !== "checkbox") return;
    if (box.dataset.checkAll) {
      for (const one of boxes(box.dataset.checkAll)) one.checked = box.checked;
    } else if (box.getAttribute("form")) {
      const all = boxes(box.getAttribute("form"));
      if (event.shiftKey && all.includes(lastBox)) {
        const ends = [all.indexOf(lastBox), all.indexOf(box)].sort((one, other) => one - other);
        for (const one of all.slice(ends[0], ends[1] + 1)) one.checked = box.checked;
      }
      lastBox = box;
    }
    countChecked();
  });

  // Forms: a choice filters at once, and what cannot be undone is asked about first.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
  document.addEventListener("submit", (event) => {
    const form = event.target, button = event.submitter;
    const question = (button && button.dataset.confirm) || form.dataset.confirm;
    if (!question || form.dataset.confirmed) return;
    event.preventDefault();
    const dialog = document.getElementById("confirm");
    document.getElementById("confirm-text").textContent = question;
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes") return;
      form.dataset.confirmed = "yes";
      form.requestSubmit(button);
      delete form.dataset.confirmed;
    }, { once: true });
    dialog.returnValue = "";
    dialog.showModal();
  });

  // Keys: / to search, g and a letter to go to a page, ? for the list of them.
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
    if (going && Date.now() - going < 1500) {
      going = 0;
      const link = [...document.querySelectorAll("a[data-key]")].find((one) => one.dataset.key === event.key);
      if (link) { event.preventDefault(); link.click(); return; }
    }
    if (event.key === "g") going = Date.now();
    else if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "?") document.getElementById("shortcuts")?.showModal();
  });

  // Live: every element with an id and `data-live` is replaced when something has changed, by
  // what the same address shows now. Not while somebody is at work in it.
  const QUIET = 1500;
  let asked = Date.now(), again = false, asking = false;

  function atWork(element) {
    return element.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")
      || element.querySelector("input:checked[form], details[open][data-keep]") !== null;
  }

  // Whoever goes through a list by keys, or has moved a table sideways, stays where they are.
  const MOVED = ".scroll, .attempts, pre";

  function alike(root, element) {
    const told = (one) => ["href", "name", "value", "aria-label"].map((name) => one.getAttribute(name)).join(" ");
    return [...root.querySelectorAll(element.tagName)].filter((one) => told(one) === told(element));
  }

  function moved(root) {
    return [...(root.matches(MOVED) ? [root] : []), ...root.querySelectorAll(MOVED)];
  }

  function replace(old, fresh) {
    const focused = old !== document.activeElement && old.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? alike(old, focused).indexOf(focused) : -1;
    const places = moved(old).map((one) => [one.scrollLeft, one.scrollTop]);
    const itself = old === document.activeElement;
    old.replaceWith(fresh);
    window.htmx?.process(fresh);
    moved(fresh).forEach((one, index) => { if (places[index]) [one.scrollLeft, one.scrollTop] = places[index]; });
    const again = itself ? fresh : focused && ((focused.id && document.getElementById(focused.id)) || alike(fresh, focused)[place]);
    again?.focus({ preventScroll: true });
  }

  async function refresh() {
    const wait = asked + QUIET - Date.now();
    if (asking || wait > 0 || document.hidden) {
      if (!again) { again = true; setTimeout(() => { again = false; refresh(); }, Math.max(wait, 300)); }
      return;
    }
    asking = true;
    asked = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { "HX-Request": "true", "HX-Current-URL": location.href } });
      if (answer.status === 401) location.reload();
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live][id]")) {
        const element = fresh.getElementById(old.id);
        if (!element || atWork(old)) continue;
        const adopted = document.adoptNode(element);
        writeTimes(adopted);
        if (adopted.isEqualNode(old)) continue;
        replace(old, adopted);
      }
      prepare();
    } catch { /* the console is away: the next news asks again */ } finally {
      asking = false;
    }
  }

  function listen() {
    const part = document.querySelector("[data-live]");
    if (!part) return;
    // Some pages hear of more than is written down: `data-live` names where.
    const source = new EventSource(part.dataset.live || "/live");
    source.addEventListener("changed", refresh);
    source.addEventListener("error", () => document.body.classList.add("offline"));
    source.addEventListener("listening", () => {
      document.body.classList.remove("offline");
      document.body.dataset.listening = "yes";
      refresh();  // what was written down between this page and now
    });
    addEventListener("pagehide", () => source.close());
  }

  function prepare() {
    writeTimes(document);
    countChecked();
  }

  // On a phone the navigation is one line that moves sideways.
  function showWhereWeAre() {
    const link = document.querySelector(".top nav [aria-current]"), nav = link?.parentElement;
    if (nav) nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.clientWidth) / 2;
  }

  prepare();
  showWhereWeAre();
  listen();
  setInterval(() => writeTimes(document), 1000);
  document.addEventListener("htmx:afterSwap", prepare);
})();
