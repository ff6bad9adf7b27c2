// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/project/sources.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/policy/method.hpp"

namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

std::string read(const std::string& file) {
  std::ifstream in(project_root() / file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Sources, ListFindsThisFileAndTheScripts) {
  EXPECT_THAT(project_sources({".cpp"}), Contains("tests/unit/project/sources_test.cpp"));
  EXPECT_THAT(project_sources({""}), Contains("dev"));
  EXPECT_THAT(project_sources({""}), Contains(".ci/run"));
}

/// project_headers counts on it, and a header is included once.
TEST(Sources, IncludeTheirOwnHeaderFirst) {
  const auto first_include = [](const std::string& text) {
    const auto at = text.find("#include ");
    return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(first_include("// x\n#include \"a.hpp\"\n#include <b>\n"), "#include \"a.hpp\"");
  std::vector<std::string> not_first, without_guard;
  int pairs = 0;
  for (const auto& header : project_sources({".hpp"})) {
    const bool body = header.find("-inl.hpp") != header.npos;  // once for each instruction set
    if (!body && read(header).find("\n#pragma once\n") == std::string::npos)
      without_guard.push_back(header);
    const auto source = std::filesystem::path(header).replace_extension(".cpp");
    if (header.rfind("kernels/", 0) == 0 || header.rfind("tests/", 0) == 0 ||
        !std::filesystem::exists(project_root() / source))
      continue;
    ++pairs;
    if (first_include(read(source.string())) != "#include \"" + header + "\"")
      not_first.push_back(header);
  }
  EXPECT_GT(pairs, 100);
  EXPECT_THAT(not_first, IsEmpty());
  EXPECT_THAT(without_guard, IsEmpty());
}

/// The first line says the licence, or the second where the first names the interpreter.
bool has_licence(const std::string& text) {
  auto first = text.substr(0, text.find('\n'));
  if (first.rfind("#!", 0) == 0) {
    const auto rest = text.substr(first.size() + 1);
    first = rest.substr(0, rest.find('\n'));
  }
  return first == "// SPDX-License-Identifier: Apache-2.0" ||
         first == "# SPDX-License-Identifier: Apache-2.0";
}

TEST(Sources, LicenceLine) {
  EXPECT_TRUE(has_licence("# SPDX-License-Identifier: Apache-2.0\n"));
  EXPECT_TRUE(has_licence("#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"));
  EXPECT_FALSE(has_licence("\n// SPDX-License-Identifier: Apache-2.0\n"));
  EXPECT_FALSE(has_licence("int main() {}"));

  std::vector<std::string> without;
  for (const auto& file :
       project_sources({".c", ".cpp", ".hpp", ".cu", ".cuh", ".cmake", ".py", ".sh"}))
    if (!has_licence(read(file))) without.push_back(file);
  for (const auto& file : project_sources({".txt"}))
    if (std::filesystem::path(file).filename() == "CMakeLists.txt" && !has_licence(read(file)))
      without.push_back(file);
  for (const auto* script : {"dev", ".ci/run"})
    if (!has_licence(read(script))) without.push_back(script);
  EXPECT_THAT(without, IsEmpty());
}

TEST(Sources, NameNoMachinesFolders) {
  std::vector<std::string> found;
  for (const auto& file : project_sources(
           {".cpp", ".hpp", ".cu", ".cuh", ".cmake", ".py", ".sh", ".md", ".json", ".txt", ""})) {
    if (file.rfind("tests/fuzz/corpus/", 0) == 0) continue;
    const auto text = read(file);
    for (const char* folder : {"home", "work", "root", "Users"})
      if (text.find(std::string("/") + folder + "/") != text.npos)
        found.push_back(file + " names a path under /" + folder);
  }
  EXPECT_THAT(found, IsEmpty());
}

/// Whether the text names a method of calibration by a literal, or by its place in the table,
/// outside its comments. "precision" is also what a screen and a picture are called.
bool names_method(const std::string& text) {
  static const std::regex literal([] {
    std::string names;
    for (const auto& method : kvatlas::calibrate::kMethods)
      if (!method.is("precision")) names += (names.empty() ? "" : "|") + std::string(method.name);
    return R"re(^(?:[^"/]|/[^/]|"[^"]*")*?(?:"(?:)re" + names + R"re()"|kMethods(?:\[|\.at\()))re";
  }());
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (std::regex_search(line, literal)) return true;
  return false;
}

/// nvcc names a nameless namespace after its source's path, and builds in two folders would differ.
TEST(Sources, CudaSourcesNameTheirNamespaces) {
  int read_here = 0;
  for (const auto& source : project_sources({".cu"})) {
    if (source.starts_with("tests/")) continue;
    ++read_here;
    EXPECT_EQ(read(source).find("\nnamespace {"), std::string::npos) << source;
  }
  EXPECT_GT(read_here, 5);
}

/// What a method is called stands in calibrate/policy/method.hpp alone. Runtimes and exporters have
/// words of their own, some of them the same.
TEST(Sources, NameAMethodInOnePlace) {
  EXPECT_TRUE(names_method("add(\"pod\");"));
  EXPECT_TRUE(names_method("add(\"a/b\", \"lagkv\");"));
  EXPECT_FALSE(names_method("add(kPod);  // \"pod\""));
  EXPECT_FALSE(names_method("add(\"pods\");"));
  EXPECT_TRUE(names_method("add(\"headkv\");"));
  EXPECT_TRUE(names_method("add(calibrate::kMethods[4].title);"));
  EXPECT_FALSE(names_method("for (const auto& method : kMethods) // kMethods[4]"));

  std::vector<std::string> found;
  for (const auto& file : project_sources({".cpp", ".hpp"})) {
    const auto folder = file.substr(0, file.rfind('/'));
    if (file.rfind("calibrate/", 0) != 0 && file.rfind("viewer/", 0) != 0) continue;
    if (folder != "calibrate/runtimes" && names_method(read(file))) found.push_back(file);
  }
  EXPECT_THAT(found, ElementsAre("calibrate/policy/method.hpp"));
}

