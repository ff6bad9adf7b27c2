// SPDX-License-Identifier: Apache-2.0
#include "export/checkpoint.hpp"

#include <algorithm>
#include <cmath>

#include "analyzer/checkpoint/safetensors.hpp"
#include "analyzer/model/weights.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/mapped_file.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::exporting {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostConfigBytes = std::size_t{16} << 20, kMostFiles = 65536;

/// The files of a folder that has the parts of the checkpoint in it.
std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code problem;
  fs::directory_iterator entry(folder, problem);
  for (; !problem && entry != fs::directory_iterator(); entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    if (name == "config.json" || name == "model.safetensors.index.json" ||
        !entry->is_regular_file(problem))
      continue;
    if (names.size() == kMostFiles)
      fail(ErrorCode::unreadable, quoted(folder.string(), 400), " holds more than ", kMostFiles,
           " files: expected a checkpoint's folder");
    names.push_back(name);
  }
  if (problem)
    fail(ErrorCode::unreadable, "cannot list ", quoted(folder.string(), 400), ": ",
         problem.message());
  std::sort(names.begin(), names.end());
  return names;
}

/// Reads single tensors, each file of which is mapped once.
class ScaleReader {
 public:
  explicit ScaleReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// The first tensor of the layer with one of these names: one number, or so many. Empty if there
  /// is none.
  std::vector<double> find(const std::string& attention, std::initializer_list<const char*> names,
                           std::int64_t heads) {
    for (const char* name : names)
      if (const auto at = checkpoint_.files.find(attention + name); at != checkpoint_.files.end())
        return read(at->first, at->second, heads);
    return {};
  }

 private:
  std::vector<double> read(const std::string& name, const std::string& in, std::int64_t heads) {
    const auto file = opened(in);
    const auto found = std::find_if(file->second.tensors.begin(), file->second.tensors.end(),
                                    [&](const auto& tensor) { return tensor.name == name; });
    if (found == file->second.tensors.end())
      fail(ErrorCode::unreadable, quoted(in, 400), " does not hold the tensor ", quoted(name),
           " that the index says it holds");
    std::int64_t count = 1;
    for (const auto size : found->shape)
      if (size < 0 || __builtin_mul_overflow(count, size, &count)) count = -1;
    const auto type = found->type;
    const bool numbers = found->foreign_type.empty() &&
                         (type == model::TensorType::f32 || type == model::TensorType::f16 ||
                          type == model::TensorType::bf16);
    if (!numbers || (count != 1 && count != heads))
      fail(ErrorCode::unreadable, "tensor ", quoted(name), ": ", model::type_name(*found), ' ',
           list_str(found->shape), ", expected one number or ", heads);
    std::vector<float> values(static_cast<std::size_t>(count));
    model::dequantize(type, found->bytes.data(), count, values.data());
    file->second.map.require_intact();
    std::vector<double> out;
    for (const float value : values) {
      out.push_back(static_cast<double>(value));
      if (!(out.back() >= calibrate::kLeastScale && out.back() <= calibrate::kLargestScale))
        fail(ErrorCode::unreadable, "tensor ", quoted(name), ": found ", value,
             ", expected a scale above 0");
    }
    return out;
  }

  struct Opened {
    MappedFile map;
    std::vector<model::StoredTensor> tensors;
  };
  std::map<std::string, Opened>::iterator opened(const std::string& name) {
    const auto known = opened_.find(name);
    if (known != opened_.end()) return known;
    MappedFile map = MappedFile::open(model::file_in_folder(checkpoint_.folder, name));
    auto tensors =
        in_context(quoted(name, 400), [&] { return model::parse_safetensors(map.bytes()); });
    return opened_.emplace(name, Opened{std::move(map), std::move(tensors)}).first;
  }

  const Checkpoint& checkpoint_;
  std::map<std::string, Opened> opened_;
};

/// The greatest of each group of query heads.
std::vector<double> of_groups(const std::vector<double>& heads, std::int64_t kv_heads) {
  if (heads.size() < 2) return heads;
  const auto groups = static_cast<std::size_t>(kv_heads), size = heads.size() / groups;
  std::vector<double> out(groups, 0);
  for (std::size_t i = 0; i < heads.size(); ++i) out[i / size] = std::max(out[i / size], heads[i]);
  return out;
}

}  // namespace

Checkpoint open_checkpoint(const fs::path& folder) {
  Checkpoint out;
  std::error_code problem;
  out.folder = fs::canonical(folder, problem);
  if (problem || !fs::is_directory(out.folder, problem))
    fail(ErrorCode::unreadable, quoted(folder.string(), 400),
         " is no folder: expected a checkpoint's, with config.json and safetensors");
  const auto text =
      read_text_file(model::file_in_folder(out.folder, "config.json"), kMostConfigBytes);
  in_context(quoted((folder / "config.json").string(), 400),
             [&] { out.config = parse_json(text, 64); });
  // Which of them a checkpoint of another format is, the model's own reader says.
  const auto hf = model::parse_hf_config(text, "", out.folder.filename().string());
  out.layer_numbers = hf.config.layer_numbers;
  out.heads = hf.config.n_heads;
  out.kv_heads = hf.config.n_kv_heads;
  out.others = files_of(out.folder);
  out.files = model::tensor_files(out.folder);
  out.attention = model::hf_attention_names(
      hf, [&](const std::string& name) { return out.files.contains(name); });
  return out;
}

std::optional<calibrate::Fp8Scales> scales_in(const Checkpoint& checkpoint) {
  ScaleReader reader(checkpoint);
  calibrate::Fp8Scales out;
  bool any = false, queries = false;
  for (const auto& at : checkpoint.attention) {
    const auto keys = reader.find(
        at, {"k_scale", "k_proj.k_scale", "k_proj.output_scale", "qkv_proj.k_scale", "kv_scale"},
        checkpoint.kv_heads);
    const auto values = reader.find(
        at, {"v_scale", "v_proj.v_scale", "v_proj.output_scale", "qkv_proj.v_scale", "kv_scale"},
        checkpoint.kv_heads);
    const auto query = of_groups(
        reader.find(at, {"q_scale", "q_proj.q_scale", "q_proj.output_scale"}, checkpoint.heads),
        checkpoint.kv_heads);
    any = any || !keys.empty() || !values.empty();
    queries = queries || !query.empty();
    const auto or_one = [](const std::vector<double>& row) {
      return row.empty() ? std::vector<double>{1} : row;
    };
    out.keys.push_back(or_one(keys));
    out.values.push_back(or_one(values));
    out.queries.push_back(or_one(query));
  }
  if (!queries) out.queries.clear();
  return any ? std::optional(out) : std::nullopt;
}

}  // namespace kvatlas::exporting
