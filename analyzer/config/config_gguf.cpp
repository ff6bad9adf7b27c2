// SPDX-License-Identifier: Apache-2.0
// The keys of a GGUF file, as llama.cpp's converter writes them. What the keys leave out follows
// llama.cpp's loader.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/config/config_files.hpp"
#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {
namespace {

/// The keys under an architecture's name, checked. A key that is absent gives nullopt.
class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  std::string name(const char* key) const { return prefix_ + key; }
  const GgufFile& file() const { return file_; }

  std::optional<std::string> text(const char* key) const {
    return file_.get<std::string>(name(key));
  }

  std::optional<std::int64_t> count(const char* key, std::int64_t least, std::int64_t most) const {
    const auto found = file_.metadata().find(name(key));
    if (found == file_.metadata().end()) return std::nullopt;
    std::int64_t value = 0;
    // A list gives one number a layer; kvatlas reads models whose layers are alike.
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&found->second)) {
      if (list->empty()) fail(ErrorCode::unreadable, "key ", quoted(name(key)), ": an empty list");
      value = list->front();
      if (std::any_of(list->begin(), list->end(),
                      [&](std::int64_t other) { return other != value; }))
        fail(ErrorCode::unsupported, "key ", quoted(name(key)),
             ": layers of different sizes are not supported");
    } else {
      value = file_.require<std::int64_t>(name(key));
    }
    if (value < least || value > most)
      fail(ErrorCode::unreadable, "key ", quoted(name(key)), ": found ", value,
           ", expected a number from ", least, " to ", most);
    return value;
  }

  /// A number for each of `layers` (blocks), of a list or one for all; empty if the key is absent.
  std::vector<std::int64_t> counts(const char* key, std::int64_t layers, std::int64_t least,
                                   std::int64_t most) const {
    const auto found = file_.metadata().find(name(key));
    if (found == file_.metadata().end()) return {};
    const auto* list = std::get_if<std::vector<std::int64_t>>(&found->second);
    if (list == nullptr) return std::vector<std::int64_t>(layers, *count(key, least, most));
    require_layers(name(key), list->size(), layers);
    for (const auto value : *list)
      if (value < least || value > most)
        fail(ErrorCode::unreadable, "key ", quoted(name(key)), ": found ", value,
             ", expected numbers from ", least, " to ", most);
    return *list;
  }

  /// The same of real numbers, which may be infinite, under a whole name.
  std::vector<double> reals(const std::string& name, std::int64_t layers) const {
    if (file_.metadata().find(name) == file_.metadata().end()) return {};
    auto list = file_.require<std::vector<double>>(name);
    require_layers(name, list.size(), layers);
    for (const auto value : list)
      if (std::isnan(value)) fail(ErrorCode::unreadable, "key ", quoted(name), ": found NaN");
    return list;
  }

  std::int64_t required_count(const char* key, std::int64_t most) const {
    if (auto value = count(key, 1, most)) return *value;
    fail(ErrorCode::unreadable, "the key ", quoted(name(key)), " is missing");
  }

  std::optional<double> positive(const char* key) const {
    const auto value = file_.get<double>(name(key));
    if (value && (!(*value >= 1e-30) || *value > 1e30))
      fail(ErrorCode::unreadable, "key ", quoted(name(key)), ": found ", *value,
           ", expected a positive number");
    return value;
  }

  std::optional<bool> flag(const char* key) const { return file_.get<bool>(name(key)); }

  /// A flag for each layer, written as truth values or as numbers.
  std::optional<std::vector<bool>> flags(const char* key, std::int64_t layers) const {
    const auto found = file_.metadata().find(name(key));
    if (found == file_.metadata().end()) return std::nullopt;
    std::vector<bool> flags;
    if (const auto* words = std::get_if<std::vector<bool>>(&found->second))
      flags = *words;
    else if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&found->second))
      for (const auto number : *numbers) flags.push_back(number != 0);
    else
      return std::nullopt;
    require_layers(name(key), flags.size(), layers);
    return flags;
  }

 private:
  static void require_layers(const std::string& name, std::size_t found, std::int64_t layers) {
    if (static_cast<std::int64_t>(found) != layers)
      fail(ErrorCode::unreadable, "key ", quoted(name), ": found ", found, " layers, expected ",
           layers);
  }

  const GgufFile& file_;
  std::string prefix_;
};

