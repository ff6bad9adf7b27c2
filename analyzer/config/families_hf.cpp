// SPDX-License-Identifier: Apache-2.0
// Defaults are those of transformers' configuration classes, and the rest is what its model classes
// do.
#include "analyzer/config/families_hf.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "analyzer/config/rope.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;
using Score = Experts::Score;

void refuse_if(const Fields& fields, const char* key) {
  if (fields.flag(key).value_or(false))
    fail(ErrorCode::unsupported, fields.name(key), " is not supported");
}

double read_softcap(const Fields& fields, const char* key, double fallback) {
  if (fields.is_null(key)) return 0.0;
  return fields.positive(key).value_or(fallback);
}

void read_gemma(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  const bool second = config.architecture == Architecture::gemma2;
  config.attention_scale =
      1.0 / std::sqrt(fields.positive("query_pre_attn_scalar").value_or(256.0));
  config.attention_softcap = read_softcap(fields, "attn_logit_softcapping", second ? 50.0 : 0.0);
  config.logit_softcap = read_softcap(fields, "final_logit_softcapping", second ? 30.0 : 0.0);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.norm_offset = 1.0;
  refuse_if(fields, "use_bidirectional_attention");
}

void read_granite(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  config.attention_scale = fields.positive("attention_multiplier").value_or(1.0);
  config.embedding_scale = fields.positive("embedding_multiplier").value_or(1.0);
  config.residual_scale = fields.positive("residual_multiplier").value_or(1.0);
  config.logit_scale = 1.0 / fields.positive("logits_scaling").value_or(1.0);
}

void read_cohere2(const Fields& fields, HfConfig& hf) {
  hf.config.norm = NormKind::layer;
  hf.config.parallel_block = true;
  hf.config.logit_scale = fields.positive("logit_scale").value_or(0.0625);
  hf.config.rotate_windows_alone();
}

void read_exaone4(const Fields& fields, HfConfig& hf) {
  if (fields.find("sliding_window") != nullptr) hf.config.rotate_windows_alone();
}

void read_smollm3(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  config.rotated = hf_rotated_layers(fields, config.n_layers);
  if (fields.find("layer_types") != nullptr) return;
  for (std::size_t layer = 0; layer < config.window.size(); ++layer)
    if (config.rotated[layer] != 0) config.window[layer] = 0;
}

void use_layer_norms(HfConfig& hf) {
  hf.config.norm = NormKind::layer;
  hf.norm_bias = true;
}

void read_nemotron(const Fields&, HfConfig& hf) {
  use_layer_norms(hf);
  hf.config.norm_offset = 1.0;
  hf.config.gated = false;
}

void read_ungated(const Fields&, HfConfig& hf) { hf.config.gated = false; }

void read_starcoder2(const Fields&, HfConfig& hf) {
  use_layer_norms(hf);
  hf.config.gated = false;
}

void read_phi(const Fields& fields, HfConfig& hf) {
  refuse_if(fields, "qk_layernorm");
  use_layer_norms(hf);
  hf.config.gated = false;
  hf.config.parallel_block = true;
  hf.head_bias = true;
}

void read_stablelm(const Fields& fields, HfConfig& hf) {
  refuse_if(fields, "qk_layernorm");
  use_layer_norms(hf);
  hf.config.parallel_block = fields.flag("use_parallel_residual").value_or(false);
  if (hf.config.parallel_block) hf.layout.before_mlp = nullptr;
}

void read_hunyuan(const Fields&, HfConfig& hf) { hf.config.norms_after_rope = true; }

// Experts. Which layers have them is said in many ways.

std::int64_t whole_member(const Fields& fields, const char* key, std::int64_t fallback) {
  const json* value = fields.find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number_integer() || value->get<double>() < -1 ||
      value->get<double>() > static_cast<double>(Limits::layers))
    fields.refuse(key, str("a whole number up to ", Limits::layers));
  return value->get<std::int64_t>();
}

/// The number of experts, which the file may call by one of several names.
std::int64_t expert_count(const Fields& fields, std::initializer_list<const char*> keys,
                          std::int64_t fallback) {
  for (const char* key : keys)
    if (const auto count = fields.count(key, Limits::width)) return *count;
  return fallback;
}

Experts& start_experts(HfConfig& hf, std::int64_t count, std::int64_t active, std::int64_t size) {
  Experts& experts = hf.config.experts;
  experts.count = count;
  experts.active = active;
  experts.size = size;
  experts.in_layer.assign(static_cast<std::size_t>(hf.config.n_layers), 1);
  return experts;
}

/// Mixtral and its like: every layer has experts, as wide as `intermediate_size`.
void read_plain_experts(const Fields& fields, HfConfig& hf, std::int64_t count,
                        std::int64_t active) {
  start_experts(hf, expert_count(fields, {"num_local_experts", "num_experts"}, count),
                fields.count("num_experts_per_tok", Limits::width).value_or(active),
                hf.config.intermediate_size);
}

void read_mixtral(const Fields& fields, HfConfig& hf) {
  read_plain_experts(fields, hf, 8, 2);
  hf.config.experts.normalised = true;
}

void read_granitemoe(const Fields& fields, HfConfig& hf) {
  read_granite(fields, hf);
  read_mixtral(fields, hf);  // a softmax of the best logits is the normalised softmax of all
}

void read_minimax_m2(const Fields& fields, HfConfig& hf) {
  read_plain_experts(fields, hf, 256, 8);
  hf.config.experts.score = Score::sigmoid;
  hf.config.experts.normalised = true;
  if (const auto rotary = fields.count("rotary_dim", Limits::head_dim))
    hf.config.rotary_dim = *rotary;
}

void read_phimoe(const Fields& fields, HfConfig& hf) {
  use_layer_norms(hf);
  hf.head_bias = fields.flag("lm_head_bias").value_or(false);
  read_plain_experts(fields, hf, 16, 2);
  hf.config.experts.score = Score::sparse_mixer;
  hf.config.experts.jitter = fields.positive("router_jitter_noise").value_or(0.01);
  if (hf.config.rope.kind != RopeKind::longrope) return;
  auto scaling = fields.object("rope_parameters");
  if (!scaling) scaling = fields.object("rope_scaling");
  const auto near = scaling->positive("short_mscale"), far = scaling->positive("long_mscale");
  if (near != far)
    fail(ErrorCode::unsupported, scaling->name("short_mscale"), " and ",
         scaling->name("long_mscale"), " differ, which is not supported");
  if (near) hf.config.rope.attention_factor = near;
}

void read_olmoe(const Fields& fields, HfConfig& hf) {
  if (fields.find("clip_qkv") != nullptr)
    fail(ErrorCode::unsupported, fields.name("clip_qkv"), " is not supported");
  read_plain_experts(fields, hf, 64, 8);
  hf.config.experts.normalised = fields.flag("norm_topk_prob").value_or(false);
}

