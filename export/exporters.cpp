// SPDX-License-Identifier: Apache-2.0
#include "export/exporters.hpp"

#include <map>

namespace kvatlas::exporting {

// Each exporter stands in the file of its runtime's name.
using Export = Exported(const PartRequest& request);
Export export_duo_attention, export_dynamickv, export_kvcache_factory, export_kvpress, export_lagkv,
    export_ik_llama_cpp, export_llama_cpp, export_minference, export_mlc_llm, export_mlx_lm,
    export_openvino, export_sglang, export_simlayerkv, export_tensorrt_llm, export_transformers,
    export_transformers_cache, export_vllm;

Exporter exporter_of(std::string_view runtime) {
  static const std::map<std::string_view, Exporter> all = {
      {"duo-attention", export_duo_attention},
      {"dynamickv", export_dynamickv},
      {"ik_llama.cpp", export_ik_llama_cpp},
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
  };
  const auto found = all.find(runtime.substr(0, runtime.find(':')));  // without a backend
  return found == all.end() ? nullptr : found->second;
}

}  // namespace kvatlas::exporting
