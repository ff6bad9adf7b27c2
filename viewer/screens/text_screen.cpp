// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/text_screen.hpp"

#include <QGuiApplication>
#include <QSplitter>
#include <QVBoxLayout>
#include <algorithm>

#include "base/str.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

TextScreen::TextScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  make_controls();
  make_texts();
  connect(&session, &Session::kept_changed, this, [this] {
    shown_ = Shown::kept;
    read_again();
  });
  start();
}

void TextScreen::make_controls() {
  bar().add_combo(
      {"what", tr("Shades"),
       tr("What the shade behind a token stands for: whether policies keep it, or how much of the "
          "last rows' attention it takes."),
       [this] { return this->session().kept() && this->session().profile(); }},
      {tr("tokens kept"), tr("attention received")}, [this] { return static_cast<int>(shown_); },
      [this](int index) {
        shown_ = static_cast<Shown>(index);
        read_again();
      });
  of_attention_ =
      bar()
          .add_combo(
              {"reads", tr("Attention of"),
               tr("The last rows, or the token that is chosen in the text: what it reads.")},
              {tr("the last rows"), tr("the chosen token")}, [this] { return of_token_ ? 1 : 0; },
              [this](int index) {
                of_token_ = index == 1;
                read_again();
              })
          ->parentWidget();
  auto* prompt = bar().add_combo(
      {"prompt", tr("Prompt"), tr("The prompt that is shown.")}, [this] { return prompt_names(); },
      [this] {
        return static_cast<int>(shows_kept() ? choices_.prompt
                                             : this->session().selection().current().sample);
      },
      [this](int index) { choose_prompt(static_cast<std::size_t>(index)); });
  auto* first = bar().add_combo(
      {"first", tr("Policy"), tr("The policy whose kept tokens are shown.")},
      [this] { return run_names(); }, [this] { return static_cast<int>(choices_.first); },
      [this](int index) {
        choices_.first = static_cast<std::size_t>(index);
        compute();
      });
  auto* second = bar().add_combo(
      {"second", tr("beside"),
       tr("A second policy over the same text. Tokens that only one of the two keeps are "
          "underlined.")},
      [this] { return QStringList{tr("none")} + run_names(); },
      [this] { return choices_.second ? static_cast<int>(*choices_.second) + 1 : 0; },
      [this](int index) {
        choices_.second.reset();
        if (index > 0) choices_.second = static_cast<std::size_t>(index - 1);
        compute();
      });
  for (QComboBox* combo : {prompt, first, second}) combo->setMaximumWidth(240);
  auto* read = bar().add_slider(
      {"read", tr("Tokens generated"),
       tr("What is held after so many tokens behind the prompt; [ and ] go one token back and on, "
          "with Shift ten.")},
      [this] { return static_cast<int>(takes_kept() ? most_generated() : 0); },
      [this] { return static_cast<int>(takes_kept() ? generated() : 0); },
      [this](int value, bool) { choose_read(this->prompt().tokens + value); });
  read_text_ = bar().add_text({"read_text", tr("Tokens generated"), {}});
  auto* all_heads = bar().add_button(
      {"all_heads", tr("All heads"),
       tr("Shades by the share of all heads that keep a token; a click on a cell of "
          "the matrix chooses one head.")},
      [this] { choose_head(std::nullopt); });
  // With their labels.
  of_policies_ = {first->parentWidget(), second->parentWidget(), read->parentWidget(), read_text_,
                  all_heads};
  find_ = bar().add_field({"find", tr("Find"),
                           tr("Outlines these words in the text; Return goes to "
                              "the next place, Shift+Return to the one "
                              "before.")},
                          [this](const QString& words) { find(words); });
  connect(find_, &QLineEdit::returnPressed, this, [this] {
    go_to_found(QGuiApplication::keyboardModifiers().testFlag(Qt::ShiftModifier) ? -1 : 1);
  });
  found_text_ = bar().add_text({"found", tr("Places found"), {}});
}

void TextScreen::make_texts() {
  shares_ = add_chart(tr("Share of the tokens that each layer and KV head holds"));
  auto* all = new QSplitter(Qt::Horizontal, page());
  all->addWidget(shares_);
  for (int i = 0; i < 2; ++i) {
    auto* text = new TextView(all);
    text->set_theme(session().theme());
    texts_.push_back(text);
    all->addWidget(text);
    connect(text, &TextView::token_chosen, this,
            [this](std::size_t token) { choose_token(token); });
    connect(&session(), &Session::theme_changed, text,
            [this, text] { text->set_theme(session().theme()); });
  }
  for (int i = 0; i < 3; ++i) all->setStretchFactor(i, i == 0 ? 0 : 1);
  all->setSizes({360, 480, 480});
  all->setChildrenCollapsible(false);
  page_layout().addWidget(all);
  connect(shares_, &ChartView::cell_chosen, this, [this](int /*matrix*/, int row, int column) {
    choose_head(static_cast<std::size_t>(row * kept().kv_heads + column));
  });
}