/// Qwen: layers of a step, but for those that are listed.
void read_qwen_experts(const Fields& fields, HfConfig& hf, std::int64_t count, std::int64_t active,
                       std::int64_t size) {
  Experts& experts =
      start_experts(hf, expert_count(fields, {"num_experts", "num_local_experts"}, count),
                    fields.count("num_experts_per_tok", Limits::width).value_or(active),
                    fields.count("moe_intermediate_size", Limits::width).value_or(size));
  experts.normalised = fields.flag("norm_topk_prob").value_or(false);
  const auto step = fields.count("decoder_sparse_step", Limits::layers).value_or(1);
  for (std::int64_t layer = 0; layer < hf.config.n_layers; ++layer)
    experts.in_layer[layer] = (layer + 1) % step == 0 ? 1 : 0;
  const json* dense = fields.find("mlp_only_layers");
  if (dense == nullptr) return;
  if (!dense->is_array()) fields.refuse("mlp_only_layers", "a list of layers");
  for (const json& layer : *dense) {
    if (!layer.is_number_unsigned()) fields.refuse("mlp_only_layers", "a list of layers");
    if (layer.get<std::uint64_t>() < experts.in_layer.size())
      experts.in_layer[layer.get<std::size_t>()] = 0;
  }
}

void read_qwen2_moe(const Fields& fields, HfConfig& hf) {
  read_qwen_experts(fields, hf, 60, 4, 1408);
  hf.config.experts.shared_size =
      fields.count("shared_expert_intermediate_size", Limits::width).value_or(5632);
}

void read_qwen3_moe(const Fields& fields, HfConfig& hf) {
  read_qwen_experts(fields, hf, 128, 8, 768);
}

/// DeepSeek's kind: sigmoids with a correction, groups, shared experts, and dense layers first.
void read_grouped_experts(const Fields& fields, HfConfig& hf, std::int64_t dense_layers,
                          bool normalised) {
  Experts& experts = start_experts(
      hf, expert_count(fields, {"n_routed_experts", "num_local_experts", "num_experts"}, 128),
      fields.count("num_experts_per_tok", Limits::width).value_or(8),
      fields.count("moe_intermediate_size", Limits::width).value_or(1408));
  experts.score = Score::sigmoid;
  experts.normalised = fields.flag("norm_topk_prob").value_or(normalised);
  experts.scale = fields.positive("routed_scaling_factor").value_or(1.0);
  experts.groups = fields.count("n_group", Limits::width).value_or(1);
  experts.active_groups = fields.count("topk_group", Limits::width).value_or(1);
  experts.shared_size = experts.size * fields.count("n_shared_experts", Limits::layers).value_or(1);
  const auto first = whole_member(fields, "first_k_dense_replace", dense_layers);
  for (std::int64_t layer = 0; layer < std::min(first, hf.config.n_layers); ++layer)
    experts.in_layer[layer] = 0;
}

void read_glm4_moe(const Fields& fields, HfConfig& hf) {
  read_grouped_experts(fields, hf, 1, true);
  if (!fields.flag("use_qk_norm").value_or(false)) hf.layout.q_norm = hf.layout.k_norm = nullptr;
}

void read_dots1(const Fields& fields, HfConfig& hf) { read_grouped_experts(fields, hf, 0, false); }

void read_ernie_moe(const Fields& fields, HfConfig& hf) {
  Experts& experts = start_experts(
      hf, expert_count(fields, {"moe_num_experts", "num_experts", "num_local_experts"}, 64),
      fields.count("moe_k", Limits::width).value_or(6),
      fields.count("moe_intermediate_size", Limits::width).value_or(1536));
  experts.normalised = true;
  experts.shared_size = experts.size * whole_member(fields, "moe_num_shared_experts", 2);
  const auto first = whole_member(fields, "moe_layer_start_index", 1);
  auto last = whole_member(fields, "moe_layer_end_index", -1);
  if (last == -1) last = hf.config.n_layers - 1;
  const auto step = fields.count("moe_layer_interval", Limits::layers).value_or(1);
  for (std::int64_t layer = 0; layer < hf.config.n_layers; ++layer)
    experts.in_layer[layer] = (layer + 1) % step == 0 && layer >= first && layer <= last ? 1 : 0;
}

void read_gpt_oss(const Fields& fields, HfConfig& hf) {
  read_plain_experts(fields, hf, 128, 4);
  Config& config = hf.config;
  config.experts.normalised = true;
  config.activation = Activation::clamped_swiglu;
  config.swiglu_alpha = fields.positive("swiglu_alpha").value_or(config.swiglu_alpha);
  config.swiglu_limit = fields.positive("swiglu_limit").value_or(config.swiglu_limit);
}

// Layers without attention.

/// The layers whose type is one of the first names, where the others' is one of the second; without
/// a list each `interval`-th.
void read_attention_layers(const Fields& fields, std::initializer_list<std::string_view> attention,
                           std::initializer_list<std::string_view> others, std::int64_t interval,
                           Config& config) {
  const json* types = fields.find("layer_types");
  if (types == nullptr) types = fields.find("layers_block_type");
  if (types && (!types->is_array() || std::ssize(*types) != config.n_layers))
    fields.refuse("layer_types", str("a list of ", config.n_layers, " names"));
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    bool attends = (layer + 1) % interval == 0;
    if (types) {
      const json& type = (*types)[static_cast<std::size_t>(layer)];
      const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
        return std::any_of(names.begin(), names.end(),
                           [&](std::string_view name) { return type == std::string(name); });
      };
      attends = is_one_of(attention);
      if (!attends && !is_one_of(others))
        fail(ErrorCode::unsupported, "'layer_types': ", shown(type), " is not supported");
    }
    if (attends) config.layer_numbers.push_back(layer);
  }
  if (config.layer_numbers.empty())
    fail(ErrorCode::unsupported, "no layer of the model has attention");
}

void read_delta_net(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  config.norm_offset = 1.0;
  config.gated_attention = true;
  read_attention_layers(fields, {"full_attention"}, {"linear_attention"},
                        fields.count("full_attention_interval", Limits::layers).value_or(4),
                        config);
  StateLayers& states = config.state_layers;
  states.kind = StateLayers::Kind::delta_net;
  states.conv_kernel = fields.count("linear_conv_kernel_dim", 256).value_or(4);
  states.key_heads = fields.count("linear_num_key_heads", Limits::heads).value_or(16);
  states.value_heads = fields.count("linear_num_value_heads", Limits::heads).value_or(32);
  states.key_dim = fields.count("linear_key_head_dim", Limits::head_dim).value_or(128);
  states.value_dim = fields.count("linear_value_head_dim", Limits::head_dim).value_or(128);
  if (states.value_heads % states.key_heads != 0)
    fail(ErrorCode::unreadable, fields.name("linear_num_value_heads"), ": found ",
         states.value_heads, ", expected a multiple of the ", states.key_heads, " key heads");
  if (states.keys() > Limits::width || states.values() > Limits::width)
    fail(ErrorCode::unreadable, "linear attention of ", states.keys(), " and ", states.values(),
         " values, expected at most ", Limits::width);
}

