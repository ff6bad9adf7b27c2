// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/model_file.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iomanip>
#include <sstream>
#include <system_error>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/checkpoint/hub_cache.hpp"
#include "analyzer/checkpoint/safetensors.hpp"
#include "analyzer/config/config_files.hpp"
#include "analyzer/model/weights.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_text.hpp"

namespace kvatlas::model {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 4 << 20;

std::string rope_text(const Rope& rope) {
  std::ostringstream out;
  out << std::setprecision(17) << rope_kind_name(rope.kind) << ' ' << rope.theta << ' '
      << rope.factor << ' ' << rope.original_context << ' ' << rope.low_freq_factor << ' '
      << rope.high_freq_factor << ' ' << rope.beta_fast << ' ' << rope.beta_slow << ' '
      << rope.truncate << ' ' << rope.mscale.value_or(-1) << ' ' << rope.mscale_all_dim.value_or(-1)
      << ' ' << rope.attention_factor.value_or(-1);
  for (const auto* factors : {&rope.short_factor, &rope.long_factor, &rope.divisors}) {
    out << " :";
    for (double factor : *factors) out << ' ' << factor;
  }
  return out.str();
}

/// What later families brought; "" for a model that has none of it, so that its fingerprint stays.
std::string added_text(const Config& c) {
  std::ostringstream out;
  out << std::setprecision(17);
  if (c.norm != NormKind::rms || !c.gated || c.parallel_block || c.norms_after_rope ||
      c.logit_scale != 1.0 || c.residual_scale != 1.0 || !c.rotated.empty())
    out << " : " << static_cast<int>(c.norm) << ' ' << c.gated << ' ' << c.parallel_block << ' '
        << c.norms_after_rope << ' ' << c.logit_scale << ' ' << c.residual_scale << ' '
        << list_str(std::vector<int>(c.rotated.begin(), c.rotated.end()));
  if (const StateLayers& l = c.state_layers; l.kind != StateLayers::Kind::none)
    out << " : " << static_cast<int>(l.kind) << ' ' << l.conv_kernel << ' ' << l.key_heads << ' '
        << l.value_heads << ' ' << l.key_dim << ' ' << l.value_dim << ' ' << c.gated_attention
        << ' ' << list_str(c.layer_numbers);
  if (const Experts& e = c.experts; e.count > 0)
    out << " : " << e.count << ' ' << e.active << ' ' << e.size << ' ' << e.shared_size << ' '
        << static_cast<int>(e.score) << ' ' << e.normalised << ' ' << e.scale << ' ' << e.groups
        << ' ' << e.active_groups << ' ' << e.jitter << ' '
        << list_str(std::vector<int>(e.in_layer.begin(), e.in_layer.end())) << ' '
        << e.best_of_group << ' ' << e.beside_dense;
  if (const Latent& l = c.latent; l.rank > 0)
    out << " : " << l.query_rank << ' ' << l.rank << ' ' << l.rotated_dim << ' ' << l.plain_dim;
  for (const LayerShape& s : c.shapes)
    out << " : " << s.kv_heads << ' ' << s.head_dim << ' ' << s.value_dim << ' '
        << s.intermediate_size << ' ' << s.keys_of << ' ' << s.one_projection;
  if (!c.shapes.empty())
    out << ' ' << c.local_rotary_dim << ' ' << c.value_norms << ' ' << c.layer_input_size << ' '
        << c.rope.share;
  for (const auto& numbers : c.activation_numbers)
    for (const float number : numbers) out << ' ' << number;
  if (c.chunks || c.rotated_norms || c.temperature.scale > 0)
    out << " : " << c.chunks << ' ' << c.rotated_norms << ' ' << c.temperature.scale << ' '
        << c.temperature.tokens << ' ' << c.experts.weighs_inputs;
  if (const Streams& s = c.streams; s.count > 0) {
    out << " : " << s.count << ' ' << s.active << ' ' << s.scaled << ' ' << s.shortcut_rank << ' '
        << c.value_norms << ' ' << c.layer_input_size << ' ' << c.layer_input_vocab;
    for (const auto& least : c.sparse_gates) out << ' ' << least.value_or(-1e30);
  }
  return out.str();
}

/// All of the configuration that changes what the model computes; not its name.
std::string config_text(const Config& c) {
  std::ostringstream out;
  out << std::setprecision(17) << architecture_name(c.architecture) << ' ' << c.n_layers << ' '
      << c.n_heads << ' ' << c.n_kv_heads << ' ' << c.head_dim << ' ' << c.hidden_size << ' '
      << c.intermediate_size << ' ' << c.vocab_size << ' ' << c.context_length << ' ' << c.norm_eps
      << ' ' << c.tied_embeddings << ' ' << static_cast<int>(c.activation) << ' ' << c.rotary_dim
      << ' ' << rope_text(c.rope) << ' ' << (c.local_rope ? rope_text(*c.local_rope) : "-") << ' '
      << list_str(c.window) << ' ' << c.attention_scale << ' ' << c.attention_softcap << ' '
      << c.logit_softcap << ' ' << c.embedding_scale << ' ' << c.norm_offset << added_text(c);
  return out.str();
}

/// Reads two short samples of every tensor, so that a large file stays on its disk.
std::string fingerprint_of(const Config& config, const std::vector<StoredTensor>& tensors) {
  constexpr std::size_t kSample = 128;
  Fnv1a hash;
  const auto add_text = [&](std::string_view text) {
    hash.add(text);
    hash.add(std::string_view("\0", 1));  // so that "ab", "c" differs from "a", "bc"
  };
  add_text(config_text(config));
  for (const StoredTensor& tensor : tensors) {
    add_text(tensor.name);
    add_text(type_name(tensor));
    add_text(list_str(tensor.shape));
    const auto bytes = tensor.bytes;
    hash.add(bytes.first(std::min(kSample, bytes.size())));
    if (bytes.size() > kSample)
      hash.add(bytes.subspan(bytes.size() / 2, std::min(kSample, bytes.size() / 2)));
  }
  return hash.hex();
}

bool contains(const MappedFile& file, const StoredTensor& tensor) {
  const auto all = file.bytes();
  const std::less<const std::byte*> before;
  return !before(tensor.bytes.data(), all.data()) &&
         before(tensor.bytes.data(), all.data() + all.size());
}

/// What both kinds of checkpoint share once their weights are found.
class OpenedModel : public ModelFile {
 protected:
  void take(Config config, ModelWeights weights) {
    config_ = std::move(config);
    layers_ = std::move(weights.layers);
    embedding_ = std::move(weights.embedding);
    final_norm_ = std::move(weights.final_norm);
    final_norm_bias_ = std::move(weights.final_norm_bias);
    head_ = std::move(weights.head);
    head_bias_ = std::move(weights.head_bias);
    layer_embedding_ = std::move(weights.layer_embedding);
    layer_projection_ = std::move(weights.layer_projection);
    layer_projection_norm_ = std::move(weights.layer_projection_norm);
    stream_starts_ = std::move(weights.stream_starts);
    stream_ends_ = std::move(weights.stream_ends);
    config_.tied_embeddings = head_.parts.front().tensor == embedding_.parts.front().tensor;
    fingerprint_ = fingerprint_of(config_, tensors());
  }

