#include "repl/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/base/folder.h"
#include "repl/interrupt.h"

namespace mslua::repl {
namespace {

constexpr int kHistoryLines = 2000;

std::string HistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (state != nullptr && state[0] == '/')
    folder = std::string(state) + "/mslua";
  else if (home != nullptr && home[0] == '/')
    folder = std::string(home) + "/.local/state/mslua";
  if (folder.empty() || !MakeFolders(folder).ok()) return "";
  return folder + "/history";
}

// Waits until a byte can be read; false at the end of the background, or at Ctrl-C.
bool AwaitInput(const LineEditor::Background& background) {
  while (!InterruptPending()) {
    pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {background.fd, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // a signal
    if (fds[1].revents != 0 && !background.ready()) return false;
    if (fds[0].revents != 0) return true;
  }
  return false;
}

// What was read of the standard input and is not used yet; editors come and go, the input stays.
std::string& Unread() {
  static auto* text = new std::string;
  return *text;
}

class PlainEditor : public LineEditor {
 public:
  PlainEditor(bool prompts, Background background)
      : prompts_(prompts), background_(std::move(background)), buffer_(Unread()) {}

  Result ReadLine(const std::string& prompt, std::string* line) override {
    if (prompts_) {
      std::fputs(prompt.c_str(), stdout);
      std::fflush(stdout);
    }
    size_t end;
    while ((end = buffer_.find('\n')) == std::string::npos && !ended_) {
      char bytes[4096];
      const ssize_t n = AwaitInput(background_) ? read(STDIN_FILENO, bytes, sizeof bytes) : 0;
      if (n > 0) {
        buffer_.append(bytes, static_cast<size_t>(n));
      } else if (TakeInterrupt()) {
        buffer_.clear();
        return Result::kInterrupted;
      } else {
        ended_ = true;
      }
    }
    if (end == std::string::npos && buffer_.empty()) return Result::kEnd;
    *line = buffer_.substr(0, end);
    buffer_.erase(0, end == std::string::npos ? end : end + 1);
    return Result::kLine;
  }

  void Note(const std::string& text) override {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

 private:
  const bool prompts_;
  const Background background_;
  std::string& buffer_;
  bool ended_ = false;
};

class EditEditor : public LineEditor {
 public:
  EditEditor(Completer completer, Background background)
      : completer_(std::move(completer)), background_(std::move(background)), history_path_(HistoryPath()) {
    std::setlocale(LC_CTYPE, "");
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_path_.empty()) history(history_, &event, H_LOAD, history_path_.c_str());
    edit_ = el_init("mslua", stdin, stdout, stderr);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, Prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, GetChar);
    el_set(edit_, EL_ADDFN, "mslua-complete", "complete the word before the cursor", Complete);
    el_set(edit_, EL_BIND, "^I", "mslua-complete", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(edit_, nullptr);
  }

  ~EditEditor() override {
    if (!history_path_.empty()) {
      HistEvent event;
      history(history_, &event, H_SAVE, history_path_.c_str());
      chmod(history_path_.c_str(), 0600);
    }
    el_end(edit_);
    history_end(history_);
  }

  Result ReadLine(const std::string& prompt, std::string* line) override {
    prompt_ = prompt;
    int count = 0;
    typing_ = true;
    el_set(edit_, EL_PREP_TERM, 1);  // before the prompt: a Ctrl-D between the two would be lost
    const char* text = el_gets(edit_, &count);
    typing_ = false;
    if (TakeInterrupt()) {
      el_reset(edit_);
      std::fputs("^C\n", stdout);
      return Result::kInterrupted;
    }
    if (text == nullptr || count <= 0) {
      std::fputs("\n", stdout);
      return Result::kEnd;
    }
    line->assign(text, static_cast<size_t>(count));
    while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
    HistEvent event;
    if (line->find_first_not_of(" \t") != std::string::npos) history(history_, &event, H_ENTER, line->c_str());
    return Result::kLine;
  }

  void Note(const std::string& text) override {
    std::printf(typing_ ? "\r\033[K%s\n" : "%s\n", text.c_str());
    std::fflush(stdout);
    if (typing_) el_set(edit_, EL_REFRESH);
  }

 private:
  static EditEditor* Of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<EditEditor*>(self);
  }

  static char* Prompt(EditLine* edit) { return const_cast<char*>(Of(edit)->prompt_.c_str()); }

  // libedit's own reader begins again after a signal; this one gives up, so that Ctrl-C ends the line.
  static int GetChar(EditLine* edit, wchar_t* out) {
    std::mbstate_t state = {};
    for (int bytes = 0; bytes < 8; ++bytes) {
      char c;
      const ssize_t n = AwaitInput(Of(edit)->background_) ? read(STDIN_FILENO, &c, 1) : 0;
      if (n <= 0) return static_cast<int>(n);
      const size_t used = std::mbrtowc(out, &c, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;
      if (used == static_cast<size_t>(-1)) *out = static_cast<unsigned char>(c);
      return 1;
    }
    return -1;
  }

  static unsigned char Complete(EditLine* edit, int) {
    const LineInfo* info = el_line(edit);
    const std::string before(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    const Completions found = Of(edit)->completer_(before);
    if (found.words.empty()) return CC_REFRESH_BEEP;
    const std::string common = CommonPrefix(found.words);
    if (common.size() > found.length) {
      el_deletestr(edit, static_cast<int>(found.length));
      return el_insertstr(edit, common.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    if (found.words.size() > 1) List(found.words);
    return CC_REDISPLAY;
  }

  static void List(const std::vector<std::string>& words) {
    constexpr size_t kMost = 60, kWidth = 78;
    std::string text = "\n", row;
    for (size_t i = 0; i < std::min(words.size(), kMost); ++i) {
      if (row.size() + words[i].size() + 2 > kWidth) {
        text += row + "\n";
        row.clear();
      }
      row += words[i] + "  ";
    }
    text += row + "\n";
    if (words.size() > kMost) text += "... " + std::to_string(words.size() - kMost) + " more\n";
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  const Completer completer_;
  const Background background_;
  const std::string history_path_;
  bool typing_ = false;
  std::string prompt_;
  History* history_;
  EditLine* edit_;
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::Create(Completer completer, Background background) {
  const bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  const char* term = std::getenv("TERM");
  if (terminal && term != nullptr && *term != 0 && std::strcmp(term, "dumb") != 0)
    return std::make_unique<EditEditor>(std::move(completer), std::move(background));
  return std::make_unique<PlainEditor>(terminal, std::move(background));
}

std::string CommonPrefix(const std::vector<std::string>& words) {
  if (words.empty()) return "";
  std::string common = words[0];
  for (const std::string& word : words) {
    size_t same = 0;
    while (same < common.size() && same < word.size() && common[same] == word[same]) ++same;
    common.resize(same);
  }
  return common;
}

}  // namespace mslua::repl