void read_next_experts(const Fields& fields, HfConfig& hf, std::int64_t experts,
                       std::int64_t active) {
  read_qwen_experts(fields, hf, experts, active, 512);
  hf.config.experts.normalised = fields.flag("norm_topk_prob").value_or(true);
  hf.config.experts.shared_size =
      fields.count("shared_expert_intermediate_size", Limits::width).value_or(512);
}

void read_qwen3_next(const Fields& fields, HfConfig& hf) {
  read_next_experts(fields, hf, 512, 10);
  read_delta_net(fields, hf);
}

void read_qwen3_5_moe(const Fields& fields, HfConfig& hf) {
  read_next_experts(fields, hf, 256, 8);
  read_delta_net(fields, hf);
}

void read_mamba2(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  read_attention_layers(fields, {"full_attention", "attention"}, {"linear_attention", "mamba"},
                        config.n_layers + 1, config);
  // Steps are held within these limits, which no published model narrows.
  if (const json* limits = fields.find("time_step_limit");
      limits && (!limits->is_array() || limits->size() != 2 || limits->front() != 0 ||
                 limits->back().is_number()))
    fields.refuse("time_step_limit", "0 and no upper limit");
  StateLayers& states = config.state_layers;
  states.kind = StateLayers::Kind::mamba2;
  states.conv_kernel = fields.count("mamba_d_conv", 256).value_or(4);
  states.key_heads = fields.count("mamba_n_groups", Limits::heads).value_or(1);
  states.key_dim = fields.count("mamba_d_state", Limits::head_dim).value_or(256);
  states.value_heads = fields.count("mamba_n_heads", Limits::heads).value_or(128);
  const auto inner = config.hidden_size * fields.count("mamba_expand", Limits::heads).value_or(2);
  if (inner % states.value_heads != 0 || states.value_heads % states.key_heads != 0 ||
      inner > Limits::width || states.keys() > Limits::width)
    fail(ErrorCode::unreadable, fields.name("mamba_n_heads"), ": found ", states.value_heads,
         ", expected a divisor of the ", inner, " inner values and a multiple of the ",
         states.key_heads, " groups");
  states.value_dim = inner / states.value_heads;
  hf.state_bias = fields.flag("mamba_proj_bias").value_or(false);
  hf.conv_bias = fields.flag("mamba_conv_bias").value_or(true);
}

/// Whether and how many: 0 experts are none, and the block that else is the shared expert is all.
void read_granite_hybrid(const Fields& fields, HfConfig& hf) {
  read_granite(fields, hf);
  Config& config = hf.config;
  const auto shared = fields.count("shared_intermediate_size", Limits::width).value_or(1024);
  if (whole_member(fields, "num_local_experts", 8) > 0) {
    read_mixtral(fields, hf);
    config.experts.shared_size = shared;
  } else {
    config.intermediate_size = shared;
  }
  if (fields.text("position_embedding_type") != "rope")
    config.rotated.assign(static_cast<std::size_t>(config.n_layers), 0);
  read_mamba2(fields, hf);
}

// Latent attention.

void read_latent(const Fields& fields, HfConfig& hf) {
  refuse_if(fields, "attention_bias");
  Config& config = hf.config;
  Latent& latent = config.latent;
  const auto size = [&](const char* key, std::int64_t most, std::int64_t fallback) {
    return fields.count(key, most).value_or(fallback);
  };
  latent.query_rank = fields.is_null("q_lora_rank") ? 0 : size("q_lora_rank", Limits::width, 1536);
  latent.rank = size("kv_lora_rank", Limits::width, 512);
  latent.rotated_dim = size("qk_rope_head_dim", Limits::head_dim, 64);
  latent.plain_dim = size("qk_nope_head_dim", Limits::head_dim, 128);
  const auto of_value = size("v_head_dim", Limits::head_dim, 128);
  const auto of_key = latent.rotated_dim + latent.plain_dim;
  config.n_kv_heads = config.n_heads;
  config.head_dim = std::max(of_key, of_value);
  config.rotary_dim = latent.rotated_dim;
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    config.shapes.push_back({config.n_heads, of_key, of_value, config.intermediate_size, layer});
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(of_key));
  if (config.rope.kind == RopeKind::plain || !config.rope.mscale_all_dim) return;
  const double scale = yarn_mscale(config.rope, *config.rope.mscale_all_dim);
  config.attention_scale *= scale * scale;
}

void read_deepseek_v2(const Fields& fields, HfConfig& hf) {
  read_grouped_experts(fields, hf, 0, false);
  Experts& experts = hf.config.experts;
  experts.score = Score::softmax;
  experts.normalised = false;
  experts.best_of_group = 1;
  if (fields.text("topk_method").value_or("greedy") == "greedy")
    experts.groups = experts.active_groups = 1;
  read_latent(fields, hf);
}

void read_deepseek_v3(const Fields& fields, HfConfig& hf) {
  read_grouped_experts(fields, hf, 3, true);
  Experts& experts = hf.config.experts;
  if (fields.find("n_group") == nullptr) experts.groups = 8;
  if (fields.find("topk_group") == nullptr) experts.active_groups = 4;
  if (fields.find("routed_scaling_factor") == nullptr) experts.scale = 2.5;
  hf.layout.neighbours_rotate = fields.flag("rope_interleave").value_or(true);
  read_latent(fields, hf);
}

// Gemma 3n and 4: layers of different sizes.

/// The first of the layers that read the keys of earlier ones.
std::int64_t first_sharing_layer(const Fields& fields, const Config& config,
                                 std::int64_t fallback) {
  const auto sharing = whole_member(fields, "num_kv_shared_layers", fallback);
  return config.n_layers - std::clamp<std::int64_t>(sharing, 0, config.n_layers - 1);
}

