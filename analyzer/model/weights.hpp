// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/model/config_files.hpp"
#include "analyzer/model/model_file.hpp"

namespace kvatlas::model {

/// Finds tensors by name and checks their shapes, whichever file they lie in.
class TensorFinder {
 public:
  using Find = std::function<const StoredTensor*(std::string_view)>;
  explicit TensorFinder(Find find) : find_(std::move(find)) {}

  bool has(const std::string& name) const { return find_(name) != nullptr; }
  /// The whole tensor as one part; Error(unreadable) if it is missing or of another shape.
  Rows matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  Rows vector(const std::string& name, std::int64_t size) const;

 private:
  const StoredTensor& require(const std::string& name,
                              const std::vector<std::int64_t>& shape) const;
  Find find_;
};

/// All weights of a model.
struct ModelWeights {
  std::vector<LayerWeights> layers;
  Weight embedding, final_norm, head;
};

/// The tensors of a Hugging Face checkpoint, by the names of its architecture.
ModelWeights hf_weights(const HfConfig& config, const TensorFinder& finder);

/// The tensors of a GGUF file, by llama.cpp's names.
ModelWeights gguf_weights(const Config& config, const TensorFinder& finder);

}  // namespace kvatlas::model
