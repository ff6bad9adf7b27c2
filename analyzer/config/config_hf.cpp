// SPDX-License-Identifier: Apache-2.0
// config.json in its many spellings.
#include <algorithm>

#include "analyzer/config/families_hf.hpp"
#include "base/json_text.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;

bool is_multimodal(const Fields& fields) {
  const auto type = fields.text("model_type");
  return type == "gemma3" || type == "gemma3n" || type == "gemma4" || type == "llama4" ||
         type == "qwen3_5" || type == "qwen3_5_moe";
}

/// `outer` names the family where the language model's part does not (Gemma 3's first files).
const HfFamily& find_family(const Fields& fields, const Fields& outer) {
  std::string type = fields.text("model_type").value_or("");
  if (type.empty() && is_multimodal(outer)) type = *outer.text("model_type") + "_text";
  if (type.empty()) {
    const json* classes = fields.find("architectures");
    if (classes != nullptr && classes->is_array() && !classes->empty() &&
        classes->front().is_string())
      type = classes->front().get<std::string>();
  }
  if (type.empty()) fail(ErrorCode::unreadable, "'model_type' is missing");
  if (const HfFamily* family = find_hf_family(type)) return *family;
  fail_architecture(type, architecture_names());
}

RopeKind rope_kind(const Fields& fields, Architecture architecture) {
  auto type = fields.text("rope_type");
  if (!type) type = fields.text("type");
  if (!type || *type == "default") return RopeKind::plain;
  if (*type == "linear") return RopeKind::linear;
  if (*type == "dynamic") return RopeKind::dynamic;
  if (*type == "llama3") return RopeKind::llama3;
  if (*type == "proportional") return RopeKind::proportional;
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
  if (rope.kind == RopeKind::proportional) {
    rope.share = scaling->positive("partial_rotary_factor").value_or(1.0);
    rope.factor = scaling->positive("factor").value_or(1.0);
    if (rope.share > 1)
      fail(ErrorCode::unreadable, scaling->name("partial_rotary_factor"), ": found ", rope.share,
           ", expected at most 1");
    return rope;
  }

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

void read_ropes(const Fields& fields, const HfDefaults& defaults, Config& config) {
  const bool gemma = config.architecture == Architecture::gemma3 ||
                     config.architecture == Architecture::gemma3n ||
                     config.architecture == Architecture::gemma4;
  const double theta = fields.positive("rope_theta").value_or(defaults.theta);
  auto scaling = fields.object("rope_parameters");
  if (!scaling) scaling = fields.object("rope_scaling");

  std::optional<Fields> full = scaling, local;
  if (scaling && (scaling->find("full_attention") || scaling->find("sliding_attention"))) {
    full = scaling->object("full_attention");
    local = scaling->object("sliding_attention");
  }
  config.rope = read_rope(fields, full, theta, config);
  if (gemma)
    config.local_rope =
        read_rope(fields, local, fields.positive("rope_local_base_freq").value_or(1e4), config);
  else if (local || config.architecture == Architecture::olmo3)
    config.local_rope = read_rope(fields, local, theta, config);

  const bool whole = config.rope.kind == RopeKind::proportional;
  auto partial = full && !whole ? full->positive("partial_rotary_factor") : std::nullopt;
  if (!partial) partial = fields.positive("partial_rotary_factor");
  const double rotary = static_cast<double>(config.head_dim) * partial.value_or(defaults.rotary);
  if (rotary > static_cast<double>(config.head_dim))
    fail(ErrorCode::unreadable, "'partial_rotary_factor': found ", *partial,
         ", expected at most 1");
  config.rotary_dim = static_cast<std::int64_t>(rotary);
  if (config.local_rope) config.local_rotary_dim = config.rotary_dim;
}

/// The window of the layers that have one; 0: no layer has.
std::int64_t window_size(const Fields& fields, const HfWindowRule& rule) {
  if (rule.layers == HfWindows::none || fields.is_null(rule.size_key)) return 0;
  if (rule.switch_key != nullptr && !fields.flag(rule.switch_key).value_or(false)) return 0;
  return fields.count(rule.size_key, Limits::tokens).value_or(rule.size);
}

std::int64_t max_window_layers(const Fields& fields, std::int64_t fallback) {
  const json* value = fields.find("max_window_layers");
  if (value == nullptr) return fallback;
  if (!value->is_number_integer()) fields.refuse("max_window_layers", "a whole number");
  return value->get<std::int64_t>();
}

/// Whether layer `layer` has the window, where the file has no list of layer types.
bool slides(const Fields& fields, const HfWindowRule& rule, std::int64_t layer) {
  switch (rule.layers) {
    case HfWindows::none:
      return false;
    case HfWindows::all:
      return true;
    case HfWindows::even:
      return layer % 2 == 0;
    case HfWindows::from_max_window_layers:
      return layer >= max_window_layers(fields, rule.number);
    case HfWindows::odd_below_maximum:
      return layer % 2 == 0 && layer < max_window_layers(fields, rule.number);
    case HfWindows::by_pattern: {
      auto pattern = fields.count("sliding_window_pattern", Limits::layers);
      if (!pattern) pattern = fields.count("_sliding_window_pattern", Limits::layers);
      return (layer + 1) % pattern.value_or(rule.number) != 0;
    }
    case HfWindows::rotated:
      break;
  }
  return false;
}

}  // namespace

