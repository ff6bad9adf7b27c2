// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "calibrate/policy/document_impl.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr std::string_view kSchemaName = "kvatlas.policy/";
constexpr int kMajor = 1, kMinor = 0;
/// The members of a document beside its sections.
const char* const kMembers[] = {"schema",      "model",   "provenance", "compose", "kv_bits",
                                "kv_residual", "runtime", "pareto",     "search",  "compared"};

/// The minor version of the document. Error(unreadable) if this kvatlas cannot read it.
int readable_minor(const json& document) {
  if (!document.is_object() || !document.contains("schema") || !document.at("schema").is_string())
    fail(ErrorCode::unreadable, "no policy document: it has no 'schema'");
  const auto& name = document.at("schema").get_ref<const std::string&>();
  const auto refuse = [&] {
    fail(ErrorCode::unreadable, "schema is ", quoted(name), ", expected ", kSchemaName, kMajor, ".",
         kMinor);
  };
  int major = 0, minor = 0;
  if (name.rfind(kSchemaName, 0) != 0 || name.size() > 24) refuse();
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data() + kSchemaName.size(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') refuse();
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || second.ptr != end || minor < 0 || major < 1) refuse();
  if (major > kMajor)
    fail(ErrorCode::unreadable, "the document is ", quoted(name),
         ", of a newer major version than this kvatlas reads (", kSchemaName, kMajor, ")");
  return minor;
}

/// Gives figures of older documents the names that they have now: a loss in points was one called
/// loss_points, and what is kept was told by what is saved.
void bring_up_to_date(json& report) {
  if (report.is_array())
    for (json& one : report) bring_up_to_date(one);
  if (!report.is_object()) return;
  if (const auto points = report.find("loss_points"); points != report.end()) {
    json loss = *points;
    for (json& figure : loss)
      if (figure.is_number()) figure = figure.get<double>() / 100;
    report.erase(points);
    report.emplace("loss", std::move(loss));
  }
  if (const auto saved = report.find("kv_saved"); saved != report.end()) {
    if (saved->is_number()) report.emplace("kept_share", 1 - saved->get<double>());
    report.erase("kv_saved");
  }
  for (json& member : report) bring_up_to_date(member);
}

/// What a model says of each layer, by its name in a document.
template <class Info>
auto lists_of(Info& model) {
  return std::array{std::pair{"windows", &model.windows},
                    std::pair{"layer_numbers", &model.layer_numbers},
                    std::pair{"cached_values", &model.cached_values}};
}

json to_json(const Document& document) {
  const ModelInfo& model = document.model;
  const Provenance& from = document.provenance;
  json out = document.unknown;
  if (!out.contains("schema")) out["schema"] = str(kSchemaName, kMajor, ".", kMinor);
  out["model"] = {{"name", model.name},
                  {"architecture", model.architecture},
                  {"fingerprint", model.fingerprint},
                  {"layers", model.layers},
                  {"heads", model.heads},
                  {"kv_heads", model.kv_heads},
                  {"head_dim", model.head_dim}};
  for (const auto& [name, list] : lists_of(model))
    if (!list->empty()) out["model"][name] = *list;
  if (model.latent_rank > 0) out["model"]["latent_rank"] = model.latent_rank;
  out["provenance"] = {{"profile", from.profile}, {"samples", from.samples},
                       {"lengths", from.lengths}, {"tasks", from.tasks},
                       {"seed", from.seed},       {"tool_version", from.tool_version}};
  if (!from.seeds.empty()) out["provenance"]["seeds"] = from.seeds;
  if (!from.prompts.empty()) out["provenance"]["prompts"] = from.prompts;
  for (const auto& [name, section] : document.sections.items()) out[name] = section;
  if (!document.compose.empty()) out["compose"] = document.compose;
  out["kv_bits"] = document.kv_bits;
  if (document.kv_residual > 0) out["kv_residual"] = document.kv_residual;
  if (!document.runtime.empty()) out["runtime"] = document.runtime;
  if (!document.pareto.empty()) out["pareto"] = document.pareto;
  if (!document.search.empty()) out["search"] = document.search;
  if (!document.compared.empty()) out["compared"] = document.compared;
  return out;
}