/// Which layers have a window: all but each `pattern`-th; of pattern 0 all.
struct GgufWindows {
  bool read = false;
  std::int64_t pattern = 0;
  std::int64_t size = 0;  // where no key says it
  bool chunks = false;
};

/// What llama.cpp's code for an architecture does and no key says.
struct GgufFamily {
  const char* name;
  Architecture architecture;
  GgufWindows windows = {};
  NormKind norm = NormKind::rms;
  Activation activation = Activation::silu;
  bool gated = true;
  Experts::Score score = Experts::Score::softmax;
  bool normalised = true;  // the weights of a token's experts
  bool beside_dense = false;
  /// Layers differ in their sizes, or some have no attention.
  bool mixed_layers = false;
  void (*read)(const Keys& keys, Config& config) = nullptr;
};

/// A small vector tensor as numbers; empty if there is none.
std::vector<double> read_factors(const GgufFile& file, const char* name, std::int64_t expected) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) return {};
  if (tensor->shape != std::vector<std::int64_t>{expected} || tensor->type != TensorType::f32)
    fail(ErrorCode::unreadable, "tensor '", name, "': shape ", list_str(tensor->shape), " of ",
         type_name(*tensor), ", expected [", expected, "] of F32");
  std::vector<float> values(expected);
  dequantize(tensor->type, tensor->bytes.data(), expected, values.data());
  return {values.begin(), values.end()};
}

Rope read_rope(const Keys& keys, const GgufFile& file, const Config& config) {
  Rope rope;
  rope.theta = keys.positive("rope.freq_base").value_or(10000.0);
  rope.divisors = read_factors(file, "rope_freqs.weight", config.rotary_dim / 2);
  rope.long_factor = read_factors(file, "rope_factors_long.weight", config.rotary_dim / 2);
  rope.short_factor = read_factors(file, "rope_factors_short.weight", config.rotary_dim / 2);
  if (rope.long_factor.empty() != rope.short_factor.empty())
    fail(ErrorCode::unreadable,
         "one of the tensors 'rope_factors_long.weight' and "
         "'rope_factors_short.weight' is missing");

  const std::string type = keys.text("rope.scaling.type").value_or("linear");
  auto factor = keys.positive("rope.scaling.factor");
  if (!factor) factor = keys.positive("rope.scale_linear");
  const auto attention = keys.positive("rope.scaling.attn_factor");
  rope.original_context = keys.count("rope.scaling.original_context_length", 1, Limits::tokens)
                              .value_or(config.context_length);
  if (type != "none" && type != "linear" && type != "yarn" && type != "longrope")
    fail(ErrorCode::unsupported, "the rope type ", quoted(type), " is not supported");

  if (!rope.long_factor.empty()) {
    rope.kind = RopeKind::longrope;
    rope.factor = factor.value_or(static_cast<double>(config.context_length) /
                                  static_cast<double>(rope.original_context));
    rope.attention_factor = attention;
  } else if (type == "longrope") {
    fail(ErrorCode::unreadable, "the tensor 'rope_factors_long.weight' is missing");
  } else if (type == "yarn") {
    rope.kind = RopeKind::yarn;
    if (!factor)
      fail(ErrorCode::unreadable, "the key ", quoted(keys.name("rope.scaling.factor")),
           " is missing");
    rope.factor = *factor;
    rope.beta_fast = keys.positive("rope.scaling.yarn_beta_fast").value_or(rope.beta_fast);
    rope.beta_slow = keys.positive("rope.scaling.yarn_beta_slow").value_or(rope.beta_slow);
    // The key multiplies yarn's own scale of cos and sin.
    if (attention)
      rope.attention_factor =
          *attention * (rope.factor > 1.0 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0);
  } else if (type == "linear" && factor && *factor != 1.0) {
    rope.kind = RopeKind::linear;
    rope.factor = *factor;
  }
  return rope;
}

bool has_window(const std::optional<std::vector<bool>>& listed, std::int64_t pattern,
                std::int64_t layer) {
  return listed ? (*listed)[layer] : pattern == 0 || (layer + 1) % pattern != 0;
}