std::vector<std::int64_t> hf_windows(const Fields& fields, const HfFamily& family,
                                     std::int64_t layers) {
  const HfWindowRule& rule = family.windows;
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const std::int64_t size = window_size(fields, rule);
  const json* types = fields.find("layer_types");
  if (types == nullptr || !rule.by_type) {
    const auto rotated = rule.layers == HfWindows::rotated ? hf_rotated_layers(fields, layers)
                                                           : std::vector<std::uint8_t>();
    for (std::int64_t layer = 0; size > 0 && layer < layers; ++layer)
      if (rotated.empty() ? slides(fields, rule, layer) : rotated[layer] != 0)
        windows[layer] = size;
    return windows;
  }
  if (!types->is_array() || types->size() != windows.size())
    fields.refuse("layer_types", str("a list of ", windows.size(), " names"));
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    const json& type = (*types)[layer];
    if (type == (rule.chunks ? "chunked_attention" : "sliding_attention"))
      windows[layer] = size;
    else if (type != "full_attention")
      fail(ErrorCode::unsupported, "'layer_types': ", shown(type), " is not supported");
  }
  return windows;
}

namespace {

Activation read_activation(const Fields& fields, const HfDefaults& defaults) {
  struct Spelling {
    const char* name;
    Activation activation;
  };
  static constexpr Spelling kSpellings[] = {
      {"silu", Activation::silu},          {"swish", Activation::silu},
      {"gelu_new", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu", Activation::gelu},          {"relu2", Activation::relu2},
      {"xielu", Activation::xielu}};
  const std::string name = fields.text(defaults.activation_key).value_or(defaults.activation);
  for (const Spelling& spelling : kSpellings)
    if (name == spelling.name) return spelling.activation;
  fail(ErrorCode::unsupported, "'", defaults.activation_key, "': the activation ", quoted(name),
       " is not supported");
}

void add_tokens(std::vector<std::int64_t>& to, const std::vector<std::int64_t>& ids) {
  for (std::int64_t id : ids)
    if (std::find(to.begin(), to.end(), id) == to.end()) to.push_back(id);
}

/// 0 where it is left out or -1: the shape of the scales tells it.
std::int64_t group_size(const Fields& fields) {
  const json* size = fields.find("group_size");
  return size && *size != -1 ? fields.required_count("group_size", Limits::width) : 0;
}

/// Of GPTQ and AWQ.
PackedBits packed_bits(const Fields& quantization, bool awq) {
  PackedBits out;
  out.layout = awq ? PackedBits::Layout::awq : PackedBits::Layout::gptq;
  out.bits = static_cast<int>(quantization.count("bits", 8).value_or(4));
  out.group_size = group_size(quantization);
  if (awq && out.bits != 4) quantization.refuse("bits", "4");
  if (const auto version = quantization.text("version"); awq && version && *version != "gemm")
    quantization.refuse("version", "'gemm'");
  // GPTQ's first format stores each zero less 1.
  out.zero_shift =
      awq || quantization.text("checkpoint_format").value_or("gptq") == "gptq_v2" ? 0 : 1;
  return out;
}

/// Of compressed-tensors, whose groups of layers must be alike.
PackedBits compressed_bits(const Fields& quantization) {
  PackedBits out;
  out.bits = 0;
  const json* groups = quantization.find("config_groups");
  if (groups == nullptr || !groups->is_object())
    fail(ErrorCode::unreadable, quantization.name("config_groups"), " is no object");
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object() || !group.contains("weights") || !group.at("weights").is_object())
      fail(ErrorCode::unreadable, quantization.name("config_groups"), ": ", quoted(name),
           " has no 'weights'");
    const Fields weights(group.at("weights"), str("config_groups.", printable(name), ".weights."));
    const auto bits = static_cast<int>(weights.required_count("num_bits", 8));
    if (out.bits != 0 && bits != out.bits)
      fail(ErrorCode::unsupported, weights.name("num_bits"), ": matrices of ", out.bits, " and of ",
           bits, " bits in one model are not supported");
    out.bits = bits;
    out.group_size = group_size(weights);
  }
  if (out.bits == 0) quantization.refuse("config_groups", "at least one group");
  return out;
}