/// The sizes of full layers, and of those that the file lists.
void read_gemma4_shapes(const Fields& fields, Config& config) {
  const bool one_projection = fields.flag("attention_k_eq_v").value_or(false);
  const auto full_dim = fields.count("global_head_dim", Limits::head_dim).value_or(512);
  const auto full_heads = fields.count("num_global_key_value_heads", Limits::heads);
  const auto listed = fields.object("per_layer_config");
  const auto first_shared = first_sharing_layer(fields, config, 0);
  const bool wide = fields.flag("use_double_wide_mlp").value_or(false);
  const auto local_dim = config.head_dim, inner = config.intermediate_size;
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const bool full = config.window[layer] == 0;
    LayerShape shape{config.n_kv_heads, local_dim, 0, inner, layer, full && one_projection};
    if (listed) {
      if (const auto own = listed->object(std::to_string(layer).c_str())) {
        shape.head_dim = own->count("head_dim", Limits::head_dim).value_or(shape.head_dim);
        shape.kv_heads = own->count("num_key_value_heads", Limits::heads).value_or(shape.kv_heads);
      }
    } else if (full) {
      shape.head_dim = full_dim;
      if (one_projection) shape.kv_heads = full_heads.value_or(shape.kv_heads);
    }
    shape.value_dim = shape.head_dim;
    if (layer >= first_shared) {
      shape.keys_of = lending_layer(config, layer, first_shared);
      if (wide) shape.intermediate_size *= 2;
    }
    config.shapes.push_back(shape);
  }
  for (const LayerShape& shape : config.shapes) {
    config.head_dim = std::max(config.head_dim, shape.head_dim);
    config.n_kv_heads = std::max(config.n_kv_heads, shape.kv_heads);
    config.intermediate_size = std::max(config.intermediate_size, shape.intermediate_size);
  }
  // RoPE turns all of a head, and the heads of all full layers are alike.
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const bool full = config.window[layer] == 0;
    (full ? config.rotary_dim : config.local_rotary_dim) = config.shapes[layer].head_dim;
    for (std::int64_t other = 0; other < layer; ++other)
      if ((config.window[other] == 0) == full &&
          config.shapes[other].head_dim != config.shapes[layer].head_dim)
        fail(ErrorCode::unsupported, "layers ", other, " and ", layer,
             " are of one kind, but their heads are not of one size, which is not supported");
  }
}

void read_layer_inputs(const Fields& fields, Config& config) {
  config.layer_input_size =
      std::max<std::int64_t>(0, whole_member(fields, "hidden_size_per_layer_input", 256));
  config.layer_input_vocab =
      fields.count("vocab_size_per_layer_input", Limits::vocabulary).value_or(262144);
}

/// How many standard deviations above the mean of a normal distribution the share of all that lies
/// below is reached.
double normal_quantile(double share) {
  double low = -40, high = 40;
  for (int step = 0; step < 80; ++step) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// The shares of the gates that count as nothing, by layer: without a list 0.95 in the first ten of
/// a model that has more.
void read_sparse_gates(const Fields& fields, Config& config) {
  const json* list = fields.find("activation_sparsity_pattern");
  if (list && (!list->is_array() || std::ssize(*list) != config.n_layers))
    fields.refuse("activation_sparsity_pattern", str("a list of ", config.n_layers, " numbers"));
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    double share = config.n_layers > 10 && layer < 10 ? 0.95 : 0.0;
    if (list) {
      const json& stated = (*list)[static_cast<std::size_t>(layer)];
      share = stated.is_number() ? stated.get<double>() : -1.0;
      if (!(share >= 0.0) || share >= 1.0)
        fields.refuse("activation_sparsity_pattern", "numbers from 0 to below 1");
    }
    config.sparse_gates.push_back(share > 0 ? std::optional(normal_quantile(share)) : std::nullopt);
  }
}

void read_gemma3n(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  const auto inner = fields.counts("intermediate_size", Limits::width, config.n_layers);
  const auto first_shared = first_sharing_layer(fields, config, 15);
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    config.shapes.push_back(
        {config.n_kv_heads, config.head_dim, config.head_dim,
         inner.empty() ? config.intermediate_size : inner[static_cast<std::size_t>(layer)],
         layer < first_shared ? layer : lending_layer(config, layer, first_shared)});
  config.attention_scale = 1.0;
  config.value_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.logit_softcap = read_softcap(fields, "final_logit_softcapping", 30.0);
  read_layer_inputs(fields, config);
  if (config.layer_input_size == 0)
    fields.refuse("hidden_size_per_layer_input", "a whole number from 1 on");
  read_sparse_gates(fields, config);
  Streams& streams = config.streams;
  streams.count = fields.count("altup_num_inputs", 64).value_or(4);
  streams.active = std::max<std::int64_t>(0, whole_member(fields, "altup_active_idx", 0));
  streams.scaled = fields.flag("altup_correct_scale").value_or(true);
  streams.shortcut_rank = fields.count("laurel_rank", Limits::width).value_or(64);
  if (streams.active >= streams.count)
    fields.refuse("altup_active_idx", str("less than the ", streams.count, " streams"));
}

void read_gemma4(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  if (fields.text("use_bidirectional_attention") == "all")
    fail(ErrorCode::unsupported, fields.name("use_bidirectional_attention"),
         ": attention to later tokens is not supported");
  config.window.back() = 0;
  if (fields.find("rope_parameters") == nullptr) {
    config.rope.kind = RopeKind::proportional;
    config.rope.theta = 1e6;
    config.rope.share = 0.25;
    config.local_rope = Rope{};
  }
  read_gemma4_shapes(fields, config);
  config.attention_scale = 1.0;
  config.value_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.logit_softcap = read_softcap(fields, "final_logit_softcapping", 0.0);
  read_layer_inputs(fields, config);
  if (!fields.flag("enable_moe_block").value_or(false)) return;
  Experts& experts = start_experts(hf, fields.required_count("num_experts", Limits::width),
                                   fields.required_count("top_k_experts", Limits::width),
                                   fields.required_count("moe_intermediate_size", Limits::width));
  experts.normalised = true;
  experts.beside_dense = true;
}

void read_lfm2(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  if (fields.find("layer_types") == nullptr && fields.find("full_attn_idxs") != nullptr) {
    for (const json& layer : *fields.find("full_attn_idxs")) {
      if (!layer.is_number_unsigned() ||
          layer.get<std::uint64_t>() >= static_cast<std::uint64_t>(config.n_layers) ||
          (!config.layer_numbers.empty() &&
           layer.get<std::int64_t>() <= config.layer_numbers.back()))
        fields.refuse("full_attn_idxs", "layers in ascending order");
      config.layer_numbers.push_back(layer.get<std::int64_t>());
    }
    if (config.layer_numbers.empty())
      fail(ErrorCode::unsupported, "no layer of the model has attention");
  } else {
    read_attention_layers(fields, {"full_attention"}, {"conv"}, 1, config);
  }
  config.state_layers.kind = StateLayers::Kind::short_conv;
  config.state_layers.conv_kernel = fields.count("conv_L_cache", 256).value_or(3);
  hf.state_bias = hf.conv_bias = fields.flag("conv_bias").value_or(false);
  if (!fields.flag("block_auto_adjust_ff_dim").value_or(true)) return;
  // As Llama's first code sized its feed-forward blocks.
  double size = std::floor(2.0 * static_cast<double>(config.intermediate_size) / 3.0);
  size = std::floor(size * fields.positive("block_ffn_dim_multiplier").value_or(1.0));
  const auto multiple = fields.count("block_multiple_of", Limits::width).value_or(256);
  const double blocks = std::ceil(size / static_cast<double>(multiple));
  if (!(blocks * static_cast<double>(multiple) <= static_cast<double>(Limits::width)))
    fields.refuse("block_multiple_of", str("sizes of at most ", Limits::width));
  config.intermediate_size = multiple * static_cast<std::int64_t>(blocks);
}