std::vector<std::int64_t> read_windows(const Keys& keys, const GgufWindows& rule,
                                       const Config& config) {
  std::vector<std::int64_t> windows(config.n_layers, 0);
  if (!rule.read) return windows;
  const std::int64_t size =
      keys.count("attention.sliding_window", 0, Limits::tokens).value_or(rule.size);
  std::int64_t pattern = rule.pattern;
  std::optional<std::vector<bool>> listed;
  if (pattern > 0) {  // files may say another one, or list the layers
    const char* const key = "attention.sliding_window_pattern";
    listed = keys.flags(key, config.n_layers);
    if (!listed) pattern = keys.count(key, 0, Limits::layers).value_or(pattern);
  }
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    if (has_window(listed, pattern, layer)) windows[layer] = size;
  return windows;
}

void read_gemma(const Keys& keys, Config& config) {
  const bool second = config.architecture == Architecture::gemma2;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_softcap = keys.positive("attn_logit_softcapping").value_or(second ? 50.0 : 0.0);
  config.logit_softcap = keys.positive("final_logit_softcapping").value_or(second ? 30.0 : 0.0);
  // The 27B models scale by hidden_size / heads, and no key says so.
  const std::int64_t layers_of_27b = second ? 46 : 62;
  if (config.n_layers == layers_of_27b)
    config.attention_scale =
        std::sqrt(static_cast<double>(config.n_heads) / static_cast<double>(config.hidden_size));
  if (!second) {
    config.local_rope.emplace();
    config.local_rope->theta = keys.positive("rope.freq_base_swa").value_or(10000.0);
  }
}

void read_granite(const Keys& keys, Config& config) {
  config.attention_scale = keys.positive("attention.scale").value_or(config.attention_scale);
  config.embedding_scale = keys.positive("embedding_scale").value_or(1.0);
  config.residual_scale = keys.positive("residual_scale").value_or(1.0);
  config.logit_scale = 1.0 / keys.positive("logit_scale").value_or(1.0);
}

void read_cohere2(const Keys& keys, Config& config) {
  config.parallel_block = true;
  config.logit_scale = keys.positive("logit_scale").value_or(1.0);
  config.rotate_windows_alone();
}

void read_exaone4(const Keys&, Config& config) {
  if (std::any_of(config.window.begin(), config.window.end(),
                  [](std::int64_t window) { return window > 0; }))
    config.rotate_windows_alone();
}

void read_smollm3(const Keys&, Config& config) {
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    config.rotated.push_back((layer + 1) % 4 != 0 ? 1 : 0);
}

/// OLMo 3, under OLMo 2's name, has windows, and there a plain RoPE.
void read_olmo2(const Keys& keys, Config& config) {
  if (std::all_of(config.window.begin(), config.window.end(),
                  [](std::int64_t window) { return window == 0; }))
    return;
  config.architecture = Architecture::olmo3;
  config.local_rope.emplace();
  config.local_rope->theta = keys.positive("rope.freq_base_swa").value_or(config.rope.theta);
}

/// The converter leaves out that the correction range is not rounded.
void read_gpt_oss(const Keys&, Config& config) { config.rope.truncate = false; }

void read_phi2(const Keys&, Config& config) { config.parallel_block = true; }
void read_hunyuan(const Keys&, Config& config) { config.norms_after_rope = true; }

void read_stablelm(const Keys& keys, Config& config) {
  config.parallel_block = keys.flag("use_parallel_residual").value_or(false);
}

/// The layers that have attention.
void set_attention_layers(Config& config, const std::function<bool(std::int64_t)>& attends) {
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    if (attends(layer)) config.layer_numbers.push_back(layer);
  if (config.layer_numbers.empty())
    fail(ErrorCode::unsupported, "no layer of the model has attention");
}

/// Layers without attention are those without key-value heads.
void read_layers_by_heads(const Keys& keys, Config& config) {
  const auto heads = keys.counts("attention.head_count_kv", config.n_layers, 0, Limits::heads);
  set_attention_layers(config,
                       [&](std::int64_t layer) { return heads.empty() || heads[layer] > 0; });
}

void read_lfm2(const Keys& keys, Config& config) {
  read_layers_by_heads(keys, config);
  config.state_layers.kind = StateLayers::Kind::short_conv;
  config.state_layers.conv_kernel = keys.required_count("shortconv.l_cache", 256);
}

