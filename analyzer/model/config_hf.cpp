// SPDX-License-Identifier: Apache-2.0
// config.json in its many spellings. Defaults for what a file may leave out are those of the
// models' own software (transformers' configuration classes).
#include <algorithm>
#include <cctype>
#include <cmath>

#include "analyzer/model/config_files.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;

std::string shown(const json& value) { return printable(value.dump(-1, ' ', true), 60); }

/// The numbers of a JSON object, checked. A key that is absent or null gives nullopt.
class Fields {
 public:
  explicit Fields(const json& object, std::string place = {})
      : object_(&object), place_(std::move(place)) {}

  const json* find(const char* key) const {
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
  }
  bool is_null(const char* key) const {
    const auto found = object_->find(key);
    return found != object_->end() && found->is_null();
  }
  /// How messages call a key: 'rope_scaling.factor'.
  std::string name(const char* key) const { return "'" + place_ + key + "'"; }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail(ErrorCode::unreadable, name(key), ": found ", shown(object_->at(key)), ", expected ",
         expected);
  }

  /// A whole number from 1 to `most`.
  std::optional<std::int64_t> count(const char* key, std::int64_t most) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!(number >= 1.0) || number > static_cast<double>(most) || number != std::floor(number))
      refuse(key, str("a whole number from 1 to ", most));
    return static_cast<std::int64_t>(number);
  }
  std::int64_t required_count(const char* key, std::int64_t most) const {
    if (auto value = count(key, most)) return *value;
    fail(ErrorCode::unreadable, name(key), " is missing");
  }

  /// A positive number of sane size.
  std::optional<double> positive(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!(number >= 1e-30) || number > 1e30) refuse(key, "a positive number");
    return number;
  }

  std::optional<bool> flag(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) refuse(key, "true or false");
    return value->get<bool>();
  }

  std::optional<std::string> text(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse(key, "a string");
    return value->get<std::string>();
  }

  std::optional<Fields> object(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) refuse(key, "an object");
    return Fields(*value, place_ + key + ".");
  }

  /// Positive numbers of a list; empty if there is none.
  std::vector<double> positives(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return {};
    std::vector<double> numbers;
    if (!value->is_array()) refuse(key, "a list of numbers");
    for (const json& element : *value) {
      if (!element.is_number() || !(element.get<double>() > 0.0))
        refuse(key, "a list of positive numbers");
      numbers.push_back(element.get<double>());
    }
    return numbers;
  }

  /// One token id or a list of them.
  std::vector<std::int64_t> tokens(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return {};
    std::vector<std::int64_t> ids;
    const json list = value->is_array() ? *value : json::array({*value});
    for (const json& id : list) {
      if (!id.is_number_integer() || id.get<double>() < -1.0 ||
          id.get<double>() > static_cast<double>(Limits::vocabulary))
        refuse(key, "a token id or a list of them");
      if (id.get<std::int64_t>() >= 0) ids.push_back(id.get<std::int64_t>());  // -1: none
    }
    return ids;
  }

 private:
  const json* object_;
  std::string place_;
};

/// What a configuration class fills in. 0 among the counts: the file must say it.
struct Defaults {
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size / heads
  std::int64_t context = 2048;
  double norm_eps = 1e-6;
  bool tied = false;
  std::int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, vocabulary = 0;
};

Defaults defaults_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::mistral:
      return {.kv_heads = 8, .context = 131072};
    case Architecture::qwen2:
      return {.kv_heads = 32, .context = 32768};
    case Architecture::qwen3:
      return {.kv_heads = 32, .head_dim = 128, .context = 32768};
    case Architecture::phi3:
      return {.context = 4096, .norm_eps = 1e-5};
    case Architecture::gemma2:
      return {.kv_heads = 4, .head_dim = 256, .context = 8192, .tied = true};
    case Architecture::gemma3:
      // The multimodal files leave out whatever equals the default.
      return {.kv_heads = 4,
              .head_dim = 256,
              .context = 131072,
              .tied = true,
              .hidden = 2304,
              .intermediate = 9216,
              .layers = 26,
              .heads = 8,
              .vocabulary = 262208};
    default:
      return {};
  }
}

