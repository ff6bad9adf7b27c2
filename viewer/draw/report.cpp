// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/report.hpp"

#include <QByteArray>
#include <cmath>

#include "base/error.hpp"
#include "base/markup.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "viewer/draw/picture_impl.hpp"
#include "viewer/models/overview_model.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::size_t kMostRows = 1000;           // of a table
constexpr std::size_t kLargestSvg = 200u << 10U;  // larger ones become a PNG
constexpr double kPngScale = 1.5;
constexpr std::size_t kLargestTwin = 100u << 10U;  // of larger ones there is no dark twin

// Colours as in theme.cpp, so that pictures have no edges.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --panel: #f4f5f7; --text: #1b1f24; --faint: #57606a;
  --line: #d8dce1; --accent: #0969da; --warning: #a04a00; }
@media (prefers-color-scheme: dark) { :root { --ground: #16191d; --panel: #1f2329; --text: #e6e9ed;
  --faint: #a3acb8; --line: #343b44; --accent: #58a6ff; --warning: #f0a35e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1.5rem; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 0 0 .4rem; }
a { color: var(--accent); } nav a { margin-right: 1rem; }
.faint { color: var(--faint); } .missing { color: var(--warning); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 1rem;
  min-width: 0; }
.card p { margin: .4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 0 0 1.5rem; } img { max-width: 100%; height: auto; display: block; }
details { margin: .4rem 0; } summary { cursor: pointer; color: var(--accent); padding: .25rem 0; }
.scroll { overflow-x: auto; max-height: 28rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .7rem; text-align: left; }
th { background: var(--panel); position: sticky; top: 0; }
td.number { text-align: right; }
@media print { details { display: none; } }
)";

std::string element(const char* name, const std::string& text) {
  return str("<", name, ">", html_text(text), "</", name, ">\n");
}

std::string facts_list(const std::vector<Fact>& facts) {
  std::string out = "<dl>\n";
  for (const auto& fact : facts) out += element("dt", fact.name) + element("dd", fact.value);
  return out + "</dl>\n";
}

struct Shown {
  std::string type, bytes;
};

/// As vectors, or, where these take much room, as pixels.
Shown shown(const Picture& picture, const Theme& theme) {
  ImageOptions options;
  std::string svg = svg_bytes(picture, theme, options, {});
  if (svg.size() <= kLargestSvg) return {"image/svg+xml", std::move(svg)};
  options.scale = kPngScale;
  const QImage image = with_palette(to_image(picture, theme, options));
  return {"image/png", png_bytes(image, picture.title(), {})};
}

std::string data_uri(const Shown& image) {
  return "data:" + image.type + ";base64," +
         QByteArray::fromStdString(image.bytes).toBase64().toStdString();
}

/// The picture in both themes, of which the reader's own is shown; a large one is light only.
std::string image_element(const Picture& picture, ColourMap colours) {
  Theme light = make_theme(false, Headless::font()), dark = make_theme(true, Headless::font());
  light.colours = dark.colours = colours;
  const QSizeF size = picture.size();
  const Shown own = shown(picture, light);
  const std::string twin = own.bytes.size() > kLargestTwin
                               ? ""
                               : str("<source media=\"(prefers-color-scheme: dark)\" srcset=\"",
                                     data_uri(shown(picture, dark)), "\"/>");
  return str("<picture>", twin, "<img src=\"", data_uri(own), "\" alt=\"",
             html_text(picture.title()), "\" width=\"", std::lround(size.width()), "\" height=\"",
             std::lround(size.height()), "\"/></picture>\n");
}

std::string figure(const Picture& picture, const char* id, ColourMap colours) {
  return str("<figure id=\"", id, "\">\n", image_element(picture, colours),
             "<figcaption><details><summary>Table: ", html_text(picture.title()),
             "</summary>\n<div class=\"scroll\">", html_tables(picture.csv(), kMostRows),
             "</div></details></figcaption>\n</figure>\n");
}

std::string interval_text(const Interval& interval, int decimals) {
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
  if (!std::isnan(measured.kl.mean))
    facts.push_back({"KL from the full cache", interval_text(measured.kl, 4)});
  if (!std::isnan(measured.agreement.mean))
    facts.push_back({"same top token", interval_text(measured.agreement, 3)});
  for (const auto& [task, score] : measured.tasks)
    facts.push_back({"score of " + task, interval_text(score, 3)});
  return facts_list(facts);
}

std::string card_section(const PolicyCard& card) {
  std::string out = "<section class=\"card\">\n" + element("h3", card.title);
  if (!card.missing.empty())
    return out + "<p class=\"missing\">Not shown: " + html_text(card.missing) +
           "</p>\n</section>\n";
  out += "<dl>\n" + element("dt", "setting") + element("dd", card.setting) + element("dt", "kept") +
         element("dd", card.kept) + element("dt", "score") + element("dd", card.score) + "</dl>\n";
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
                       from.samples, " samples", from.seed == 0 ? "" : str(", seed ", from.seed),
                       ", kvatlas ", from.tool_version)) +
         "</p>\n<table><thead><tr><th>policy</th><th>setting</th><th>value</th></tr></thead>"
         "<tbody>\n";
  for (const auto& [name, section] : document.sections.items()) {
    const auto& settings = member_of(section, "settings");
    if (!settings.is_object()) continue;
    for (const auto& [key, value] : settings.items())
      out += "<tr><td>" + html_text(name) + "</td><td>" + html_text(key) + "</td><td>" +
             html_text(value.is_string() ? value.get<std::string>() : value.dump()) +
             "</td></tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string charts_section(const OpenedFiles& files, const ReportRequest& request) {
  std::string out, missing;
  for (const auto& entry : picture_list()) {
    if (!entry.in_report) continue;
    try {
      const PicturePtr picture = make_picture(entry.kind, files.source, request.pictures);
      out += figure(*picture, entry.name, request.colours);
    } catch (const Error& error) {
      missing += str("<li>", html_text(entry.title), ": ", html_text(error.what()), "</li>\n");
    }
  }
  if (!missing.empty())
    out += "<div class=\"missing\"><p>Not shown:</p>\n<ul>\n" + missing + "</ul></div>\n";
  return out;
}

