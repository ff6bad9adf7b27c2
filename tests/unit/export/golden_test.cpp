// SPDX-License-Identifier: Apache-2.0
// What is exported, byte for byte. A folder golden/RUNTIME/CASE holds the files expected, and
// export.json, which says what they are made from: "document" and "config" (files of documents/),
// "architecture" (instead of the document's), "section", "task", "fixed", "length"; and the
// "scripts" of export/ that are handed out as they are. With
// KVATLAS_WRITE_GOLDEN=1 the files are written anew, and the tests fail so that somebody looks at
// them.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/exporters.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::exporting {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kFolder = kvatlas::testing_support::source_folder() / "tests/unit/export";

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// "vllm/lazy_qwen2", …: the folders that hold an export.json.
std::vector<std::string> cases() {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(kFolder / "golden"))
    if (entry.path().filename() == "export.json")
      found.push_back(entry.path().parent_path().lexically_relative(kFolder / "golden").string());
  std::sort(found.begin(), found.end());
  return found;
}

ExportRequest request_of(const fs::path& folder, const json& words) {
  ExportRequest request;
  request.runtime = folder.parent_path().filename().string();
  request.section = words.value("section", "");
  request.task = words.value("task", "");
  request.fixed = words.value("fixed", false);
  request.length = words.value("length", std::int64_t{0});
  if (words.contains("config"))
    request.config =
        json::parse(read(kFolder / "documents" / words.at("config").get<std::string>()));
  return request;
}

using Files = std::map<std::string, std::string>;

Files files_of(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path() != folder / "export.json")
      files[entry.path().lexically_relative(folder).string()] = read(entry.path());
  return files;
}

/// A script of export/ that is handed out as it is: no case has a copy of it.
fs::path script_source(const std::string& path) {
  return kvatlas::testing_support::source_folder() / "export" / path;
}
bool is_script(const std::string& path) {
  return path.ends_with(".py") && fs::exists(script_source(path));
}

void write_anew(const fs::path& folder, const Files& files) {
  for (const auto& [path, content] : files_of(folder)) fs::remove(folder / path);
  for (const auto& [path, content] : files) {
    if (is_script(path)) continue;
    fs::create_directories((folder / path).parent_path());
    std::ofstream(folder / path, std::ios::binary) << content;
  }
}

calibrate::Document document_of(const json& words) {
  auto document =
      calibrate::read_document(kFolder / "documents" / words.at("document").get<std::string>());
  document.model.architecture = words.value("architecture", document.model.architecture);
  return document;
}

TEST(GoldenCases, EveryFormThatARuntimeTakesHasOne) {
  std::set<std::pair<std::string, calibrate::Form>> covered;
  for (const auto& name : cases()) {
    const auto folder = kFolder / "golden" / name;
    const auto words = json::parse(read(folder / "export.json"));
    const auto document = document_of(words);
    const auto request = request_of(folder, words);
    for (const auto& policy : calibrate::policies_of(document, request.task)) {
      if (!request.section.empty() && policy.section != request.section) continue;
      const auto given = calibrate::given_to_runtime(
          document, policy, calibrate::runtime_named(request.runtime), request.fixed);
      covered.emplace(request.runtime, calibrate::form_of(given.policy.parts.at(0)).value());
    }
  }
  for (const auto& runtime : calibrate::runtimes())
    for (const auto& form : calibrate::kForms)
      EXPECT_EQ(covered.contains({runtime.name, form.form}), runtime.takes(form.form))
          << runtime.name << ", " << form.text;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, FilesAreEqual) {
  const auto folder = kFolder / "golden" / GetParam();
  const auto words = json::parse(read(folder / "export.json"));
  const auto document = document_of(words);
  const auto result = export_document(document, request_of(folder, words));
  ASSERT_EQ(result.policies.size(), 1) << "a case is of one policy: name its section";
  Files files;
  for (const auto& [path, content] : result.policies.front().files)
    EXPECT_TRUE(files.emplace(path, content).second) << path << " is written twice";
  if (std::getenv("KVATLAS_WRITE_GOLDEN")) {
    write_anew(folder, files);
    FAIL() << "written anew: look at the files, then run without KVATLAS_WRITE_GOLDEN";
  }
  auto expected = files_of(folder);
  for (const auto& script : words.value("scripts", std::vector<std::string>{}))
    expected[script] = read(script_source(script));
  for (const auto& [path, content] : expected)
    EXPECT_TRUE(files.count(path)) << path << " is expected and not exported";
  for (const auto& [path, content] : files) {
    ASSERT_TRUE(expected.count(path)) << path << " is exported and not expected";
    EXPECT_EQ(content, expected.at(path)) << path;
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& of) {
  std::string name = of.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Runtimes, Golden, testing::ValuesIn(cases()), test_name);

}  // namespace
}  // namespace kvatlas::exporting