Architecture find_architecture(const Fields& fields) {
  std::string type = fields.text("model_type").value_or("");
  if (type.empty()) {
    const json* classes = fields.find("architectures");
    if (classes != nullptr && classes->is_array() && !classes->empty() &&
        classes->front().is_string())
      type = classes->front().get<std::string>();
  }
  for (const char* key :
       {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
    const json* value = fields.find(key);
    if (value != nullptr && value->is_number() && value->get<double>() > 0.0)
      fail_mixture_of_experts(type);
  }
  struct Spelling {
    const char* type;
    const char* model_class;
    Architecture architecture;
  };
  static constexpr Spelling kSpellings[] = {
      {"llama", "LlamaForCausalLM", Architecture::llama},
      {"mistral", "MistralForCausalLM", Architecture::mistral},
      {"qwen2", "Qwen2ForCausalLM", Architecture::qwen2},
      {"qwen3", "Qwen3ForCausalLM", Architecture::qwen3},
      {"internlm2", "InternLM2ForCausalLM", Architecture::internlm2},
      {"phi3", "Phi3ForCausalLM", Architecture::phi3},
      {"gemma2", "Gemma2ForCausalLM", Architecture::gemma2},
      {"gemma3_text", "Gemma3ForCausalLM", Architecture::gemma3},
  };
  for (const Spelling& spelling : kSpellings)
    if (type == spelling.type || type == spelling.model_class) return spelling.architecture;
  if (type.empty()) fail(ErrorCode::unreadable, "'model_type' is missing");
  std::string lower = type;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.find("moe") != lower.npos || lower.find("mixtral") != lower.npos)
    fail_mixture_of_experts(type);
  fail(ErrorCode::unsupported, "the architecture ", quoted(type),
       " is not supported; llama, mistral, qwen2, qwen3, internlm2, phi3, gemma2 and gemma3 are");
}

RopeKind rope_kind(const Fields& fields, Architecture architecture) {
  auto type = fields.text("rope_type");
  if (!type) type = fields.text("type");
  if (!type || *type == "default") return RopeKind::plain;
  if (*type == "linear") return RopeKind::linear;
  if (*type == "dynamic") return RopeKind::dynamic;
  if (*type == "llama3") return RopeKind::llama3;
  // Phi-3's first files said "su" or "yarn" where they meant longrope.
  if (*type == "longrope" || *type == "su") return RopeKind::longrope;
  if (*type == "yarn")
    return architecture == Architecture::phi3 ? RopeKind::longrope : RopeKind::yarn;
  fail(ErrorCode::unsupported, "the rope type ", quoted(*type), " is not supported");
}

/// `scaling`: the object rope_scaling or rope_parameters, or one layer type's part of it; nullopt:
/// none. `theta`: where that object names none.
Rope read_rope(const Fields& top, const std::optional<Fields>& scaling, double theta,
               const Config& config) {
  Rope rope;
  rope.theta = theta;
  if (!scaling) return rope;
  rope.theta = scaling->positive("rope_theta").value_or(theta);
  rope.kind = rope_kind(*scaling, config.architecture);
  if (rope.kind == RopeKind::plain) return rope;

  const auto stated_factor = scaling->positive("factor");
  if (rope.kind == RopeKind::dynamic) {
    rope.original_context = config.context_length;
  } else if (rope.kind != RopeKind::linear) {
    auto original = top.count("original_max_position_embeddings", Limits::tokens);
    if (!original) original = scaling->count("original_max_position_embeddings", Limits::tokens);
    const std::int64_t fallback =
        config.architecture == Architecture::phi3 ? 4096 : config.context_length;
    rope.original_context = original.value_or(fallback);
  }
  if (stated_factor) {
    rope.factor = *stated_factor;
  } else if (rope.kind == RopeKind::yarn || rope.kind == RopeKind::longrope) {
    rope.factor =
        static_cast<double>(config.context_length) / static_cast<double>(rope.original_context);
  } else {
    fail(ErrorCode::unreadable, scaling->name("factor"), " is missing");
  }
  rope.low_freq_factor = scaling->positive("low_freq_factor").value_or(rope.low_freq_factor);
  rope.high_freq_factor = scaling->positive("high_freq_factor").value_or(rope.high_freq_factor);
  rope.beta_fast = scaling->positive("beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = scaling->positive("beta_slow").value_or(rope.beta_slow);
  rope.truncate = scaling->flag("truncate").value_or(true);
  rope.mscale = scaling->positive("mscale");
  rope.mscale_all_dim = scaling->positive("mscale_all_dim");
  rope.attention_factor = scaling->positive("attention_factor");
  rope.short_factor = scaling->positives("short_factor");
  rope.long_factor = scaling->positives("long_factor");
  return rope;
}

void read_ropes(const Fields& fields, Config& config) {
  const bool gemma3 = config.architecture == Architecture::gemma3;
  const double theta = fields.positive("rope_theta").value_or(gemma3 ? 1e6 : 1e4);
  auto scaling = fields.object("rope_parameters");
  if (!scaling) scaling = fields.object("rope_scaling");

  std::optional<Fields> full = scaling, local;
  if (scaling && (scaling->find("full_attention") || scaling->find("sliding_attention"))) {
    full = scaling->object("full_attention");
    local = scaling->object("sliding_attention");
  }
  config.rope = read_rope(fields, full, theta, config);
  if (gemma3)
    config.local_rope =
        read_rope(fields, local, fields.positive("rope_local_base_freq").value_or(1e4), config);
  else if (local)
    config.local_rope = read_rope(fields, local, theta, config);

  auto partial = full ? full->positive("partial_rotary_factor") : std::nullopt;
  if (!partial) partial = fields.positive("partial_rotary_factor");
  const double rotary = static_cast<double>(config.head_dim) * partial.value_or(1.0);
  if (rotary > static_cast<double>(config.head_dim))
    fail(ErrorCode::unreadable, "'partial_rotary_factor': found ", *partial,
         ", expected at most 1");
  config.rotary_dim = static_cast<std::int64_t>(rotary);
}

/// The window of the layers that have one; 0: no layer has.
std::int64_t window_size(const Fields& fields, Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
    case Architecture::internlm2:
      return 0;
    case Architecture::qwen2:
    case Architecture::qwen3:
      if (!fields.flag("use_sliding_window").value_or(false)) return 0;
      break;
    case Architecture::phi3:
      return fields.count("sliding_window", Limits::tokens).value_or(0);
    default:
      break;
  }
  if (fields.is_null("sliding_window")) return 0;
  return fields.count("sliding_window", Limits::tokens).value_or(4096);
}