/// HDF5 believes forged files (docs/security.md), so it is given none to read.
TEST(Sources, HDF5ReadsNothing) {
  std::vector<std::string> found;
  for (const auto& file : project_sources({".cpp", ".hpp"})) {
    if (file.rfind("tests/", 0) == 0) continue;
    const std::string text = read(file);
    for (const char* call : {"H5Fopen", "H5Aread", "H5Aopen", "H5Dread", "H5Dopen", "H5Oopen"})
      if (text.find(call) != text.npos) found.push_back(file + ": " + call);
  }
  EXPECT_THAT(found, IsEmpty());
}

/// The types that a text defines in a namespace with a name, each with its whole name.
std::vector<std::string> types_of(const std::string& text) {
  static const std::regex opened("namespace ([\\w:]*) ?\\{.*");
  static const std::regex defined(
      "(?:template <.*> )?(?:struct|class|enum class) (\\w+)(?![\\w:;]).*");
  std::vector<std::string> namespaces, found;
  std::istringstream lines(text);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, opened)) {
      namespaces.push_back(match[1]);
    } else if (line.rfind("}  // namespace", 0) == 0 && !namespaces.empty()) {
      namespaces.pop_back();
    } else if (std::regex_match(line, match, defined) &&
               !std::count(namespaces.begin(), namespaces.end(), "")) {
      std::string name;
      for (const auto& part : namespaces) name += part + "::";
      found.push_back(name + match[1].str());
    }
  }
  return found;
}

/// Two types of one name are one type to the linker, which takes the functions of either for both.
TEST(Sources, DefineEachTypeOnce) {
  EXPECT_THAT(types_of("namespace a::b {\nstruct C;\nstruct D : C {\n};\nstruct D::E {\n"
                       "namespace {\nclass F {\n};\n}  // namespace\nenum class G { x };\n"),
              ElementsAre("a::b::D", "a::b::G"));
  std::map<std::string, std::string> where;
  std::vector<std::string> twice;
  for (const auto& file : project_sources({".cpp", ".hpp"})) {
    if (file.rfind("tests/", 0) == 0) continue;
    for (const auto& type : types_of(read(file)))
      if (const auto [known, fresh] = where.emplace(type, file); !fresh)
        twice.push_back(type + ": " + known->second + " and " + file);
  }
  EXPECT_GT(where.size(), 500U);
  EXPECT_THAT(twice, IsEmpty());
}

/// What docs/security.md promises: no shell, no other program, no network; code is loaded, and the
/// program started again, in the places named here alone.
TEST(Sources, StartNothingAndLoadNothing) {
  const std::set<std::string> calls = {"system",  "popen",       "fork",
                                       "vfork",   "posix_spawn", "posix_spawnp",
                                       "execl",   "execlp",      "execle",
                                       "execv",   "execvp",      "execve",
                                       "execvpe", "dlopen",      "socket",
                                       "mkstemp", "mkdtemp",     "tmpfile",
                                       "tmpnam",  "tempnam",     "temp_directory_path"};
  const auto is_foreign = [&](const std::string& word, char next) {
    if (next == '(' && calls.contains(word)) return true;
    return word == "QProcess" || word == "QDesktopServices" || word.rfind("QNetwork", 0) == 0 ||
           word.rfind("QTcp", 0) == 0 || word.rfind("QUdp", 0) == 0 ||
           word.rfind("QLocalS", 0) == 0;
  };
  const auto foreign_words = [&](const std::string& text) {
    std::set<std::string> found;
    const auto is_letter = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    for (auto at = text.begin(); at != text.end();) {
      const auto begin = std::find_if(at, text.end(), is_letter);
      at = std::find_if_not(begin, text.end(), is_letter);
      const std::string word(begin, at);
      if (is_foreign(word, at == text.end() ? ' ' : *at)) found.insert(word);
    }
    return found;
  };
  EXPECT_THAT(foreign_words("  if (std::system(line) != 0)"), Contains("system"));
  EXPECT_THAT(foreign_words("#include <QNetworkAccessManager>"), Contains("QNetworkAccessManager"));
  EXPECT_THAT(foreign_words("the file system (of a machine); refork(1)"), IsEmpty());

  std::map<std::string, std::set<std::string>> found;
  for (const auto& file : project_sources({".cpp", ".hpp", ".cu"})) {
    if (file.rfind("tests/", 0) == 0) continue;
    const auto words = foreign_words(read(file));
    if (!words.empty()) found[file] = words;
  }
  // A fork is also what a cache has that two continuations share.
  std::erase_if(found, [](const auto& entry) {
    return entry.first.rfind("calibrate/", 0) == 0 && entry.second == std::set<std::string>{"fork"};
  });
  const std::map<std::string, std::set<std::string>> expected = {
      {"main.cpp", {"execv"}},                        // the engine and the viewer beside it
      {"analyzer/capture/device.cpp", {"dlopen"}},    // LibTorch's CUDA part
      {"analyzer/capture/ranks.cpp", {"dlopen"}},     // the MPI module beside it
      {"calibrate/endpoint/http.cpp", {"dlopen"}},    // the HTTP module beside it
      {"viewer/frame/search_job.cpp", {"QProcess"}},  // kvatlas beside it, for a search
      {"viewer/frame/search_job.hpp", {"QProcess"}}};
  EXPECT_EQ(found, expected);
}

}  // namespace
