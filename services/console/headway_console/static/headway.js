// Enhancements of the pages; each page works without them.
"use strict";
(() => {
  // Times: relative, and exact on hover, in the zone that the person chose; without one in that of
  // the browser. Times of a manifest may name its own.
  const UNITS = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });
  const FORMATS = {
    exact: { dateStyle: "medium", timeStyle: "long" },
    clock: { timeStyle: "medium" },
    plain: { dateStyle: "medium", timeStyle: "short" },
  };
  const formats = new Map();
  const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

  function write(kind, at, time) {
    const timeZone = time.dataset.zone || document.body.dataset.zone || ownZone, key = `${kind} ${timeZone}`;
    if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", { ...FORMATS[kind], timeZone }));
    return formats.get(key).format(at);
  }

  // The server writes and reads times in the zone of the browser too.
  const zone = encodeURIComponent(ownZone);
  if (!document.cookie.split("; ").includes(`headway-zone=${zone}`)) {
    document.cookie = `headway-zone=${zone}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  }

  function relativeTime(at, now) {
    const seconds = Math.round((at - now) / 1000);
    if (Math.abs(seconds) < 1) return "now";
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size);
    return relative.format(Math.trunc(seconds / size), unit);
  }

  // "7:05", "1:07:05", "2d 1:07:05"
  function countdown(at, now) {
    const left = Math.max(0, Math.ceil((at - now) / 1000)), two = (number) => String(number).padStart(2, "0");
    const days = Math.floor(left / 86400), hours = Math.floor(left / 3600) % 24, minutes = Math.floor(left / 60) % 60;
    return `${days ? `${days}d ` : ""}${days || hours ? `${hours}:${two(minutes)}` : minutes}:${two(left % 60)}`;
  }

  function writeTimes(root) {
    const now = Date.now();
    for (const time of root.querySelectorAll("time[datetime]:not([data-fixed])")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      if (!time.title) time.title = `${write("exact", at, time)} (${at.toISOString()})`;
      const text = "countdown" in time.dataset ? countdown(at, now) : "clock" in time.dataset ? write("clock", at, time) : "exact" in time.dataset ? write("plain", at, time) : relativeTime(at, now);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // Lists with checkboxes: check all, check a range with shift, and count the checked rows.
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

  // "1 manifest", "27 manifests", "2 dead letters", "2 pieces of work".
  function checkedRows(form) {
    const checked = boxes(form.getAttribute("id")).filter((box) => box.checked).length;
    const [first, ...rest] = form.dataset.bulk.split(" ");
    const plural = rest.length && rest[0] !== "of" ? `${form.dataset.bulk}s` : [`${first}s`, ...rest].join(" ");
    return `${checked} ${checked === 1 ? form.dataset.bulk : plural}`;
  }

  let lastBox = null;
  document.addEventListener("click", (event) => {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || box.type !== "checkbox") return;
    if (box.dataset.checkAll) {
      for (const row of boxes(box.dataset.checkAll)) row.checked = box.checked;
    } else if (box.getAttribute("form")) {
      const all = boxes(box.getAttribute("form"));
      if (event.shiftKey && all.includes(lastBox)) {
        const ends = [all.indexOf(lastBox), all.indexOf(box)].sort((first, second) => first - second);
        for (const row of all.slice(ends[0], ends[1] + 1)) row.checked = box.checked;
      }
      lastBox = box;
    }
    countChecked();
  });

  // Forms: a choice filters at once, and destructive actions ask for confirmation.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
  document.addEventListener("submit", (event) => {
    const form = event.target, button = event.submitter;
    const question = (button && button.dataset.confirm) || form.dataset.confirm;
    if (!question || form.dataset.confirmed) return;
    event.preventDefault();
    const dialog = document.getElementById("confirm");
    document.getElementById("confirm-text").textContent = question.replace("{checked}", () => checkedRows(form)).replace("{choice}", () => form.querySelector("select").selectedOptions[0].text);
    document.getElementById("confirm-yes").textContent = (button || form.querySelector("button")).textContent;
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes") return;
      form.dataset.confirmed = "yes";
      form.requestSubmit(button);
      delete form.dataset.confirmed;
    }, { once: true });
    dialog.returnValue = "";
    dialog.showModal();
  });

  // Keys: / searches, g and a letter opens a page, ? lists the shortcuts.
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
    if (going && Date.now() - going < 1500) {
      going = 0;
      const link = [...document.querySelectorAll("a[data-key]")].find((page) => page.dataset.key === event.key);
      if (link) { event.preventDefault(); link.click(); return; }
    }
    if (event.key === "g") going = Date.now();
    else if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      event.preventDefault();
      if (search) { search.focus(); search.select(); } else document.querySelector("[data-find]")?.click();
    } else if (event.key === "?") document.getElementById("shortcuts")?.showModal();
  });

  // Live: every element with an id and `data-live` is replaced when something has changed, with
  // the same element of a fresh page. An element that is being edited is left alone. One with
  // `data-follows` is replaced along with them.
  const QUIET = 1500;
  let fetchedAt = Date.now(), scheduled = false, fetching = false;

  function isEdited(element) {
    return element.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")
      || element.querySelector("input:checked[form], details[open][data-keep]") !== null;
  }

  // Keyboard focus and scroll positions survive a replacement.
  const SCROLLED = ".scroll, .attempts, pre";

  function similar(root, element) {
    const key = (other) => ["href", "name", "value", "aria-label"].map((name) => other.getAttribute(name)).join(" ");
    return [...root.querySelectorAll(element.tagName)].filter((other) => key(other) === key(element));
  }

  function scrolled(root) {
    return [...(root.matches(SCROLLED) ? [root] : []), ...root.querySelectorAll(SCROLLED)];
  }

  function replace(old, fresh) {
    const focused = old !== document.activeElement && old.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? similar(old, focused).indexOf(focused) : -1;
    const places = scrolled(old).map((area) => [area.scrollLeft, area.scrollTop]);
    const itself = old === document.activeElement;
    old.replaceWith(fresh);
    window.htmx?.process(fresh);
    scrolled(fresh).forEach((area, index) => { if (places[index]) [area.scrollLeft, area.scrollTop] = places[index]; });
    const target = itself ? fresh : focused && ((focused.id && document.getElementById(focused.id)) || similar(fresh, focused)[place]);
    target?.focus({ preventScroll: true });
  }

  async function refresh() {
    const wait = fetchedAt + QUIET - Date.now();
    if (fetching || wait > 0 || document.hidden) {
      if (!scheduled) { scheduled = true; setTimeout(() => { scheduled = false; refresh(); }, Math.max(wait, 300)); }
      return;
    }
    fetching = true;
    fetchedAt = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { "HX-Request": "true", "HX-Current-URL": location.href } });
      if (answer.status === 401) location.reload();
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live][id], [data-follows][id]")) {
        const element = fresh.getElementById(old.id);
        if (!element || isEdited(old)) continue;
        const adopted = document.adoptNode(element);
        writeTimes(adopted);
        if (adopted.isEqualNode(old)) continue;
        // A script of the page may take over only what is new.
        const notice = new CustomEvent("live:replace", { bubbles: true, cancelable: true, detail: adopted });
        if (!old.dispatchEvent(notice)) continue;
        replace(old, adopted);
      }
      prepare();
    } catch { /* the console is unreachable: the next event refreshes */ } finally {
      fetching = false;
    }
  }

  function listen() {
    const part = document.querySelector("[data-live]");
    if (!part) return;
    // `data-live` may name an event source of its own.
    const source = new EventSource(part.dataset.live || "/live");
    source.addEventListener("changed", refresh);
    source.addEventListener("error", () => document.body.classList.add("offline"));
    source.addEventListener("listening", () => {
      document.body.classList.remove("offline");
      document.body.dataset.listening = "yes";
      refresh();  // changes since the page was rendered
    });
    addEventListener("pagehide", () => source.close());
  }

  function prepare() {
    writeTimes(document);
    countChecked();
  }

  // The first page of a new browser was rendered before its zone was known.
  const choice = document.querySelector("#times option[value=browser]");
  if (choice) choice.textContent = ownZone;

  prepare();
  listen();
  setInterval(() => writeTimes(document), 1000);
  document.addEventListener("htmx:afterSwap", prepare);
})();