/// Fields of a CSV's line, which ends at `at`; quoted ones may hold line ends.
std::vector<std::string> csv_fields(const std::string& csv, std::size_t& at) {
  std::vector<std::string> fields(1);
  bool in_quotes = false;
  for (; at < csv.size(); ++at) {
    const char c = csv[at];
    if (in_quotes) {
      if (c != '"') {
        fields.back() += c;
      } else if (at + 1 < csv.size() && csv[at + 1] == '"') {
        fields.back() += c;
        ++at;
      } else {
        in_quotes = false;
      }
    } else if (c == '"') {
      in_quotes = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else if (c == '\n') {
      ++at;
      break;
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789+-.eE") == text.npos;
}

}  // namespace

std::string html_text(const std::string& text) {
  // What is no UTF-8 becomes U+FFFD.
  return QString::fromStdString(markup_text(text)).toStdString();
}

std::string html_tables(const std::string& csv, std::size_t most) {
  std::string out;
  std::size_t rows = 0;
  bool open = false;
  const auto close = [&] {
    if (!open) return;
    out += "</tbody></table>\n";
    if (rows > most)
      out += str("<p class=\"faint\">The first ", most, " of ", rows, " rows.</p>\n");
    open = false;
  };
  for (std::size_t at = 0; at < csv.size();) {
    if (csv[at] == '#') {
      at = std::min(csv.find('\n', at), csv.size() - 1) + 1;
      continue;
    }
    const auto fields = csv_fields(csv, at);
    if (fields.size() == 1 && fields[0].empty()) {
      close();
      continue;
    }
    if (!open) {
      open = true;
      rows = 0;
      out += "<table><thead><tr>";
      for (const auto& field : fields) out += "<th>" + html_text(field) + "</th>";
      out += "</tr></thead><tbody>\n";
      continue;
    }
    if (++rows > most) continue;
    out += "<tr>";
    for (const auto& field : fields)
      out += (is_number(field) ? "<td class=\"number\">" : "<td>") + html_text(field) + "</td>";
    out += "</tr>\n";
  }
  close();
  return out;
}

std::string report_html(const OpenedFiles& files, const ReportRequest& request) {
  const profile::Reader& profile = files.source.required_profile();
  const OverviewModel model = read_overview_model(profile, request.pictures.positions,
                                                  request.pictures.choices, files.source.documents);
  const OverviewView view = overview_view(model, request.pictures.choices);
  const std::string title =
      request.title.empty() ? "KV cache policies of " + profile.header().model_name : request.title;
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"generator\" content=\"kvatlas\"/>\n";
  out += element("title", title) + "<style>" + kStyle + "</style>\n</head>\n<body>\n<header>\n";
  out += element("h1", title);
  out +=
      "<p class=\"faint\">" +
      html_text(str(files.profile_path.filename().string(), ", ", request.pictures.positions.size(),
                    " of ", profile.samples().size(), " samples",
                    profile.complete() ? "" : "; the profile is not complete: some are missing")) +
      "</p>\n<nav><a href=\"#policies\">Policies</a><a href=\"#comparison\">Comparison</a>"
      "<a href=\"#charts\">Charts</a><a href=\"#settings\">Settings</a></nav>\n</header>\n<main>\n";
  std::vector<Fact> provenance = model.provenance;
  provenance.push_back(file_date(files.profile_path));
  out += "<h2>Model and profile</h2>\n<div class=\"cards\">\n<section class=\"card\">\n" +
         element("h3", "Model") + facts_list(model.facts) + facts_list(view.cache) +
         "</section>\n<section class=\"card\">\n" + element("h3", "Profile") +
         facts_list(provenance) + "</section>\n</div>\n";
  out += "<h2 id=\"policies\">Policies</h2>\n<div class=\"cards\">\n";
  for (const auto& card : view.cards) out += card_section(card);
  out += "</div>\n<h2 id=\"comparison\">Comparison</h2>\n<div class=\"scroll\">";
  Chart comparison;
  comparison.table = view.table;
  remove_sentences(comparison.table);
  out += html_tables(chart_csv(comparison), kMostRows) + "</div>\n";
  out += "<h2 id=\"charts\">Charts</h2>\n" + charts_section(files, request);
  out += "<h2 id=\"settings\">Settings of the documents</h2>\n";
  if (files.source.documents.empty())
    out +=
        "<p class=\"missing\">No policy document was given: 'kvatlas calibrate' makes one; "
        "settings are defaults and scores are not known.</p>\n";
  for (std::size_t i = 0; i < files.source.documents.size(); ++i)
    out += document_section(files.source.documents[i], files.source.document_paths[i]);
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace kvatlas::viewer
