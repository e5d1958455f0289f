// Reading lines from a person or a pipe: libedit on a terminal, plain lines elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mslua::repl {

// What may stand in place of the last `length` bytes of the text before the cursor.
struct Completions {
  size_t length = 0;
  std::vector<std::string> words;  // sorted, each once
};

class LineEditor {
 public:
  enum class Result { kLine, kInterrupted, kEnd };
  using Completer = std::function<Completions(const std::string& before_cursor)>;

  // What is looked after while a line is awaited.
  struct Background {
    int fd = -1;
    std::function<bool()> ready;  // fd is readable; false ends the input
  };

  // libedit when both ends are terminals that can move a cursor (TERM is neither empty nor "dumb"). The history file
  // lies in $XDG_STATE_HOME/mslua, else ~/.local/state/mslua; without either there is none.
  static std::unique_ptr<LineEditor> Create(Completer completer, Background background);
  virtual ~LineEditor() = default;

  // One line without its end. kInterrupted: Ctrl-C; the line is dropped.
  virtual Result ReadLine(const std::string& prompt, std::string* line) = 0;
  // Prints a line; while one is being typed, above that.
  virtual void Note(const std::string& text) = 0;
};

// The longest text that all words begin with.
std::string CommonPrefix(const std::vector<std::string>& words);

}  // namespace mslua::repl
