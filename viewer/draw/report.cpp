// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/report.hpp"

#include <QByteArray>
#include <QCryptographicHash>
#include <algorithm>
#include <cmath>

#include "base/embedded_file.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "viewer/draw/report_parts_impl.hpp"

namespace kvatlas::viewer {

KVATLAS_EMBEDDED_FILE(report_css, "draw/report.css")
KVATLAS_EMBEDDED_FILE(report_js, "draw/report.js")

namespace {

/// The page has at most so many bytes, if its pictures and tables leave room: maps take the rest.
constexpr std::size_t kLargestPage = 14'800'000, kLeastOfMaps = 1'000'000;

/// The colours of a theme for report.css, so that pictures have no edges.
std::string colour_variables(const Theme& theme) {
  std::string out = theme.dark ? "color-scheme:dark;" : "color-scheme:light;";
  const auto add = [&out](const char* name, const QColor& colour) {
    out += str("--", name, ":", colour.name().toStdString(), ";");
  };
  add("ground", theme.background);
  add("panel", theme.panel);
  add("text", theme.text);
  add("faint", theme.faint_text);
  add("line", theme.grid);
  add("accent", theme.accent);
  add("warning", theme.warning);
  add("missing", theme.missing);
  return out;
}

/// Light or dark as the reader's system is, unless the page's switch says otherwise; light on
/// paper.
std::string style() {
  const std::string light = colour_variables(make_theme(false, Headless::font()));
  const std::string dark = colour_variables(make_theme(true, Headless::font()));
  return str(":root{", light, "}\n@media (prefers-color-scheme:dark){:root{", dark,
             "}}\n:root[data-theme=light]{", light, "}\n:root[data-theme=dark]{", dark,
             "}\n@media print{:root:root:root{", light, "}}\n", report_css());
}

/// What a policy of contents (CSP) calls this text.
std::string content_hash(const std::string& text) {
  const QByteArray hash =
      QCryptographicHash::hash(QByteArray::fromStdString(text), QCryptographicHash::Sha256);
  return "'sha256-" + hash.toBase64().toStdString() + "'";
}

std::string facts_list(const std::vector<Fact>& facts) {
  std::string out = "<dl>\n";
  for (const auto& fact : facts) out += element("dt", fact.name) + element("dd", fact.value);
  return out + "</dl>\n";
}

std::string interval_text(const Estimate& interval, int decimals) {
  std::string out = fixed_text(interval.mean, decimals);
  if (std::isfinite(interval.low) && std::isfinite(interval.high))
    out += str(" [", fixed_text(interval.low, decimals), ", ", fixed_text(interval.high, decimals),
               "]");
  return out;
}

std::string measured_list(const Measured& measured) {
  std::vector<Fact> facts = {
      {"samples", str(measured.samples, of_texts(measured.samples, measured.texts))},
      {"score", interval_text(measured.score, 3)}};
  if (!std::isnan(measured.full.mean))
    facts.push_back({"full cache", interval_text(measured.full, 3)});
  if (const auto kl = calibrate::divergence_text(measured.kl); !kl.empty())
    facts.push_back({"KL from the full cache (nats)", kl});
  if (!std::isnan(measured.agreement.mean))
    facts.push_back({"same top token", interval_text(measured.agreement, 3)});
  if (measured.tasks.size() > 1)
    for (const auto& [task, of_task] : measured.tasks)
      facts.push_back({"score of " + task, interval_text(of_task.score, 3)});
  return facts_list(facts);
}

std::string card_section(const PolicyCard& card) {
  std::string out = "<section class=\"card\">\n" + element("h3", card.title);
  if (!card.missing.empty())
    return out + "<p class=\"missing\">Not shown: " + html_text(card.missing) +
           "</p>\n</section>\n";
  std::vector<Fact> facts = {{"setting", card.setting}, {"kept", card.kept}, {"score", card.score}};
  std::erase_if(facts, [](const Fact& fact) { return fact.value.empty(); });
  out += facts_list(facts);
  if (!card.advice.reason.empty()) out += element("p", card.advice.reason);
  if (!card.advice.risk.empty())
    out += "<p><strong>Risk:</strong> " + html_text(card.advice.risk) + "</p>\n";
  if (card.measured)
    out +=
        "<details><summary>Measured</summary>\n" + measured_list(*card.measured) + "</details>\n";
  return out + "</section>\n";
}

/// Removes the reasons and risks: they stand on the cards, and would leave no room for numbers
/// here.
void remove_sentences(Table& table) {
  for (std::size_t c = table.columns.size(); c-- > 0;) {
    if (!table.columns[c].sentences) continue;
    const auto place = static_cast<std::ptrdiff_t>(c);
    table.columns.erase(table.columns.begin() + place);
    for (auto& row : table.rows) row.erase(row.begin() + place);
  }
}

/// The settings of every section of a document, as it has them.
std::string document_section(const calibrate::Document& document,
                             const std::filesystem::path& path) {
  std::string out = "<h3>" + html_text(path.filename().string()) + "</h3>\n";
  const auto& from = document.provenance;
  out += "<p class=\"faint\">" +
         html_text(str("for ", document.model.name.empty() ? "a model" : document.model.name, ", ",
                       count_of(from.samples, "sample", "samples"),
                       from.seed == 0 ? "" : str(", seed ", from.seed), ", kvatlas ",
                       from.tool_version)) +
         "</p>\n";
  Table table;
  table.columns = {{"policy"}, {"setting"}, {"value"}};
  for (const auto& [name, section] : document.sections.items()) {
    for (const auto& [key, value] : section.at("settings").items())
      table.rows.push_back(
          {name, key, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  return out + html_table(table, "Settings of " + path.filename().string());
}

/// A section of the page, for its contents.
struct Section {
  std::string id, title;
  std::vector<std::pair<std::string, std::string>> figures;  // their ids and titles
};

struct Charts {
  Section section;
  std::string figures, maps;  // pictures of maps stand apart: the page draws them itself
  std::string missing;        // what is not shown, and why
};

/// Which share of each layer is lazy at every row of the table of thresholds.
std::string lazy_layers(Pictures& pictures) {
  const auto& lazy = pictures.methods().lazy().model;
  if (!lazy) return "";
  const LazySettings& settings = pictures.request.choices.lazy;
  const LazyCurve curve = lazy_curve(*lazy, settings, settings.threshold);
  return data_element("class=\"layers\"", curve.shares);
}

Charts charts_of(Pictures& pictures, ColourMap colours) {
  Charts out{{"charts", "Charts", {}}, {}, {}, {}};
  for (const auto& entry : picture_list()) {
    if (!entry.in_report) continue;
    try {
      const PicturePtr picture = pictures.make(entry.kind);
      const bool scores = entry.kind == PictureKind::lazy_scores;
      const auto steps = pictures.steps(entry.kind);
      const std::string moving = steps ? steps_element(*steps, colours) : "";
      // A picture that does not follow a setting's slider says so once it is moved.
      Handle fixed = Pictures::fixed_by(entry.kind);
      if (steps && moving.empty()) fixed = steps->handle;
      std::string one =
          figure(entry, *picture, colours, moving + (scores ? lazy_layers(pictures) : ""),
                 fixed == Handle::none ? "" : str("data-fixed=\"", static_cast<int>(fixed), "\""));
      if (entry.kind == PictureKind::map || entry.kind == PictureKind::grid) {
        out.maps += one;
      } else {
        out.figures += one;
        out.section.figures.emplace_back(entry.name, heading_of(entry));
      }
    } catch (const Error& error) {
      out.missing +=
          str("<li>", html_text(heading_of(entry)), ": ", html_text(error.what()), "</li>\n");
    }
  }
  return out;
}

/// The maps, which report.js shows in place of the pictures of them.
std::string maps_section(const OpenedFiles& files, const ReportRequest& request,
                         const std::string& pictures, std::size_t bytes_around) {
  const std::size_t others = bytes_around + pictures.size();
  const std::size_t left = kLargestPage > others ? kLargestPage - others : 0;
  std::string maps;
  try {
    maps = maps_element(files.source.required_profile(), request.pictures.positions,
                        request.colours, std::max(left, kLeastOfMaps));
  } catch (const Error& error) {  // the maps of one sample are damaged; the pictures are there
    maps = "<p class=\"missing\">No maps to zoom: " + html_text(error.what()) + "</p>\n";
  }
  return str("<h2 id=\"maps\">Attention maps</h2>\n<div id=\"map-explorer\" hidden></div>\n",
             "<div class=\"pictures-of-maps\">\n", pictures, "</div>\n", maps);
}

std::string contents(const std::vector<Section>& sections) {
  std::string out =
      "<nav aria-label=\"Contents\"><details open><summary>Contents</summary>\n<ol>\n";
  for (const Section& section : sections) {
    out += str("<li><a href=\"#", section.id, "\">", html_text(section.title), "</a>");
    if (!section.figures.empty()) out += "\n<ol>\n";
    for (const auto& [id, title] : section.figures)
      out += str("<li><a href=\"#", id, "\">", html_text(title), "</a></li>\n");
    out += section.figures.empty() ? "</li>\n" : "</ol></li>\n";
  }
  return out + "</ol></details></nav>\n";
}

std::string model_section(const OverviewModel& model, const OverviewView& view,
                          const OpenedFiles& files) {
  std::vector<Fact> facts = model.facts, provenance = model.provenance;
  facts.insert(facts.end(), view.cache.begin(), view.cache.end());
  provenance.push_back(file_date(files.profile_path));
  return str("<h2 id=\"model\">Model and profile</h2>\n<div class=\"cards\">\n",
             "<section class=\"card\">\n", element("h3", "Model"), facts_list(facts),
             "</section>\n<section class=\"card\">\n", element("h3", "Profile"),
             facts_list(provenance), "</section>\n</div>\n");
}

std::string settings_section(const PictureSource& source) {
  std::string out = "<h2 id=\"settings\">Settings of the documents</h2>\n";
  if (source.documents.empty())
    out +=
        "<p class=\"missing\">No policy document was given: 'kvatlas calibrate' makes one; "
        "settings are defaults and scores are not known.</p>\n";
  for (std::size_t i = 0; i < source.documents.size(); ++i)
    out += document_section(source.documents[i], source.document_paths[i]);
  return out;
}

std::string page_head(const std::string& title) {
  const std::string css = style(), script(report_js());
  return str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n",
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
             "img-src data:; style-src ",
             content_hash(css), "; script-src ", content_hash(script),
             "; base-uri 'none'; form-action 'none'\"/>\n",
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<meta name=\"generator\" content=\"kvatlas\"/>\n",
             element("title", title), "<style>", css, "</style>\n</head>\n");
}

}  // namespace

std::string report_html(const OpenedFiles& files, const ReportRequest& request) {
  const profile::Reader& profile = files.source.required_profile();
  Pictures pictures(files.source, request.pictures);
  const OverviewModel& model = pictures.overview();
  const OverviewView view = overview_view(model, request.pictures.choices);
  const std::string title =
      request.title.empty() ? "KV cache policies of " + profile.header().model_name : request.title;
  const Charts charts = charts_of(pictures, request.colours);
  std::vector<Section> sections = {{"model", "Model and profile", {}},
                                   {"policies", "Policies", {}},
                                   {"comparison", "Comparison", {}},
                                   charts.section};
  if (!charts.maps.empty()) sections.push_back({"maps", "Attention maps", {}});
  sections.push_back({"settings", "Settings", {}});
  std::string out = page_head(title) +
                    "<body>\n<a class=\"skip\" href=\"#content\">To the content</a>\n" +
                    contents(sections) + "<div class=\"page\">\n<header>\n" + element("h1", title);
  out +=
      "<p class=\"faint\">" +
      html_text(str(files.profile_path.filename().string(), ", ", request.pictures.positions.size(),
                    " of ", count_of(std::ssize(profile.samples()), "sample", "samples"),
                    profile.complete() ? "" : "; the profile is not complete: some are missing")) +
      "</p>\n</header>\n<main id=\"content\">\n" + model_section(model, view, files);
  out += "<h2 id=\"policies\">Policies</h2>\n<div class=\"cards\">\n";
  for (const auto& card : view.cards) out += card_section(card);
  Table comparison = view.table;
  remove_sentences(comparison);
  out += "</div>\n<h2 id=\"comparison\">Comparison</h2>\n" +
         html_table(comparison, "Policies at their present settings");
  out += "<h2 id=\"charts\">Charts</h2>\n" + charts.figures;
  if (!charts.missing.empty())
    out += "<div class=\"missing\"><p>Not shown:</p>\n<ul>\n" + charts.missing + "</ul></div>\n";
  const std::string end = settings_section(files.source) + "</main>\n</div>\n<script>" +
                          std::string(report_js()) + "</script>\n</body>\n</html>\n";
  if (!charts.maps.empty())
    out += maps_section(files, request, charts.maps, out.size() + end.size());
  return out + end;
}

}  // namespace kvatlas::viewer