void read_llama4(const Fields& fields, HfConfig& hf) {
  Config& config = hf.config;
  config.rotated = hf_rotated_layers(fields, config.n_layers);
  config.norms_after_rope = true;
  config.rotated_norms = fields.flag("use_qk_norm").value_or(true);
  if (fields.flag("attn_temperature_tuning").value_or(true)) {
    config.temperature.scale = fields.positive("attn_scale").value_or(0.1);
    config.temperature.tokens = fields.positive("floor_scale").value_or(8192);
  }
  Experts& experts = start_experts(hf, expert_count(fields, {"num_local_experts"}, 16),
                                   fields.count("num_experts_per_tok", Limits::width).value_or(1),
                                   config.intermediate_size);
  experts.score = Score::sigmoid;
  experts.weighs_inputs = true;
  experts.shared_size = experts.size;
  config.intermediate_size = fields.count("intermediate_size_mlp", Limits::width).value_or(16384);
  const auto step = fields.count("interleave_moe_layer_step", Limits::layers).value_or(1);
  const json* listed = fields.find("moe_layers");
  if (listed && !listed->is_array()) fields.refuse("moe_layers", "a list of layers");
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    experts.in_layer[layer] =
        (listed ? std::find(listed->begin(), listed->end(), layer) != listed->end()
                : (layer + 1) % step == 0)
            ? 1
            : 0;
}

constexpr HfFlag kBias = {"attention_bias", false}, kMlpBias = {"mlp_bias", false};
constexpr HfFlag kUseBias = {"use_bias", false}, kAlways = {nullptr, true};

constexpr HfLayout kNormedHeads = {.q_norm = "q_norm", .k_norm = "k_norm"};
constexpr HfLayout kNormedHeadsAndSharedExpert = {.q_norm = "q_norm",
                                                  .k_norm = "k_norm",
                                                  .shared = "shared_expert.",
                                                  .shared_gate = "shared_expert_gate.weight"};
constexpr HfLayout kGemma = {.after_attention = "post_attention_layernorm",
                             .before_mlp = "pre_feedforward_layernorm",
                             .after_mlp = "post_feedforward_layernorm"};
constexpr HfLayout kGemma3 = {.after_attention = "post_attention_layernorm",
                              .before_mlp = "pre_feedforward_layernorm",
                              .after_mlp = "post_feedforward_layernorm",
                              .q_norm = "q_norm",
                              .k_norm = "k_norm"};
/// Norms after the blocks alone, and one over all heads of the queries and of the keys.
constexpr HfLayout kOlmo2 = {.before_attention = nullptr,
                             .after_attention = "post_attention_layernorm",
                             .before_mlp = nullptr,
                             .after_mlp = "post_feedforward_layernorm",
                             .q_norm = "q_norm",
                             .k_norm = "k_norm",
                             .wide_qk_norm = true};
constexpr HfLayout kExaone4 = {.before_attention = nullptr,
                               .after_attention = "post_attention_layernorm",
                               .before_mlp = nullptr,
                               .after_mlp = "post_feedforward_layernorm",
                               .q_norm = "q_norm",
                               .k_norm = "k_norm"};
constexpr HfLayout kMixtral = {
    .sparse = "block_sparse_moe.", .expert_gate = "w1", .expert_up = "w3", .expert_down = "w2"};

// The multimodal Gemma 3 files leave out whatever equals the default.
constexpr HfDefaults kGemma3Defaults = {.kv_heads = 4,
                                        .head_dim = 256,
                                        .context = 131072,
                                        .theta = 1e6,
                                        .tied = true,
                                        .activation_key = "hidden_activation",
                                        .activation = "gelu_pytorch_tanh",
                                        .hidden = 2304,
                                        .intermediate = 9216,
                                        .layers = 26,
                                        .heads = 8,
                                        .vocabulary = 262208};