std::string TextScreen::arrays() const {
  if (shows_kept()) return "kept";
  const Selection& selection = session().selection().current();
  return str(selection.sample, ' ', selection.layer, ' ', selection.head, ' ', query());
}

std::int64_t TextScreen::query() const {
  if (!of_token_ || !session().profile()) return -1;
  const Selection& selection = session().selection().current();
  const auto& samples = session().profile()->samples();
  const std::int64_t last = samples[std::min(selection.sample, samples.size() - 1)].n_tokens - 1;
  return selection.query < 0 ? last : std::min(selection.query, last);
}

void TextScreen::read() {
  if (shows_kept()) {
    take_kept();
    return model_arrived();
  }
  if (!session().profile())
    return show_message(
        tr("Open a profile to see which tokens are attended to, or what policies keep: the lines "
           "that 'kvatlas evaluate --generations --positions' prints, in a file."));
  const Selection& selection = session().selection().current();
  RowsChoices choices;
  choices.layer = selection.layer;
  choices.heads = {selection.head};
  read_model(
      [choices, position = selection.sample, reader = query()](const profile::Reader& profile) {
        const auto texts = read_shown_texts(profile, position);
        return reader < 0
                   ? attended_text(read_rows_model(profile, position, choices), texts)
                   : read_text(profile, position, choices.layer, choices.heads[0], reader, texts);
      },
      [this](ShownText text) { attended_ = std::make_shared<const ShownText>(std::move(text)); });
}

/// The choices begin anew with each file.
void TextScreen::take_kept() {
  if (of_ == session().kept()) return;
  of_ = session().kept();
  choices_ = {};
  choose_prompt(0);
}

void TextScreen::choose_prompt(std::size_t prompt) {
  if (!shows_kept()) {
    session().selection().change([&](Selection& selection) { selection.sample = prompt; });
    return;
  }
  const std::size_t runs = kept().prompts[prompt].runs.size();
  choices_.prompt = prompt;
  // The full cache comes first, and keeps everything.
  if (choices_.first >= runs || choices_.first == 0) choices_.first = runs > 1 ? 1 : 0;
  if (choices_.second && *choices_.second >= runs) choices_.second.reset();
  choices_.read = this->prompt().tokens;
  show_controls();
  compute();
}

void TextScreen::choose_read(std::int64_t read) {
  if (!shows_kept()) return;
  choices_.read = std::clamp(read, prompt().tokens, prompt().most_read());
  show_controls();
  compute();
}

void TextScreen::choose_head(std::optional<std::size_t> head) {
  choices_.head = head;
  if (shows_kept()) compute();
}

void TextScreen::compute() {
  if (!shows_kept()) {
    if (!attended_) return;
    return compute_view([text = attended_] { return *text; },
                        [this](ShownText text) {
                          set_chart(*shares_, {});
                          show_texts({std::move(text)});
                        });
  }
  compute_view([of = of_, choices = choices_] { return kept_view(of->tokens, choices); },
               [this](KeptView view) {
                 set_chart(*shares_, std::move(view.shares));
                 show_texts(std::move(view.texts));
               });
}

void TextScreen::show_texts(std::vector<ShownText> texts) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    texts_[i]->setVisible(i < texts.size());
    if (i < texts.size()) texts_[i]->set_text(std::move(texts[i]));
  }
  find(find_->text());
  show_selection();
}

void TextScreen::show_selection() {
  if (shows_kept()) return;
  const std::int64_t token = of_token_ ? query() : session().selection().current().key;
  texts_[0]->choose(token < 0 ? std::nullopt
                              : std::optional<std::size_t>(static_cast<std::size_t>(token)));
}

void TextScreen::choose_token(std::size_t token) {
  for (TextView* text : texts_) text->choose(token);
  if (!shows_kept())
    session().selection().change([&](Selection& selection) {
      (of_token_ ? selection.query : selection.key) = static_cast<std::int64_t>(token);
    });
  emit content_changed();
}

void TextScreen::find(const QString& words) {
  found_ = places_of(texts_[0]->text(), words.toStdString());
  texts_[0]->set_found(found_);
  texts_[1]->set_found(places_of(texts_[1]->text(), words.toStdString()));
  found_text_->setText(
      words.isEmpty() ? QString() : tr("%n place(s)", nullptr, static_cast<int>(found_.size())));
}