  /// A tokenizer of a kind that is not supported leaves a model that runs on token ids.
  template <class Fn>
  void take_tokenizer(Fn&& open) {
    try {
      tokenizer_ = open();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      tokenizer_problem_ = error.what();
    }
  }
};

class GgufModel final : public OpenedModel {
 public:
  explicit GgufModel(const fs::path& path) : file_(GgufFile::open(path)) {
    path_ = path;
    in_context(quoted(path.string(), 400), [&] {
      Config config = gguf_config(file_, path.stem().string());
      const TensorFinder finder([&](std::string_view name) { return file_.find(name); });
      auto weights = gguf_weights(config, finder);
      take(std::move(config), std::move(weights));
      take_tokenizer([&] { return Tokenizer::from_gguf(file_); });
    });
    require_intact();
  }

  const std::vector<StoredTensor>& tensors() const override { return file_.tensors(); }
  std::string format() const override { return str("GGUF v", file_.version()); }
  void require_intact() const override { file_.file()->require_intact(); }
  void will_need(const StoredTensor& tensor) const override {
    file_.file()->will_need(tensor.bytes);
  }
  void release(const StoredTensor& tensor) const override { file_.file()->release(tensor.bytes); }

 private:
  GgufFile file_;
};

class FolderModel final : public OpenedModel {
 public:
  explicit FolderModel(const fs::path& folder) {
    path_ = folder;
    const std::string config_json = read_text_file(folder / "config.json", kMaxConfigBytes);
    const fs::path generation = folder / "generation_config.json";
    const std::string generation_json =
        fs::exists(generation) ? read_text_file(generation, kMaxConfigBytes) : "";
    HfConfig hf = in_context(quoted(folder.string(), 400), [&] {
      return parse_hf_config(config_json, generation_json, name_of_folder(folder));
    });
    require_safetensors(folder);
    files_ = SafetensorsFolder::open(folder);
    in_context(quoted(folder.string(), 400), [&] {
      const TensorFinder finder([&](std::string_view name) { return files_.find(name); });
      auto weights = hf_weights(hf, finder);
      take(std::move(hf.config), std::move(weights));
    });
    take_tokenizer([&] { return Tokenizer::from_folder(folder); });
    require_intact();
  }