/// The sizes of a state, as both kinds of it call them.
void read_state_sizes(const Keys& keys, Config& config) {
  StateLayers& states = config.state_layers;
  states.rates = true;
  states.conv_kernel = keys.required_count("ssm.conv_kernel", 256);
  states.key_heads = keys.required_count("ssm.group_count", Limits::heads);
  states.key_dim = keys.required_count("ssm.state_size", Limits::head_dim);
  states.value_heads = keys.required_count("ssm.time_step_rank", Limits::heads);
  const auto values = keys.required_count("ssm.inner_size", Limits::width);
  if (values % states.value_heads != 0 || states.value_heads % states.key_heads != 0 ||
      states.keys() > Limits::width)
    fail(ErrorCode::unreadable, "key ", quoted(keys.name("ssm.time_step_rank")), ": found ",
         states.value_heads, ", expected a divisor of the ", values,
         " inner values and a multiple of the ", states.key_heads, " groups");
  states.value_dim = values / states.value_heads;
}

void read_granite_hybrid(const Keys& keys, Config& config) {
  read_granite(keys, config);
  read_layers_by_heads(keys, config);
  config.state_layers.kind = StateLayers::Kind::mamba2;
  read_state_sizes(keys, config);
  if (!keys.flag("rope.scaling.finetuned").value_or(true))
    config.rotated.assign(static_cast<std::size_t>(config.n_layers), 0);
}

void read_delta_net(const Keys& keys, Config& config) {
  const auto blocks = keys.required_count("block_count", Limits::layers);
  const auto recurrent = keys.flags("attention.recurrent_layers", blocks);
  const auto interval = keys.count("full_attention_interval", 1, Limits::layers).value_or(4);
  set_attention_layers(config, [&](std::int64_t layer) {
    return recurrent ? !(*recurrent)[layer] : (layer + 1) % interval == 0;
  });
  config.gated_attention = true;
  config.state_layers.kind = StateLayers::Kind::delta_net;
  config.state_layers.tiled = config.architecture != Architecture::qwen3_next;
  read_state_sizes(keys, config);
}

void read_apertus(const Keys& keys, Config& config) {
  const char* const names[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
  config.activation_numbers.resize(static_cast<std::size_t>(config.n_layers));
  for (std::size_t i = 0; i < std::size(names); ++i) {
    const auto numbers = keys.reals(names[i], config.n_layers);
    if (numbers.empty()) fail(ErrorCode::unreadable, "the key ", quoted(names[i]), " is missing");
    for (std::size_t layer = 0; layer < numbers.size(); ++layer)
      config.activation_numbers[layer][i] = static_cast<float>(numbers[layer]);
  }
}

void read_llama4(const Keys& keys, Config& config) {
  config.norms_after_rope = true;
  config.rotated_norms = keys.count("expert_count", 0, Limits::width).value_or(0) != 128;
  config.experts.weighs_inputs = true;
  if (keys.count("attention.sliding_window", 0, Limits::tokens) == 0) return;  // all are alike
  config.rotate_windows_alone();
  config.temperature.scale = 0.1;
}

/// Queries and keys of a head, as files from before the latent cache and later ones call them.
void read_deepseek2(const Keys& keys, Config& config) {
  Latent& latent = config.latent;
  latent.query_rank = keys.count("attention.q_lora_rank", 0, Limits::width).value_or(0);
  latent.rank = keys.required_count("attention.kv_lora_rank", Limits::width);
  latent.rotated_dim = config.rotary_dim;
  auto of_key = keys.count("attention.key_length_mla", 1, Limits::head_dim);
  auto of_value = keys.count("attention.value_length_mla", 1, Limits::head_dim);
  if (!of_key) of_key = keys.required_count("attention.key_length", Limits::head_dim);
  if (!of_value) of_value = keys.required_count("attention.value_length", Limits::head_dim);
  latent.plain_dim = *of_key - latent.rotated_dim;
  if (latent.plain_dim < 1)
    fail(ErrorCode::unreadable, "keys of ", *of_key, " numbers, expected more than the ",
         latent.rotated_dim, " that RoPE turns");
  config.n_kv_heads = config.n_heads;
  config.head_dim = std::max(*of_key, *of_value);
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    config.shapes.push_back(
        {config.n_heads, *of_key, *of_value, config.intermediate_size, layer, false});
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(*of_key));
  if (config.rope.kind != RopeKind::yarn) return;
  config.rope.attention_factor = keys.positive("rope.scaling.attn_factor").value_or(1.0);
  const double more = keys.positive("rope.scaling.yarn_log_multiplier").value_or(0.0);
  const double scale = 1.0 + more * std::log(std::max(1.0, config.rope.factor));
  config.attention_scale *= scale * scale;
}

