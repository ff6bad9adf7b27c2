// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "analyzer/checkpoint/json_members.hpp"
#include "analyzer/config/config_files.hpp"
#include "analyzer/profile/dataset_impl.hpp"
#include "analyzer/profile/header_impl.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/json_text.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::profile {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostName = 200, kMostArrays = 10'000, kMostWindow = 8 << 20;
constexpr std::size_t kMostAxes = 7;  // an eighth is the sample

/// Names become paths in the file.
bool is_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '+' || c == '=' || c == ',';
  };
  if (static_cast<std::int64_t>(name.size()) > kMostName) return false;
  for (std::size_t start = 0; start <= name.size();) {
    const auto end = std::min(name.find('/', start), name.size());
    const std::string part = name.substr(start, end - start);
    if (part.empty() || part == "." || part == ".." ||
        !std::all_of(part.begin(), part.end(), allowed))
      return false;
    start = end + 1;
  }
  return true;
}

/// Why this cannot be an array's description; "" if it can.
std::string objection(const Description& array) {
  if (!is_name(array.name)) return "its name cannot be a path in the file";
  if (array.axes.empty() || array.axes.size() > kMostAxes)
    return str("it has ", array.axes.size(), " axes, expected 1 to ", kMostAxes);
  if (!array.sizes.empty() && array.sizes.size() != array.axes.size())
    return str("it has ", array.sizes.size(), " sizes for ", array.axes.size(), " axes");
  if (std::any_of(array.sizes.begin(), array.sizes.end(), [](auto size) { return size < 1; }))
    return str("its sizes are ", list_str(array.sizes));
  if (array.single_axes < 0 || static_cast<std::size_t>(array.single_axes) > array.axes.size())
    return str(array.single_axes, " of its ", array.axes.size(), " axes are read singly");
  if (array.sizes.empty() && (array.name == "tokens" || array.name.rfind("tokens/", 0) == 0))
    return "its name is that of the prompt's tokens";
  return "";
}

/// Why these cannot be a header's; "" if they can.
std::string objection(const Header& header) {
  std::set<std::string> names;
  for (const Description& array : header.arrays) {
    const std::string why = objection(array);
    if (!why.empty()) return str("array ", quoted(array.name), ": ", why);
    if (!names.insert(array.name).second)
      return str("array ", quoted(array.name), " is described twice");
  }
  for (const std::string& name : names)
    for (auto slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1))
      if (names.count(name.substr(0, slash)) > 0)
        return str("array ", quoted(name), " lies within another one");
  names.clear();
  for (const AxisTable& table : header.axes) {
    if (!is_name(table.axis) || table.axis.find('/') != table.axis.npos)
      return str("axis ", quoted(table.axis), ": its name cannot be that of a table");
    if (!names.insert(table.axis).second)
      return str("axis ", quoted(table.axis), " is there twice");
    if (table.values.size() != table.labels.size() * table.columns.size())
      return str("axis ", quoted(table.axis), ": ", table.values.size(), " values for ",
                 table.labels.size(), " rows of ", table.columns.size(), " columns");
  }
  if (header.window.size() != static_cast<std::size_t>(header.n_layers))
    return str("'window' has ", header.window.size(), " values, expected one for each of ",
               header.n_layers, " layers");
  for (const auto* list : {&header.layer_numbers, &header.cached_values})
    if (!list->empty() && std::ssize(*list) != header.n_layers)
      return str("'layer_numbers' or 'cached_values' has ", list->size(),
                 " values, expected one for each of ", header.n_layers, " layers");
  for (std::size_t l = 0; l < header.layer_numbers.size(); ++l)
    if (header.layer_numbers[l] < (l > 0 ? header.layer_numbers[l - 1] + 1 : 0) ||
        header.layer_numbers[l] >= model::Limits::layers)
      return "'layer_numbers' do not ascend, or count from below 0 or too far";
  // A latent may be wider than the heads that are made of it.
  const std::int64_t most = std::max(2 * header.n_kv_heads * header.head_dim,
                                     model::Limits::width + model::Limits::head_dim);
  for (const std::int64_t values : header.cached_values)
    if (values < 0 || values > most)
      return str("'cached_values' holds ", values, ", expected 0 to ", most);
  if (header.planned_samples < 0) return "a negative number of samples is planned";
  return "";
}

/// The tokens' texts follow from tokens and tokenizer; files of earlier versions lack them.
bool is_text(const Description& array) {
  return array.name == name::kTextBytes || array.name == name::kTextEnds;
}

/// What two profiles must have in common: a sentence may be worded anew in a later version.
std::vector<Description> comparable(std::vector<Description> arrays) {
  arrays.erase(std::remove_if(arrays.begin(), arrays.end(), is_text), arrays.end());
  for (Description& array : arrays) array.meaning.clear();
  return arrays;
}

