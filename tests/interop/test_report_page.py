# SPDX-License-Identifier: Apache-2.0
"""The page of `kvatlas report` in a real browser: what it shows, its keys, its tables, its settings and its maps, with scripts and without.

KVATLAS_SCREENSHOTS names a folder for pictures of the page."""

import csv
import io
import json
import os
import re
import tempfile
import unittest
from pathlib import Path

import support
from browser import Browser

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u2028'&\u202e"


def table_rows(browser: Browser, selector: str) -> list[list[str]]:
    """The rows that can be seen."""
    return browser.run(f"""[...document.querySelector({json.dumps(selector)}).tBodies[0].rows].filter((row) => !row.hidden)
      .map((row) => [...row.cells].map((cell) => cell.textContent))""")


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        cls.profile = cls.folder / "<b>p.h5"
        prompts = cls.folder / "prompts.jsonl"
        texts = [(HOSTILE + " word") * 8, "The quick brown fox jumps over the lazy dog. " * 24]
        prompts.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        support.run("profile", "--model", support.MODEL, "--prompts", prompts, "--new", "3", "--capture", "default,heatmap",
                    "--initial", "4,16", "--recent", "48,64", "-o", cls.profile)
        cls.document = cls.folder / "policy.json"
        support.run("calibrate", "simlayerkv", "-p", cls.profile, "--recent", "64", "--threshold", "0.85", "--force",
                    "-o", cls.document)
        cls.page = cls.folder / "report.html"
        support.run("report", cls.profile, cls.document, "--title", HOSTILE, "-o", cls.page)
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def setUp(self):
        self.browser.open(self.page)

    def tearDown(self):
        """Whatever a test did: nothing was fetched, nothing foreign ran, no error was raised."""
        self.assertEqual({url.partition("#")[0] for url in self.browser.requests}, {self.page.resolve().as_uri()})
        self.assertEqual(self.browser.complaints, [])

    def run_js(self, expression: str):
        return self.browser.run(expression)

    def test_hostile_text_stays_text(self):
        self.assertIn("</script><script>document.title='owned'", self.run_js("document.title"))
        self.assertIn("<img src=x", self.run_js("document.querySelector('h1').textContent"))
        self.assertEqual(self.run_js("document.querySelectorAll('img[src=x]').length"), 0)
        self.assertEqual(self.run_js("document.querySelectorAll('main b').length"), 0)
        # Even if something were let through, the page's policy lets nothing run and nothing out.
        self.run_js("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.owned = 1\"><img src=\"https://kvatlas.invalid/a.png\">')")
        self.run_js("(() => { const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s); })()")
        self.run_js("fetch('https://kvatlas.invalid/').catch(() => 0)")
        self.assertIsNone(self.run_js("window.owned"))
        self.assertTrue(any("Content Security Policy" in text for text in self.browser.complaints))
        self.browser.complaints.clear()
        self.browser.requests[:] = [url for url in self.browser.requests if not url.startswith("https://kvatlas.invalid")
                                    and not url.endswith("/x")]

    def test_tables_sort_by_click_and_key(self):
        selector = "figure#lazy-layers table"
        self.run_js("document.querySelectorAll('details.table').forEach((one) => { one.open = true; })")
        before = table_rows(self.browser, selector)
        masses = [float(row[1]) for row in before]
        self.browser.click(f"{selector} th:nth-child(2) button")
        self.assertEqual(self.run_js(f"document.querySelector('{selector} th:nth-child(2)').ariaSort"), "ascending")
        self.assertEqual([float(row[1]) for row in table_rows(self.browser, selector)], sorted(masses))
        self.browser.press("Enter")  # the button that was clicked is in focus
        self.assertEqual(self.run_js(f"document.querySelector('{selector} th:nth-child(2)').ariaSort"), "descending")
        self.assertEqual([float(row[1]) for row in table_rows(self.browser, selector)], sorted(masses, reverse=True))
        self.browser.press("Enter")
        self.assertEqual(table_rows(self.browser, selector), before)
        # Layers are numbers: 10 comes after 9.
        self.browser.click(f"{selector} th:nth-child(1) button")
        self.assertEqual([row[0] for row in table_rows(self.browser, selector)], [str(i) for i in range(len(before))])

    def test_tables_filter_and_copy(self):
        selector = "figure#lazy-scores table"
        self.run_js("document.querySelectorAll('details.table').forEach((one) => { one.open = true; })")
        self.run_js("""(() => { const box = document.querySelector('figure#lazy-scores input[type=search]');
          box.value = '0.85'; box.dispatchEvent(new Event('input')); })()""")
        rows = table_rows(self.browser, selector)
        self.assertEqual([row[0] for row in rows], ["0.850"])
        self.run_js("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        self.browser.click("figure#lazy-scores details.table .tools button")
        copied = list(csv.reader(io.StringIO(self.run_js("window.copied"))))
        whole = self.folder / "scores.csv"
        support.run("render", self.profile, self.document, "--what", "lazy-scores", "-o", whole, "--force")
        lines = [line for line in whole.read_text("utf-8").splitlines() if not line.startswith("#")]
        expected = [row for row in csv.reader(lines) if row[0] in ("threshold", "0.85")]
        self.assertEqual(copied, expected)  # exact, as `render` writes them

    def test_every_step_of_the_slider_is_the_programs_answer(self):
        whole = self.folder / "steps.csv"
        support.run("render", self.profile, self.document, "--what", "lazy-scores", "-o", whole, "--force")
        rows = list(csv.DictReader(line for line in whole.read_text("utf-8").splitlines() if not line.startswith("#")))
        shown = self.run_js("""(() => {
          const slider = document.querySelector('#setting-lazy-scores'), found = [];
          for (let step = 0; step <= Number(slider.max); ++step) {
            slider.value = step;
            slider.dispatchEvent(new Event('input'));
            const panel = slider.closest('.setting'), answers = {threshold: panel.querySelector('label').textContent};
            for (const one of panel.querySelectorAll('.answers > div'))
              answers[one.querySelector('dt').textContent] = one.querySelector('dd').title;
            answers.heights = [...panel.querySelectorAll('.layer-bars i')].map((bar) => parseFloat(bar.style.height) / 100);
            found.push(answers);
          }
          return found;
        })()""")
        stops = self.run_js("JSON.parse(document.querySelector('#lazy-scores table[data-stops]').dataset.stops)")
        rows = [rows[stop] for stop in stops]
        self.assertEqual(len(shown), len(rows))
        self.assertGreaterEqual(len(shown), 21)
        for answers, row in zip(shown, rows):
            self.assertAlmostEqual(float(answers["threshold"].split()[-1]), float(row["threshold"]), places=3)
            self.assertEqual(answers["lazy layers"], row["lazy layers"])
            self.assertEqual(answers["KV kept"], row["KV kept (share)"])
            self.assertEqual(answers["kept"], row["kept (bytes)"])
            self.assertEqual(answers["saved"], row["saved (bytes)"])
            self.assertAlmostEqual(sum(answers["heights"]), float(row["lazy layers"]), places=3)
        # The rule itself, by another command: at some steps the chart is drawn with that threshold.
        for step in (40, 70, 90):
            chart = self.folder / f"lazy-{step}.csv"
            support.run("render", self.profile, self.document, "--what", "lazy-layers", "--threshold", step / 100, "-o", chart)
            lazy = float(re.search(r"SimLayerKV: ([0-9.]+) of", chart.read_text("utf-8")).group(1))
            at = next(a for a, row in zip(shown, rows) if float(row["threshold"]) == step / 100)
            self.assertAlmostEqual(float(at["lazy layers"]), lazy, delta=0.051)

    def test_slider_redraws_every_chart_that_depends_on_it(self):
        whole = self.folder / "redrawn.csv"
        shown = """(() => { const figure = document.querySelector('figure#lazy-layers'); return {
          title: figure.querySelector('img').alt, picture: figure.querySelector('img').currentSrc, step: figure.dataset.step,
          table: [...figure.querySelectorAll('tbody tr')].map((row) => row.cells[6].textContent)}; })()"""
        before = self.run_js(shown)
        self.run_js("document.querySelector('#setting-lazy-layers').focus()")  # its own slider, and the same setting
        for _ in range(20):
            self.browser.press("ArrowLeft")
        step = self.run_js("document.querySelector('#setting-lazy-scores').value")
        self.browser.wait(f"document.querySelector('figure#lazy-layers').dataset.step === '{step}'")
        after = self.run_js(shown)
        threshold = self.run_js("document.querySelector('#lazy-scores .setting label').textContent").split()[-1]
        support.run("render", self.profile, self.document, "--what", "lazy-layers", "--threshold", threshold, "-o", whole, "--force")
        lines = whole.read_text("utf-8").splitlines()
        self.assertIn(f"# {after['title']}", lines)
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        self.assertEqual(after["table"], [row["static"] for row in rows])
        self.assertNotEqual(after["title"], before["title"])
        self.assertNotEqual(after["picture"], before["picture"])
        # The picture is another one at once, and in the other theme too; the pointer reads what is drawn.
        picture = "document.querySelector('figure#lazy-rates img').src"
        light = self.run_js(picture)
        self.assertTrue(light.startswith("data:image/svg+xml;charset=utf-8,"))
        self.run_js("(() => { const s = document.querySelector('#theme'); s.value = 'dark'; s.dispatchEvent(new Event('change')); })()")
        self.assertNotEqual(self.run_js(picture), light)
        # What does not follow says so; back at the document's setting it does not.
        words = "document.querySelector('figure#mass .missing')"
        self.assertIn("does not follow", self.run_js(f"{words}.textContent"))
        self.assertFalse(self.run_js(f"{words}.hidden"))
        self.browser.click("#lazy-scores .setting button")
        self.browser.wait(f"document.querySelector('figure#lazy-layers img').alt === {json.dumps(before['title'])}")
        self.assertTrue(self.run_js(f"{words}.hidden"))

    def test_scores_that_were_not_measured_are_said_to_be_missing(self):
        score = "[...document.querySelectorAll('#lazy-scores .answers > div')].find((one) => one.textContent.startsWith('score')).textContent"
        self.assertIn("not measured here", self.run_js(score))

    def test_texts_that_are_numbers_sort_as_numbers(self):
        self.run_js("""(() => { const table = document.querySelector('h2#settings ~ .scroll table, h2#settings ~ * table');
          table.id = 'of-settings'; })()""")
        self.browser.click("#of-settings th:nth-child(3) button")
        values = [row[2] for row in table_rows(self.browser, "#of-settings")]
        numbers = [float(value) for value in values if re.fullmatch(r"-?[0-9.]+", value)]
        self.assertGreater(len(numbers), 2)
        self.assertEqual(numbers, sorted(numbers))

    def test_the_address_keeps_what_is_chosen(self):
        self.run_js("document.querySelector('#setting-lazy-scores').focus()")
        for _ in range(5):
            self.browser.press("ArrowLeft")
        threshold = self.run_js("document.querySelector('#lazy-scores .setting label').textContent")
        self.run_js("document.querySelector('#map-canvas').focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+", "+", "d"):
            self.browser.press(key)
        self.browser.wait("document.querySelector('#map-canvas').dataset.shown === '0.2.1'")
        self.run_js("document.querySelector('nav a[href=\"#maps\"]').click()")
        self.browser.wait("location.hash.startsWith('#maps&') && location.hash.includes('part=')")
        self.browser.wait("location.hash.includes('threshold=') && location.hash.includes('at=L2.H1')")
        place = "(({shown, perPixel, query, key}) => [shown, Number(perPixel), Number(query), Number(key)])(document.querySelector('#map-canvas').dataset)"
        before, address = self.run_js(place), self.run_js("location.hash")
        self.browser.open(self.page)
        self.run_js(f"location.hash = {json.dumps(address)}")
        self.browser.wait("document.querySelector('#map-canvas').dataset.shown === '0.2.1'")
        after = self.run_js(place)
        self.assertEqual(after[0], before[0])
        for one, other in zip(after[1:], before[1:]):
            self.assertAlmostEqual(one, other, delta=0.1)
        self.assertEqual(self.run_js("document.querySelector('#lazy-scores .setting label').textContent"), threshold)
        self.assertLess(abs(self.run_js("document.querySelector('#maps').getBoundingClientRect().top")), 900)
        # What no page could have written is left alone.
        for strange in ("#nowhere&threshold=x&part=1&at=L99.H99&sample=7", "#%E0%A4%A", "#a=b=c&&="):
            self.run_js(f"location.hash = {json.dumps(strange)}")
            self.run_js("new Promise((done) => setTimeout(done, 250))")

    def test_charts_say_what_is_under_the_pointer(self):
        readout = "document.querySelector('figure#lazy-rates .readout').textContent"
        self.browser.mouse("mouseMoved", *self.browser.middle("figure#lazy-rates .stage", 0.53, 0.6))
        self.browser.wait(f"/layer \\d+, [0-9.]+ %/.test({readout})")
        self.assertFalse(self.run_js("document.querySelector('figure#lazy-rates .ring').hidden"))
        self.run_js("document.querySelector('figure#lazy-rates .picture').focus()")
        self.browser.press("ArrowRight")
        first = int(re.search(r"lazy rate: layer (\d+), ", self.run_js(readout))[1])
        self.browser.press("ArrowRight")
        self.assertGreater(int(re.search(r"lazy rate: layer (\d+), ", self.run_js(readout))[1]), first)

    def test_maps(self):
        self.assertEqual(self.run_js("document.querySelector('#map-canvas').dataset.shown"), "0.0.0")
        self.run_js("document.querySelector('#map-canvas').focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            self.browser.press(key)
        self.browser.wait("document.querySelector('#map-canvas').dataset.shown === '0.2.1'")
        # Zoom and pan.
        whole = self.run_js("Number(document.querySelector('#map-canvas').dataset.perPixel)")
        self.browser.press("+")
        self.assertAlmostEqual(self.run_js("Number(document.querySelector('#map-canvas').dataset.perPixel)"), whole / 1.5)
        for _ in range(20):
            self.browser.press("+")
        self.assertLess(self.run_js("Number(document.querySelector('#map-canvas').dataset.perPixel)"), whole / 4)
        self.browser.press("f")
        self.assertAlmostEqual(self.run_js("Number(document.querySelector('#map-canvas').dataset.perPixel)"), whole)
        # A drag pans the zoomed map.
        for _ in range(4):
            self.browser.press("+")
        shown = "(({query, key, perPixel}) => [Number(query), Number(key), Number(perPixel)])(document.querySelector('#map-canvas').dataset)"
        query, key, per_pixel = self.run_js(shown)
        x, y = self.browser.middle("#map-canvas")
        self.browser.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", x - 40, y - 60, button="left", buttons=1)
        self.browser.mouse("mouseReleased", x - 40, y - 60, button="left", clickCount=1)
        panned = self.run_js(shown)
        self.assertAlmostEqual(panned[0] - query, 60 * per_pixel, places=3)
        self.assertAlmostEqual(panned[1] - key, 40 * per_pixel, places=3)
        self.browser.press("f")
        # The pointer on the first keys: what the profile holds, and the tokens as text.
        self.run_js("(() => { const s = [...document.querySelectorAll('#map-explorer select')][0]; s.value = '0'; s.dispatchEvent(new Event('change')); })()")
        self.browser.mouse("mouseMoved", *self.browser.middle("#map-canvas", 0.12, 0.6))
        said = "document.querySelector('.map-one .readout').textContent"
        self.browser.wait(f"/^query \\d+/.test({said})")
        match = re.fullmatch(r"query (\d+)(?:–(\d+))? “(.*)” · key (\d+)(?:–\d+)? “(.*)” · ([0-9.e-]+) of a query's attention(.*)",
                             self.run_js(said), re.S)
        self.assertIsNotNone(match, self.run_js(said))
        query, key, share = int(match[1]), int(match[4]), float(match[6])
        cells = self.folder / "cell.csv"
        support.run("render", self.profile, "--what", "map", "--at", "L2.H1", "--sample", "0", "--region",
                    f"{query}:{query + 1},{key}:{key + 1}", "-o", cells, "--force")
        rows = list(csv.DictReader(line for line in cells.read_text("utf-8").splitlines() if not line.startswith("#")))
        stored = next(float(row["attention"]) for row in rows if int(row["first_query"]) <= query and int(row["first_key"]) <= key)
        self.assertAlmostEqual(share / stored, 1, delta=0.06)  # two digits are said
        # All heads: a click opens one.
        x, y = self.browser.middle(".map-all .frame", 0, 0)
        self.run_js("document.querySelector('.map-all .frame').scrollTo(0, 0)")
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.mouse(kind, x + 28 + 5, y + 18 + 5, button="left", clickCount=1)
        self.browser.wait("document.querySelector('#map-canvas').dataset.shown === '0.0.0'")

    def test_map_pixels_have_the_colours_of_the_palette(self):
        """The canvas is not blank, and has many colours."""
        colours = self.run_js("""(() => { const map = document.querySelector('#map-canvas'), c = map.getContext('2d', {willReadFrequently: true});
          const pixels = new Uint32Array(c.getImageData(0, 0, map.width, map.height).data.buffer);
          return new Set(pixels).size; })()""")
        self.assertGreater(colours, 60)
        drawn = self.run_js("""(() => { const map = document.querySelector('#map-overview'), c = map.getContext('2d', {willReadFrequently: true});
          return new Set(new Uint32Array(c.getImageData(0, 0, map.width, map.height).data.buffer)).size; })()""")
        self.assertGreater(drawn, 60)

    def test_cells_have_exactly_the_colours_of_the_scale(self):
        """On the screen, pixel by pixel, and where the page is narrow too: no browser blends neighbours."""
        found = """(async (shot, name) => {
          const image = new Image();
          image.src = `data:image/png;base64,${shot}`;
          await image.decode();
          const screen = document.createElement('canvas');
          [screen.width, screen.height] = [image.width, image.height];
          const context = screen.getContext('2d', {willReadFrequently: true});
          context.drawImage(image, 0, 0);
          const {palette, last} = JSON.parse(document.querySelector('#maps-data').textContent);
          const index = new Map();
          for (let i = last; i >= 0; --i) index.set(palette.slice(6 * i, 6 * i + 6), i);
          const figure = document.getElementById(name), data = JSON.parse(figure.querySelector('script.readout').textContent);
          const box = figure.querySelector('.stage').getBoundingClientRect(), zoom = box.width / data.size[0];
          const ratio = devicePixelRatio, strange = {}, cells = [];
          // Lines around cells are drawn over them, and lie between pixels where the page is narrow.
          const own = Math.abs(zoom - 1) < 1e-6, near = ['blocks', 'mass'].includes(name) ? 2.5 : own ? 0 : 1;
          let pixels = 0;
          for (const {area, rows, columns, values} of data.grids) {
            const [left, top, width, height] = area.map((at, i) => at * zoom + [box.x, box.y, 0, 0][i]);
            const across = width / columns.length, down = height / rows.length;
            // Which cell a pixel is of is not known, or what is a line around it.
            if ((!own || near > 1) && across < 6) continue;
            for (let y = Math.ceil((top + 1) * ratio); y < (top + height - 1) * ratio - 1; ++y)
              for (let x = Math.ceil((left + 1) * ratio); x < (left + width - 1) * ratio - 1; ++x) {
                const [right, below] = [((x + 0.5) / ratio - left) / across, ((y + 0.5) / ratio - top) / down];
                const column = Math.floor(right), row = Math.floor(below), value = values[row * columns.length + column];
                // Where a cell is missing, hatches lie over it, whose edges are drawn between pixels.
                const aside = Math.min(right - column, column + 1 - right) * across;
                const edge = Math.min(across < 6 ? Infinity : aside, Math.min(below - row, row + 1 - below) * down);
                // Numbers stand in the middle of wide cells.
                const beside = [-1, 0, 1].flatMap((y) => [-1, 0, 1].map((x) => values[(row + y) * columns.length + column + x]));
                if (beside.includes('missing') || edge <= near || (across / zoom >= 34 && aside > 3 * zoom)) continue;
                const colour = [...context.getImageData(x, y, 1, 1).data].slice(0, 3).map((one) => one.toString(16).padStart(2, '0')).join('');
                if (colour === '000000' || colour === 'ffffff') continue; // frames
                ++pixels;
                if (!index.has(colour)) strange[colour] = (strange[colour] || 0) + 1;
                else if (edge > 1 && across >= 6) cells.push([Number(value), index.get(colour)]);
              }
          }
          cells.sort((a, b) => a[0] - b[0]);
          let most = -1, before = -1, wrong = 0; // a greater value has no lower colour
          for (const [i, [value, at]] of cells.entries()) {
            if (i > 0 && value > cells[i - 1][0]) before = most;
            wrong += at < before;
            most = Math.max(most, at);
          }
          return {strange, wrong, pixels};
        })"""
        figures = self.run_js("""[...document.querySelectorAll('figure')].map((figure) => figure.id).filter((id) =>
          JSON.parse(document.querySelector(`#${id} script.readout`)?.textContent || '{"grids": []}').grids.length > 0)""")
        self.assertGreaterEqual(set(figures), {"blocks", "budgets", "rows", "mass"})
        for width in (1600, 1280, 700):
            self.browser.open(self.page, width=width, height=1400)
            for name in figures:
                with self.subTest(figure=name, width=width):
                    self.browser.middle(f"figure#{name} .stage")
                    shot = self.browser.call("Page.captureScreenshot", format="png")["data"]
                    seen = self.run_js(f"{found}({json.dumps(shot)}, {json.dumps(name)})")
                    self.assertEqual((seen["strange"], seen["wrong"]), ({}, 0), seen)
                    if width == 1600 and name != "mass":  # whose cells are narrow, with lines around them
                        self.assertGreater(seen["pixels"], 500)

    def test_light_and_dark(self):
        ground = "getComputedStyle(document.body).backgroundColor"
        self.assertEqual(self.run_js(ground), "rgb(255, 255, 255)")
        choose = "(() => {{ const s = document.querySelector('#theme'); s.value = '{}'; s.dispatchEvent(new Event('change')); }})()"
        self.run_js(choose.format("dark"))
        self.assertEqual(self.run_js(ground), "rgb(22, 25, 29)")
        shown = "document.querySelector('figure#lazy-rates img').currentSrc"
        dark = self.run_js(f"new Promise((done) => setTimeout(() => done({shown}), 200))")
        self.run_js(choose.format("light"))
        light = self.run_js(f"new Promise((done) => setTimeout(() => done({shown}), 200))")
        self.assertNotEqual(dark, light)
        self.browser.open(self.page, dark=True)
        self.assertEqual(self.run_js(ground), "rgb(22, 25, 29)")
        self.run_js(choose.format("light"))
        self.assertEqual(self.run_js(ground), "rgb(255, 255, 255)")

    def test_texts_have_contrast(self):
        """WCAG AA: 4.5 to 1 for text, in both themes, for all elements that hold text of their own."""
        found = """(() => {
          const part = (c) => (c /= 255, c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
          const parse = (text) => text.match(/[\\d.]+/g).map(Number);
          const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
          const ground = (element) => { for (; element; element = element.parentElement) {
            const colour = parse(getComputedStyle(element).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour; } return [255, 255, 255]; };
          const bad = [];
          for (const element of document.querySelectorAll('body *')) {
            if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
            if (element.tagName === 'SCRIPT' || element.offsetParent === null) continue;
            const a = light(parse(getComputedStyle(element).color)), b = light(ground(element));
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) bad.push([element.tagName, element.className, element.textContent.slice(0, 30), ratio]);
          }
          return bad;
        })()"""
        for dark in (False, True):
            self.browser.open(self.page, dark=dark)
            self.run_js("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            self.assertEqual(self.run_js(found), [])

    def test_narrow_and_wide_pages_do_not_scroll_sideways(self):
        for width in (400, 420, 768, 1280, 1920):
            self.browser.open(self.page, width=width)
            self.assertLessEqual(self.run_js("document.documentElement.scrollWidth"), width)

    def test_contents_lead_to_what_is_there(self):
        links = self.run_js("[...document.querySelectorAll('nav a')].map((a) => a.getAttribute('href'))")
        self.assertGreater(len(links), 8)
        for link in links:
            self.assertTrue(self.run_js(f"document.querySelector({json.dumps(link)}) !== null"), link)
        ids = self.run_js("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        self.assertEqual(len(ids), len(set(ids)))

    def test_without_scripts_it_is_pictures_and_tables(self):
        self.browser.open(self.page, scripts=False)
        self.browser.screenshot(self.folder / "plain.png")  # it is drawn
        document = self.browser.call("DOM.getDocument", depth=0)["root"]["nodeId"]

        def count(selector: str) -> int:
            return len(self.browser.call("DOM.querySelectorAll", nodeId=document, selector=selector)["nodeIds"])

        self.assertGreater(count("figure img"), 8)
        self.assertGreater(count("figure table"), 6)
        self.assertEqual(count("#theme"), 0)  # controls that would do nothing are not there
        self.assertEqual(count("html.live"), 0)  # the pictures of maps are shown
        self.assertEqual(count("figure#map img"), 1)
        self.assertEqual(count("figure#grid img"), 1)
        self.assertEqual(count("th button"), 0)
        if "KVATLAS_SCREENSHOTS" in os.environ:
            self.browser.screenshot(Path(os.environ["KVATLAS_SCREENSHOTS"]) / "report-without-scripts.png", whole=True)

    def test_screenshots(self):
        """The whole page at both widths, light and dark: it is drawn to its end."""
        folder = Path(os.environ.get("KVATLAS_SCREENSHOTS", self.folder))
        for width in (1280, 420):
            for dark in (False, True):
                self.browser.open(self.page, width=width, dark=dark)
                file = folder / f"report-{width}-{'dark' if dark else 'light'}.png"
                self.browser.screenshot(file, whole=True)
                self.assertGreater(file.stat().st_size, 100_000)


if __name__ == "__main__":
    unittest.main()
