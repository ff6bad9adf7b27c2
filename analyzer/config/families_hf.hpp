// SPDX-License-Identifier: Apache-2.0
// What each family of Hugging Face checkpoints leaves unsaid, and how it calls its tensors. To add
// a family is to add its row, and what no column can say as a function.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analyzer/config/config_fields.hpp"

namespace kvatlas::model {

/// A member that is true or false, and what it is where the file leaves it out. Without a key it is
/// always that.
struct HfFlag {
  const char* key = nullptr;
  bool fallback = false;

  bool read(const Fields& fields) const {
    return key == nullptr ? fallback : fields.flag(key).value_or(fallback);
  }
};

/// Which layers have a window, where no list of layer types says it.
enum class HfWindows {
  none,
  all,
  by_pattern,
  even,
  from_max_window_layers,
  odd_below_maximum,
  rotated
};

/// What a configuration class fills in. 0 among the counts: the file must say it.
struct HfDefaults {
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size / heads
  std::int64_t context = 2048;
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  double theta = 1e4;
  double rotary = 1.0;  // the share of a head that is rotated
  bool tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  std::int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, vocabulary = 0;
};

struct HfWindowRule {
  HfWindows layers = HfWindows::none;
  const char* switch_key = nullptr;  // a flag without which no layer has the window
  std::int64_t size = 0;             // where the file leaves the size out; 0: no window then
  bool by_type = false;              // a list of layer types is read
  std::int64_t number = 0;           // the pattern's length, or the first layer
  const char* size_key = "sliding_window";
  bool chunks = false;
};

struct HfFamily {
  const char *type, *model_class;  // model_type, and the name among "architectures"
  Architecture architecture;
  const char* special = "";  // what a reader of docs/models.md should know of it
  /// The name that llama.cpp gives it where that is another family's.
  const char* in_gguf = nullptr;
  HfDefaults defaults = {};
  HfWindowRule windows = {};
  HfFlag qkv_bias = {}, output_bias = {}, mlp_bias = {};
  HfLayout layout = {};
  /// Reads what is left: scales, experts, layers without RoPE. The rest of the configuration is
  /// known by then.
  void (*read)(const Fields& fields, HfConfig& config) = nullptr;
};

std::span<const HfFamily> hf_families();

/// The family of that model_type or class; nullptr if it is not known.
const HfFamily* find_hf_family(std::string_view type_or_class);

/// [layer]: 1 where it has RoPE, of a list of numbers; without it each fourth layer has none.
std::vector<std::uint8_t> hf_rotated_layers(const Fields& fields, std::int64_t layers);

/// [layer]: the window of each, 0 for none.
std::vector<std::int64_t> hf_windows(const Fields& fields, const HfFamily& family,
                                     std::int64_t layers);

}  // namespace kvatlas::model
