// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/hub_cache.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "analyzer/checkpoint/app_models.hpp"
#include "base/error.hpp"
#include "base/next_step.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {
namespace {

namespace fs = std::filesystem;

constexpr const char *kModels = "models--", *kBetween = "--";

/// Whether a text can be one part of a name or a revision, and no way out of the cache.
bool is_part(std::string_view text, std::string_view also) {
  return !text.empty() && text.front() != '.' && text.size() <= 200 &&
         std::all_of(text.begin(), text.end(), [&](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' ||
                  also.find(static_cast<char>(c)) != also.npos;
         });
}

/// "org/name", as models are called on the hub.
struct HubName {
  std::string org, name, revision;  // the latter may be empty
  std::string text() const { return org + "/" + name; }
  bool usable() const {
    return is_part(org, "") && is_part(name, "") && !name.ends_with(".gguf") &&
           !name.ends_with(".json") &&
           (revision.empty() || (is_part(revision, "/") && revision.find("..") == revision.npos));
  }
};

HubName hub_name(const std::string& text) {
  const auto at = std::min(text.find('@'), text.size());
  const auto slash = std::min(text.find('/'), at);
  HubName out{text.substr(0, slash), slash < at ? text.substr(slash + 1, at - slash - 1) : "", ""};
  if (at < text.size()) out.revision = text.substr(at + 1);
  if (at + 1 == text.size()) out.name.clear();  // "org/name@" names no revision
  return out;
}

fs::path cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  for (const auto& [name, below] : {std::pair{"HF_HUB_CACHE", ""},
                                    {"HF_HOME", "hub"},
                                    {"XDG_CACHE_HOME", "huggingface/hub"},
                                    {"HOME", ".cache/huggingface/hub"}})
    if (const fs::path folder = variable(name); !folder.empty())
      return *below != '\0' ? folder / below : folder;
  return {};
}

/// The commit that a branch or tag stands for; "" if the cache does not know it.
std::string commit_of(const fs::path& model, const std::string& revision) {
  std::ifstream file(model / "refs" / revision);
  std::string commit;
  file.width(100);  // a hash has 40 digits
  file >> commit;
  return is_part(commit, "") ? commit : "";
}

/// GGUF files of a folder, and of the folders in it that hold one quantisation each.
std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  for (; !error && entries != fs::recursive_directory_iterator() && out.size() < 2;
       entries.increment(error)) {
    if (entries.depth() > 1) entries.disable_recursion_pending();
    if (entries->path().extension() == ".gguf") out.push_back(entries->path());
  }
  return out;
}

}  // namespace

fs::path found_model(const fs::path& given) {
  std::error_code error;
  const HubName name = hub_name(given.string());
  if (fs::exists(fs::symlink_status(given, error))) return given;
  if (const auto found = model_of_app(given.string())) return *found;
  if (!name.usable()) return given;
  const fs::path cache = cache_folder();
  const fs::path model = cache / str(kModels, name.org, kBetween, name.name);
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  std::vector<std::string> candidates = {commit_of(model, revision)};
  if (is_part(revision, "")) candidates.push_back(revision);
  for (const std::string& commit : candidates) {
    const fs::path snapshot = model / "snapshots" / commit;
    if (commit.empty() || !fs::is_directory(snapshot, error)) continue;
    if (fs::exists(snapshot / "config.json", error)) return snapshot;
    const auto files = gguf_files(snapshot);
    return files.size() == 1 ? files.front() : snapshot;
  }
  if (name.revision.empty())
    if (const auto found = lm_studio_model(name.text())) return *found;
  fail(ErrorCode::usage, "there is no ", quoted(given.string(), 400),
       " here, nor in the Hugging Face cache ", printable(cache.string(), 400),
       " or LM Studio's folder, and nothing is downloaded: 'hf download ", name.text(),
       name.revision.empty() ? "" : " --revision " + name.revision,
       "' would fetch it; or give a GGUF file or the folder of a downloaded model");
}

std::string name_of_folder(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  const std::string model = whole.parent_path().parent_path().filename().string();
  std::string name = whole.filename().string();
  if (whole.parent_path().filename() == "snapshots" && model.starts_with(kModels)) {
    name = model.substr(std::string_view(kModels).size());
    if (const auto between = name.find(kBetween); between != name.npos)
      name.replace(between, 2, "/");
  }
  return repaired_utf8(name);
}

}  // namespace kvatlas::model
