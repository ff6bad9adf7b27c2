// SPDX-License-Identifier: Apache-2.0
// What needs all layers of the prompt (divergence, window scores), and what is taken of the
// generated tokens: masses, and the attention that selections keep.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "analyzer/capture/sample_capture_impl.hpp"
#include "analyzer/capture/selections-inl.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::capture {

namespace name = profile::name;

void SampleCapture::State::add_divergence() {
  const std::int64_t rows = std::min(settings.js_rows, n_tokens), held = held_rows.size(2);
  const at::Tensor last = held_rows.narrow(2, held - rows, rows);
  const at::Tensor mean = at::empty({config.n_heads, layers(), layers()}, held_rows.options());
  kernels::js_divergence({AnyView<4>(view_of<const float, 4>(last)), view_of<float, 3>(mean), {}});
  store(mean, name::kDivergence);
}

void SampleCapture::State::add_scores() {
  const std::int64_t L = layers(), H = config.n_heads;
  layer_budgets.resize(settings.window_kinds.size());
  for (std::size_t number = 0; number < settings.window_kinds.size(); ++number) {
    const auto& kind = settings.window_kinds[number];
    const auto index = static_cast<std::int64_t>(number);
    const std::int64_t positions = n_tokens - kind.window;
    if (positions < 1) continue;
    const auto count_layers = [&](std::int64_t groups, const std::vector<std::int64_t>& k) {
      at::Tensor scores = at::empty({L, groups, positions}, held_rows.options());
      for (std::int64_t l = 0; l < L; ++l)
        scores.select(0, l).copy_(window_scores(held_rows.select(0, l), kind, groups));
      if (groups == H && with_maps && settings.keep_scores)
        store(scores, name::kWindowScores, {index},
              {static_cast<std::int64_t>(settings.window_kinds.size()), L, H, positions});
      at::Tensor counts =
          at::empty({static_cast<std::int64_t>(k.size()), L}, held_rows.options().dtype(at::kLong));
      kernels::top_counts({view_of<const float, 3>(scores), k, view_of<std::int64_t, 2>(counts)});
      return counts.cpu();
    };
    std::vector<std::int64_t> k;
    for (const auto budget : settings.budgets)
      k.push_back(std::min(budget - kind.window, positions) * H * L);
    const at::Tensor counts = count_layers(H, k);
    for (std::size_t b = 0; b < k.size(); ++b) {
      const std::int64_t* row =
          counts.const_data_ptr<std::int64_t>() + static_cast<std::int64_t>(b) * L;
      layer_budgets[number].push_back(kernels::layer_budgets({row, static_cast<std::size_t>(L)},
                                                             settings.budgets[b] - kind.window,
                                                             positions)
                                          .exact);
    }
    if (!settings.scores) continue;
    store(counts, name::kCounts, {index});
    store(count_layers(1, {std::min<std::int64_t>(128, positions) * L}).select(0, 0),
          name::kRetention, {index});
  }
}

void SampleCapture::State::add_decode_masses(const AttentionInputs& in) {
  const std::int64_t H = config.n_heads;
  const auto P = static_cast<std::int64_t>(settings.proximities.size());
  const auto on = float_on(in.query);
  const at::Tensor all = at::empty({3, P, H, 1}, on);
  kernels::LastRows io = rows_of(in);
  io.grid = settings.proximities;
  io.mass = view_of<float, 3>(all[0]);
  io.proximal_lse = view_of<float, 3>(all[1]);
  io.distant_lse = view_of<float, 3>(all[2]);
  kernels::last_rows(io);
  const at::Tensor here = all.cpu();  // from the GPU at once
  const at::Tensor layer_mass = here[0].to(at::kDouble).mean(1).to(at::kFloat);  // [P, 1]
  const auto stored = array(name::kGeneratedMass).values<float>();
  for (std::int64_t p = 0; p < P; ++p) {
    if (step == 0) {
      store(here[0][p], name::kDecodeMass, {p, in.layer});
      store(here[1][p], name::kDecodeProximalLse, {p, in.layer});
      store(here[2][p], name::kDecodeDistantLse, {p, in.layer});
    }
    stored[(p * layers() + in.layer) * settings.generated + step] =
        layer_mass.const_data_ptr<float>()[p];
  }
}

}  // namespace kvatlas::capture
