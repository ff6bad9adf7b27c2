// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/evidence_cache.hpp"

#include <functional>

#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

EvidenceCache::EvidenceCache(Session& session) : session_(session) {
  connect(&session_, &Session::profile_changed, this, [this] {
    layers_.clear();
    emit layers_changed();
    open();
  });
  connect(&session_, &Session::documents_changed, this, &EvidenceCache::open);
  connect(&session_, &Session::choices_changed, this, &EvidenceCache::refresh_stale);
}

LayerDecision EvidenceCache::layer(std::int64_t layer) const {
  const auto at = static_cast<std::size_t>(layer);
  return at < layers_.size() ? layers_[at] : LayerDecision{};
}

LayerWords EvidenceCache::words() const {
  return session_.profile() ? layer_words(layers_, session_.profile()->header()) : LayerWords{};
}

void EvidenceCache::open() {
  ++opened_;
  refresh_stale();
}

template <class Model, class Read>
bool EvidenceCache::refresh(Kept<Model>& kept, const std::string& choices, Read read) {
  const std::string wanted = str(opened_, '\n', session_.choices().task, '\n', choices);
  if (wanted == kept.of) return false;
  kept = {{}, kept.version + 1, wanted};
  const auto take = [this, &kept, wanted](OrReason<Model> found) {
    if (kept.of != wanted) return;
    kept = {std::move(found), kept.version + 1, wanted};
    emit changed();
    decide();
  };
  session_.profile()->read(
      this,
      [read, positions = session_.profile()->positions(session_.choices().task)](
          const profile::Reader& profile) { return read(profile, positions); },
      [take](Model model) {
        take({std::make_shared<const Model>(std::move(model)), {}});
      },
      [take](const std::string& reason) {
        take({nullptr, reason});
      });
  return true;
}

void EvidenceCache::refresh_stale() {
  if (!session_.profile()) return;
  const auto& lazy = session_.choices().lazy_arrays;
  const auto& counts = session_.choices().budget_counts;
  using profile::Reader;
  using Positions = std::vector<std::size_t>;
  const bool any[] = {
      refresh(lazy_,
              str(lazy.keep.initial, ' ', lazy.keep.recent, ' ', static_cast<int>(lazy.identify),
                  ' ', lazy.w_last),
              [lazy, section = session_.section(calibrate::method::kSimLayerKv.name)](
                  const Reader& profile, const Positions& positions) {
                return read_lazy_model(profile, positions, lazy, section);
              }),
      refresh(budgets_,
              str(counts.window, ' ', counts.kernel, ' ', static_cast<int>(counts.pooling)),
              [counts](const Reader& profile, const Positions& positions) {
                return read_budgets_model(profile, positions, counts);
              }),
      refresh(blocks_, {},
              [section = session_.section(calibrate::method::kPod.name)](
                  const Reader& profile, const Positions& positions) {
                return read_blocks_model(profile, positions, section);
              })};
  if (any[0] || any[1] || any[2]) emit changed();
  decide();
}

void EvidenceCache::decide() {
  if (!is_read() || !session_.profile()) return;
  latest_.request([this, opened = opened_, models = models(), choices = session_.choices(),
                   layers = session_.profile()->header().n_layers] {
    return [this, opened, found = layer_decisions(models, choices, layers)] {
      if (opened != opened_) return;
      layers_ = found;
      emit layers_changed();
    };
  });
}

}  // namespace kvatlas::viewer
