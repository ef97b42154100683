// Search over everything: Ctrl+K or Cmd+K opens it, arrows select, Enter opens the selected result.
"use strict";
(() => {
  const dialog = document.getElementById("search");
  if (!dialog) return;
  const field = dialog.querySelector("input");
  if (/Mac|iPhone|iPad/.test(navigator.platform)) {
    for (const key of document.querySelectorAll("[data-find] kbd")) key.textContent = "⌘ K";
  }

  function open() {
    if (!dialog.open) dialog.showModal();
    field.focus();
    field.select();
    if (!document.getElementById("quick").childElementCount) window.htmx?.trigger(field, "opened");
  }

  document.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();  // the backdrop
    if (!event.target.closest("[data-find]") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || event.altKey || event.shiftKey || event.ctrlKey === event.metaKey) return;
    event.preventDefault();
    if (dialog.open) dialog.close(); else open();
  });

  // Results of an earlier text are not opened; the form then shows the page of results.
  function isCurrent() {
    return dialog.querySelector(".results").dataset.text === field.value.trim();
  }

  // The focus moves over the results; typing returns it to the field.
  dialog.addEventListener("keydown", (event) => {
    const links = [...dialog.querySelectorAll("#quick a")], at = links.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = at + (event.key === "ArrowDown" ? 1 : -1);
      (next < 0 ? field : links[Math.min(next, links.length - 1)])?.focus();
    } else if (event.key === "Enter" && event.target === field && links.length && isCurrent()) {
      event.preventDefault();
      links[0].click();
    } else if (at >= 0 && (event.key === "Backspace" || (event.key.length === 1 && !event.ctrlKey && !event.metaKey))) {
      field.focus();
    }
  });
})();
