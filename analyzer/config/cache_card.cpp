// SPDX-License-Identifier: Apache-2.0
#include "analyzer/config/cache_card.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/checkpoint/hub_cache.hpp"
#include "analyzer/checkpoint/safetensors.hpp"
#include "analyzer/config/families_hf.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Kind = CachedLayer::Kind;

constexpr std::size_t kMostConfigBytes = 4 << 20;

/// The first of several names for a size that a file has.
std::optional<std::int64_t> any_count(const Fields& fields, std::initializer_list<const char*> keys,
                                      std::int64_t most) {
  for (const char* key : keys)
    if (const auto found = fields.count(key, most)) return found;
  return std::nullopt;
}

std::int64_t required_count(const Fields& fields, std::initializer_list<const char*> keys,
                            std::int64_t most) {
  if (const auto found = any_count(fields, keys, most)) return *found;
  return fields.required_count(*keys.begin(), most);
}

/// Numbers of a list; empty if there is none.
std::vector<std::int64_t> whole_numbers(const Fields& fields, const char* key) {
  std::vector<std::int64_t> numbers;
  const json* list = fields.find(key);
  if (list == nullptr) return numbers;
  if (!list->is_array() || list->size() > static_cast<std::size_t>(Limits::layers))
    fields.refuse(key, "a list of whole numbers");
  for (const json& number : *list) {
    if (!number.is_number_integer()) fields.refuse(key, "a list of whole numbers");
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

/// The kind that a name in a list of layer types stands for.
Kind kind_of_type(const std::string& type) {
  if (type.find("sliding") != type.npos || type.find("local") != type.npos ||
      type.find("swa") != type.npos)
    return Kind::window;
  if (type.find("chunk") != type.npos) return Kind::chunk;
  for (const char* word : {"linear", "mamba", "conv", "recurrent", "ssm", "rwkv", "moe", "mlp"})
    if (type.find(word) != type.npos) return Kind::state;
  return Kind::full;
}

/// A state of a gated delta net or of Mamba: the last inputs of its convolution, and a number for
/// each pair of a key's (of a state's) and of a value's (of the inner width).
struct StateSizes {
  std::int64_t kernel = 0, inner = 0, groups = 0, state = 0;
  std::int64_t values() const {
    if (kernel == 0 || inner == 0 || inner > Limits::width || state == 0) return 0;
    return (kernel - 1) * (inner + 2 * groups * state) + state * inner;
  }
};

void give_states(CacheCard& card, std::int64_t values) {
  for (CachedLayer& layer : card.layers)
    if (layer.kind == Kind::state) layer.state_values = values;
}

/// Reads a config.json of any architecture.
class ConfigReader {
 public:
  explicit ConfigReader(const json& tree) : outer_(tree), fields_(text_part(tree)) {}

  CacheCard read() {
    CacheCard card;
    card.architecture =
        fields_.text("model_type").value_or(outer_.text("model_type").value_or("unknown"));
    const auto layers = required_count(
        fields_, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}, Limits::layers);
    card.heads = required_count(fields_, {"num_attention_heads", "n_head", "num_heads", "n_heads"},
                                Limits::heads);
    card.hidden_size = required_count(fields_, {"hidden_size", "n_embd", "d_model"}, Limits::width);
    card.vocab_size = fields_.count("vocab_size", Limits::vocabulary).value_or(0);
    card.context_length = any_count(fields_,
                                    {"max_position_embeddings", "n_positions",
                                     "max_sequence_length", "seq_length", "n_ctx", "max_seq_len"},
                                    Limits::tokens)
                              .value_or(0);
    card.experts =
        any_count(fields_,
                  {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"},
                  Limits::width)
            .value_or(0);
    card.active_experts =
        any_count(fields_,
                  {"num_experts_per_tok", "moe_k", "num_experts_per_token", "top_k_experts"},
                  Limits::width)
            .value_or(0);
    CachedLayer layer;
    layer.kv_heads = kv_heads(card.heads);
    layer.key_dim = layer.value_dim = head_dim(card);
    if (const auto value = fields_.count("v_head_dim", Limits::head_dim)) layer.value_dim = *value;
    if (const auto latent = fields_.count("kv_lora_rank", Limits::width)) {
      layer.kind = Kind::latent;
      layer.kv_heads = 1;
      layer.key_dim = *latent + fields_.count("qk_rope_head_dim", Limits::head_dim).value_or(0);
      layer.value_dim = 0;
    }
    card.layers.assign(static_cast<std::size_t>(layers), layer);
    set_kinds(card);
    set_windows(card);
    set_single_layers(card);
    give_states(card, state_values(card));
    return card;
  }

 private:
  /// The language model's part of a model with vision or sound.
  static Fields text_part(const json& tree) {
    Fields whole(tree);
    for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"})
      if (const auto part = whole.object(key)) {
        const auto inner = part->object("text_config");
        return inner ? *inner : *part;
      }
    return whole;
  }

  std::int64_t kv_heads(std::int64_t heads) const {
    if (fields_.flag("multi_query").value_or(false) &&
        !fields_.flag("new_decoder_architecture").value_or(false))
      return 1;
    return any_count(fields_,
                     {"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num",
                      "n_kv_heads"},
                     Limits::heads)
        .value_or(heads);
  }

  std::int64_t head_dim(const CacheCard& card) const {
    if (const auto stated =
            any_count(fields_, {"head_dim", "kv_channels", "attention_head_dim"}, Limits::head_dim))
      return *stated;
    // A configuration class of the family may say it.
    const HfFamily* family = find_hf_family(card.architecture);
    if (family && family->defaults.head_dim > 0) return family->defaults.head_dim;
    return std::max<std::int64_t>(1, card.hidden_size / card.heads);
  }

  /// Which layers have no attention, or another kind of it.
  void set_kinds(CacheCard& card) {
    const auto set = [&](std::size_t layer, Kind kind) {
      CachedLayer& of = card.layers[layer];
      if (kind == Kind::full) return;  // or latent, as all are
      of.kind = kind;
    };
    for (const char* key : {"layer_types", "layers_block_type", "block_types", "attention_types"})
      if (const json* types = fields_.find(key); types && types->is_array() && !types->empty()) {
        by_list_ = true;
        for (std::size_t l = 0; l < card.layers.size(); ++l) {
          const json& type = (*types)[l % types->size()];  // shorter lists are repeated
          if (!type.is_string()) fields_.refuse(key, "a list of names");
          set(l, kind_of_type(type.get<std::string>()));
        }
        return;
      }
    const auto keep_only = [&](const auto& has_attention) {
      for (std::size_t l = 0; l < card.layers.size(); ++l)
        if (!has_attention(static_cast<std::int64_t>(l))) set(l, Kind::state);
    };
    if (const auto pattern = fields_.text("hybrid_override_pattern"))  // Nemotron-H: * is attention
      return keep_only([&](std::int64_t l) {
        return l < std::ssize(*pattern) && (*pattern)[static_cast<std::size_t>(l)] == '*';
      });
    if (const auto interval = fields_.count("full_attention_interval", Limits::layers))
      return keep_only([&](std::int64_t l) { return (l + 1) % *interval == 0; });
    if (const auto period = fields_.count("attn_layer_period", Limits::layers)) {
      const auto offset = fields_.count("attn_layer_offset", Limits::layers).value_or(0);
      return keep_only([&](std::int64_t l) { return l % *period == offset % *period; });
    }
    for (const char* key : {"full_attn_idxs", "attn_layer_indices", "hybrid_layer_ids"})
      if (const auto list = whole_numbers(fields_, key); !list.empty())
        return keep_only(
            [&](std::int64_t l) { return std::find(list.begin(), list.end(), l) != list.end(); });
    if (const auto list = whole_numbers(fields_, "attn_type_list"); !list.empty())  // MiniMax: 1
      return keep_only([&](std::int64_t l) {
        return l < std::ssize(list) && list[static_cast<std::size_t>(l)] == 1;
      });
    if (const auto linear = fields_.object("linear_attn_config"))  // Kimi counts from 1
      if (const auto list = whole_numbers(*linear, "full_attn_layers"); !list.empty())
        return keep_only([&](std::int64_t l) {
          return std::find(list.begin(), list.end(), l + 1) != list.end();
        });
    const bool no_attention = card.architecture.find("mamba") != std::string::npos ||
                              card.architecture.find("rwkv") != std::string::npos;
    if (no_attention) keep_only([](std::int64_t) { return false; });
  }

  void set_windows(CacheCard& card) {
    const auto chunk = fields_.count("attention_chunk_size", Limits::tokens);
    const json* stated = fields_.find("sliding_window");
    std::int64_t window = 0;
    if (stated && stated->is_number() && stated->get<double>() >= 1)
      window = *fields_.count("sliding_window", Limits::tokens);
    const bool off = fields_.find("use_sliding_window") != nullptr &&
                     !fields_.flag("use_sliding_window").value_or(false);
    if (by_list_) {
      bool lacks = false;
      for (CachedLayer& layer : card.layers) {
        if (layer.kind == Kind::window) layer.tokens = window;
        if (layer.kind == Kind::chunk) layer.tokens = chunk.value_or(0);
        if ((layer.kind == Kind::window || layer.kind == Kind::chunk) && layer.tokens == 0) {
          layer.kind = Kind::full;
          lacks = true;
        }
      }
      if (lacks)
        card.notes.emplace_back(
            "The file lists layers with a window and does not say its size: they are counted with "
            "all tokens.");
      return;
    }
    if ((window == 0 && !chunk) || off) return;
    if (const HfFamily* family = find_hf_family(card.architecture)) return by_family(*family, card);
    if (window == 0) return;
    auto pattern = fields_.count("sliding_window_pattern", Limits::layers);
    if (!pattern) pattern = fields_.count("_sliding_window_pattern", Limits::layers);
    if (!pattern) {
      card.notes.push_back(str("The file speaks of a window of ", window,
                               " tokens, and not of the layers that have it: all are counted with "
                               "all tokens."));
      return;
    }
    for (std::size_t l = 0; l < card.layers.size(); ++l)
      if ((static_cast<std::int64_t>(l) + 1) % *pattern != 0) give_window(card.layers[l], window);
  }

  std::int64_t state_values(const CacheCard& card) const {
    const auto count = [&](const char* key) {
      return fields_.count(key, Limits::heads).value_or(0);
    };
    if (const auto kernel = count("conv_L_cache"); kernel > 0)  // LFM 2: a convolution alone
      return card.hidden_size * (kernel - 1);
    if (const auto kernel = count("linear_conv_kernel_dim"); kernel > 0)
      return StateSizes{kernel, count("linear_num_value_heads") * count("linear_value_head_dim"),
                        count("linear_num_key_heads"), count("linear_key_head_dim")}
          .values();
    return StateSizes{count("mamba_d_conv"), card.hidden_size * count("mamba_expand"),
                      count("mamba_n_groups"), count("mamba_d_state")}
        .values();
  }

  static void give_window(CachedLayer& layer, std::int64_t tokens, Kind kind = Kind::window) {
    if (layer.kind != Kind::full) return;
    layer.kind = kind;
    layer.tokens = tokens;
  }

  /// Of a known family the layers are those that the engine takes.
  void by_family(const HfFamily& family, CacheCard& card) {
    const auto windows = hf_windows(fields_, family, static_cast<std::int64_t>(card.layers.size()));
    for (std::size_t l = 0; l < windows.size(); ++l)
      if (windows[l] > 0)
        give_window(card.layers[l], windows[l], family.windows.chunks ? Kind::chunk : Kind::window);
  }

  /// Layers whose sizes are their own, and those that read another's cache (Gemma 3n and 4).
  void set_single_layers(CacheCard& card) {
    const auto full_dim = fields_.count("global_head_dim", Limits::head_dim);
    const auto full_heads = fields_.count("num_global_key_value_heads", Limits::heads);
    for (CachedLayer& layer : card.layers)
      if (layer.kind == Kind::full) {
        if (full_dim) layer.key_dim = layer.value_dim = *full_dim;
        if (full_heads) layer.kv_heads = *full_heads;
      }
    if (const auto own = fields_.object("per_layer_config"))
      for (std::size_t l = 0; l < card.layers.size(); ++l)
        if (const auto of = own->object(std::to_string(l).c_str())) {
          CachedLayer& layer = card.layers[l];
          if (const auto dim = of->count("head_dim", Limits::head_dim))
            layer.key_dim = layer.value_dim = *dim;
          if (const auto heads = of->count("num_key_value_heads", Limits::heads))
            layer.kv_heads = *heads;
        }
    const json* shared = fields_.find("num_kv_shared_layers");
    if (shared && shared->is_number_unsigned()) {
      const auto count = std::min<std::size_t>(shared->get<std::size_t>(), card.layers.size());
      for (std::size_t l = card.layers.size() - count; l < card.layers.size(); ++l)
        card.layers[l].kind = Kind::shared;
    }
    if (fields_.flag("attention_k_eq_v").value_or(false))
      card.notes.emplace_back(
          "Keys and values of full layers are the same projection; runtimes store both all the "
          "same, and so they are counted.");
  }

  Fields outer_, fields_;
  bool by_list_ = false;
};

CacheCard from_config(const std::string& text) {
  const json tree = parse_json(text);
  if (!tree.is_object()) fail(ErrorCode::unreadable, "expected a JSON object");
  CacheCard card = ConfigReader(tree).read();
  card.format = "config.json";
  return card;
}

/// One number a layer, from a key that holds a number or a list; empty if it is absent.
std::vector<std::int64_t> by_layer(const GgufFile& file, const std::string& key,
                                   std::int64_t layers, std::int64_t most) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return {};
  std::vector<std::int64_t> values;
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&found->second))
    values = *list;
  else
    values.assign(static_cast<std::size_t>(layers), file.require<std::int64_t>(key));
  if (std::ssize(values) < layers)
    fail(ErrorCode::unreadable, "key ", quoted(key), ": ", values.size(), " layers, expected ",
         layers);
  for (const auto value : values)
    if (value < 0 || value > most)
      fail(ErrorCode::unreadable, "key ", quoted(key), ": found ", value,
           ", expected numbers from 0 to ", most);
  return values;
}