/// Whether layer `layer` has the window, where the file has no list of layer types.
bool slides(const Fields& fields, Architecture architecture, std::int64_t layer) {
  switch (architecture) {
    case Architecture::qwen2:
    case Architecture::qwen3: {
      const json* value = fields.find("max_window_layers");
      if (value == nullptr) return layer >= 28;
      if (!value->is_number_integer()) fields.refuse("max_window_layers", "a whole number");
      return layer >= value->get<std::int64_t>();
    }
    case Architecture::gemma2:
      return layer % 2 == 0;
    case Architecture::gemma3: {
      auto pattern = fields.count("sliding_window_pattern", Limits::layers);
      if (!pattern) pattern = fields.count("_sliding_window_pattern", Limits::layers);
      return (layer + 1) % pattern.value_or(6) != 0;
    }
    default:
      return true;
  }
}

std::vector<std::int64_t> read_windows(const Fields& fields, const Config& config) {
  std::vector<std::int64_t> windows(config.n_layers, 0);
  const std::int64_t size = window_size(fields, config.architecture);
  const json* types = fields.find("layer_types");
  // Llama, Mistral, Phi-3 and InternLM2 do not read the list: all their layers are alike.
  const bool by_type =
      types != nullptr &&
      (config.architecture == Architecture::qwen2 || config.architecture == Architecture::qwen3 ||
       config.architecture == Architecture::gemma2 || config.architecture == Architecture::gemma3);
  if (!by_type) {
    for (std::int64_t layer = 0; size > 0 && layer < config.n_layers; ++layer)
      if (slides(fields, config.architecture, layer)) windows[layer] = size;
    return windows;
  }
  if (!types->is_array() || types->size() != windows.size())
    fields.refuse("layer_types", str("a list of ", windows.size(), " names"));
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    const json& type = (*types)[layer];
    if (type == "sliding_attention")
      windows[layer] = size;
    else if (type != "full_attention")
      fail(ErrorCode::unsupported, "'layer_types': ", shown(type), " is not supported");
  }
  return windows;
}

Activation read_activation(const Fields& fields, Architecture architecture) {
  const bool gemma = architecture == Architecture::gemma2 || architecture == Architecture::gemma3;
  const char* key = gemma ? "hidden_activation" : "hidden_act";
  const std::string name = fields.text(key).value_or(gemma ? "gelu_pytorch_tanh" : "silu");
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  fail(ErrorCode::unsupported, "'", key, "': the activation ", quoted(name), " is not supported");
}

double read_softcap(const Fields& fields, const char* key, double fallback) {
  if (fields.is_null(key)) return 0.0;
  return fields.positive(key).value_or(fallback);
}

void read_gemma(const Fields& fields, Config& config) {
  const bool second = config.architecture == Architecture::gemma2;
  config.attention_scale =
      1.0 / std::sqrt(fields.positive("query_pre_attn_scalar").value_or(256.0));
  config.attention_softcap = read_softcap(fields, "attn_logit_softcapping", second ? 50.0 : 0.0);
  config.logit_softcap = read_softcap(fields, "final_logit_softcapping", second ? 30.0 : 0.0);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.norm_offset = 1.0;
  if (fields.flag("use_bidirectional_attention").value_or(false))
    fail(ErrorCode::unsupported, "'use_bidirectional_attention' is not supported");
}

void add_tokens(std::vector<std::int64_t>& to, const std::vector<std::int64_t>& ids) {
  for (std::int64_t id : ids)
    if (std::find(to.begin(), to.end(), id) == to.end()) to.push_back(id);
}