/// Which weights are quantised, and how, is seen from the tensors.
void read_quantization(const Fields& fields, HfConfig& config) {
  const auto quantization = fields.object("quantization_config");
  if (!quantization) return;
  const std::string method = quantization->text("quant_method").value_or("an unknown method");
  const std::string format = quantization->text("format").value_or("");
  // "dense": the weights are not quantised, only the cache is to be.
  const bool by_scales =
      method == "compressed-tensors" &&
      (format == "float-quantized" || format == "int-quantized" || format == "naive-quantized" ||
       format == "nvfp4-pack-quantized" || format == "dense");
  // Without an algorithm the weights have 16 bits.
  const std::string algorithm = quantization->text("quant_algo").value_or("");
  const bool modelopt =
      method == "modelopt" && (algorithm.empty() || algorithm == "FP8" || algorithm == "NVFP4" ||
                               algorithm == "W4A16_NVFP4");
  if (method == "compressed-tensors" && format == "pack-quantized")
    config.packed = compressed_bits(*quantization);
  else if (method == "gptq" || method == "awq")
    config.packed = packed_bits(*quantization, method == "awq");
  else if (method != "fp8" && method != "mxfp4" && !by_scales && !modelopt)
    fail(ErrorCode::unsupported, "the weights are quantised by ", quoted(method),
         format.empty() && algorithm.empty()
             ? ""
             : str(" in the format ", quoted(format.empty() ? algorithm : format)),
         ", which is not supported; use the unquantised model, FP8, MXFP4, NVFP4, GPTQ, "
         "AWQ, compressed-tensors or a GGUF file");
  const json* block = quantization->find("weight_block_size");
  if (block == nullptr) return;
  for (const json& size : *block) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() < 1 ||
        size.get<std::uint64_t>() > static_cast<std::uint64_t>(Limits::width))
      quantization->refuse("weight_block_size", "two numbers");
    config.scale_block.push_back(size.get<std::int64_t>());
  }
  if (config.scale_block.size() != 2) quantization->refuse("weight_block_size", "two numbers");
}

HfConfig read_config(const Fields& outer, const std::string& folder_name) {
  // Models with vision keep the language model's part in text_config.
  const auto inner = is_multimodal(outer) ? outer.object("text_config") : std::nullopt;
  const Fields& fields = inner ? *inner : outer;

  const HfFamily& family = find_family(inner ? *inner : outer, outer);
  const HfDefaults& defaults = family.defaults;
  HfConfig result;
  result.layout = family.layout;
  read_quantization(outer, result);
  Config& config = result.config;
  config.architecture = family.architecture;
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
  const auto widths = fields.counts("intermediate_size", Limits::width, config.n_layers);
  config.intermediate_size = widths.empty()
                                 ? count("intermediate_size", Limits::width, defaults.intermediate)
                                 : *std::max_element(widths.begin(), widths.end());
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
  config.norm_eps = fields.positive(defaults.norm_eps_key).value_or(defaults.norm_eps);
  config.activation = read_activation(fields, defaults);
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  auto tied = fields.flag("tie_word_embeddings");
  if (!tied) tied = outer.flag("tie_word_embeddings");
  config.tied_embeddings = tied.value_or(defaults.tied);
  result.untied_stated = tied && !*tied;

  read_ropes(fields, defaults, config);
  config.window = hf_windows(fields, family, config.n_layers);
  config.chunks = family.windows.chunks;
  result.qkv_bias = family.qkv_bias.read(fields);
  result.output_bias = family.output_bias.read(fields);
  result.mlp_bias = family.mlp_bias.read(fields);
  if (family.read != nullptr) family.read(fields, result);
  config.total_layers = config.n_layers;
  keep_attention_layers(config);

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
