#include "core/data/pickle.h"

#include "absl/strings/str_cat.h"

namespace mslua::data {
namespace {

// An instruction of the pickle program: its code, and its argument if that is bytes or an integer.
struct Token {
  uint8_t op = 0;
  absl::string_view bytes;
  int64_t integer = 0;
  int64_t offset = 0;  // of `bytes` in the file

  bool IsString() const { return bytes.data() != nullptr; }
  bool IsInteger() const { return op == 'K' || op == 'M' || op == 'J'; }
  // Neither makes a value nor takes one away for good: PUT, MARK, APPEND, APPENDS, EMPTY_LIST.
  bool IsListGlue() const {
    return op == 'q' || op == 'r' || op == 0x94 || op == '(' || op == 'a' || op == 'e' || op == ']';
  }
};

// Walks through the instructions without executing them. The dictionary's layout is fixed, so a key is
// followed by its value's instructions and no stack is needed.
class Tokens {
 public:
  explicit Tokens(absl::string_view file) : file_(file) {}

  // False at STOP.
  StatusOr<bool> Next(Token* token) {
    *token = Token();
    if (pos_ >= file_.size()) return Bad("it ends early");
    token->op = static_cast<uint8_t>(file_[pos_++]);
    switch (token->op) {
      case '.':
        return false;
      case '}':
      case ']':
      case ')':
      case '(':
      case 'N':
      case 0x88:
      case 0x89:
      case 'a':
      case 's':
      case 't':
      case 'e':
      case 'u':
      case 'R':
      case 'b':
      case 0x85:
      case 0x86:
      case 0x87:
      case 0x93:
      case 0x94:
        return true;
      case 0x80:
      case 'q':
      case 'h':
        return Skip(1);
      case 'r':
      case 'j':
        return Skip(4);
      case 0x95:
        return Skip(8);  // FRAME
      case 'c':
        return SkipLine() && SkipLine() ? StatusOr<bool>(true) : Bad("it ends early");  // GLOBAL
      case 'K':
        return Integer(1, token);  // BININT1
      case 'M':
        return Integer(2, token);  // BININT2
      case 'J':
        return Integer(4, token);  // BININT
      case 'U':
      case 'C':
      case 0x8c:
        return String(1, token);  // SHORT_BINSTRING, _BINBYTES, _BINUNICODE
      case 'T':
      case 'B':
      case 'X':
        return String(4, token);  // BINSTRING, BINBYTES, BINUNICODE
      case 0x8e:
        return String(8, token);  // BINBYTES8
      default:
        return Bad(absl::StrCat("unexpected byte ", token->op, " at ", pos_ - 1));
    }
  }

  size_t left() const { return file_.size() - pos_; }

  static Status Bad(const std::string& what) {
    return absl::DataLossError(absl::StrCat("not a pickle as CIFAR's python version has it: ", what));
  }

 private:
  StatusOr<bool> Skip(uint64_t n) {
    if (n > file_.size() - pos_) return Bad("it ends early");
    pos_ += n;
    return true;
  }
  bool SkipLine() {
    const size_t end = file_.find('\n', pos_);
    if (end == absl::string_view::npos) return false;
    pos_ = end + 1;
    return true;
  }
  StatusOr<bool> Integer(size_t width, Token* token) {
    const size_t begin = pos_;
    RETURN_IF_ERROR(Skip(width).status());
    uint64_t value = 0;
    for (size_t k = 0; k < width; ++k) value |= uint64_t{static_cast<uint8_t>(file_[begin + k])} << (8 * k);
    token->integer = width == 4 ? static_cast<int32_t>(value) : static_cast<int64_t>(value);
    return true;
  }
  StatusOr<bool> String(size_t width, Token* token) {
    RETURN_IF_ERROR(Integer(width, token).status());
    token->offset = static_cast<int64_t>(pos_);
    RETURN_IF_ERROR(Skip(static_cast<uint64_t>(token->integer)).status());
    token->bytes = file_.substr(token->offset, static_cast<size_t>(token->integer));
    return true;
  }

  absl::string_view file_;
  size_t pos_ = 0;
};

}  // namespace

StatusOr<PickledImages> ReadPickledImages(absl::string_view bytes, int64_t columns,
                                          absl::Span<const std::string> keys) {
  PickledImages images;
  std::vector<std::vector<int32_t>> lists(keys.size());
  Tokens tokens(bytes);
  Token token;
  std::vector<int32_t>* list = nullptr;  // the one whose integers come now
  bool in_data = false;                  // between the key "data" and the matrix's bytes
  uint8_t before = 0;                    // the instruction before this one
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, tokens.Next(&token));
    if (!more) {
      if (tokens.left() > 0) return Tokens::Bad(absl::StrCat(tokens.left(), " bytes stand behind its end"));
      break;
    }
    if (list != nullptr && token.IsInteger()) {
      list->push_back(static_cast<int32_t>(token.integer));
    } else if (list != nullptr && !token.IsListGlue()) {
      list = nullptr;
    }
    if (token.IsString()) {
      const int64_t size = static_cast<int64_t>(token.bytes.size());
      if (in_data && size >= columns) {
        // numpy puts is_fortran in front of an array's bytes.
        if (before != 0x89 || size % columns != 0) {
          return Tokens::Bad(absl::StrCat("its data are ", size, " bytes, expected rows of ", columns));
        }
        images.rows = size / columns;
        images.data_offset = token.offset;
        in_data = false;
      }
      if (token.bytes == "data") in_data = true;
      for (size_t k = 0; k < keys.size(); ++k) {
        if (token.bytes == keys[k]) list = &lists[k];
      }
    }
    before = token.op;
  }
  if (images.rows == 0) return Tokens::Bad("it has no 'data'");
  for (size_t k = 0; k < keys.size(); ++k) {
    if (static_cast<int64_t>(lists[k].size()) != images.rows) {
      return Tokens::Bad(
          absl::StrCat("'", keys[k], "' has ", lists[k].size(), " entries for ", images.rows, " images"));
    }
  }
  images.labels.reserve(images.rows * keys.size());
  for (int64_t row = 0; row < images.rows; ++row) {
    for (const auto& values : lists) images.labels.push_back(values[row]);
  }
  return images;
}

}  // namespace mslua::data
