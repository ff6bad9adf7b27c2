// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/sample_facts.hpp"

#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

SampleFacts::SampleFacts(Session& session, QObject* parent) : QObject(parent), session_(session) {
  connect(&session_, &Session::profile_changed, this, [this] {
    sample_.reset();
    read_tokens();
  });
  connect(&session_.selection(), &SelectionModel::changed, this, &SampleFacts::read_tokens);
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

}  // namespace kvatlas::viewer