/// The JSON must meet the schema.
Document from_json(json all, int minor) {
  Document document;
  const auto& model = all.at("model");
  document.model = {model.value("name", ""),
                    model.value("architecture", ""),
                    model.value("fingerprint", ""),
                    model.at("layers"),
                    model.at("heads"),
                    model.at("kv_heads"),
                    model.at("head_dim"),
                    {},
                    {},
                    {},
                    model.value("latent_rank", std::int64_t{0})};
  for (const auto& [name, list] : lists_of(document.model)) *list = model.value(name, *list);
  const json from = all.value("provenance", json::object());
  auto& provenance = document.provenance;
  provenance.profile = from.value("profile", "");
  provenance.samples = from.value("samples", std::int64_t{0});
  provenance.lengths = from.value("lengths", provenance.lengths);
  provenance.tasks = from.value("tasks", provenance.tasks);
  provenance.seeds = from.value("seeds", provenance.seeds);
  provenance.prompts = from.value("prompts", provenance.prompts);
  if (from.contains("seed")) {
    if (!from.at("seed").is_number_unsigned())
      fail(ErrorCode::unreadable, "provenance.seed is negative");
    provenance.seed = from.at("seed");
  }
  provenance.tool_version = from.value("tool_version", "");
  for (const Method& section : kSections)
    if (all.contains(section.name)) {
      document.sections[section.name] = std::move(all.at(section.name));
      all.erase(section.name);
    }
  document.compose = all.value("compose", document.compose);
  document.kv_bits = all.value("kv_bits", 16);
  document.kv_residual = all.value("kv_residual", std::int64_t{0});
  document.runtime = all.value("runtime", "");
  document.pareto = all.value("pareto", json::array());
  document.search = all.value("search", json::object());
  document.compared = all.value("compared", json::array());
  for (const auto* name : kMembers)
    if (std::string_view(name) != "schema" || minor <= kMinor) all.erase(name);
  if (minor <= kMinor && !all.empty())
    fail(ErrorCode::unreadable, "there is no member ", quoted(all.begin().key()), " in ",
         kSchemaName, kMajor, ".", minor);
  document.unknown = std::move(all);
  return document;
}

void require_count(const std::string& what, std::size_t found, std::int64_t expected,
                   const char* of) {
  if (found != static_cast<std::size_t>(expected))
    fail(ErrorCode::unreadable, what, " has ", found, " entries, and the model has ", expected, " ",
         of);
}

/// Refuses a part whose result does not fit the model.
struct Fits {
  const ModelInfo& model;

  void operator()(const SimLayerKv& part) const {
    if (!part.fixed) return;
    require_count("the list of lazy layers", part.fixed->size(), model.layers, "layers");
    for (std::size_t l = 0; l < part.fixed->size(); ++l)
      if (const auto& row = (*part.fixed)[l]; row.size() != 1)
        require_count(str("result.lazy_heads.", l), row.size(), model.kv_heads, "KV heads");
  }
  void operator()(const Pod& part) const {
    if (part.lowest.empty()) return;
    require_count("result.lowest", part.lowest.size(), model.heads, "query heads");
    for (std::size_t h = 0; h < part.lowest.size(); ++h) {
      const auto& row = part.lowest[h];
      require_count(str("result.lowest.", h), row.size(), model.layers, "layers");
      for (std::size_t l = 0; l < row.size(); ++l)
        if (row[l] != static_cast<std::int64_t>(l) && (l == 0 || row[l] != row[l - 1]))
          fail(ErrorCode::unreadable, "result.lowest.", h, ".", l, " is ", row[l],
               ", expected the layer itself or the lowest of the layer before");
    }
  }
  void operator()(const DynamicKv& part) const {
    if (part.fixed) require_count("result.budgets", part.fixed->size(), model.layers, "layers");
  }
  void operator()(const HeadKv& part) const {
    if (!part.fixed) return;
    require_count("result.budgets", part.fixed->size(), model.layers, "layers");
    for (std::size_t l = 0; l < part.fixed->size(); ++l)
      require_count(str("result.budgets.", l), (*part.fixed)[l].size(), model.kv_heads, "KV heads");
  }
  void operator()(const Precision& part) const {
    if (part.fixed) require_count("result.keys", part.fixed->size(), model.layers, "layers");
    if (!part.scales) return;
    const auto check = [&](const std::string& side, const HeadScales& rows, bool optional) {
      if (optional && rows.empty()) return;
      require_count(side, rows.size(), model.layers, "layers");
      for (std::size_t l = 0; l < rows.size(); ++l) {
        if (rows[l].size() != 1)
          require_count(str(side, ".", l), rows[l].size(), model.kv_heads, "KV heads");
        for (const double scale : rows[l])
          if (!(scale >= kLeastScale && scale <= kLargestScale))
            fail(ErrorCode::unreadable, side, ".", l, ": found ", scale, ", expected ", kLeastScale,
                 " to ", kLargestScale);
      }
    };
    check("result.scales.keys", part.scales->keys, false);
    check("result.scales.values", part.scales->values, false);
    check("result.scales.queries", part.scales->queries, true);
  }
  template <class Other>
  void operator()(const Other&) const {}
};

const json* task_budgets(const Document& document) {
  const auto section = document.sections.find(method::kDynamicKv.name);
  if (section == document.sections.end() || !section->contains("result")) return nullptr;
  const auto& result = section->at("result");
  return result.contains("tasks") ? &result.at("tasks") : nullptr;
}