/// What Gemma 3n and 4 share: layers that read the keys of others, and inputs of their own.
void read_gemma_by_layer(const Keys& keys, Config& config) {
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.logit_softcap = keys.positive("final_logit_softcapping").value_or(0.0);
  config.attention_scale = 1.0;
  config.value_norms = true;
  config.local_rope.emplace();
  config.local_rope->theta = keys.positive("rope.freq_base_swa").value_or(10000.0);
  config.layer_input_size =
      keys.count("embedding_length_per_layer_input", 0, Limits::width).value_or(0);
  if (const auto* table = keys.file().find("per_layer_token_embd.weight"))
    config.layer_input_vocab = table->shape.front();
  const auto sharing = keys.count("attention.shared_kv_layers", 0, config.n_layers - 1).value_or(0);
  const auto first = config.n_layers - sharing;
  const auto inner = keys.counts("feed_forward_length", config.n_layers, 1, Limits::width);
  const auto heads = keys.counts("attention.head_count_kv", config.n_layers, 1, Limits::heads);
  const auto local_dim =
      keys.count("attention.key_length_swa", 1, Limits::head_dim).value_or(config.head_dim);
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const std::int64_t head_dim = config.window[layer] > 0 ? local_dim : config.head_dim;
    const std::string at = "blk." + std::to_string(layer) + ".attn_";
    config.shapes.push_back(
        {heads.empty() ? config.n_heads : heads[layer], head_dim, head_dim, inner[layer],
         layer < first ? layer : lending_layer(config, layer, first),
         keys.file().find(at + "k.weight") && !keys.file().find(at + "v.weight")});
  }
  config.head_dim = std::max(config.head_dim, local_dim);
  config.local_rotary_dim =
      keys.count("rope.dimension_count_swa", 1, Limits::head_dim).value_or(config.rotary_dim);
}

void read_gemma3n(const Keys& keys, Config& config) {
  read_gemma_by_layer(keys, config);
  if (config.layer_input_size == 0)
    keys.required_count("embedding_length_per_layer_input", Limits::width);
  config.streams.count = keys.required_count("altup.num_inputs", 64);
  config.streams.active = keys.count("altup.active_idx", 0, config.streams.count - 1).value_or(0);
  if (const auto* shortcut = keys.file().find("blk.0.laurel_l.weight"))
    config.streams.shortcut_rank = shortcut->shape.front();
  for (const double least : keys.reals(keys.name("activation_sparsity_scale"), config.n_layers))
    config.sparse_gates.push_back(std::isfinite(least) ? std::optional(least) : std::nullopt);
}

constexpr auto kLayerNorm = NormKind::layer;
constexpr auto kSigmoid = Experts::Score::sigmoid;