Description parse_description(const json& object, std::string& type) {
  Description array;
  array.name = model::require_string(object, "name");
  for (const json& axis : model::array_member(object, "axes")) {
    if (!axis.is_string()) fail(ErrorCode::unreadable, "an axis is not a string");
    array.axes.push_back(axis.get<std::string>());
  }
  array.unit = model::require_string(object, "unit");
  array.meaning = model::require_string(object, "meaning");
  type = model::require_string(object, "type");
  for (const json& size : model::array_member(object, "sizes"))
    array.sizes.push_back(model::as_integer(size, "size"));
  const std::int64_t single = model::integer_member(object, "single_axes").value_or(0);
  array.single_axes = static_cast<int>(std::clamp<std::int64_t>(single, -1, 100));
  return array;
}

std::vector<Description> parse_descriptions(const std::string& text, bool newer_minor) {
  std::vector<Description> arrays;
  const json list = parse_json(text);
  if (!list.is_array() || static_cast<std::int64_t>(list.size()) > kMostArrays)
    fail(ErrorCode::unreadable, "not a list of at most ", kMostArrays, " arrays");
  for (const json& object : list) {
    std::string type;
    Description array = parse_description(object, type);
    if (parse_type(type, array.type))
      arrays.push_back(std::move(array));
    else if (!newer_minor)
      fail(ErrorCode::unreadable, quoted(array.name), " is of the unknown type ", quoted(type));
  }
  return arrays;
}

void write_axis(hid_t file, const AxisTable& table) {
  const H5Group group = make_groups(file, "axes");
  const Sizes shape = {static_cast<std::int64_t>(table.labels.size()),
                       static_cast<std::int64_t>(table.columns.size())};
  Array values(Type::i64, shape);
  std::copy(table.values.begin(), table.values.end(), values.values<std::int64_t>().begin());
  const Grid grid{shape, chunk_sizes(shape, 0)};
  H5Dataset dataset = make_dataset(group.get(), table.axis, Type::i64, grid);
  for (std::int64_t k = 0; k < grid.size(); ++k)
    write_chunk(dataset, grid, k, encode_chunk(values, grid, k));
  write_attribute(dataset.get(), "columns", table.columns);
  write_attribute(dataset.get(), "labels", table.labels);
  dataset.close("writing an axis");
}

AxisTable read_axis(const StoredObject& root, const std::string& axis) {
  const StoredArray stored = open_array(root, "axes/" + axis);
  AxisTable table;
  table.axis = axis;
  const std::int64_t most = std::min(root.file().size(), kMostText);
  table.columns = read_strings(stored.dataset, "columns", most);
  table.labels = read_strings(stored.dataset, "labels", most);
  const Sizes expected = {static_cast<std::int64_t>(table.labels.size()),
                          static_cast<std::int64_t>(table.columns.size())};
  if (stored.type != Type::i64 || stored.grid.shape != expected)
    fail(ErrorCode::unreadable, "'axes/", axis, "' is ", type_name(stored.type), " ",
         list_str(stored.grid.shape), ", expected int64 ", list_str(expected),
         " (labels, columns)");
  const Array values = decode(read_raw(stored));
  const auto numbers = values.values<std::int64_t>();
  table.values.assign(numbers.begin(), numbers.end());
  return table;
}

/// Readers multiply these sizes, and divide by the numbers of heads.
void check_sizes(const Header& header) {
  using model::Limits;
  const struct {
    const char* name;
    std::int64_t value, least, most;
  } sizes[] = {{"n_layers", header.n_layers, 0, Limits::layers},
               {"n_heads", header.n_heads, 1, Limits::heads},
               {"n_kv_heads", header.n_kv_heads, 1, header.n_heads},
               {"head_dim", header.head_dim, 0, Limits::head_dim},
               {"vocab_size", header.vocab_size, 0, Limits::vocabulary},
               {"context_length", header.context_length, 0, Limits::tokens},
               {"latent_rank", header.latent_rank, 0, Limits::width}};
  for (const auto& size : sizes)
    if (size.value < size.least || size.value > size.most)
      fail(ErrorCode::unreadable, "attribute '", size.name, "' is ", size.value, ", expected ",
           size.least, " to ", size.most);
}

std::string shown(const json& value) { return printable(json_text(value), 60); }