  const std::vector<StoredTensor>& tensors() const override { return files_.tensors(); }
  std::string format() const override {
    const std::size_t n = files_.files().size();
    return n == 1 ? "safetensors" : str("safetensors, ", n, " shards");
  }
  void require_intact() const override {
    for (const MappedFile& file : files_.files()) file.require_intact();
  }
  void will_need(const StoredTensor& tensor) const override {
    if (const MappedFile* file = file_of(tensor)) file->will_need(tensor.bytes);
  }
  void release(const StoredTensor& tensor) const override {
    if (const MappedFile* file = file_of(tensor)) file->release(tensor.bytes);
  }

 private:
  const MappedFile* file_of(const StoredTensor& tensor) const {
    for (const MappedFile& file : files_.files())
      if (contains(file, tensor)) return &file;
    return nullptr;
  }

  static void require_safetensors(const fs::path& folder);

  SafetensorsFolder files_;
};

/// The name of a file of the folder that ends so; "" if there is none.
std::string file_ending(const fs::path& folder, std::initializer_list<const char*> endings) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    for (const char* ending : endings)
      if (name.ends_with(ending)) return name;
  }
  return {};
}

/// For a folder that is no model: a GGUF file in it is what was meant.
void point_to_gguf(const fs::path& folder) {
  const auto gguf = file_ending(folder, {".gguf"});
  if (!gguf.empty())
    fail(ErrorCode::usage, "the folder ", quoted(folder.string(), 400),
         " holds a GGUF file: give the file itself, ", quoted((folder / gguf).string(), 400));
}

void FolderModel::require_safetensors(const fs::path& folder) {
  const std::string name = quoted(folder.string(), 400);
  for (const char* file : {"model.safetensors", "model.safetensors.index.json"})
    if (std::error_code error; fs::exists(fs::symlink_status(folder / file, error))) return;
  point_to_gguf(folder);
  const auto other = file_ending(folder, {".safetensors"});
  if (!other.empty())
    fail(ErrorCode::unreadable, "the folder ", name, " holds ", quoted(other),
         " but neither model.safetensors nor model.safetensors.index.json");
  const auto pickled = file_ending(folder, {".bin", ".pt", ".pth"});
  if (!pickled.empty())
    fail(ErrorCode::unsupported, "the folder ", name,
         " holds its weights only as a PyTorch pickle (", quoted(pickled),
         "); convert them to safetensors");
  fail(ErrorCode::unreadable, "the folder ", name, " holds no model.safetensors");
}

}  // namespace

std::int64_t ModelFile::stored_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors()) bytes += static_cast<std::int64_t>(tensor.bytes.size());
  return bytes;
}

std::shared_ptr<const ModelFile> ModelFile::open(const fs::path& given) {
  const fs::path path = found_model(given);
  const std::string name = quoted(path.string(), 400);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (path.empty()) fail(ErrorCode::usage, "no model given: give a GGUF file or a model's folder");
  if (status.type() == fs::file_type::not_found)
    fail(ErrorCode::unreadable, "there is no file or folder ", name);
  if (error) fail(ErrorCode::unreadable, "cannot open ", name, ": ", error.message());
  if (fs::is_directory(status)) {
    if (!fs::exists(path / "config.json", error)) {
      point_to_gguf(path);
      fail(ErrorCode::unreadable, "the folder ", name, " holds no config.json, so it is no model");
    }
    return std::make_shared<FolderModel>(path);
  }
  const auto ending = path.extension();
  if (ending == ".safetensors" || ending == ".json")
    fail(ErrorCode::usage, name, " is a part of a model: give the folder that holds it");
  return std::make_shared<GgufModel>(path);
}

}  // namespace kvatlas::model