// "llama" is Mistral, Yi and SmolLM too, and Mixtral if it has experts.
constexpr GgufFamily kGgufFamilies[] = {
    {.name = "llama", .architecture = Architecture::llama, .windows = {true}},
    {.name = "qwen2", .architecture = Architecture::qwen2},
    {.name = "qwen3", .architecture = Architecture::qwen3},
    {.name = "internlm2", .architecture = Architecture::internlm2},
    {.name = "phi3", .architecture = Architecture::phi3, .windows = {true}},
    {.name = "gemma2",
     .architecture = Architecture::gemma2,
     .windows = {true, 2, 4096},
     .activation = Activation::gelu_tanh,
     .read = read_gemma},
    {.name = "gemma3",
     .architecture = Architecture::gemma3,
     .windows = {true, 6},
     .activation = Activation::gelu_tanh,
     .read = read_gemma},
    {.name = "gemma3n",
     .architecture = Architecture::gemma3n,
     .windows = {true, 5},
     .activation = Activation::gelu_tanh,
     .mixed_layers = true,
     .read = read_gemma3n},
    {.name = "gemma4",
     .architecture = Architecture::gemma4,
     .windows = {true, 6},
     .activation = Activation::gelu_tanh,
     .beside_dense = true,
     .mixed_layers = true,
     .read = read_gemma_by_layer},
    {.name = "apertus",
     .architecture = Architecture::apertus,
     .activation = Activation::xielu,
     .gated = false,
     .read = read_apertus},
    {.name = "deepseek2",
     .architecture = Architecture::deepseek_v2,
     .normalised = false,
     .mixed_layers = true,
     .read = read_deepseek2},
    {.name = "granitehybrid",
     .architecture = Architecture::granitemoehybrid,
     .mixed_layers = true,
     .read = read_granite_hybrid},
    {.name = "lfm2", .architecture = Architecture::lfm2, .mixed_layers = true, .read = read_lfm2},
    {.name = "llama4",
     .architecture = Architecture::llama4,
     .windows = {true, 4, 8192, true},
     .score = Experts::Score::sigmoid,
     .normalised = false,
     .read = read_llama4},
    {.name = "qwen3next", .architecture = Architecture::qwen3_next, .read = read_delta_net},
    {.name = "qwen35", .architecture = Architecture::qwen3_5, .read = read_delta_net},
    {.name = "qwen35moe", .architecture = Architecture::qwen3_5_moe, .read = read_delta_net},
    {.name = "arcee",
     .architecture = Architecture::arcee,
     .activation = Activation::relu2,
     .gated = false},
    {.name = "cohere2",
     .architecture = Architecture::cohere2,
     .windows = {true, 4},
     .norm = kLayerNorm,
     .read = read_cohere2},
    {.name = "dots1", .architecture = Architecture::dots1, .score = kSigmoid, .normalised = false},
    {.name = "ernie4_5", .architecture = Architecture::ernie4_5},
    {.name = "ernie4_5-moe", .architecture = Architecture::ernie4_5_moe},
    {.name = "exaone4",
     .architecture = Architecture::exaone4,
     .windows = {true, 4},
     .read = read_exaone4},
    {.name = "glm4", .architecture = Architecture::glm4},
    {.name = "glm4moe",
     .architecture = Architecture::glm4_moe,
     .score = kSigmoid,
     .normalised = false},
    {.name = "gpt-oss",
     .architecture = Architecture::gpt_oss,
     .windows = {true, 2, 128},
     .activation = Activation::clamped_swiglu,
     .read = read_gpt_oss},
    {.name = "granite", .architecture = Architecture::granite, .read = read_granite},
    {.name = "granitemoe", .architecture = Architecture::granitemoe, .read = read_granite},
    {.name = "hunyuan-dense", .architecture = Architecture::hunyuan_v1_dense, .read = read_hunyuan},
    {.name = "minimax-m2", .architecture = Architecture::minimax_m2, .score = kSigmoid},
    {.name = "nemotron",
     .architecture = Architecture::nemotron,
     .norm = kLayerNorm,
     .activation = Activation::relu2,
     .gated = false},
    {.name = "olmo2",
     .architecture = Architecture::olmo2,
     .windows = {true, 4},
     .read = read_olmo2},
    {.name = "olmoe", .architecture = Architecture::olmoe, .normalised = false},
    {.name = "phi2",
     .architecture = Architecture::phi,
     .norm = kLayerNorm,
     .activation = Activation::gelu_tanh,
     .gated = false,
     .read = read_phi2},
    {.name = "phimoe",
     .architecture = Architecture::phimoe,
     .windows = {true},
     .norm = kLayerNorm,
     .score = Experts::Score::sparse_mixer},
    {.name = "qwen2moe", .architecture = Architecture::qwen2_moe, .normalised = false},
    {.name = "qwen3moe", .architecture = Architecture::qwen3_moe},
    {.name = "seed_oss", .architecture = Architecture::seed_oss},
    {.name = "smollm3", .architecture = Architecture::smollm3, .read = read_smollm3},
    {.name = "stablelm",
     .architecture = Architecture::stablelm,
     .norm = kLayerNorm,
     .read = read_stablelm},
    {.name = "starcoder2",
     .architecture = Architecture::starcoder2,
     .norm = kLayerNorm,
     .activation = Activation::gelu_tanh,
     .gated = false},
};

const GgufFamily& find_family(const std::string& name) {
  for (const GgufFamily& family : kGgufFamilies)
    if (name == family.name) return family;
  std::vector<std::string> known;
  for (const GgufFamily& family : kGgufFamilies) known.emplace_back(family.name);
  std::sort(known.begin(), known.end());
  fail_architecture(name, known);
}