constexpr HfFamily kHfFamilies[] = {
    {.type = "llama",
     .model_class = "LlamaForCausalLM",
     .architecture = Architecture::llama,
     .special = "Llama 2 to 3.2, Yi, SmolLM",
     .qkv_bias = kBias,
     .output_bias = kBias,
     .mlp_bias = kMlpBias},
    {.type = "mistral",
     .model_class = "MistralForCausalLM",
     .architecture = Architecture::mistral,
     .special = "windows",
     .in_gguf = "llama",
     .defaults = {.kv_heads = 8, .context = 131072},
     .windows = {.layers = HfWindows::all, .size = 4096}},
    {.type = "qwen2",
     .model_class = "Qwen2ForCausalLM",
     .architecture = Architecture::qwen2,
     .special = "Qwen 2 and 2.5",
     .defaults = {.kv_heads = 32, .context = 32768},
     .windows = {HfWindows::from_max_window_layers, "use_sliding_window", 4096, true, 28},
     .qkv_bias = kAlways},
    {.type = "qwen3",
     .model_class = "Qwen3ForCausalLM",
     .architecture = Architecture::qwen3,
     .special = "norms of queries and keys",
     .defaults = {.kv_heads = 32, .head_dim = 128, .context = 32768},
     .windows = {HfWindows::from_max_window_layers, "use_sliding_window", 4096, true, 28},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kNormedHeads},
    {.type = "internlm2",
     .model_class = "InternLM2ForCausalLM",
     .architecture = Architecture::internlm2,
     .special = "one projection for queries, keys and values",
     .qkv_bias = {"bias", false},
     .output_bias = {"bias", false},
     .layout = {.embedding = "tok_embeddings.weight",
                .head = "output",
                .before_attention = "attention_norm",
                .before_mlp = "ffn_norm",
                .attention = "attention.",
                .fused_qkv = "wqkv",
                .output = "wo",
                .qkv_by_kv_head = true,
                .mlp = "feed_forward.",
                .gate = "w1",
                .up = "w3",
                .down = "w2"}},
    {.type = "phi3",
     .model_class = "Phi3ForCausalLM",
     .architecture = Architecture::phi3,
     .special = "fused projections",
     .defaults = {.context = 4096, .norm_eps = 1e-5},
     .windows = {.layers = HfWindows::all},
     .layout = {.fused_qkv = "qkv_proj", .fused_gate_up = "gate_up_proj"}},
    {.type = "gemma2",
     .model_class = "Gemma2ForCausalLM",
     .architecture = Architecture::gemma2,
     .special = "windows, soft caps",
     .defaults = {.kv_heads = 4,
                  .head_dim = 256,
                  .context = 8192,
                  .tied = true,
                  .activation_key = "hidden_activation",
                  .activation = "gelu_pytorch_tanh"},
     .windows = {.layers = HfWindows::even, .size = 4096, .by_type = true},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kGemma,
     .read = read_gemma},
    {.type = "gemma3_text",
     .model_class = "Gemma3ForCausalLM",
     .architecture = Architecture::gemma3,
     .special = "windows with a RoPE of their own",
     .defaults = kGemma3Defaults,
     .windows = {.layers = HfWindows::by_pattern, .size = 4096, .by_type = true, .number = 6},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kGemma3,
     .read = read_gemma},
    {.type = "apertus",
     .model_class = "ApertusForCausalLM",
     .architecture = Architecture::apertus,
     .special = "xIELU, norms of queries and keys",
     .defaults = {.context = 65536, .norm_eps = 1e-5, .theta = 12e6, .activation = "xielu"},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.before_attention = "attention_layernorm",
                .before_mlp = "feedforward_layernorm",
                .q_norm = "q_norm",
                .k_norm = "k_norm"},
     .read = read_ungated},
    {.type = "arcee",
     .model_class = "ArceeForCausalLM",
     .architecture = Architecture::arcee,
     .special = "squared ReLU without a gate",
     .defaults = {.context = 4096, .norm_eps = 1e-5, .activation = "relu2"},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .mlp_bias = kMlpBias,
     .read = read_ungated},
    {.type = "cohere2",
     .model_class = "Cohere2ForCausalLM",
     .architecture = Architecture::cohere2,
     .special = "attention and feed-forward block side by side, layer norms, RoPE in windows alone",
     .defaults =
         {.context = 8192, .norm_eps_key = "layer_norm_eps", .norm_eps = 1e-5, .tied = true},
     .windows = {.layers = HfWindows::by_pattern, .size = 4096, .by_type = true, .number = 4},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.before_mlp = nullptr, .neighbours_rotate = true},
     .read = read_cohere2},
    {.type = "dots1",
     .model_class = "Dots1ForCausalLM",
     .architecture = Architecture::dots1,
     .special = "experts chosen by sigmoids with a correction, shared experts",
     .defaults = {.kv_heads = 32},
     .windows =
         {.layers = HfWindows::from_max_window_layers, .size = 4096, .by_type = true, .number = 62},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.q_norm = "q_norm",
                .k_norm = "k_norm",
                .correction = "gate.e_score_correction_bias",
                .shared = "shared_experts."},
     .read = read_dots1},
    {.type = "ernie4_5",
     .model_class = "Ernie4_5ForCausalLM",
     .architecture = Architecture::ernie4_5,
     .special = "RoPE on neighbours",
     .defaults = {.kv_heads = 2,
                  .head_dim = 128,
                  .context = 131072,
                  .norm_eps = 1e-5,
                  .theta = 5e5,
                  .tied = true},
     .qkv_bias = kUseBias,
     .output_bias = kUseBias,
     .mlp_bias = kUseBias,
     .layout = {.neighbours_rotate = true}},
    {.type = "ernie4_5_moe",
     .model_class = "Ernie4_5_MoeForCausalLM",
     .architecture = Architecture::ernie4_5_moe,
     .special = "experts, shared experts, dense layers first",
     .defaults = {.kv_heads = 4, .context = 131072, .norm_eps = 1e-5, .theta = 5e5, .tied = true},
     .qkv_bias = kUseBias,
     .output_bias = kUseBias,
     .mlp_bias = kUseBias,
     .layout = {.neighbours_rotate = true,
                .correction = "moe_statics.e_score_correction_bias",
                .shared = "shared_experts."},
     .read = read_ernie_moe},
    {.type = "exaone4",
     .model_class = "Exaone4ForCausalLM",
     .architecture = Architecture::exaone4,
     .special = "norms after the blocks, RoPE in windows alone",
     .defaults = {.kv_heads = 32, .norm_eps = 1e-5},
     .windows = {.layers = HfWindows::by_pattern, .size = 4096, .by_type = true, .number = 4},
     .layout = kExaone4,
     .read = read_exaone4},
    {.type = "glm4",
     .model_class = "Glm4ForCausalLM",
     .architecture = Architecture::glm4,
     .special = "norms on both sides, half of a head rotated",
     .defaults =
         {.kv_heads = 2, .head_dim = 128, .context = 131072, .norm_eps = 1.5625e-7, .rotary = 0.5},
     .qkv_bias = {"attention_bias", true},
     .layout = {.after_attention = "post_self_attn_layernorm",
                .after_mlp = "post_mlp_layernorm",
                .neighbours_rotate = true,
                .fused_gate_up = "gate_up_proj"}},
    {.type = "glm4_moe",
     .model_class = "Glm4MoeForCausalLM",
     .architecture = Architecture::glm4_moe,
     .special = "GLM-4.5: groups of experts, a shared one, dense layers first",
     .defaults = {.kv_heads = 8, .context = 131072, .norm_eps = 1e-5, .rotary = 0.5},
     .qkv_bias = kBias,
     .layout = {.q_norm = "q_norm",
                .k_norm = "k_norm",
                .correction = "gate.e_score_correction_bias",
                .shared = "shared_experts."},
     .read = read_glm4_moe},
    {.type = "granite",
     .model_class = "GraniteForCausalLM",
     .architecture = Architecture::granite,
     .special = "multipliers",
     .qkv_bias = kBias,
     .output_bias = kBias,
     .mlp_bias = kMlpBias,
     .read = read_granite},
    {.type = "granitemoe",
     .model_class = "GraniteMoeForCausalLM",
     .architecture = Architecture::granitemoe,
     .special = "multipliers, stacked experts",
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.sparse = "block_sparse_moe.",
                .router = "router.layer.weight",
                .stacked_gate_up = "input_linear.weight",
                .stacked_down = "output_linear.weight"},
     .read = read_granitemoe},
    {.type = "hunyuan_v1_dense",
     .model_class = "HunYuanDenseV1ForCausalLM",
     .architecture = Architecture::hunyuan_v1_dense,
     .special = "norms of queries and keys after RoPE",
     .defaults = {.norm_eps = 1e-5},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.q_norm = "query_layernorm", .k_norm = "key_layernorm"},
     .read = read_hunyuan},
    {.type = "minimax_m2",
     .model_class = "MiniMaxM2ForCausalLM",
     .architecture = Architecture::minimax_m2,
     .special = "experts chosen by sigmoids, half of a head rotated",
     .defaults = {.kv_heads = 8, .head_dim = 128, .context = 196608, .theta = 5e6},
     .layout = {.q_norm = "q_norm",
                .k_norm = "k_norm",
                .wide_qk_norm = true,
                .sparse = "block_sparse_moe.",
                .correction = "e_score_correction_bias",
                .expert_gate = "w1",
                .expert_up = "w3",
                .expert_down = "w2"},
     .read = read_minimax_m2},
    {.type = "ministral",
     .model_class = "MinistralForCausalLM",
     .architecture = Architecture::ministral,
     .special = "windows by layer",
     .defaults = {.kv_heads = 8, .context = 131072},
     .windows = {.layers = HfWindows::all, .size = 4096, .by_type = true}},
    {.type = "mixtral",
     .model_class = "MixtralForCausalLM",
     .architecture = Architecture::mixtral,
     .special = "experts",
     .in_gguf = "llama",
     .defaults = {.kv_heads = 8, .context = 131072, .norm_eps = 1e-5, .theta = 1e6},
     .windows = {.layers = HfWindows::all},
     .layout = kMixtral,
     .read = read_mixtral},
    {.type = "nemotron",
     .model_class = "NemotronForCausalLM",
     .architecture = Architecture::nemotron,
     .special = "squared ReLU without a gate, layer norms",
     .defaults = {.context = 4096,
                  .norm_eps_key = "norm_eps",
                  .norm_eps = 1e-5,
                  .rotary = 0.5,
                  .activation = "relu2"},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .mlp_bias = kMlpBias,
     .read = read_nemotron},
    {.type = "olmo2",
     .model_class = "Olmo2ForCausalLM",
     .architecture = Architecture::olmo2,
     .special = "norms after the blocks, one norm over all heads",
     .defaults = {.norm_eps = 1e-5},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kOlmo2},
    {.type = "olmo3",
     .model_class = "Olmo3ForCausalLM",
     .architecture = Architecture::olmo3,
     .special = "the same, with windows",
     .in_gguf = "olmo2",
     .defaults = {.norm_eps = 1e-5, .theta = 5e5},
     .windows = {.layers = HfWindows::by_pattern, .size = 4096, .by_type = true, .number = 4},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kOlmo2},
    {.type = "olmoe",
     .model_class = "OlmoeForCausalLM",
     .architecture = Architecture::olmoe,
     .special = "experts, one norm over all heads",
     .defaults = {.context = 4096, .norm_eps = 1e-5},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.q_norm = "q_norm", .k_norm = "k_norm", .wide_qk_norm = true},
     .read = read_olmoe},
    {.type = "phi",
     .model_class = "PhiForCausalLM",
     .architecture = Architecture::phi,
     .special = "Phi 1 to 2: attention and feed-forward block side by side",
     .defaults = {.norm_eps_key = "layer_norm_eps",
                  .norm_eps = 1e-5,
                  .rotary = 0.5,
                  .activation = "gelu_new"},
     .qkv_bias = kAlways,
     .output_bias = kAlways,
     .mlp_bias = kAlways,
     .layout = {.final_norm = "final_layernorm",
                .before_mlp = nullptr,
                .output = "dense",
                .up = "fc1",
                .down = "fc2"},
     .read = read_phi},
    {.type = "phimoe",
     .model_class = "PhimoeForCausalLM",
     .architecture = Architecture::phimoe,
     .special = "experts chosen by the sparse mixer, layer norms",
     .defaults = {.kv_heads = 8, .context = 131072, .norm_eps = 1e-5, .theta = 1e6},
     .windows = {.layers = HfWindows::all},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kMixtral,
     .read = read_phimoe},
    {.type = "qwen2_moe",
     .model_class = "Qwen2MoeForCausalLM",
     .architecture = Architecture::qwen2_moe,
     .special = "experts, a shared one with a gate",
     .defaults = {.kv_heads = 16, .context = 32768},
     .windows = {HfWindows::odd_below_maximum, "use_sliding_window", 4096, true, 28},
     .qkv_bias = {"qkv_bias", true},
     .layout = {.shared = "shared_expert.", .shared_gate = "shared_expert_gate.weight"},
     .read = read_qwen2_moe},
    {.type = "qwen3_moe",
     .model_class = "Qwen3MoeForCausalLM",
     .architecture = Architecture::qwen3_moe,
     .special = "experts",
     .defaults = {.kv_heads = 4, .context = 32768},
     .windows = {HfWindows::all, "use_sliding_window", 4096},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kNormedHeads,
     .read = read_qwen3_moe},
    {.type = "seed_oss",
     .model_class = "SeedOssForCausalLM",
     .architecture = Architecture::seed_oss,
     .special = "biases",
     .defaults = {.kv_heads = 8, .head_dim = 128, .context = 524288},
     .qkv_bias = {"attention_bias", true},
     .output_bias = {"attention_out_bias", false},
     .mlp_bias = kMlpBias},
    {.type = "smollm3",
     .model_class = "SmolLM3ForCausalLM",
     .architecture = Architecture::smollm3,
     .special = "each fourth layer without RoPE",
     .defaults = {.kv_heads = 4, .context = 32768, .theta = 2e6, .tied = true},
     .windows = {HfWindows::all, "use_sliding_window", 0, true},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .mlp_bias = kMlpBias,
     .read = read_smollm3},
    {.type = "stablelm",
     .model_class = "StableLmForCausalLM",
     .architecture = Architecture::stablelm,
     .special = "layer norms, a quarter of a head rotated",
     .defaults = {.kv_heads = 32,
                  .context = 4096,
                  .norm_eps_key = "layer_norm_eps",
                  .norm_eps = 1e-5,
                  .rotary = 0.25},
     .qkv_bias = {"use_qkv_bias", false},
     .read = read_stablelm},
    {.type = "starcoder2",
     .model_class = "Starcoder2ForCausalLM",
     .architecture = Architecture::starcoder2,
     .special = "layer norms, biases, no gate",
     .defaults = {.kv_heads = 2,
                  .context = 4096,
                  .norm_eps_key = "norm_epsilon",
                  .norm_eps = 1e-5,
                  .tied = true,
                  .activation = "gelu_pytorch_tanh"},
     .windows = {.layers = HfWindows::all},
     .qkv_bias = {"use_bias", true},
     .output_bias = {"use_bias", true},
     .mlp_bias = {"use_bias", true},
     .layout = {.up = "c_fc", .down = "c_proj"},
     .read = read_starcoder2},
    {.type = "gpt_oss",
     .model_class = "GptOssForCausalLM",
     .architecture = Architecture::gpt_oss,
     .special = "a sink in every row of attention, windows, experts in MXFP4",
     .defaults =
         {.kv_heads = 8, .head_dim = 64, .context = 131072, .norm_eps = 1e-5, .theta = 150000},
     .windows = {.layers = HfWindows::even, .size = 128, .by_type = true},
     .qkv_bias = {"attention_bias", true},
     .output_bias = {"attention_bias", true},
     .layout = {.sinks = "sinks",
                .router = "router.weight",
                .router_bias = "router.bias",
                .stacked_gate_up = "experts.gate_up_proj",
                .stacked_down = "experts.down_proj",
                .interleaved_experts = true},
     .read = read_gpt_oss},
    {.type = "lfm2",
     .model_class = "Lfm2ForCausalLM",
     .architecture = Architecture::lfm2,
     .special = "short convolutions instead of attention in most layers",
     .defaults = {.kv_heads = 8,
                  .context = 128000,
                  .norm_eps_key = "norm_eps",
                  .norm_eps = 1e-5,
                  .theta = 1e6,
                  .tied = true},
     .layout = {.final_norm = "embedding_norm",
                .before_attention = "operator_norm",
                .before_mlp = "ffn_norm",
                .output = "out_proj",
                .q_norm = "q_layernorm",
                .k_norm = "k_layernorm",
                .mlp = "feed_forward.",
                .gate = "w1",
                .up = "w3",
                .down = "w2"},
     .read = read_lfm2},
    {.type = "qwen3_next",
     .model_class = "Qwen3NextForCausalLM",
     .architecture = Architecture::qwen3_next,
     .special = "gated delta nets in three of four layers, gated attention, experts",
     .defaults = {.kv_heads = 2, .head_dim = 256, .context = 32768, .rotary = 0.25},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kNormedHeadsAndSharedExpert,
     .read = read_qwen3_next},
    {.type = "qwen3_5_text",
     .model_class = "Qwen3_5ForCausalLM",
     .architecture = Architecture::qwen3_5,
     .special = "Qwen 3.5 and 3.6: gated delta nets in three of four layers, gated attention",
     .defaults = {.kv_heads = 4, .head_dim = 256, .context = 32768, .rotary = 0.25},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kNormedHeads,
     .read = read_delta_net},
    {.type = "qwen3_5_moe_text",
     .model_class = "Qwen3_5MoeForCausalLM",
     .architecture = Architecture::qwen3_5_moe,
     .special = "the same with experts",
     .defaults = {.kv_heads = 2, .head_dim = 256, .context = 32768, .rotary = 0.25},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kNormedHeadsAndSharedExpert,
     .read = read_qwen3_5_moe},
    {.type = "deepseek_v2",
     .model_class = "DeepseekV2ForCausalLM",
     .architecture = Architecture::deepseek_v2,
     .special = "latent attention, experts chosen by groups",
     .mlp_bias = kMlpBias,
     .layout = {.neighbours_rotate = true, .shared = "shared_experts."},
     .read = read_deepseek_v2},
    {.type = "deepseek_v3",
     .model_class = "DeepseekV3ForCausalLM",
     .architecture = Architecture::deepseek_v3,
     .special = "latent attention, experts chosen by groups with a correction (V3, R1)",
     .in_gguf = "deepseek2",
     .defaults = {.context = 4096},
     .layout = {.correction = "gate.e_score_correction_bias", .shared = "shared_experts."},
     .read = read_deepseek_v3},
    {.type = "gemma4_text",
     .model_class = "Gemma4ForCausalLM",
     .architecture = Architecture::gemma4,
     .special = "heads of other sizes in full layers, embeddings and shared keys by layer, experts",
     .defaults = {.kv_heads = 4,
                  .head_dim = 256,
                  .context = 131072,
                  .tied = true,
                  .activation_key = "hidden_activation",
                  .activation = "gelu_pytorch_tanh",
                  .hidden = 2304,
                  .intermediate = 9216,
                  .layers = 30,
                  .heads = 8,
                  .vocabulary = 262144},
     .windows = {.layers = HfWindows::by_pattern, .size = 512, .by_type = true, .number = 6},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.after_attention = "post_attention_layernorm",
                .before_mlp = "pre_feedforward_layernorm",
                .after_mlp = "post_feedforward_layernorm",
                .q_norm = "q_norm",
                .k_norm = "k_norm",
                .sparse = "",
                .router = "router.proj.weight",
                .stacked_gate_up = "experts.gate_up_proj",
                .stacked_down = "experts.down_proj",
                .layer_scale = "layer_scalar"},
     .read = read_gemma4},
    {.type = "granitemoehybrid",
     .model_class = "GraniteMoeHybridForCausalLM",
     .architecture = Architecture::granitemoehybrid,
     .special = "Granite 4: Mamba 2 in most layers, experts or none",
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.mlp = "shared_mlp.",
                .down = "output_linear",
                .fused_gate_up = "input_linear",
                .sparse = "block_sparse_moe.",
                .router = "router.layer.weight",
                .stacked_gate_up = "input_linear.weight",
                .stacked_down = "output_linear.weight"},
     .read = read_granite_hybrid},
    {.type = "gemma3n_text",
     .model_class = "Gemma3nForCausalLM",
     .architecture = Architecture::gemma3n,
     .special = "hidden states side by side, embeddings and shared keys by layer, sparse gates",
     .defaults = {.kv_heads = 2,
                  .head_dim = 256,
                  .context = 32768,
                  .theta = 1e6,
                  .tied = true,
                  .activation_key = "hidden_activation",
                  .activation = "gelu_pytorch_tanh",
                  .hidden = 2048,
                  .intermediate = 16384,
                  .layers = 35,
                  .heads = 8,
                  .vocabulary = 262400},
     .windows = {.layers = HfWindows::by_pattern, .size = 512, .by_type = true, .number = 5},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = kGemma3,
     .read = read_gemma3n},
    {.type = "llama4_text",
     .model_class = "Llama4ForCausalLM",
     .architecture = Architecture::llama4,
     .special = "attention within chunks, each fourth layer without RoPE, experts whose weight "
                "scales their "
                "input",
     .defaults = {.kv_heads = 8,
                  .head_dim = 128,
                  .context = 131072,
                  .norm_eps = 1e-5,
                  .theta = 5e5,
                  .hidden = 5120,
                  .intermediate = 8192,
                  .layers = 48,
                  .heads = 40,
                  .vocabulary = 202048},
     .windows = {.layers = HfWindows::rotated,
                 .size = 8192,
                 .by_type = true,
                 .size_key = "attention_chunk_size",
                 .chunks = true},
     .qkv_bias = kBias,
     .output_bias = kBias,
     .layout = {.neighbours_rotate = true,
                .mlp = "feed_forward.",
                .sparse = "feed_forward.",
                .router = "router.weight",
                .stacked_gate_up = "experts.gate_up_proj",
                .stacked_down = "experts.down_proj",
                .transposed_experts = true,
                .shared = "shared_expert."},
     .read = read_llama4},
};
static_assert(std::size(kHfFamilies) == static_cast<std::size_t>(Architecture::llama4) + 1);

}  // namespace

