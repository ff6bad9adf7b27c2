// SPDX-License-Identifier: Apache-2.0
#include "export/exporters.hpp"

#include <algorithm>
#include <array>

namespace kvatlas::exporting {

// One function a runtime, each in a file of its name.
Exported export_duo_attention(const Order& order);
Exported export_dynamickv(const Order& order);
Exported export_kvcache_factory(const Order& order);
Exported export_kvpress(const Order& order);
Exported export_lagkv(const Order& order);
Exported export_llama_cpp(const Order& order);
Exported export_minference(const Order& order);
Exported export_mlc_llm(const Order& order);
Exported export_mlx_lm(const Order& order);
Exported export_openvino(const Order& order);
Exported export_sglang(const Order& order);
Exported export_simlayerkv(const Order& order);
Exported export_tensorrt_llm(const Order& order);
Exported export_transformers(const Order& order);
Exported export_transformers_cache(const Order& order);
Exported export_vllm(const Order& order);

Exporter exporter_of(std::string_view runtime) {
  struct Entry {
    std::string_view runtime;
    Exporter exporter;
  };
  static constexpr std::array<Entry, 16> all = {{
      {"duo-attention", export_duo_attention},
      {"dynamickv", export_dynamickv},
      {"kvcache-factory", export_kvcache_factory},
      {"kvpress", export_kvpress},
      {"lagkv", export_lagkv},
      {"llama.cpp", export_llama_cpp},
      {"minference", export_minference},
      {"mlc-llm", export_mlc_llm},
      {"mlx-lm", export_mlx_lm},
      {"openvino", export_openvino},
      {"sglang", export_sglang},
      {"simlayerkv", export_simlayerkv},
      {"tensorrt-llm", export_tensorrt_llm},
      {"transformers", export_transformers},
      {"transformers-cache", export_transformers_cache},
      {"vllm", export_vllm},
  }};
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Entry& entry) { return entry.runtime == runtime; });
  return found == all.end() ? nullptr : found->exporter;
}

}  // namespace kvatlas::exporting