void compare(const std::string& name, const json* there, const json* here,
             std::vector<std::string>& clauses) {
  if (there && here && *there == *here) return;
  if (there && here && there->is_object() && here->is_object()) {
    std::set<std::string> members;
    for (const auto& item : there->items()) members.insert(item.key());
    for (const auto& item : here->items()) members.insert(item.key());
    for (const std::string& member : members)
      compare(name + "." + member, model::find_member(*there, member.c_str()),
              model::find_member(*here, member.c_str()), clauses);
    return;
  }
  if (!there && !here) return;  // null on one side, absent on the other
  clauses.push_back(str(name, " is ", there ? shown(*there) : "absent", " there and ",
                        here ? shown(*here) : "absent", " here"));
}

void compare_text(const std::string& name, const std::string& there, const std::string& here,
                  std::vector<std::string>& clauses) {
  if (there == here) return;
  const json left = parse_json(there), right = parse_json(here);
  compare(name, &left, &right, clauses);
}

bool same_table(const AxisTable& a, const AxisTable& b) {
  return a.axis == b.axis && a.columns == b.columns && a.values == b.values && a.labels == b.labels;
}

}  // namespace

std::string descriptions_text(const std::vector<Description>& arrays) {
  json list = json::array();
  for (const Description& array : arrays)
    list.push_back({{"name", array.name},
                    {"axes", array.axes},
                    {"unit", array.unit},
                    {"meaning", array.meaning},
                    {"type", type_name(array.type)},
                    {"sizes", array.sizes},
                    {"single_axes", array.single_axes}});
  return json_text(list);
}

bool parse_type(const std::string& name, Type& type) {
  for (const Type candidate : {Type::f32, Type::f16, Type::i32, Type::i64, Type::u8}) {
    if (name != type_name(candidate)) continue;
    type = candidate;
    return true;
  }
  return false;
}

void check_header(const Header& header) {
  const std::string why = objection(header);
  if (!why.empty()) fail(ErrorCode::internal, "the profile's header: ", why);
  for (const std::string* text : {&header.capture, &header.prompts})
    if (!parse_json(*text).is_object())
      fail(ErrorCode::internal, "the profile's header: settings are no JSON object");
}

void write_header(hid_t file, const Header& header) {
  write_attribute(file, "schema", std::string(kSchema));
  write_attribute(file, "schema_major", std::int64_t{kSchemaMajor});
  write_attribute(file, "schema_minor", std::int64_t{kSchemaMinor});
  write_attribute(file, "tool_version", header.tool_version);
  write_attribute(file, "model_name", header.model_name);
  write_attribute(file, "architecture", header.architecture);
  write_attribute(file, "model_fingerprint", header.model_fingerprint);
  write_attribute(file, "tokenizer_fingerprint", header.tokenizer_fingerprint);
  write_attribute(file, "n_layers", header.n_layers);
  write_attribute(file, "n_heads", header.n_heads);
  write_attribute(file, "n_kv_heads", header.n_kv_heads);
  write_attribute(file, "head_dim", header.head_dim);
  write_attribute(file, "vocab_size", header.vocab_size);
  write_attribute(file, "context_length", header.context_length);
  write_attribute(file, "window", header.window);
  if (!header.layer_numbers.empty()) write_attribute(file, "layer_numbers", header.layer_numbers);
  if (!header.cached_values.empty()) write_attribute(file, "cached_values", header.cached_values);
  if (header.latent_rank > 0) write_attribute(file, "latent_rank", header.latent_rank);
  write_attribute(file, "backend", header.backend);
  write_attribute(file, "capture", header.capture);
  write_attribute(file, "prompts", header.prompts);
  write_attribute(file, "planned_samples", header.planned_samples);
  write_attribute(file, "arrays", descriptions_text(header.arrays));
  std::vector<std::string> axes;
  for (const AxisTable& table : header.axes) axes.push_back(table.axis);
  write_attribute(file, "axes", axes);
  for (const AxisTable& table : header.axes) write_axis(file, table);
}