HfConfig read_config(const Fields& outer, const std::string& folder_name) {
  if (auto quantization = outer.object("quantization_config"))
    fail(ErrorCode::unsupported, "the weights are quantised by ",
         quoted(quantization->text("quant_method").value_or("an unknown method")),
         ", which is not supported; use the unquantised model or a GGUF file");
  // The multimodal Gemma 3 keeps the language model's part in text_config.
  const auto inner =
      outer.text("model_type") == "gemma3" ? outer.object("text_config") : std::nullopt;
  const Fields& fields = inner ? *inner : outer;

  HfConfig result;
  Config& config = result.config;
  config.architecture = inner ? Architecture::gemma3 : find_architecture(fields);
  const Defaults defaults = defaults_of(config.architecture);
  const auto count = [&](const char* key, std::int64_t most, std::int64_t fallback) {
    return fallback == 0 ? fields.required_count(key, most)
                         : fields.count(key, most).value_or(fallback);
  };
  const auto given_name = outer.text("_name_or_path");
  config.name =
      repaired_utf8(given_name && !given_name->empty() ? printable(*given_name, 200) : folder_name);
  config.n_layers = count("num_hidden_layers", Limits::layers, defaults.layers);
  config.n_heads = count("num_attention_heads", Limits::heads, defaults.heads);
  config.n_kv_heads =
      fields.is_null("num_key_value_heads") || defaults.kv_heads == 0
          ? fields.count("num_key_value_heads", Limits::heads).value_or(config.n_heads)
          : count("num_key_value_heads", Limits::heads, defaults.kv_heads);
  config.hidden_size = count("hidden_size", Limits::width, defaults.hidden);
  config.intermediate_size = count("intermediate_size", Limits::width, defaults.intermediate);
  config.vocab_size = count("vocab_size", Limits::vocabulary, defaults.vocabulary);
  config.context_length = count("max_position_embeddings", Limits::tokens, defaults.context);
  if (const auto head_dim = fields.count("head_dim", Limits::head_dim)) {
    config.head_dim = *head_dim;
  } else if (defaults.head_dim != 0) {
    config.head_dim = defaults.head_dim;
  } else {
    if (config.hidden_size % config.n_heads != 0)
      fail(ErrorCode::unreadable, "'hidden_size': found ", config.hidden_size,
           ", expected a multiple of the ", config.n_heads, " heads");
    config.head_dim = config.hidden_size / config.n_heads;
  }
  config.norm_eps = fields.positive("rms_norm_eps").value_or(defaults.norm_eps);
  config.activation = read_activation(fields, config.architecture);
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  auto tied = fields.flag("tie_word_embeddings");
  if (!tied) tied = outer.flag("tie_word_embeddings");
  config.tied_embeddings = tied.value_or(defaults.tied);
  result.untied_stated = tied && !*tied;

  read_ropes(fields, config);
  config.window = read_windows(fields, config);
  if (config.architecture == Architecture::gemma2 || config.architecture == Architecture::gemma3)
    read_gemma(fields, config);

  const bool attention_bias = fields.flag("attention_bias").value_or(false);
  switch (config.architecture) {
    case Architecture::qwen2:
      result.qkv_bias = true;
      break;
    case Architecture::internlm2:
      result.qkv_bias = result.output_bias = fields.flag("bias").value_or(false);
      break;
    case Architecture::llama:
      result.mlp_bias = fields.flag("mlp_bias").value_or(false);
      [[fallthrough]];
    case Architecture::qwen3:
    case Architecture::gemma2:
    case Architecture::gemma3:
      result.qkv_bias = result.output_bias = attention_bias;
      break;
    case Architecture::mistral:
    case Architecture::phi3:
      break;
  }

  add_tokens(config.eos_tokens, fields.tokens("eos_token_id"));
  add_tokens(config.eos_tokens, outer.tokens("eos_token_id"));
  check_consistency(config);
  return result;
}

json parse_object(std::string_view text) {
  json tree = parse_json(text);
  if (!tree.is_object()) fail(ErrorCode::unreadable, "expected a JSON object");
  return tree;
}

}  // namespace

HfConfig parse_hf_config(std::string_view config_json, std::string_view generation_json,
                         const std::string& folder_name) {
  HfConfig result = in_context("config.json", [&] {
    const json tree = parse_object(config_json);
    return read_config(Fields(tree), folder_name);
  });
  if (!generation_json.empty())
    in_context("generation_config.json", [&] {
      const json tree = parse_object(generation_json);
      add_tokens(result.config.eos_tokens, Fields(tree).tokens("eos_token_id"));
    });
  return result;
}

}  // namespace kvatlas::model