CacheCard from_gguf(const GgufFile& file) {
  CacheCard card;
  card.format = str("GGUF v", file.version());
  card.architecture = file.require<std::string>("general.architecture");
  const std::string at = card.architecture + ".";
  const auto number = [&](const char* key, std::int64_t fallback, std::int64_t most) {
    const auto values = by_layer(file, at + key, 1, most);
    return values.empty() ? fallback : values.front();
  };
  const auto layers =
      number("block_count", 0, Limits::layers) - number("nextn_predict_layers", 0, Limits::layers);
  if (layers < 1)
    fail(ErrorCode::unreadable, "key ", quoted(at + "block_count"),
         ": expected a number of layers");
  const auto heads = by_layer(file, at + "attention.head_count", layers, Limits::heads);
  auto kv_heads = by_layer(file, at + "attention.head_count_kv", layers, Limits::heads);
  if (kv_heads.empty()) kv_heads = heads;
  kv_heads.resize(static_cast<std::size_t>(layers), 0);
  card.heads = heads.empty() ? 0 : *std::max_element(heads.begin(), heads.end());
  card.hidden_size = number("embedding_length", 0, Limits::width);
  card.context_length = number("context_length", 0, Limits::tokens);
  card.experts = number("expert_count", 0, Limits::width);
  card.active_experts = number("expert_used_count", 0, Limits::width);
  for (const StoredTensor& tensor : file.tensors()) {
    card.weight_bytes += static_cast<std::int64_t>(tensor.bytes.size());
    if (tensor.name == "token_embd.weight" && !tensor.shape.empty())
      card.vocab_size = tensor.shape.front();
  }
  const std::int64_t plain =
      card.heads > 0 ? std::max<std::int64_t>(1, card.hidden_size / card.heads) : 0;
  auto key_dim = number("attention.key_length", plain, Limits::width);
  const auto value_dim = number("attention.value_length", key_dim, Limits::width);
  const auto rank = number("attention.kv_lora_rank", 0, Limits::width);
  const bool latent = rank > 0;
  if (latent) key_dim = rank + number("rope.dimension_count", 0, Limits::head_dim);
  const auto window = number("attention.sliding_window", 0, Limits::tokens);
  const auto windows = gguf_windows(file, card.architecture, layers);
  const auto interval = number("full_attention_interval", 0, Limits::layers);
  const auto chunk = number("attention.chunk_size", 0, Limits::tokens);
  const auto shared = number("attention.shared_kv_layers", 0, Limits::layers);
  for (std::int64_t l = 0; l < layers; ++l) {
    CachedLayer layer;
    layer.kv_heads = kv_heads[static_cast<std::size_t>(l)];
    layer.key_dim = key_dim;
    layer.value_dim = latent ? 0 : value_dim;
    if (latent) {
      layer.kind = Kind::latent;
      layer.kv_heads = 1;
    }
    if (!windows.sizes.empty() && windows.sizes[static_cast<std::size_t>(l)] > 0) {
      layer.kind = windows.chunks ? Kind::chunk : Kind::window;
      layer.tokens = windows.sizes[static_cast<std::size_t>(l)];
      layer.key_dim = number("attention.key_length_swa", key_dim, Limits::width);
      layer.value_dim = number("attention.value_length_swa", value_dim, Limits::width);
    } else if (chunk > 0 && (l + 1) % 4 != 0) {  // as Llama 4 has them
      layer.kind = Kind::chunk;
      layer.tokens = chunk;
    }
    if (layer.kv_heads == 0 || (interval > 0 && (l + 1) % interval != 0)) layer.kind = Kind::state;
    if (l >= layers - shared) layer.kind = Kind::shared;
    card.layers.push_back(layer);
  }
  if (const auto kernel = number("shortconv.l_cache", 0, Limits::heads); kernel > 0)
    give_states(card, card.hidden_size * (kernel - 1));
  else
    give_states(card, StateSizes{number("ssm.conv_kernel", 0, Limits::heads),
                                 number("ssm.inner_size", 0, Limits::width),
                                 number("ssm.group_count", 0, Limits::heads),
                                 number("ssm.state_size", 0, Limits::heads)}
                          .values());
  if (window > 0 && windows.sizes.empty())
    card.notes.push_back(str("The file speaks of a window of ", window,
                             " tokens, and not of the layers that have it: all are counted with "
                             "all tokens."));
  if (const auto name = file.get<std::string>("general.name")) card.name = printable(*name, 200);
  return card;
}

}  // namespace