/// Checks what the schema cannot say, of a document that meets the schema.
void check_document(const Document& document) {
  const ModelInfo& model = document.model;
  if (model.heads % model.kv_heads != 0)
    fail(ErrorCode::unreadable, "model: ", model.heads, " heads are no multiple of ",
         model.kv_heads, " KV heads");
  for (const auto& [name, list] : lists_of(model))
    if (!list->empty()) require_count(str("model.", name), list->size(), model.layers, "layers");
  const auto& numbers = model.layer_numbers;
  if (std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) != numbers.end())
    fail(ErrorCode::unreadable, "model.layer_numbers are not distinct and ascending");
  const auto& lengths = document.provenance.lengths;
  if (std::adjacent_find(lengths.begin(), lengths.end(), std::greater_equal<>()) != lengths.end())
    fail(ErrorCode::unreadable, "provenance.lengths are not distinct and ascending");
  for (const auto& [name, section] : document.sections.items()) {
    const Part part = part_of(name, section);
    in_context(name, [&] { std::visit(Fits{model}, part); });
  }
  if (const json* tasks = task_budgets(document))
    for (const auto& [task, budgets] : tasks->items())
      require_count("dynamickv.result.tasks." + printable(task), budgets.size(), model.layers,
                    "layers");
  auto names = document.compose;
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end())
    fail(ErrorCode::unreadable, "compose names a section twice");
  for (const auto& name : names)
    if (!document.sections.contains(name))
      fail(ErrorCode::unreadable, "compose names ", quoted(name), ", which the document lacks");
  try {
    policies_of(document);
  } catch (const Error& error) {
    fail(ErrorCode::unreadable, "compose: ", error.what());
  }
}

}  // namespace

std::string document_text(const Document& document) {
  try {
    for (const auto& [name, section] : document.sections.items())
      if (!find_section(name)) fail(ErrorCode::internal, "there is no section ", quoted(name));
    const json all = to_json(document);
    std::string text = canonical_json(all);  // first, for it finds numbers that are not finite
    const auto complaint = schema_complaint(all);
    if (!complaint.empty()) fail(ErrorCode::internal, complaint);
    check_document(document);
    return text;
  } catch (const Error& error) {
    fail(ErrorCode::internal, "writing a policy document: ", error.what());
  }
}

Document document_of(const Policy& policy, ModelInfo model) {
  Document document;
  document.model = std::move(model);
  document.kv_bits = policy.kv_bits;
  document.kv_residual = policy.kv_residual;
  for (const auto& part : policy.parts) {
    const auto section = section_name(part);
    document.sections[section] = section_of(part);
    if (policy.parts.size() > 1) document.compose.push_back(section);
  }
  return document;
}

Document parse_document(std::string_view text) {
  if (text.size() > kLargestDocument)
    fail(ErrorCode::unreadable, "a policy document of ", text.size(), " bytes, expected at most ",
         kLargestDocument);
  json all = parse_json(text, kDeepestDocument);
  const int minor = readable_minor(all);
  bring_up_to_date(all);
  const auto complaint = schema_complaint(all);
  if (!complaint.empty()) fail(ErrorCode::unreadable, complaint);
  Document document = from_json(std::move(all), minor);
  check_document(document);
  return document;
}

std::vector<Policy> policies_of(const Document& document, const std::string& task) {
  const json* tasks = task_budgets(document);
  if (!task.empty() && !(tasks && tasks->contains(task))) {
    std::vector<std::string> known;
    if (tasks)
      for (const auto& [name, budgets] : tasks->items()) known.push_back(printable(name));
    fail(ErrorCode::usage, "the policy has no budgets for task ", quoted(task),
         known.empty() ? "; it has none by task" : "; it has them for " + list_str(known));
  }
  const auto part = [&](const std::string& name) {
    Part read = part_of(name, document.sections.at(name));
    if (auto* budgets = std::get_if<DynamicKv>(&read); budgets && !task.empty())
      budgets->fixed = tasks->at(task).get<std::vector<std::int64_t>>();
    return read;
  };
  std::vector<Policy> policies;
  const auto add = [&](std::vector<Part> parts, const char* section) {
    order_parts(parts);
    Policy policy;
    policy.section = section;
    policy.parts = std::move(parts);
    if (!method::kPrecision.is(section)) {  // which says itself how numbers are stored
      policy.kv_bits = document.kv_bits;
      policy.kv_residual = document.kv_residual;
    }
    policy.name = policy_text(policy);
    // The text alone names the policy that finds budgets for each prompt, or has one format.
    if (const auto* budgets = part_of_type<DynamicKv>(policy); budgets && budgets->fixed)
      policy.name += task.empty() ? " (one for all)" : " (for " + printable(task) + ")";
    if (const auto* budgets = part_of_type<HeadKv>(policy); budgets && budgets->fixed)
      policy.name += " (one for all)";
    if (const auto* formats = part_of_type<Precision>(policy); formats && formats->fixed)
      policy.name += " (by layer)";
    if (const auto* formats = part_of_type<Precision>(policy); formats && formats->scales)
      policy.name += " (with scales)";
    check_composition(policy);
    check_cache(policy, document.model);
    policies.push_back(std::move(policy));
  };
  if (!document.compose.empty()) {
    std::vector<Part> parts;
    for (const auto& name : document.compose) parts.push_back(part(name));
    add(std::move(parts), kComposition);
  } else {
    for (const Method& section : kSections)
      if (document.sections.contains(section.name)) add({part(section.name)}, section.name);
    // The full cache in fewer bits is a policy without a section.
    if (policies.empty() && document.kv_bits != 16) add({}, "");
  }
  return policies;
}

}  // namespace kvatlas::calibrate
