// Repairs of what other scripts write into the page. Each answers a finding of tests/test_book.py.
(() => {
  "use strict";

  // The widgets' script speaks to version 2 of MathJax; the book has version 3.
  const hub = {
    Queue: (job) => window.MathJax?.startup?.promise?.then(() => window.MathJax.typesetPromise([job[2]])),
  };
  const addHub = () => { if (window.MathJax) window.MathJax.Hub ??= hub; };
  addHub();
  document.querySelectorAll("script[src*='mathjax']").forEach((script) => script.addEventListener("load", addHub));

  const PLAYER = { "fa-play": "Play", "fa-pause": "Pause", "fa-stop": "Stop and go back", "fa-retweet": "Repeat" };
  const name = (element, text) => {
    if (element.getAttribute("aria-label") !== text) element.setAttribute("aria-label", text);
  };

  function nameWidgets() {
    document.querySelectorAll(".jupyter-widgets .noUi-handle").forEach((handle) => {
      const label = handle.closest(".jupyter-widgets").querySelector(".widget-label");
      name(handle, label?.textContent.trim() || "Frame");
    });
    document.querySelectorAll(".widget-play button").forEach((button) => {
      const icon = [...(button.querySelector("i, svg")?.classList ?? [])].find((word) => word in PLAYER);
      if (icon) name(button, PLAYER[icon]);
    });
  }

  function nameTheme() {
    // The visible words are the names; a label that differs from them confuses speech control.
    document.querySelectorAll(".search-button-field[aria-label]").forEach((b) => b.removeAttribute("aria-label"));
    document.querySelectorAll(".theme-switch-button svg").forEach((icon) => {
      icon.querySelector("title")?.remove();
      icon.removeAttribute("aria-labelledby");
      icon.setAttribute("aria-hidden", "true");
    });
    const sidebar = document.querySelector("#pst-primary-sidebar");
    sidebar?.setAttribute("role", "region");
    sidebar?.setAttribute("aria-label", "Book");
  }

  // An inline formula scrolls only where it is wider than its line.
  function markWide() {
    document.querySelectorAll("span.math").forEach((formula) => {
      const width = formula.querySelector("mjx-math")?.getBoundingClientRect().width ?? 0;
      formula.classList.toggle("wide", width > formula.clientWidth + 1);
    });
  }

  // Wide code and tables scroll sideways, so they must be reachable by keyboard.
  function reachScrollable() {
    document.querySelectorAll("pre, .output, .cell_output, .shown, .math, mjx-container, .pst-scrollable-table-container")
      .forEach((element) => {
        if (element.scrollWidth > element.clientWidth && getComputedStyle(element).overflowX !== "visible")
          element.tabIndex = 0;
      });
  }

  function repair() { nameWidgets(); nameTheme(); markWide(); reachScrollable(); }

  let due = false;
  const soon = () => {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; repair(); }, 50);
  };
  new MutationObserver(soon).observe(document.body, { childList: true, subtree: true });
  window.addEventListener("resize", soon);
  window.addEventListener("load", soon);
  soon();
})();
