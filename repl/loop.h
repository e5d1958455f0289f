// The loop of `mslua repl` and `mslua attach`: reads, runs, prints.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "lua/session.h"
#include "repl/line_editor.h"

namespace mslua::repl {

class Loop {
 public:
  // What a use of the loop has of its own.
  struct Extension {
    std::function<std::string()> prompt;  // without the "> "
    // Cancelled leaves the loop.
    std::function<Status(absl::string_view line)> command;  // lines that begin with "." or "@" and are not ours
    std::vector<std::string> commands;                      // their names, for completion: ".pause"
    std::function<std::vector<std::string>()> parameters;   // paths, for completion
    LineEditor::Background background;
    // Around each line that runs here, where it runs on other ranks too; `end` gives their errors. Ctrl-C is then
    // theirs to handle.
    std::function<Status(const std::string& text)> begin;
    std::function<std::vector<std::string>(const Status& own)> end;
    std::string help;                // appended to .help
    std::vector<std::string> lines;  // run instead of those of the input, until one fails
    // Prints an error; null: on standard error, as it is.
    std::function<void(absl::string_view message)> report;
  };

  Loop(Session& session, Extension extension);

  // Until the end of the lines or .quit; gives the number of lines that failed.
  int Run();
  // A line from elsewhere than what runs.
  void Note(const std::string& line) { editor_->Note(line); }

 private:
  void RunLines();
  void RunInput();
  // Runs the line, or the statement in `pending` that it ends; an unfinished one stays there. False: leave.
  bool Take(const std::string& line, std::string* pending);
  void Error(absl::string_view message);
  bool Command(absl::string_view text);
  // False when the text is a statement that continues on the next line.
  bool Evaluate(const std::string& text);
  Status Call(const std::string& text);
  void PrintResults(int first, int count);
  Completions Complete(const std::string& before);

  Session& session_;
  const Extension extension_;
  std::unique_ptr<LineEditor> editor_;
  bool timer_ = false, leave_ = false;
  int errors_ = 0;
};

}  // namespace mslua::repl