std::span<const HfFamily> hf_families() { return kHfFamilies; }

std::vector<std::uint8_t> hf_rotated_layers(const Fields& fields, std::int64_t layers) {
  std::vector<std::uint8_t> rotated(static_cast<std::size_t>(layers), 1);
  const json* list = fields.find("no_rope_layers");
  if (list == nullptr || (list->is_array() && list->empty())) {
    const auto interval = fields.count("no_rope_layer_interval", Limits::layers).value_or(4);
    for (std::int64_t layer = interval - 1; layer < layers; layer += interval) rotated[layer] = 0;
    return rotated;
  }
  if (!list->is_array() || list->size() != rotated.size())
    fields.refuse("no_rope_layers", str("a list of ", layers, " numbers"));
  for (std::size_t layer = 0; layer < rotated.size(); ++layer) {
    const json& flag = (*list)[layer];
    if (!flag.is_number_integer() && !flag.is_boolean())
      fields.refuse("no_rope_layers", "a list of zeros and ones");
    rotated[layer] = flag != 0 && flag != false ? 1 : 0;
  }
  return rotated;
}

const HfFamily* find_hf_family(std::string_view name) {
  for (const HfFamily& family : kHfFamilies)
    if (name == family.type || name == family.model_class) return &family;
  return nullptr;
}

}  // namespace kvatlas::model
