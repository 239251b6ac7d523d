"use strict";
(() => {
  const grid = document.querySelector("[data-grid]");
  if (grid) {
    const cells = [...grid.querySelectorAll("a.day")].map((day) => [day.href.slice(-10), day]);
    cells.sort((left, right) => (left[0] < right[0] ? -1 : 1));
    const dates = cells.map((cell) => cell[0]), days = cells.map((cell) => cell[1]);
    const positions = new Map(days.map((day, index) => [day, index]));
    const since = document.getElementById("since"), until = document.getElementById("until");
    const status = document.getElementById("range-status");
    let current = days.length - 1, anchor = null;
    const next = (date) => new Date(Date.parse(date + "T00:00Z") + 864e5).toISOString().slice(0, 10);
    const focus = (index, isRange) => {
      index = Math.max(0, Math.min(days.length - 1, index));
      if (isRange && anchor === null) anchor = current;
      days[current].tabIndex = -1;
      current = index;
      days[index].tabIndex = 0;
      days[index].focus();
      if (isRange) select(anchor, index); else anchor = null;
    };
    const select = (start, end) => {
      const low = Math.min(start, end), high = Math.max(start, end);
      for (const day of grid.querySelectorAll(".selected")) day.classList.remove("selected");
      for (let index = low; index <= high; index++) days[index].classList.add("selected");
      if (!since) return;
      since.value = dates[low];
      until.value = next(dates[high]);
      status.textContent = `${high - low + 1} ${high > low ? "days" : "day"} selected: ${since.value} until ${until.value}`;
    };
    for (const day of days) day.tabIndex = -1;
    if (days.length) days[current].tabIndex = 0;
    const month = (index, count) => {
      const day = new Date(dates[index] + "T00:00Z");
      day.setUTCMonth(day.getUTCMonth() + count, Math.min(day.getUTCDate(), 28));
      return index + Math.round((day - Date.parse(dates[index] + "T00:00Z")) / 864e5);
    };
    const moves = {
      ArrowLeft: () => current - 1, ArrowRight: () => current + 1,
      ArrowUp: () => month(current, -1), ArrowDown: () => month(current, 1),
      PageUp: () => month(current, -12), PageDown: () => month(current, 12),
      Home: () => 0, End: () => days.length - 1,
    };
    grid.addEventListener("keydown", (event) => {
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      focus(moves[event.key](), event.shiftKey);
    });
    grid.addEventListener("click", (event) => {
      const day = event.target.closest("a.day");
      if (!day || !event.shiftKey) return;
      event.preventDefault();
      const index = positions.get(day);
      if (anchor === null) anchor = index;
      select(anchor, index);
    });
  }
  const mode = document.getElementById("f-mode");
  if (mode) {
    const disable = () => {
      const chosen = ["recompute", "replay"].includes(mode.value) ? mode.value : mode.form.dataset.definedMode;
      for (const field of mode.form.querySelectorAll("[data-replay-only]")) {
        const reason = document.getElementById("why-" + field.name) || document.createElement("p");
        Object.assign(reason, { id: "why-" + field.name, className: "soft", textContent: "Disabled: with recompute, no record is late." });
        field.disabled = chosen === "recompute" && !field.value;
        if (field.disabled) field.after(reason); else reason.remove();
      }
    };
    mode.addEventListener("change", disable);
    disable();
  }
  const form = document.querySelector("form[data-form]");
  if (form) {
    let newest = 0;
    form.addEventListener("change", async () => {
      const number = ++newest, effect = document.getElementById("effect");
      effect.setAttribute("aria-busy", "true");
      const response = await fetch("reprocess?" + new URLSearchParams(new FormData(form)));
      const found = new DOMParser().parseFromString(await response.text(), "text/html");
      if (number !== newest) return;
      effect.removeAttribute("aria-busy");
      for (const part of document.querySelectorAll("#effect, #problem, [id^='p-']")) {
        const fresh = found.getElementById(part.id);
        if (fresh) part.replaceChildren(...fresh.childNodes);
      }
      for (const field of form.querySelectorAll("[id^='f-']")) {
        if (document.getElementById("p-" + field.name).hasChildNodes()) field.setAttribute("aria-invalid", "true");
        else field.removeAttribute("aria-invalid");
      }
    });
  }
  // Airflow shows these pages in a frame that may not navigate its window; a link of the window itself may.
  if (window.top !== window) document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    window.top.document.body.appendChild(Object.assign(window.top.document.createElement("a"), { href: link.href })).click();
  });
  const reloadSeconds = document.body.dataset.reload;
  if (reloadSeconds) setTimeout(() => {
    if (!document.hidden && !document.activeElement.matches("input, textarea, select")) location.reload();
  }, Number(reloadSeconds) * 1000);
})();
