// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/sample_facts.hpp"

#include "base/str.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

SampleFacts::SampleFacts(Session& session, QObject* parent) : QObject(parent), session_(session) {
  connect(&session_, &Session::profile_changed, this, [this] {
    sample_.reset();
    read_for_.clear();
    lazy_.reset();
    ++reading_;
    of_model_.clear();
    if (const auto* profile = session_.profile()) {
      const auto& window = profile->header().window;
      std::vector<std::int64_t> windowed, full;
      for (std::size_t layer = 0; layer < window.size(); ++layer)
        (window[layer] > 0 ? windowed : full).push_back(static_cast<std::int64_t>(layer));
      if (!windowed.empty()) of_model_ = {{"windowed", windowed}, {"full", full}};
    }
    predicates_ = of_model_;
    read_tokens();
    read_lazy();
    emit predicates_changed();
  });
  connect(&session_.selection(), &SelectionModel::changed, this, &SampleFacts::read_tokens);
  connect(&session_, &Session::choices_changed, this, &SampleFacts::read_lazy);
}

void SampleFacts::read_tokens() {
  auto* profile = session_.profile();
  const auto sample = session_.selection().current().sample;
  if (!profile || sample_ == sample || sample >= profile->samples().size()) return;
  sample_ = sample;
  tokens_.clear();
  texts_.clear();
  emit tokens_changed();
  using Read = std::pair<std::vector<std::int32_t>, std::vector<std::string>>;
  profile->read(
      this,
      [sample](const profile::Reader& reader) {
        return Read{reader.tokens(sample), read_token_texts(reader, sample)};
      },
      [this, sample, profile](Read read) {
        if (profile != session_.profile() || sample_ != sample) return;  // overtaken
        tokens_ = std::move(read.first);
        texts_ = std::move(read.second);
        emit tokens_changed();
      },
      [this](const std::string& failure) {
        emit session_.message(QString::fromStdString(failure));
      });
}

/// Anew if another grid or set of samples is asked for; else only computed anew.
void SampleFacts::read_lazy() {
  auto* profile = session_.profile();
  if (!profile) return;
  const auto& choices = session_.choices();
  const auto& arrays = choices.lazy_arrays;
  const auto wanted = str(choices.task, '\n', arrays.keep.initial, ' ', arrays.keep.recent, ' ',
                          static_cast<int>(arrays.identify), ' ', arrays.w_last);
  if (wanted == read_for_) {
    compute_lazy();
    return;
  }
  read_for_ = wanted;
  lazy_.reset();
  const auto reading = ++reading_;
  profile->read(
      this,
      [positions = profile->positions(choices.task), arrays](const profile::Reader& reader) {
        return read_lazy_model(reader, positions, arrays, nullptr);
      },
      [this, reading](LazyModel model) {
        if (reading != reading_) return;
        lazy_ = std::make_shared<const LazyModel>(std::move(model));
        compute_lazy();
      },
      [this, reading](const std::string&) {
        // Not captured: no layer is called lazy then. The screen says what is missing.
        if (reading != reading_) return;
        predicates_ = of_model_;
        emit predicates_changed();
      });
}

void SampleFacts::compute_lazy() {
  if (!lazy_) return;
  latest_.request([this, model = lazy_, settings = session_.choices().lazy, reading = reading_,
                   predicates = of_model_]() mutable -> std::function<void()> {
    const LazyView view = lazy_view(*model, settings);
    std::vector<std::int64_t> lazy, near_half;
    for (std::size_t layer = 0; layer < view.rates.size(); ++layer)
      if (view.rates[layer] >= settings.share) lazy.push_back(static_cast<std::int64_t>(layer));
    for (const auto layer : view.near_half) near_half.push_back(static_cast<std::int64_t>(layer));
    predicates.insert(predicates.begin(), {{"lazy", lazy}, {"near half", near_half}});
    return [this, reading, predicates = std::move(predicates)] {
      if (reading != reading_) return;  // of another profile or set of samples
      predicates_ = predicates;
      emit predicates_changed();
    };
  });
}

}  // namespace kvatlas::viewer
