// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/sample_capture.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <c10/core/InferenceMode.h>

#include "analyzer/capture/sample_capture_impl.hpp"
#include "analyzer/capture/value_cosines.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::capture {

using profile::Type;
namespace name = profile::name;

namespace {

/// What is held while a layer is looked at for what selections keep: LagKV's positions.
std::int64_t kept_bytes(const profile::CaptureSettings& settings, std::int64_t kv_heads,
                        std::int64_t n_tokens) {
  std::int64_t positions = 0;
  for (const auto& selection : settings.selections())
    if (selection.method == profile::KeepRule::Method::lagkv)
      positions += kernels::lag_length(n_tokens, settings.sink, selection.lag, selection.keep);
  return 8 * kv_heads * positions;
}

}  // namespace

CaptureBytes capture_bytes(const profile::CaptureSettings& settings, const model::Config& config,
                           std::int64_t n_tokens, bool with_maps, std::int64_t layers_together) {
  const std::int64_t L = config.n_layers, H = config.n_heads, K = config.n_kv_heads;
  const std::int64_t d = config.head_dim, n = n_tokens;
  std::int64_t arrays = profile::statistics_bytes(settings, config);
  // The last rows of a layer are gone when the first generated token has run.
  const std::int64_t last_rows = 4 * H * std::min(settings.last_rows(), n) * n;
  const std::int64_t kept =
      settings.kept ? std::min(layers_together, L) * kept_bytes(settings, K, n) : 0;
  std::int64_t working =
      4 * L * H * std::min(settings.held_rows(), n) * n + std::max(last_rows, kept);
  if (settings.scores) working += 4 * L * H * n;  // window scores of one kind
  if (settings.values) working += 2 * 4 * L * K * std::min(kComparedTokens, n) * d;
  if (with_maps) {
    const std::int64_t side =
        kernels::map_blocks(n, kernels::finest_map_block(n, settings.map_blocks()));
    const std::int64_t cells = 2 * (side * side * 4 / 3 + side);
    const std::int64_t width = profile::type_bytes(settings.map_type);
    if (settings.maps)
      arrays += L * H * (cells + std::min(settings.js_rows, n) * n) * width +
                L * static_cast<std::int64_t>(settings.selections().size()) * K * n / 8 +
                8 * L * K * n;
    if (settings.maps || settings.columns) working += H * (cells + 2 * n) * 4;
    if (settings.columns) arrays += 2 * 4 * L * H * n;
    if (settings.keep_qkv)
      arrays += 4 * static_cast<std::int64_t>(settings.keep_layers.size()) * (H + 2 * K) * n * d;
    if (settings.keep_scores)
      arrays += 4 * static_cast<std::int64_t>(settings.window_kinds.size()) * L * H * n;
  }
  return {working, arrays};
}

SampleCapture::State::State(const profile::CaptureSettings& s, const model::Config& c,
                            std::int64_t n, bool maps)
    : settings(s),
      config(c),
      n_tokens(n),
      with_maps(maps),
      arrays(profile::descriptions(s, c)),
      selections(s.selections()) {
  column_sums.resize(static_cast<std::size_t>(c.n_layers));
}

profile::Array& SampleCapture::State::array(const std::string& name,
                                            std::vector<std::int64_t> shape) {
  const std::lock_guard lock(making);
  const auto found = sample.arrays.find(name);
  if (found != sample.arrays.end()) return found->second;
  const auto described = std::find_if(arrays.begin(), arrays.end(),
                                      [&](const auto& array) { return array.name == name; });
  if (described == arrays.end()) fail(ErrorCode::internal, "no array is called ", name);
  if (!described->sizes.empty()) shape = described->sizes;
  profile::Array made(described->type, std::move(shape));
  if (made.type == Type::f32) {
    const auto values = made.values<float>();
    std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
  } else if (made.type == Type::i32 || made.type == Type::i64) {
    std::fill(made.bytes.begin(), made.bytes.end(), std::byte{0xff});
  }
  return sample.arrays.emplace(name, std::move(made)).first->second;
}

void SampleCapture::State::store(const at::Tensor& tensor, const std::string& name,
                                 std::initializer_list<std::int64_t> at,
                                 std::vector<std::int64_t> shape) {
  profile::Array& to = array(name, std::move(shape));
  std::size_t axis = 0, offset = 0;
  for (const std::int64_t index : at)
    offset = offset * static_cast<std::size_t>(to.shape[axis++]) + static_cast<std::size_t>(index);
  const at::Tensor dense = tensor.cpu().contiguous();
  std::size_t part = static_cast<std::size_t>(profile::type_bytes(to.type));
  for (; axis < to.shape.size(); ++axis) part *= static_cast<std::size_t>(to.shape[axis]);
  if (dense.nbytes() != part || (offset + 1) * part > to.bytes.size())
    fail(ErrorCode::internal, "array ", name, " and what is to go there differ in size");
  if (part > 0) std::memcpy(to.bytes.data() + offset * part, dense.const_data_ptr(), part);
}