/// Sizes and layers of the experts are seen from their tensors.
void read_experts(const Keys& keys, const GgufFamily& family, const GgufFile& file,
                  Config& config) {
  Experts& experts = config.experts;
  experts.count = keys.count("expert_count", 0, Limits::width).value_or(0);
  if (experts.count == 0) return;
  if (config.architecture == Architecture::llama) config.architecture = Architecture::mixtral;
  experts.active = keys.required_count("expert_used_count", Limits::width);
  experts.score = family.score;
  // llama.cpp's numbers: 1 softmax, 2 sigmoid.
  if (const auto function = keys.count("expert_gating_func", 0, 16);
      function && *function > 0 && experts.score != Experts::Score::sparse_mixer) {
    if (*function > 2)
      fail(ErrorCode::unsupported, "key ", quoted(keys.name("expert_gating_func")), ": found ",
           *function, "; only 1 and 2 are supported");
    experts.score = *function == 2 ? kSigmoid : Experts::Score::softmax;
  }
  experts.normalised = keys.flag("expert_weights_norm").value_or(family.normalised);
  experts.scale = keys.positive("expert_weights_scale").value_or(1.0);
  experts.groups = keys.count("expert_group_count", 1, Limits::width).value_or(1);
  experts.active_groups = keys.count("expert_group_used_count", 1, Limits::width).value_or(1);
  experts.beside_dense = family.beside_dense;
  if (config.architecture == Architecture::deepseek_v2) {
    if (experts.score == kSigmoid)
      config.architecture = Architecture::deepseek_v3;
    else
      experts.best_of_group = 1;
  }
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    const StoredTensor* gates = file.find(at + "ffn_gate_exps.weight");
    const StoredTensor* both = file.find(at + "ffn_gate_up_exps.weight");
    experts.in_layer.push_back(gates || both ? 1 : 0);
    if (experts.in_layer.back() == 0 || experts.size > 0) continue;
    if (gates && gates->shape.size() == 3) experts.size = gates->shape[1];
    if (both && both->shape.size() == 3) experts.size = both->shape[1] / 2;
    const StoredTensor* shared = file.find(at + "ffn_gate_shexp.weight");
    if (shared != nullptr && shared->shape.size() == 2) experts.shared_size = shared->shape[0];
  }
  for (const auto size : {experts.size, experts.shared_size})
    if (size > Limits::width)
      fail(ErrorCode::unreadable, "experts of ", size, " values, expected at most ", Limits::width);
  if (experts.size == 0)
    fail(ErrorCode::unreadable, "the tensor 'ffn_gate_exps.weight' is missing in every layer");
}

}  // namespace

std::string_view gguf_name(Architecture architecture) {
  for (const GgufFamily& family : kGgufFamilies)
    if (family.architecture == architecture) return family.name;
  return {};
}