const char* cached_kind_name(Kind kind) {
  switch (kind) {
    case Kind::full:
      return "full";
    case Kind::window:
      return "window";
    case Kind::chunk:
      return "chunk";
    case Kind::latent:
      return "latent";
    case Kind::state:
      return "state";
    case Kind::shared:
      return "shared";
  }
  return "";
}

std::int64_t CachedLayer::values_per_token() const {
  if (kind == Kind::state || kind == Kind::shared) return 0;
  return kv_heads * (key_dim + value_dim);
}

std::int64_t CacheCard::state_values() const {
  std::int64_t sum = 0;
  for (const CachedLayer& layer : layers) sum += layer.state_values;
  return sum;
}

CacheCard read_cache_card(const fs::path& given) {
  const fs::path path = found_model(given);
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  const fs::path config = folder ? path / "config.json" : path;
  const auto named = [&](const auto& read) {
    return in_context(quoted(config.string(), 400), read);
  };
  CacheCard card;
  if (config.extension() == ".json") {
    const std::string text = read_text_file(config, kMostConfigBytes);
    card = named([&] { return from_config(text); });
  } else {
    const GgufFile file = GgufFile::open(config);
    card = named([&] { return from_gguf(file); });
  }
  card.file = path.string();
  if (card.name.empty()) {
    card.name = config.extension() == ".json"
                    ? name_of_folder(fs::absolute(config).lexically_normal().parent_path())
                    : repaired_utf8(config.stem().string());
  }
  if (folder) try {
      const SafetensorsFolder files = SafetensorsFolder::open(path);
      for (const auto& tensor : files.tensors())
        card.weight_bytes += static_cast<std::int64_t>(tensor.bytes.size());
    } catch (const Error&) {
      card.weight_bytes = 0;  // they are not there, or not whole; the configuration is
    }
  if (std::any_of(card.layers.begin(), card.layers.end(),
                  [](const CachedLayer& layer) { return layer.kind == Kind::state; }))
    card.notes.push_back(
        str("Layers without attention hold a state of fixed size a sequence, ",
            card.state_values() > 0 ? str(card.state_values(), " numbers in all, ") : "",
            "which is not counted."));
  return card;
}

std::vector<std::int64_t> cached_values(const Config& config) {
  std::vector<std::int64_t> of_layers;
  bool plain = config.latent.rank == 0;
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    of_layers.push_back(config.cached_values(l));
    const LayerShape shape = config.shape(l);
    plain = plain && of_layers.back() == 2 * config.n_kv_heads * config.head_dim &&
            shape.kv_heads == config.n_kv_heads && shape.head_dim == config.head_dim;
  }
  if (plain) of_layers.clear();
  return of_layers;
}

}  // namespace kvatlas::model