SampleCapture::SampleCapture(const profile::CaptureSettings& settings, const model::Config& config,
                             std::int64_t n_tokens, bool with_maps)
    : state_(std::make_unique<State>(settings, config, n_tokens, with_maps)) {}
SampleCapture::SampleCapture(SampleCapture&&) noexcept = default;
SampleCapture::~SampleCapture() = default;

void SampleCapture::queries(std::int64_t layer, const AnyView<3>& query) {
  state_->add_queries(layer, query);
}

void SampleCapture::reach(std::int64_t layer, std::span<const float> of_heads) {
  const auto all = state_->array(name::kHeadReach).values<float>();
  std::copy(of_heads.begin(), of_heads.end(),
            all.begin() + layer * static_cast<std::int64_t>(of_heads.size()));
}

void SampleCapture::prefill(const AttentionInputs& in) {
  State& s = *state_;
  if (s.settings.last_rows() > 0) s.add_rows(in);
  if (s.settings.heatmap) s.add_strided_rows(in);
  if (s.settings.norms) s.add_norms(in);
  if (s.settings.ranges) s.add_ranges(in);
  if (s.with_maps && (s.settings.maps || s.settings.columns)) s.add_maps(in);
  if (s.with_maps && s.settings.keep_qkv) s.add_raw(in);
}

void SampleCapture::end_prefill(const Sequence& prompt) {
  State& s = *state_;
  if (s.settings.js) s.add_divergence();
  if (s.settings.scores || s.settings.kept || s.settings.keep_scores) s.add_scores();
  if (s.settings.values) {
    const auto cosines = value_cosines(prompt, s.config, s.n_tokens);
    std::copy(cosines.begin(), cosines.end(), s.array(name::kValueCosine).values<float>().begin());
  }
  if (s.settings.next) s.add_next(prompt.logits());
}

void SampleCapture::begin_decode(std::int64_t step, std::int64_t token) {
  state_->step = step;
  if (state_->settings.lazy)
    state_->array(name::kGeneratedTokens).values<std::int32_t>()[step] =
        static_cast<std::int32_t>(token);
}

std::int64_t layers_together(const Placement& placement) {
  return placement.device == "cpu" ? thread_count() : 1;
}

void SampleCapture::decode(const AttentionInputs& in) {
  State& s = *state_;
  if (in.query.memory == Memory::device) {
    s.add_generated(in);
    return;
  }
  State::Generated& added = s.generated.emplace_back();
  added.in = in;
  added.query = tensor_of(in.query).clone();
  added.in.query = any_view<3>(added.query);
  if (in.sinks.data) {
    added.sinks = tensor_of(in.sinks).clone();
    added.in.sinks = view_of<const float, 1>(added.sinks);
  }
}

void SampleCapture::end_decode() {
  State& s = *state_;
  parallel_for(std::ssize(s.generated), [&](std::int64_t layer, int) {
    const c10::InferenceMode no_gradients;
    s.add_generated(s.generated[layer].in);
  });
  s.generated.clear();
}

void SampleCapture::State::add_generated(const AttentionInputs& in) {
  if (settings.lazy) add_decode_masses(in);
  if (settings.kept && step == 0) add_kept(in);
}

void SampleCapture::set_argmax(std::int64_t position, std::int64_t token) {
  state_->array(name::kArgmax, {state_->n_tokens}).values<std::int32_t>()[position] =
      static_cast<std::int32_t>(token);
}

void SampleCapture::set_agreement(std::size_t index, double share) {
  state_->array(name::kAgreement).values<float>()[index] = static_cast<float>(share);
}

profile::Sample SampleCapture::take() { return std::move(state_->sample); }

void SampleCapture::State::add_next(const std::vector<float>& logits) {
  const auto logit = [&](std::int64_t id) { return logits[id]; };
  const auto top_ids = array(name::kTopIds).values<std::int32_t>();
  const auto top_logits = array(name::kTopLogits).values<float>();
  const auto ids = best_tokens(logits, top_ids.size());
  double sum = 0, exponentials = 0;
  for (const float value : logits) {
    sum += static_cast<double>(value);
    exponentials += std::exp(static_cast<double>(value - logit(ids[0])));
  }
  for (std::size_t i = 0; i < top_ids.size(); ++i) {
    top_ids[i] = static_cast<std::int32_t>(ids[i]);
    top_logits[i] = logit(ids[i]);
  }
  array(name::kLogitSum).values<float>()[0] = static_cast<float>(sum);
  array(name::kLogSumExp).values<float>()[0] =
      static_cast<float>(std::log(exponentials) + static_cast<double>(logit(ids[0])));
}

}  // namespace kvatlas::capture
