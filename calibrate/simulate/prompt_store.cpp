// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/prompt_store.hpp"

#include <utility>

#include "base/error.hpp"

namespace kvatlas::calibrate {

std::shared_ptr<const ReadPrompt> PromptStore::find(const capture::Engine& engine, const Key& key,
                                                    const Needs& needs) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return nullptr;
  std::shared_ptr<const ReadPrompt> prompt = found->second.in_memory;
  if (!prompt) {
    std::int64_t place = found->second.place;
    prompt = std::make_shared<const ReadPrompt>(
        ReadPrompt::load(engine, [&](std::span<std::byte> bytes) {
          file_->read(place, bytes);
          place += static_cast<std::int64_t>(bytes.size());
        }));
  }
  return prompt->tells(needs) ? prompt : nullptr;
}

void PromptStore::keep(Key key, std::shared_ptr<const ReadPrompt> prompt) {
  if (const auto old = kept_.find(key); old != kept_.end()) {
    if (old->second.in_memory) room_.memory += old->second.in_memory->bytes();
    kept_.erase(old);
  }
  if (const std::int64_t bytes = prompt->bytes(); bytes <= room_.memory) {
    room_.memory -= bytes;
    kept_[std::move(key)] = {std::move(prompt), 0};
    return;
  }
  if (room_.disk > 0 && trouble_.empty()) keep_on_disk(std::move(key), *prompt);
}

void PromptStore::keep_on_disk(Key key, const ReadPrompt& prompt) {
  try {
    if (!file_) file_.emplace(room_.beside, room_.disk);
    if (!file_->has_room(prompt.bytes())) return;
    const std::int64_t place = file_->size();
    try {
      prompt.save([&](std::span<const std::byte> bytes) { file_->append(bytes); });
    } catch (...) {
      file_->cut(place);
      throw;
    }
    kept_[std::move(key)] = {nullptr, place};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::resource) throw;
    trouble_ = error.what();
  }
}

}  // namespace kvatlas::calibrate
