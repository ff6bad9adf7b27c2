// SPDX-License-Identifier: Apache-2.0
// Makes a report live: tables that sort and filter, charts that say what is under the pointer, settings that can be
// moved, attention maps that zoom. It decides nothing: every number was computed and written into the page by kvatlas.
(() => {
  "use strict";

  // ---- helpers

  /** An element with properties and children: make("p", {className: "faint"}, "text"). */
  const make = (name, properties = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties))
      if (key === "role" || key.includes("-")) element.setAttribute(key, value);
      else element[key] = value;
    element.append(...children);
    return element;
  };
  const dataOf = (element) => (element ? JSON.parse(element.textContent) : null);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  const inflate = async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const canInflate = typeof DecompressionStream !== "undefined"; // else the pictures stay as they are

  // ---- the address: "#lazy-layers&threshold=0.85&at=2.1" is a place of the page and what is chosen there

  const address = {
    anchor: "",
    state: new Map(),
    takers: [], // called with the state that an address brings along
    timer: 0,

    read() {
      const [first = "", ...others] = location.hash.slice(1).split("&");
      const pairs = (first.includes("=") ? [first, ...others] : others).map((part) => part.split("="));
      this.anchor = first.includes("=") ? "" : first;
      return new Map(pairs.filter((pair) => pair.length === 2).map((pair) => pair.map(decodeURIComponent)));
    },
    text() {
      const pairs = [...this.state].map((pair) => pair.map(encodeURIComponent).join("="));
      return `#${[this.anchor, ...pairs].filter((part) => part !== "").join("&")}`;
    },
    write() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        if (this.text() !== (location.hash || "#")) history.replaceState(null, "", this.text());
      }, 150);
    },
    /** Keeps a value; none is that of the page as it was opened. */
    set(name, value) {
      if (value === undefined) this.state.delete(name);
      else this.state.set(name, String(value));
      this.write();
    },
    goTo() {
      document.getElementById(this.anchor)?.scrollIntoView();
    },
    /** A link within the page goes to its place, and leaves what is chosen as it is. */
    follow() {
      const brought = this.read();
      if (brought.size > 0) for (const take of this.takers) take(brought);
      else this.write();
      this.goTo();
    },
    start() {
      let brought = new Map();
      try { brought = this.read(); } catch { /* no address of this page */ }
      addEventListener("hashchange", () => { try { this.follow(); } catch { /* likewise */ } });
      const places = [...document.querySelectorAll("h2[id], figure[id]")];
      let waiting = 0;
      addEventListener("scroll", () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => {
          const passed = places.filter((place) => place.offsetParent && place.getBoundingClientRect().top < innerHeight / 3);
          const [before, now] = [this.anchor, passed.length > 0 && scrollY > 0 ? passed.at(-1).id : ""];
          this.anchor = now;
          if (before !== now) this.write();
        }, 200);
      }, { passive: true });
      return brought;
    },
  };

  // ---- light and dark

  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  let chosenTheme = "system";
  const isDark = () => (chosenTheme === "system" ? systemDark.matches : chosenTheme === "dark");
  const onThemeChange = [];

  const applyTheme = (theme) => {
    chosenTheme = theme;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    // A picture has a dark twin, which follows the system unless it is told otherwise.
    for (const source of document.querySelectorAll("picture source"))
      source.media = theme === "system" ? "(prefers-color-scheme: dark)" : theme === "dark" ? "all" : "not all";
    for (const redraw of onThemeChange) redraw();
  };

  const startTheme = () => {
    const select = make("select", { id: "theme", "aria-label": "Colours of the page" });
    for (const [value, words] of [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]])
      select.append(make("option", { value }, words));
    select.addEventListener("change", () => applyTheme(select.value));
    systemDark.addEventListener("change", () => onThemeChange.forEach((redraw) => redraw()));
    let before = "system";
    addEventListener("beforeprint", () => { before = chosenTheme; applyTheme("light"); });
    addEventListener("afterprint", () => applyTheme(before));
    document.querySelector("header").prepend(select);
  };

  // ---- tables

  const LONG_TABLE = 12; // rows from which a table has a filter

  /** What a cell holds: the number behind it if it is one (NaN if it is missing), else its text. */
  const exactText = (cell) => cell.title || (cell.className === "number" && cell.textContent === "-" ? "" : cell.textContent);
  const valueOf = (cell) => {
    if (!cell) return NaN;
    if (cell.className !== "number") return cell.textContent;
    const text = exactText(cell);
    return text === "" ? NaN : text === "inf" ? Infinity : text === "-inf" ? -Infinity : Number(text);
  };

  /** A text that is a number, as settings are, is sorted as one. */
  const sortKey = (value) => (typeof value === "string" && /^[-+]?\d+(\.\d+)?(e[-+]?\d+)?$/i.test(value.trim()) ? Number(value) : value);

  /** Numbers before texts, what is missing last whichever way it is sorted. */
  const compare = (a, b, way) => {
    const missing = (value) => Number.isNaN(value) || value === "";
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    if (typeof a === typeof b) return way * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    return way * (typeof a === "number" ? -1 : 1);
  };

  const csvField = (text) => (/[",\r\n]|^#/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  const copyText = async (text, button) => {
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Where the clipboard is not given to pages, a selection is copied.
      const area = make("textarea", { value: text });
      button.after(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = words; }, 1500);
  };

  const liveTable = (table) => {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], rows = [...body.rows];
    const shown = () => [...body.rows].filter((row) => !row.hidden);
    heads.forEach((head, column) => {
      if (rows.some((row) => row.cells[column]?.className === "number")) head.classList.add("number");
      const button = make("button", { type: "button" }, ...head.childNodes);
      button.title = "Sort by this column";
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = now === "ascending" ? "descending" : now === "descending" ? null : "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        const way = next === "descending" ? -1 : 1;
        const keys = new Map(rows.map((row) => [row, sortKey(valueOf(row.cells[column]))]));
        body.append(...(next ? [...rows].sort((a, b) => compare(keys.get(a), keys.get(b), way)) : rows));
      });
    });
    const tools = make("div", { className: "tools" });
    if (rows.length > LONG_TABLE) {
      const count = make("span", { className: "faint", "aria-live": "polite" });
      const filter = make("input", { type: "search", placeholder: "text in a row" });
      filter.addEventListener("input", () => {
        const wanted = filter.value.toLowerCase();
        for (const row of rows) row.hidden = ![...row.cells].some((cell) => cell.textContent.toLowerCase().includes(wanted));
        count.textContent = wanted ? `${shown().length} of ${rows.length} rows` : "";
      });
      tools.append(make("label", {}, "Filter", filter), count);
    }
    const copy = make("button", { type: "button" }, "Copy as CSV");
    copy.title = "The rows shown, with exact numbers";
    copy.addEventListener("click", () => {
      const lines = [heads.map((head) => head.dataset.exact || head.textContent)];
      for (const row of shown()) lines.push([...row.cells].map(exactText));
      copyText(lines.map((line) => `${line.map(csvField).join(",")}\n`).join(""), copy);
    });
    tools.append(copy);
    table.parentElement.before(tools);
  };

  // ---- charts: what is under the pointer, or chosen by arrow keys

  /** Gives back a function that takes other parts to read, of the same chart drawn otherwise; null without parts. */
  const liveChart = (figure) => {
    const data = dataOf(figure.querySelector("script.readout"));
    if (!data) return null;
    const picture = figure.querySelector(".picture"), stage = figure.querySelector(".stage");
    const ring = make("div", { className: "ring", hidden: true });
    const output = make("p", { className: "readout faint", "aria-live": "polite" });
    const hint = "Point at the chart, or focus it and use the arrow keys, to read its values.";
    output.textContent = hint;
    stage.append(ring);
    picture.after(output);
    picture.tabIndex = 0;
    picture.setAttribute("role", "application");
    picture.setAttribute("aria-label", `${figure.querySelector("img").alt}. Arrow keys read its values.`);
    const place = (element, [x, y, width, height], around = 0) => {
      const across = 100 / data.size[0], down = 100 / data.size[1];
      element.style.left = `calc(${x * across}% - ${around}px)`;
      element.style.top = `calc(${y * down}% - ${around}px)`;
      element.style.width = `calc(${width * across}% + ${2 * around}px)`;
      element.style.height = `calc(${height * down}% + ${2 * around}px)`;
    };
    const cellOf = (grid, row, column) => {
      const [x, y, width, height] = grid.area;
      const across = width / grid.columns.length, down = height / grid.rows.length;
      const value = grid.values[row * grid.columns.length + column];
      return {
        area: [x + column * across, y + row * down, across, down],
        words: `${grid.label ? `${grid.label}: ` : ""}${grid.rows[row]} / ${grid.columns[column]}, ${value}${grid.unit ? ` ${grid.unit}` : ""}`,
      };
    };
    const show = (part) => {
      ring.hidden = !part;
      output.textContent = part ? part.words : hint;
      output.classList.toggle("faint", !part);
      if (part) place(ring, part.area, 3);
    };

    const REACH = 14; // pixels of the picture from which a small part can be read
    const partAt = (x, y) => {
      for (const grid of data.grids) {
        const [left, top, width, height] = grid.area;
        const column = Math.floor(((x - left) / width) * grid.columns.length);
        const row = Math.floor(((y - top) / height) * grid.rows.length);
        if (row >= 0 && row < grid.rows.length && column >= 0 && column < grid.columns.length) return cellOf(grid, row, column);
      }
      let best = null, least = REACH;
      for (const [area, words] of data.spots) {
        const [left, top, width, height] = area;
        const far = Math.hypot(Math.max(left - x, 0, x - left - width), Math.max(top - y, 0, y - top - height));
        const away = far + Math.hypot(x - left - width / 2, y - top - height / 2) / 1000;
        if (away < least) [best, least] = [{ area, words }, away];
      }
      return best;
    };
    stage.addEventListener("pointermove", (event) => {
      const box = stage.getBoundingClientRect();
      show(partAt(((event.clientX - box.left) / box.width) * data.size[0], ((event.clientY - box.top) / box.height) * data.size[1]));
    });
    stage.addEventListener("pointerleave", () => show(null));

    let at = -1, grid = 0, row = 0, column = 0;
    const move = (right, down) => {
      if (data.spots.length > 0) {
        at = clamp(at + right + down * 10, 0, data.spots.length - 1);
        return { area: data.spots[at][0], words: data.spots[at][1] };
      }
      const of = data.grids[grid];
      row = clamp(row + down, 0, of.rows.length - 1);
      if (column + right >= of.columns.length && grid + 1 < data.grids.length) [grid, column] = [grid + 1, 0];
      else if (column + right < 0 && grid > 0) column = data.grids[--grid].columns.length - 1;
      else column = clamp(column + right, 0, of.columns.length - 1);
      return cellOf(data.grids[grid], row, column);
    };
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      show(move(...step));
    });
    picture.addEventListener("blur", () => show(null));

    return (spots) => {
      Object.assign(data, { spots });
      at = Math.min(at, spots.length - 1);
      show(null);
    };
  };

  // ---- settings: the rows of a table are the program's answers for each value of a setting

  const settings = new Map(); // handle: the setting

  class Setting {
    constructor(table, figure) {
      this.rows = [...table.tBodies[0].rows];
      this.heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
      this.name = this.heads[0];
      this.stops = JSON.parse(table.dataset.stops); // the rows that can be chosen
      this.start = this.index = this.nearest(Number(table.dataset.at));
      this.sliders = [];
      this.listeners = []; // called with the row that is chosen
      this.addPanel(figure);
    }

    valueAt(row) { return valueOf(this.rows[row].cells[0]); }
    text(row) { return this.rows[row].cells[0].textContent; }
    nearest(value) {
      return this.stops.reduce((best, row) => (Math.abs(this.valueAt(row) - value) < Math.abs(this.valueAt(best) - value) ? row : best));
    }

    /** What the program answers in a row, as name, text and exact text; a score with its interval is one answer. */
    answers(row) {
      const cells = [...this.rows[row].cells].map((cell, i) => [this.heads[i], cell.textContent, exactText(cell)]);
      const of = (name) => cells.find(([head]) => head === name);
      const [score, low, high] = ["score", "low", "high"].map(of);
      return cells.slice(1).filter(([head]) => head !== "low" && head !== "high").map((answer) => {
        if (answer !== score) return answer;
        if (score[2] === "") return [score[0], "not measured here", ""];
        return low && low[2] !== "" ? [score[0], `${score[1]} [${low[1]}, ${high[1]}]`, score[2]] : score;
      });
    }

    /** A slider above a figure's picture; with the answers in the figure that has them as a table. */
    addSlider(figure) {
      const id = `setting-${figure.id}`;
      const slider = make("input", { type: "range", id, min: 0, max: this.stops.length - 1, step: 1 });
      const label = make("label", { htmlFor: id });
      slider.addEventListener("input", () => this.choose(this.stops[Number(slider.value)]));
      this.sliders.push([slider, label]);
      const panel = make("div", { className: "setting" }, label, slider);
      figure.querySelector(".picture").before(panel);
      return panel;
    }

    addPanel(figure) {
      const panel = this.addSlider(figure), answers = make("dl", { className: "answers" });
      const back = make("button", { type: "button" }, "Back to the document's");
      panel.append(answers);
      const bars = liveLayers(figure, panel);
      panel.append(back);
      back.addEventListener("click", () => { this.choose(this.start); this.sliders[0][0].focus(); });
      this.listeners.push((row) => {
        answers.replaceChildren(...this.answers(row).filter(([name, , exact]) => exact !== "" || name === "score").map(([name, text, exact]) =>
          make("div", {}, make("dt", {}, name), make("dd", { title: exact }, text))));
        this.rows.forEach((other, i) => other.classList.toggle("chosen", i === row));
        if (bars) bars(row, `${this.name} ${this.text(row)}`);
        back.hidden = row === this.start;
      });
    }

    choose(row) {
      this.index = row;
      const words = this.answers(this.index).filter(([, , exact]) => exact !== "").map(([name, text]) => `${name} ${text}`).join(", ");
      for (const [slider, label] of this.sliders) {
        slider.value = this.stops.indexOf(row);
        slider.setAttribute("aria-valuetext", `${this.name} ${this.text(this.index)}, ${words}`);
        label.textContent = `${this.name} ${this.text(this.index)}`;
      }
      for (const listener of this.listeners) listener(this.index);
      address.set(this.name, this.index === this.start ? undefined : this.valueAt(this.index));
    }
  }

  /** The figure as the program has drawn it for every row of a setting: picture, parts to read, title and table. */
  const liveSteps = (figure, setSpots) => {
    const packed = figure.querySelector("script[data-steps]"), setting = packed && settings.get(Number(packed.dataset.steps));
    if (!setting || !canInflate) return;
    if (!figure.querySelector(".setting")) setting.addSlider(figure);
    const image = figure.querySelector("img"), rows = [...figure.querySelectorAll("details.table tbody tr")];
    let steps = null, shown = -1;
    const linesOf = (runs) => {
      const found = [];
      for (let i = 0; i < runs.length; i += 2) found.push(...steps.lines.slice(runs[i], runs[i] + runs[i + 1]));
      return found;
    };
    const picture = () => {
      if (shown < 0) return; // as it was written into the page
      const svg = linesOf(steps.frames[shown][isDark() ? "dark" : "light"]).join("\n");
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    };
    onThemeChange.push(picture);
    setting.listeners.push(async (row) => {
      if (steps === null && row === setting.start) return;
      steps ??= inflate(packed.textContent).then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
      const found = await steps;
      if (row !== setting.index) return; // moved on meanwhile
      [steps, shown] = [found, setting.stops.indexOf(row)];
      figure.querySelectorAll("picture source").forEach((source) => source.remove());
      const frame = steps.frames[shown];
      picture();
      image.alt = frame.title;
      if (setSpots) setSpots(linesOf(frame.spots).map((line) => JSON.parse(line)));
      if (!figure.querySelector("table[data-handle]"))
        linesOf(frame.rows).forEach((line, i) => JSON.parse(line).forEach(([text, exact], column) => {
          const cell = rows[i]?.cells[column];
          if (cell) [cell.textContent, cell.title] = [text, exact];
        }));
      figure.dataset.step = row;
    });
  };

  /** A picture that depends on a setting and is there once: it says so where the setting is another. */
  const liveFixed = (figure) => {
    const setting = settings.get(Number(figure.dataset.fixed));
    if (!setting) return;
    const words = make("p", { className: "missing", hidden: true },
      `Drawn at ${setting.name} ${setting.text(setting.start)}, as the document has it: this picture does not follow the slider.`);
    figure.querySelector(".picture").before(words);
    setting.listeners.push((row) => { words.hidden = row === setting.start; });
  };

  const startSettings = (readouts) => {
    for (const table of document.querySelectorAll("table[data-handle]"))
      if (table.tBodies[0].rows.length > 1) settings.set(Number(table.dataset.handle), new Setting(table, table.closest("figure")));
    for (const figure of document.querySelectorAll("figure")) {
      liveSteps(figure, readouts.get(figure));
      if (figure.dataset.fixed) liveFixed(figure);
    }
    const take = (state) => {
      for (const setting of settings.values()) {
        const value = Number(state.get(setting.name)); // NaN if there is none
        setting.choose(Number.isNaN(value) ? setting.start : setting.nearest(value));
      }
    };
    address.takers.push(take);
    return take;
  };

  /** Bars of which share of each layer is lazy, for each row of the table; null where the figure has none. */
  const liveLayers = (figure, panel) => {
    const shares = dataOf(figure.querySelector("script.layers"));
    if (!shares || shares.length === 0) return null;
    const bars = make("div", { className: "layer-bars", role: "img" });
    const fills = shares[0].map(() => make("i"));
    bars.append(...fills.map((fill) => make("span", {}, fill)));
    const last = fills.length - 1;
    panel.append(bars, make("div", { className: "layer-names" }, make("span", {}, "layer 0"),
      make("span", {}, "share of the samples in which a layer is lazy"), make("span", {}, `layer ${last}`)));
    return (row, setting) => {
      shares[row].forEach((share, layer) => {
        fills[layer].style.height = `${100 * share}%`;
        fills[layer].parentElement.title = `layer ${layer}: lazy in ${(100 * share).toFixed(0)} % at ${setting}`;
      });
      const lazy = shares[row].flatMap((share, layer) => (share >= 0.5 ? [layer] : []));
      bars.setAttribute("aria-label", `Lazy in at least half of the samples at ${setting}: ${lazy.length > 0 ? `layers ${lazy.join(", ")}` : "no layer"}`);
    };
  };

  // ---- attention maps

  class Maps {
    constructor(data) {
      this.data = data;
      this.layers = new Map(); // "sample.level.layer": a promise of the heads' codes
      this.colours = Array.from({ length: data.last + 1 }, (_, i) => [0, 2, 4].map((at) => parseInt(data.palette.substr(6 * i + at, 2), 16)));
    }

    /** The codes of a head, [side, side]; cells above the diagonal are 0. */
    async codes(sample, level, layer, head) {
      const key = `${sample}.${level.level}.${layer}`;
      if (!this.layers.has(key)) this.layers.set(key, this.read(key, level.side));
      return (await this.layers.get(key))[head];
    }

    async read(key, side) {
      const bytes = await inflate(document.querySelector(`[data-codes="${key}"]`).textContent);
      let at = 0;
      return Array.from({ length: this.data.heads }, () => {
        const codes = new Uint8Array(side * side);
        for (let row = 0; row < side; ++row)
          for (let column = 0; column <= row; ++column)
            codes[row * side + column] = bytes[at++] + (column < row ? codes[(row - 1) * side + column] : 0);
        return codes;
      });
    }

    /** The logarithm to base 2 of the share that a code stands for. */
    log2(code) { return (code - this.data.one) * this.data.step; }
    share(code) { return code === this.data.unknown ? NaN : code === 0 ? 0 : 2 ** this.log2(code); }

    colour(code, [low, high]) {
      const { first, last } = this.data;
      if (code === 0) return this.colours[0];
      return this.colours[first + Math.round(clamp((this.log2(code) - low) / (high - low), 0, 1) * (last - first))];
    }

    /** A canvas with a pixel for each cell; what is masked is clear. */
    image(codes, side, range) {
      const canvas = make("canvas", { width: side, height: side });
      const context = canvas.getContext("2d");
      const pixels = context.createImageData(side, side);
      const table = Array.from({ length: 256 }, (_, code) => (code === this.data.unknown ? [128, 128, 128] : this.colour(code, range)));
      for (let row = 0; row < side; ++row)
        for (let column = 0; column <= row; ++column) {
          const place = row * side + column;
          pixels.data.set(table[codes[place]], 4 * place);
          pixels.data[4 * place + 3] = 255;
        }
      context.putImageData(pixels, 0, 0);
      return canvas;
    }
  }

  const shareWords = (share) => {
    if (Number.isNaN(share)) return "missing";
    return share === 0 || share >= 0.001 ? Number(share.toPrecision(2)).toString() : share.toExponential(1);
  };

  /** Round steps between tokens that leave at least `pixels` between two. */
  const tickStep = (tokensPerPixel, pixels) => {
    const least = Math.max(1, tokensPerPixel * pixels), decade = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((factor) => factor * decade).find((step) => step >= least);
  };

  const startMaps = async (brought) => {
    const data = dataOf(document.getElementById("maps-data")), host = document.getElementById("map-explorer");
    if (!data || !host || !canInflate) return; // the pictures stay
    const maps = new Maps(data);
    const state = { sample: 0, layer: 0, head: 0, common: false, first: [0, 0], perPixel: 1 };
    const options = (count, words) => Array.from({ length: count }, (_, i) => make("option", { value: i }, words(i)));
    const choice = (words, children) => {
      const select = make("select", {}, ...children);
      return [make("label", {}, words, select), select];
    };
    const [sampleLabel, sampleSelect] = choice("Sample", options(data.samples.length, (i) => data.samples[i].id));
    const [layerLabel, layerSelect] = choice("Layer", options(data.layers, String));
    const [headLabel, headSelect] = choice("Head", options(data.heads, String));
    const [rangeLabel, rangeSelect] = choice("Colours span", [make("option", { value: 0 }, "this head"), make("option", { value: 1 }, "all heads")]);
    const button = (words, name, act) => {
      const made = make("button", { type: "button", title: name, "aria-label": name }, words);
      made.addEventListener("click", act);
      return made;
    };

    const canvas = make("canvas", { tabIndex: 0, role: "application", id: "map-canvas" });
    const overview = make("canvas", { id: "map-overview", role: "img" });
    const legend = make("canvas", { width: 253, height: 1 });
    const least = make("span"), most = make("span");
    const readout = make("p", { className: "readout", "aria-live": "polite" });
    const about = make("p", { className: "faint" });
    const sampleOf = () => data.samples[state.sample];
    const finest = () => sampleOf().levels.at(-1); // levels stand in the page from coarse to fine
    const rangeOf = (level) => {
      if (!state.common) return level.ranges[state.layer * data.heads + state.head];
      return level.ranges.reduce(([low, high], [a, b]) => [Math.min(low, a), Math.max(high, b)]);
    };

    // The size on the screen, in CSS pixels; the map lies right of and above the numbers of tokens.
    const LEFT = 52, BOTTOM = 40, TOP = 6, RIGHT = 6;
    let side = 100, image = null, codes = null, level = finest(), pointer = null;
    const fitPerPixel = () => sampleOf().tokens / side;
    const limit = () => {
      const tokens = sampleOf().tokens;
      state.perPixel = clamp(state.perPixel, Math.min(fitPerPixel(), level.block / 40), fitPerPixel());
      const span = side * state.perPixel;
      state.first = state.first.map((first) => clamp(first, 0, Math.max(0, tokens - span)));
    };

    /** In the address: which map, and which part of it. */
    const keepPlace = () => {
      if (image === null) return; // not shown yet
      const { sample, layer, head, common, first, perPixel } = state;
      const whole = perPixel >= fitPerPixel() * 0.9999;
      address.set("sample", sample === 0 ? undefined : sample);
      address.set("at", layer === 0 && head === 0 ? undefined : `L${layer}.H${head}`);
      address.set("colours", common ? "all" : undefined);
      address.set("part", whole ? undefined : [first[0], first[1], side * perPixel].map((at) => at.toFixed(1)).join(","));
    };
    const take = (given) => {
      const [, layer, head] = /^L(\d+)\.H(\d+)$/.exec(given.get("at") ?? "") ?? [0, 0, 0];
      const sample = Number(given.get("sample") ?? 0), common = given.get("colours") === "all";
      const part = (given.get("part") ?? "").split(",").map(Number);
      state.sample = sample in data.samples ? sample : 0;
      level = finest();
      Object.assign(state, { first: [0, 0], perPixel: fitPerPixel(), common });
      if (part.length === 3 && part.every((at) => at >= 0) && part[2] > 0)
        Object.assign(state, { first: part.slice(0, 2), perPixel: part[2] / side });
      rangeSelect.value = common ? 1 : 0;
      return choose({ layer: Number(layer), head: Number(head) });
    };

    const draw = () => {
      const ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(`--${name}`).trim();
      const width = canvas.clientWidth;
      if (width === 0) return;
      const old = side;
      side = Math.max(100, width - LEFT - RIGHT);
      if (side !== old) state.perPixel *= old / side;
      limit();
      Object.assign(canvas.dataset, { perPixel: state.perPixel, query: state.first[0], key: state.first[1] });
      keepPlace();
      canvas.style.height = `${side + TOP + BOTTOM}px`;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round((side + TOP + BOTTOM) * ratio);
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      context.fillStyle = colour("ground");
      context.fillRect(0, 0, width, side + TOP + BOTTOM);
      const [query, key] = state.first, span = side * state.perPixel;
      context.save();
      context.beginPath();
      context.rect(LEFT, TOP, side, side);
      context.clip();
      context.fillStyle = colour("panel");
      context.fillRect(LEFT, TOP, side, side);
      if (image) {
        context.imageSmoothingEnabled = false;
        const cell = level.block / state.perPixel;
        context.drawImage(image, LEFT - key / state.perPixel, TOP - query / state.perPixel, level.side * cell, level.side * cell);
        if (pointer) {
          const x = LEFT + (Math.floor(pointer.key / level.block) * level.block - key) / state.perPixel;
          const y = TOP + (Math.floor(pointer.query / level.block) * level.block - query) / state.perPixel;
          context.strokeStyle = "#000";
          context.strokeRect(x - 1.5, y - 1.5, cell + 3, cell + 3);
          context.strokeStyle = "#fff";
          context.strokeRect(x - 0.5, y - 0.5, cell + 1, cell + 1);
        }
      }
      context.restore();
      context.fillStyle = context.strokeStyle = colour("faint");
      context.font = "12px system-ui, sans-serif";
      context.strokeRect(LEFT - 0.5, TOP - 0.5, side + 1, side + 1);
      const step = tickStep(state.perPixel, 70);
      const ticks = (first) => {
        const found = [];
        for (let at = Math.ceil(first / step) * step; at < Math.min(first + span, sampleOf().tokens); at += step) found.push(at);
        return found;
      };
      context.textAlign = "center";
      context.textBaseline = "top";
      for (const at of ticks(key)) {
        const x = LEFT + (at - key) / state.perPixel;
        context.fillRect(x, TOP + side, 1, 4);
        context.fillText(at, clamp(x, LEFT + 8, LEFT + side - 14), TOP + side + 6);
      }
      context.fillText("key token", LEFT + side / 2, TOP + side + 22);
      context.textAlign = "right";
      context.textBaseline = "middle";
      for (const at of ticks(query)) {
        const y = TOP + (at - query) / state.perPixel;
        context.fillRect(LEFT - 4, y, 4, 1);
        context.fillText(at, LEFT - 7, clamp(y, TOP + 6, TOP + side - 6));
      }
      context.save();
      context.translate(9, TOP + side / 2);
      context.rotate(-Math.PI / 2);
      context.textAlign = "center";
      context.fillText("query token", 0, 0);
      context.restore();
    };

    const drawLegend = (range) => {
      const context = legend.getContext("2d");
      for (let i = 0; i < 253; ++i) {
        context.fillStyle = `rgb(${maps.colours[data.first + i].join(",")})`;
        context.fillRect(i, 0, 1, 1);
      }
      least.textContent = shareWords(2 ** range[0]);
      most.textContent = shareWords(2 ** range[1]);
      legend.setAttribute("aria-label", `Colours from ${least.textContent} to ${most.textContent}`);
    };

    let asked = 0;
    const showMap = async () => {
      const mine = ++asked, now = finest();
      const found = await maps.codes(state.sample, now, state.layer, state.head);
      if (mine !== asked) return; // another one was chosen meanwhile
      [level, codes] = [now, found];
      image = maps.image(codes, level.side, rangeOf(level));
      drawLegend(rangeOf(level));
      const error = 100 * (2 ** (data.step / 2) - 1);
      about.textContent = `Layer ${state.layer}, head ${state.head}. Stored on this page: means of ${level.block} × ${level.block} tokens, `
        + `${level.side} cells a side, each to ${error.toFixed(0)} %; the colours are those of a logarithmic scale. `
        + "Attention of the last rows, above, is exact.";
      canvas.setAttribute("aria-label", `Attention map of layer ${state.layer}, head ${state.head}. Arrows: other heads and layers. Plus and minus: zoom.`);
      canvas.dataset.shown = `${state.sample}.${state.layer}.${state.head}`;
      draw();
      say();
    };

    // All heads, small: a row a layer.
    const GAP = 2, NAMES = 28;
    const thumb = clamp(Math.floor(340 / data.heads), 16, 40);
    const drawOverview = async () => {
      const sample = state.sample, coarse = sampleOf().levels[0], ratio = devicePixelRatio || 1;
      const width = NAMES + data.heads * (thumb + GAP), height = 18 + data.layers * (thumb + GAP);
      overview.style.width = `${width}px`;
      overview.style.height = `${height}px`;
      overview.width = Math.round(width * ratio);
      overview.height = Math.round(height * ratio);
      const context = overview.getContext("2d");
      context.scale(ratio, ratio);
      const style = getComputedStyle(document.documentElement), faint = style.getPropertyValue("--faint");
      const accent = style.getPropertyValue("--accent");
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      for (let layer = 0; layer < data.layers; ++layer) {
        const y = 18 + layer * (thumb + GAP);
        context.fillStyle = faint;
        context.textAlign = "right";
        context.fillText(layer, NAMES - 6, y + thumb / 2);
        for (let head = 0; head < data.heads; ++head) {
          const found = await maps.codes(sample, coarse, layer, head);
          if (sample !== state.sample) return;
          const x = NAMES + head * (thumb + GAP);
          if (layer === 0) {
            context.fillStyle = faint;
            context.textAlign = "center";
            context.fillText(head, x + thumb / 2, 8);
          }
          context.drawImage(maps.image(found, coarse.side, coarse.ranges[layer * data.heads + head]), x, y, thumb, thumb);
          if (layer !== state.layer || head !== state.head) continue;
          context.strokeStyle = accent;
          context.lineWidth = 2;
          context.strokeRect(x, y, thumb, thumb);
        }
      }
      overview.dataset.drawn = sample;
    };

    const choose = (change) => {
      const sample = state.sample;
      Object.assign(state, change);
      state.layer = clamp(state.layer, 0, data.layers - 1);
      state.head = clamp(state.head, 0, data.heads - 1);
      [sampleSelect.value, layerSelect.value, headSelect.value] = [state.sample, state.layer, state.head];
      if (sample !== state.sample) Object.assign(state, { first: [0, 0], perPixel: fitPerPixel() });
      return Promise.all([showMap(), drawOverview()]);
    };
    sampleSelect.addEventListener("change", () => choose({ sample: Number(sampleSelect.value) }));
    layerSelect.addEventListener("change", () => choose({ layer: Number(layerSelect.value) }));
    headSelect.addEventListener("change", () => choose({ head: Number(headSelect.value) }));
    rangeSelect.addEventListener("change", () => choose({ common: rangeSelect.value === "1" }));
    overview.addEventListener("click", (event) => {
      const head = Math.floor((event.offsetX - NAMES) / (thumb + GAP)), layer = Math.floor((event.offsetY - 18) / (thumb + GAP));
      if (head >= 0 && head < data.heads && layer >= 0 && layer < data.layers) choose({ layer, head });
    });

    const tokenAt = (x, y) => ({
      query: state.first[0] + (y - TOP) * state.perPixel,
      key: state.first[1] + (x - LEFT) * state.perPixel,
    });
    const zoom = (factor, x = LEFT + side / 2, y = TOP + side / 2) => {
      const fixed = tokenAt(x, y);
      state.perPixel /= factor;
      limit();
      state.first = [fixed.query - (y - TOP) * state.perPixel, fixed.key - (x - LEFT) * state.perPixel];
      limit();
      draw();
    };
    const pan = (down, right) => {
      state.first = [state.first[0] + down, state.first[1] + right];
      limit();
      draw();
    };
    const fit = () => {
      Object.assign(state, { first: [0, 0], perPixel: fitPerPixel() });
      draw();
    };

    // What is under the pointer: positions, tokens, value.
    const tokenWords = (first, count) => {
      const { texts, tokens } = sampleOf(), end = Math.min(first + count, tokens);
      const place = end - first > 1 ? `${first}–${end - 1}` : `${first}`;
      return texts.length > 0 ? `${place} “${texts.slice(first, end).join("")}”` : place;
    };
    const say = () => {
      if (!pointer || !codes) {
        readout.textContent = "Point at the map for its tokens and values.";
        readout.classList.add("faint");
        return;
      }
      readout.classList.remove("faint");
      const row = Math.floor(pointer.query / level.block), column = Math.floor(pointer.key / level.block);
      const code = codes[row * level.side + column], share = maps.share(code);
      const mean = level.block > 1 ? `, mean of ${level.block} × ${level.block} tokens` : "";
      const query = tokenWords(row * level.block, level.block), key = tokenWords(column * level.block, level.block);
      readout.textContent = `query ${query} · key ${key} · ${shareWords(share)} of a query's attention${mean}`;
    };
    const point = (event) => {
      const box = canvas.getBoundingClientRect(), at = tokenAt(event.clientX - box.left, event.clientY - box.top);
      const inside = at.query >= 0 && at.key >= 0 && at.query < sampleOf().tokens && event.clientY - box.top < TOP + side
        && Math.floor(at.key / level.block) <= Math.floor(at.query / level.block);
      pointer = inside ? at : null;
      say();
      draw();
    };

    const fingers = new Map(); // pointers that are down: where each is, and whether it has moved
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, { at: [event.clientX, event.clientY], moved: false });
      if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const finger = fingers.get(event.pointerId);
      if (!finger) return point(event);
      const before = finger.at, now = [event.clientX, event.clientY];
      finger.moved ||= Math.hypot(now[0] - before[0], now[1] - before[1]) > 2;
      if (!finger.moved) return;
      finger.at = now;
      if (fingers.size === 1) return pan((before[1] - now[1]) * state.perPixel, (before[0] - now[0]) * state.perPixel);
      const [other] = [...fingers.values()].filter((one) => one !== finger).map((one) => one.at);
      const distance = (from) => Math.hypot(from[0] - other[0], from[1] - other[1]) || 1, box = canvas.getBoundingClientRect();
      zoom(distance(now) / distance(before), (now[0] + other[0]) / 2 - box.left, (now[1] + other[1]) / 2 - box.top);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (fingers.get(event.pointerId)?.moved === false) point(event); // a tap reads
      fingers.delete(event.pointerId);
    });
    canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", (event) => {
      fingers.delete(event.pointerId);
      if (event.pointerType !== "mouse") return; // what a tap has read stays
      pointer = null;
      say();
      draw();
    });
    // The wheel scrolls the page until the map is in focus: a click on it, or Tab.
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      zoom(2 ** (-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const eighth = (side * state.perPixel) / 8;
      const act = {
        ArrowLeft: () => choose({ head: state.head - 1 }),
        ArrowRight: () => choose({ head: state.head + 1 }),
        ArrowUp: () => choose({ layer: state.layer - 1 }),
        ArrowDown: () => choose({ layer: state.layer + 1 }),
        "+": () => zoom(1.5),
        "=": () => zoom(1.5),
        "-": () => zoom(1 / 1.5),
        f: fit,
        w: () => pan(-eighth, 0),
        s: () => pan(eighth, 0),
        a: () => pan(0, -eighth),
        d: () => pan(0, eighth),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });

    const keys = make("p", { className: "faint" });
    for (const [key, words] of [["← →", "head"], ["↑ ↓", "layer"], ["+ −", "zoom"], ["W A S D", "pan"], ["F", "all of it"]])
      keys.append(make("kbd", {}, key), ` ${words} · `);
    keys.append("with the map in focus. Drag to pan; the wheel zooms.");
    const zooms = make("span", {}, button("+", "Zoom in", () => zoom(1.5)), " ", button("−", "Zoom out", () => zoom(1 / 1.5)), " ",
      button("All", "Show the whole map", fit));
    const frame = make("div", { className: "frame", tabIndex: 0, role: "region", "aria-label": "All heads: a row a layer" }, overview);
    host.append(
      make("div", { className: "tools" }, sampleLabel, layerLabel, headLabel, rangeLabel, zooms),
      make("div", { className: "maps" }, make("div", { className: "map-all" }, frame),
        make("div", { className: "map-one" }, canvas, make("div", { className: "legend" }, least, legend, most), readout, about, keys)));
    overview.setAttribute("aria-label", "Maps of all heads, a row a layer, a column a head; a click opens one");
    legend.setAttribute("role", "img");
    host.hidden = false;
    document.documentElement.classList.add("live");
    side = Math.max(100, canvas.clientWidth - LEFT - RIGHT);
    state.perPixel = fitPerPixel();
    onThemeChange.push(draw, drawOverview);
    new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas.parentElement);
    address.takers.push(take);
    await take(brought);
  };

  // ---- start

  const start = async () => {
    startTheme();
    if (matchMedia("(max-width: 74.99rem)").matches) document.querySelector("nav details").open = false;
    const readouts = new Map([...document.querySelectorAll("figure")].map((figure) => [figure, liveChart(figure)]));
    const brought = address.start();
    startSettings(readouts)(brought);
    for (const table of document.querySelectorAll("table")) liveTable(table);
    await startMaps(brought);
    address.goTo();
    document.documentElement.dataset.ready = "yes";
  };
  start();
})();
