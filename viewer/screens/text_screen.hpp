// SPDX-License-Identifier: Apache-2.0
// The screen with the prompt itself: its tokens by the attention that they take from the last rows,
// or by what one or two policies keep of them, while they generate.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/draw/text_view.hpp"
#include "viewer/models/kept_tokens.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

class TextScreen : public LiveScreen {
  Q_OBJECT

 public:
  TextScreen(Session& session, QWidget* parent);
  bool act(Act act) override;
  QString focus_text() const override;
  std::vector<std::pair<QString, QString>> prompt_details() const override;
  PicturePtr picture() const override;
  Table table() const override;

  ChartView& shares_chart() const { return *shares_; }
  /// The text of the policy, or of the attention, and that of the policy beside it.
  TextView& text(std::size_t place) const { return *texts_[place]; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void show_choices() override;
  void show_selection() override;
  bool move_threshold(double by) override;
  bool needs_profile() const override { return false; }

 private:
  void make_controls();
  void make_texts();
  /// Whether what policies keep is shown; otherwise it is what the last rows attend to.
  bool shows_kept() const { return session().kept() && shown_ == Shown::kept; }
  const KeptTokens& kept() const { return session().kept()->tokens; }
  const KeptPrompt& prompt() const { return kept().prompts[choices_.prompt]; }
  /// Whether the choices are of the file that is shown.
  bool takes_kept() const { return shows_kept() && of_ == session().kept(); }
  std::int64_t generated() const { return choices_.read - prompt().tokens; }
  std::int64_t most_generated() const { return prompt().most_read() - prompt().tokens; }
  QStringList prompt_names() const;
  QStringList run_names() const;
  void take_kept();
  void choose_prompt(std::size_t prompt);
  void choose_read(std::int64_t read);
  void choose_head(std::optional<std::size_t> head);
  void choose_token(std::size_t token);
  /// The query whose attention is shown; -1 stands for the last rows.
  std::int64_t query() const;
  void find(const QString& words);
  void go_to_found(int by);
  void show_texts(std::vector<ShownText> texts);
  std::vector<const TextView*> texts_in_sight() const;

  enum class Shown : std::uint8_t { kept, attended };
  Shown shown_ = Shown::kept;
  bool of_token_ = false;  // the attention of the chosen token, in place of that of the last rows
  QLabel *read_text_, *found_text_;
  QLineEdit* find_;
  std::vector<QWidget*> of_policies_;  // the controls that choose what of policies is shown
  QWidget* of_attention_;              // the one that chooses whose attention is shown
  ChartView* shares_;
  std::vector<TextView*> texts_;
  KeptChoices choices_;
  std::shared_ptr<const OpenedKeptTokens> of_;  // the file that the choices are of
  std::vector<std::pair<std::size_t, std::size_t>> found_;
  std::shared_ptr<const ShownText> attended_;
};

}  // namespace kvatlas::viewer