void TextScreen::go_to_found(int by) {
  if (found_.empty()) return;
  const auto from = texts_[0]->chosen();
  std::size_t place = by > 0 ? 0 : found_.size() - 1;
  if (from) {
    if (by > 0)
      while (place < found_.size() && found_[place].first <= *from) ++place;
    else
      while (place < found_.size() && found_[place].first >= *from) --place;
    if (place >= found_.size()) place = by > 0 ? 0 : found_.size() - 1;  // round the end
  }
  choose_token(found_[place].first);
}

bool TextScreen::act(Act act) {
  if (!message().isEmpty()) return LiveScreen::act(act);
  const std::size_t tokens = texts_[0]->text().tokens.size();
  const auto step = [&](std::int64_t by) {
    const auto from = static_cast<std::int64_t>(texts_[0]->chosen().value_or(0));
    choose_token(static_cast<std::size_t>(
        std::clamp<std::int64_t>(from + by, 0, static_cast<std::int64_t>(tokens) - 1)));
    return true;
  };
  switch (act) {
    case Act::left:
      return tokens > 0 && step(-1);
    case Act::right:
      return tokens > 0 && step(1);
    case Act::filter:
      find_->setFocus();
      find_->selectAll();
      return true;
    case Act::escape:
      if (!find_->text().isEmpty())
        find_->clear();
      else if (choices_.head)
        choose_head(std::nullopt);
      else
        return false;
      return true;
    default:
      return LiveScreen::act(act);
  }
}

/// The keys of a threshold move along the tokens that were generated: 0.01 is one of them.
bool TextScreen::move_threshold(double by) {
  if (!shows_kept()) return false;
  choose_read(choices_.read + std::llround(by * 100));
  return true;
}

QStringList TextScreen::prompt_names() const {
  QStringList names;
  if (takes_kept())
    for (const auto& one : kept().prompts) names << QString::fromStdString(one.id);
  else if (session().profile())
    for (const auto& sample : session().profile()->samples())
      names << QString::fromStdString(sample.id);
  return names;
}

QStringList TextScreen::run_names() const {
  QStringList names;
  if (takes_kept())
    for (const auto& run : prompt().runs) names << QString::fromStdString(run.policy);
  return names;
}

void TextScreen::show_choices() {
  if (!session().kept()) shown_ = Shown::attended;
  for (QWidget* control : of_policies_) control->setVisible(shows_kept());
  of_attention_->setVisible(!shows_kept());
  if (takes_kept()) read_text_->setText(tr("%1 of %2").arg(generated()).arg(most_generated()));
}

std::vector<const TextView*> TextScreen::texts_in_sight() const {
  std::vector<const TextView*> out;
  for (const TextView* text : texts_)
    if (!text->isHidden()) out.push_back(text);
  return out;
}

QString TextScreen::focus_text() const {
  if (!message().isEmpty()) return {};
  QStringList words;
  for (const TextView* text : texts_in_sight())
    if (text->chosen()) words << QString::fromStdString(words_of(text->text(), *text->chosen()));
  return words.join(QStringLiteral("; "));
}

std::vector<std::pair<QString, QString>> TextScreen::prompt_details() const {
  if (!takes_kept() || !message().isEmpty()) return {};
  std::vector<std::pair<QString, QString>> rows = {
      {tr("Prompt"), QString::fromStdString(prompt().id)},
      {tr("Tokens"), QString::number(prompt().tokens)},
      {tr("Generated"), tr("%1 of %2").arg(generated()).arg(most_generated())},
      {tr("Head"), choices_.head
                       ? tr("layer %1, KV head %2")
                             .arg(static_cast<std::int64_t>(*choices_.head) / kept().kv_heads)
                             .arg(static_cast<std::int64_t>(*choices_.head) % kept().kv_heads)
                       : tr("all of %1 layers").arg(kept().layers)}};
  const auto& runs = prompt().runs;
  rows.emplace_back(tr("Policy"), QString::fromStdString(runs[choices_.first].policy));
  if (choices_.second)
    rows.emplace_back(tr("beside"), QString::fromStdString(runs[*choices_.second].policy));
  return rows;
}

PicturePtr TextScreen::picture() const {
  if (!message().isEmpty()) return nullptr;
  std::vector<PicturePtr> parts;
  if (has_content(shares_->chart())) parts.push_back(chart_picture(shares_->chart()));
  for (const TextView* text : texts_in_sight()) parts.push_back(text_picture(text->text()));
  return parts.empty() ? nullptr : stacked_picture("Text", std::move(parts), false);
}

Table TextScreen::table() const {
  if (!message().isEmpty()) return {};
  std::vector<ShownText> texts;
  for (const TextView* text : texts_in_sight()) texts.push_back(text->text());
  return table_of(texts);
}

}  // namespace kvatlas::viewer
