// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/layer_evidence.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include "base/error.hpp"
#include "base/str.hpp"

namespace kvatlas::viewer {

namespace {

/// The choices that other arrays are read for.
auto arrays_for(const Choices& choices) {
  const auto& lazy = choices.lazy_arrays;
  const auto& counts = choices.budget_counts;
  return std::tuple(choices.task, lazy.keep.initial, lazy.keep.recent, lazy.identify, lazy.w_last,
                    counts.window, counts.kernel, counts.pooling);
}

}  // namespace

LayerEvidence::LayerEvidence(Session& session, QObject* parent)
    : QObject(parent), session_(session) {
  connect(&session_, &Session::profile_changed, this, [this] {
    arrays_.reset();
    notes_.clear();
    emit changed();
    read();
  });
  connect(&session_, &Session::documents_changed, this, &LayerEvidence::read);
  connect(&session_, &Session::choices_changed, this, &LayerEvidence::choices_changed);
  read();
}

LayerNote LayerEvidence::note(std::int64_t layer) const {
  const auto at = static_cast<std::size_t>(layer);
  return at < notes_.size() ? notes_[at] : LayerNote{};
}

void LayerEvidence::choices_changed() {
  if (arrays_for(session_.choices()) == arrays_for(read_for_))
    make_notes();
  else
    read();
}

void LayerEvidence::read() {
  OpenedProfile* profile = session_.profile();
  if (!profile) return;
  const Choices choices = session_.choices();
  read_for_ = choices;
  const auto positions = profile->positions(choices.task);
  const nlohmann::json lazy = session_.section("simlayerkv"), pod = session_.section("pod");
  profile->read(
      this,
      [=](const profile::Reader& reader) {
        auto arrays = std::make_shared<Arrays>();
        // Each stands alone: a profile may have been taken without the others.
        const auto attempt = [](auto& into, auto&& read) {
          try {
            into = read();
          } catch (const Error&) {
            into.reset();
          }
        };
        attempt(arrays->lazy,
                [&] { return read_lazy_model(reader, positions, choices.lazy_arrays, lazy); });
        attempt(arrays->budgets,
                [&] { return read_budgets_model(reader, positions, choices.budget_counts); });
        attempt(arrays->blocks, [&] { return read_blocks_model(reader, positions, pod); });
        return std::shared_ptr<const Arrays>(arrays);
      },
      [this](std::shared_ptr<const Arrays> arrays) {
        arrays_ = std::move(arrays);
        make_notes();
      },
      [](const std::string&) {});
}

void LayerEvidence::make_notes() {
  if (!arrays_ || !session_.profile()) return;
  const auto layers = static_cast<std::size_t>(session_.profile()->header().n_layers);
  latest_.request([this, layers, arrays = arrays_, choices = session_.choices()] {
    std::vector<LayerNote> notes(layers);
    const auto attempt = [](auto&& make) {
      try {
        make();
      } catch (const Error&) {
        return;  // not known with these choices
      }
    };
    attempt([&] {
      if (!arrays->lazy) return;
      const auto view = lazy_view(*arrays->lazy, choices.lazy);
      for (std::size_t i = 0; i < std::min(layers, view.fixed.lazy.size()); ++i)
        notes[i].lazy = view.fixed.lazy[i] != 0;
    });
    attempt([&] {
      if (!arrays->budgets) return;
      const auto view = budgets_view(*arrays->budgets, choices.budgets);
      for (std::size_t i = 0; i < std::min(layers, view.all.budgets.size()); ++i)
        notes[i].budget = view.all.budgets[i];
    });
    attempt([&] {
      if (!arrays->blocks) return;
      const auto view = blocks_view(*arrays->blocks, choices.blocks);
      for (std::size_t i = 0; i < layers; ++i) {
        std::size_t begins = 0;
        for (const auto& head : view.blocks)
          if (i < head.size() && head[i] == static_cast<std::int64_t>(i)) ++begins;
        notes[i].blocks = str(begins, "/", view.blocks.size());
      }
    });
    return std::function<void()>([this, arrays, notes] {
      if (arrays != arrays_) return;  // of a profile that was closed
      notes_ = notes;
      emit changed();
    });
  });
}

}  // namespace kvatlas::viewer