Header read_header(const StoredObject& root) {
  const std::int64_t file_bytes = root.file().size();
  const std::int64_t most = std::min(file_bytes, kMostText);
  if (!has_attribute(root, "schema") || read_string(root, "schema", most) != kSchema)
    fail(ErrorCode::unreadable, "an HDF5 root, but not a profile: its attribute 'schema' is not '",
         kSchema, "'");
  const std::int64_t major = read_integer(root, "schema_major");
  const std::int64_t minor = read_integer(root, "schema_minor");
  if (major > kSchemaMajor)
    fail(ErrorCode::unreadable, "a profile of schema ", major, ".", minor,
         ", newer than this program reads (", kSchemaMajor, ".", kSchemaMinor,
         "): a newer kvatlas is needed");
  if (major < 1 || minor < 0)
    fail(ErrorCode::unreadable, "a profile of schema ", major, ".", minor,
         ", which there has never been");
  Header header;
  header.tool_version = read_string(root, "tool_version", most);
  header.model_name = repaired_utf8(read_string(root, "model_name", most));
  header.architecture = read_string(root, "architecture", most);
  header.model_fingerprint = read_string(root, "model_fingerprint", most);
  header.tokenizer_fingerprint = read_string(root, "tokenizer_fingerprint", most);
  header.n_layers = read_integer(root, "n_layers");
  header.n_heads = read_integer(root, "n_heads");
  header.n_kv_heads = read_integer(root, "n_kv_heads");
  header.head_dim = read_integer(root, "head_dim");
  header.vocab_size = read_integer(root, "vocab_size");
  header.context_length = read_integer(root, "context_length");
  header.window = read_integers(root, "window", std::min(file_bytes, kMostWindow));
  if (has_attribute(root, "layer_numbers"))
    header.layer_numbers = read_integers(root, "layer_numbers", std::min(file_bytes, kMostWindow));
  if (has_attribute(root, "cached_values"))
    header.cached_values = read_integers(root, "cached_values", std::min(file_bytes, kMostWindow));
  if (has_attribute(root, "latent_rank")) header.latent_rank = read_integer(root, "latent_rank");
  header.backend = read_string(root, "backend", most);
  header.capture = read_string(root, "capture", most);
  header.prompts = read_string(root, "prompts", most);
  header.planned_samples = read_integer(root, "planned_samples");
  check_sizes(header);
  for (const char* name : {"capture", "prompts"})
    in_context(str("attribute '", name, "'"), [&] {
      if (!parse_json(name[0] == 'c' ? header.capture : header.prompts).is_object())
        fail(ErrorCode::unreadable, "not a JSON object");
    });
  header.arrays = in_context("attribute 'arrays'", [&] {
    return parse_descriptions(read_string(root, "arrays", most), minor > kSchemaMinor);
  });
  for (const std::string& axis : read_strings(root, "axes", most)) {
    if (!is_name(axis) || axis.find('/') != axis.npos)
      fail(ErrorCode::unreadable, "axis ", quoted(axis), " cannot be a table's name");
    header.axes.push_back(read_axis(root, axis));
  }
  const std::string why = objection(header);
  if (!why.empty()) fail(ErrorCode::unreadable, why);
  return header;
}

void add_texts(const Header& from, Header& to) {
  for (const Description& array : from.arrays)
    if (is_text(array) && !find_description(to, array.name)) to.arrays.push_back(array);
}

std::vector<std::string> differences(const Header& there, const Header& here, bool same_plan) {
  std::vector<std::string> clauses;
  const auto text = [&](const char* name, const std::string& left, const std::string& right) {
    if (left != right)
      clauses.push_back(str(name, " is ", quoted(left), " there and ", quoted(right), " here"));
  };
  const auto major = [](const std::string& version) {
    return version.substr(0, version.find('.'));
  };
  text("the model's fingerprint", there.model_fingerprint, here.model_fingerprint);
  // Samples hold their tokens: to be merged, a profile that was taken without a tokenizer goes with
  // any.
  const bool known = !there.tokenizer_fingerprint.empty() && !here.tokenizer_fingerprint.empty();
  if (same_plan || known)
    text("the tokenizer's fingerprint", there.tokenizer_fingerprint, here.tokenizer_fingerprint);
  text("kvatlas's major version", major(there.tool_version), major(here.tool_version));
  compare_text("capture", there.capture, here.capture, clauses);
  if (same_plan) {
    compare_text("prompts", there.prompts, here.prompts, clauses);
    text("the number of samples", str(there.planned_samples), str(here.planned_samples));
  }
  if (!clauses.empty()) return clauses;
  // These follow from what was compared; where they do not, the versions describe it differently.
  if (descriptions_text(comparable(there.arrays)) != descriptions_text(comparable(here.arrays)))
    clauses.push_back("the captured arrays are described otherwise there than here");
  if (!std::equal(there.axes.begin(), there.axes.end(), here.axes.begin(), here.axes.end(),
                  same_table))
    clauses.push_back("the tables of axes are others there than here");
  return clauses;
}

std::string first_few(const std::vector<std::string>& clauses) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, clauses.size()); ++i)
    text += (i > 0 ? "; " : "") + clauses[i];
  if (clauses.size() > kShown) text += str("; and ", clauses.size() - kShown, " more");
  return text;
}

const Description* find_description(const Header& header, const std::string& name) {
  const auto found = std::find_if(header.arrays.begin(), header.arrays.end(),
                                  [&](const Description& array) { return array.name == name; });
  return found == header.arrays.end() ? nullptr : &*found;
}

}  // namespace kvatlas::profile