Config gguf_config(const GgufFile& file, const std::string& file_name) {
  if (file.get<std::string>("general.type").value_or("model") != "model")
    fail(ErrorCode::unsupported, "the file holds a part of a model of the type ",
         quoted(file.require<std::string>("general.type")), ", not a model");
  if (const auto parts = file.get<std::int64_t>("split.count"); parts && *parts > 1)
    fail(ErrorCode::unsupported, "the file is one of ", *parts,
         " parts of a split GGUF; merge them first (llama-gguf-split --merge)");
  const auto architecture = file.require<std::string>("general.architecture");
  const Keys keys(file, architecture + ".");

  const GgufFamily& family = find_family(architecture);

  Config config;
  config.architecture = family.architecture;
  config.norm = family.norm;
  config.activation = family.activation;
  config.gated = family.gated;
  const auto given_name = file.get<std::string>("general.name");
  config.name =
      repaired_utf8(given_name && !given_name->empty() ? printable(*given_name, 200) : file_name);
  config.n_layers = keys.required_count("block_count", Limits::layers);
  // Layers that guess further tokens are no part of the model proper.
  const auto guessing = keys.count("nextn_predict_layers", 0, config.n_layers - 1).value_or(0);
  config.n_layers -= guessing;
  config.n_heads = keys.required_count("attention.head_count", Limits::heads);
  config.hidden_size = keys.required_count("embedding_length", Limits::width);
  if (family.mixed_layers) {
    const auto largest = [&](const char* key, std::int64_t most, std::int64_t fallback) {
      const auto numbers = keys.counts(key, config.n_layers + guessing, 0, most);
      return numbers.empty() ? fallback : *std::max_element(numbers.begin(), numbers.end());
    };
    config.n_kv_heads = largest("attention.head_count_kv", Limits::heads, config.n_heads);
    config.intermediate_size = largest("feed_forward_length", Limits::width, 0);
    if (config.n_kv_heads == 0) fail(ErrorCode::unsupported, "no layer of the model has attention");
  } else {
    config.n_kv_heads =
        keys.count("attention.head_count_kv", 1, Limits::heads).value_or(config.n_heads);
  }
  if (config.intermediate_size == 0)
    config.intermediate_size = keys.required_count("feed_forward_length", Limits::width);
  config.context_length = keys.required_count("context_length", Limits::tokens);
  const char* const eps_key = "attention.layer_norm_rms_epsilon";
  auto norm_eps = keys.positive(eps_key);
  if (!norm_eps && config.norm == NormKind::layer)
    norm_eps = keys.positive("attention.layer_norm_epsilon");
  if (!norm_eps) fail(ErrorCode::unreadable, "the key ", quoted(keys.name(eps_key)), " is missing");
  config.norm_eps = *norm_eps;

  const auto key_length = keys.count("attention.key_length", 1, Limits::head_dim);
  if (!key_length && config.hidden_size % config.n_heads != 0)
    fail(ErrorCode::unreadable, "key ", quoted(keys.name("embedding_length")), ": found ",
         config.hidden_size, ", expected a multiple of the ", config.n_heads, " heads");
  config.head_dim = key_length.value_or(config.hidden_size / config.n_heads);
  const auto value_length = keys.count("attention.value_length", 1, Limits::head_dim);
  if (value_length && *value_length != config.head_dim && !family.mixed_layers)
    fail(ErrorCode::unsupported, "keys of ", config.head_dim, " and values of ", *value_length,
         " numbers a head; only equal ones are supported");
  config.rotary_dim =
      keys.count("rope.dimension_count", 1, Limits::head_dim).value_or(config.head_dim);
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));

  const StoredTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr)
    fail(ErrorCode::unreadable, "the tensor 'token_embd.weight' is missing");
  config.vocab_size = embedding->shape.front();
  if (config.vocab_size > Limits::vocabulary)
    fail(ErrorCode::unreadable, "tensor 'token_embd.weight': a vocabulary of ", config.vocab_size,
         ", expected at most ", Limits::vocabulary);

  config.rope = read_rope(keys, file, config);
  config.window = read_windows(keys, family.windows, config);
  config.chunks = family.windows.chunks;
  if (family.read != nullptr) family.read(keys, config);
  read_experts(keys, family, file, config);

  const Keys tokens(file, "tokenizer.ggml.");
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto id = tokens.count(key, 0, Limits::vocabulary))
      if (std::find(config.eos_tokens.begin(), config.eos_tokens.end(), *id) ==
          config.eos_tokens.end())
        config.eos_tokens.push_back(*id);
  config.total_layers = config.n_layers;
  keep_attention_layers(config);
  if (config.local_rope && config.local_rotary_dim == 0)
    config.local_rotary_dim = config.rotary_dim;
  check_consistency(config);
  return config;
}

GgufLayerWindows gguf_windows(const GgufFile& file, const std::string& architecture,
                              std::int64_t layers) {
  const Keys keys(file, architecture + ".");
  GgufWindows rule{false, -1, 0};
  for (const GgufFamily& family : kGgufFamilies)
    if (architecture == family.name && family.windows.read) rule = family.windows;
  const char* const key = "attention.sliding_window_pattern";
  const auto listed = keys.flags(key, layers);
  if (!listed)
    if (const auto stated = keys.count(key, 0, Limits::layers)) rule.pattern = *stated;
  const auto size = keys.count("attention.sliding_window", 0, Limits::tokens).value_or(rule.size);
  GgufLayerWindows windows{{}, rule.chunks};
  for (std::int64_t layer = 0; (listed || rule.pattern >= 0) && layer < layers; ++layer)
    windows.sizes.push_back(has_window(listed, rule.pattern, layer) ? size : 0);
  return windows;
}

}  // namespace kvatlas::model
