// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "analyzer/profile/statistics.hpp"

namespace kvatlas::capture {

/// How many layers of a generated token are looked at together: one a thread, and on a GPU, which
/// all threads share, one.
std::int64_t layers_together(const Placement& placement);

/// How many bytes the capture of one sample takes, where so many layers of a generated token are
/// looked at together.
struct CaptureBytes {
  std::int64_t working = 0;  // while the layers run
  std::int64_t arrays = 0;   // until it is written
};
CaptureBytes capture_bytes(const profile::CaptureSettings& settings, const model::Config& config,
                           std::int64_t n_tokens, bool with_maps, std::int64_t layers_together);

/// Takes the statistics of one sample while the model runs over it: prefill() for every layer of
/// the prompt, end_prefill() once, then decode() for every layer of each generated token and
/// end_decode() behind it, then take().
class SampleCapture {
 public:
  /// `with_maps` says that column sums, maps and raw tensors are taken of this sample.
  SampleCapture(const profile::CaptureSettings& settings, const model::Config& config,
                std::int64_t n_tokens, bool with_maps);
  SampleCapture(SampleCapture&&) noexcept;
  ~SampleCapture();

  /// The prompt's queries of a layer before RoPE, and then what its attention works on.
  void queries(std::int64_t layer, const AnyView<3>& query);
  void reach(std::int64_t layer, std::span<const float> of_heads);
  void prefill(const AttentionInputs& in);
  /// Takes what needs all layers at once, and the next token's logits [vocab_size].
  void end_prefill(const Sequence& prompt);
  /// The generated token `step` (0: the first), as it is run.
  void begin_decode(std::int64_t step, std::int64_t token);
  void decode(const AttentionInputs& in);
  void end_decode();
  void set_argmax(std::int64_t position, std::int64_t token);
  /// The share of positions whose best token stayed under the proximal count of this index.
  void set_agreement(std::size_t index, double share);

  struct State;

  /// Returns the arrays. The caller fills in tokens and description.
  profile::Sample take();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kvatlas::capture
