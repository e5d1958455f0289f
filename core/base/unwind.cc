#include "core/base/unwind.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>

namespace mslua {
namespace {

constexpr int kRegisters = StackCopy::kRegisters, kSp = 7, kPc = 16;
constexpr int kRemembered = 8;  // rows that a table may remember
constexpr int kDepth = 16;      // values of an expression
constexpr uintptr_t kPage = 4096;
constexpr int kGuardPages = 16;  // that a stack which overflowed may be beyond its end

// Instructions of the tables (DW_CFA_*). The first three have their register, or distance, in the low bits.
enum Instruction : unsigned {
  kAdvance = 0x40,
  kOffset = 0x80,
  kRestore = 0xc0,
  kNothing = 0x00,
  kAdvance1 = 0x02,
  kAdvance2 = 0x03,
  kAdvance4 = 0x04,
  kOffsetExtended = 0x05,
  kRestoreExtended = 0x06,
  kUndefined = 0x07,
  kSameValue = 0x08,
  kRegister = 0x09,
  kRememberState = 0x0a,
  kRestoreState = 0x0b,
  kCfa = 0x0c,
  kCfaRegister = 0x0d,
  kCfaOffset = 0x0e,
  kCfaExpression = 0x0f,
  kExpression = 0x10,
  kOffsetExtendedSigned = 0x11,
  kCfaSigned = 0x12,
  kCfaOffsetSigned = 0x13,
  kValueOffset = 0x14,
  kValueOffsetSigned = 0x15,
  kValueExpression = 0x16,
  kArgumentsSize = 0x2e,
};

// Operations of expressions (DW_OP_*): those that assemblers write for procedure linkage tables and signal frames.
enum Operation : unsigned {
  kDereference = 0x06,
  kByte = 0x08,
  kConstant = 0x10,
  kAnd = 0x1a,
  kPlus = 0x22,
  kPlusConstant = 0x23,
  kShift = 0x24,
  kNotLess = 0x2a,
  kLiteral = 0x30,  // 0 to 31
  kLiteralEnd = 0x50,
  kRegisterPlus = 0x70,
};

template <class T>
T Load(const unsigned char* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

// Reads a table, and stops at its end.
class Bytes {
 public:
  Bytes(const unsigned char* at, const unsigned char* end) : at_(at), end_(end) {}
  bool good() const { return good_; }
  bool more() const { return good_ && at_ < end_; }
  const unsigned char* at() const { return at_; }
  void Skip(uint64_t n) { Take(n); }
  template <class T>
  T Get() {
    const unsigned char* const from = Take(sizeof(T));
    return from == nullptr ? T() : Load<T>(from);
  }
  uint64_t Unsigned() { return Leb(false); }
  int64_t Signed() { return static_cast<int64_t>(Leb(true)); }
  // An address as the tables encode it (DW_EH_PE_*).
  uintptr_t Address(unsigned encoding) {
    const auto here = reinterpret_cast<uintptr_t>(at_);
    uintptr_t value = 0;
    switch (encoding & 0x0f) {
      case 0x0:
      case 0x4:
      case 0xc:
        value = Get<uint64_t>();
        break;
      case 0x1:
        value = Unsigned();
        break;
      case 0x2:
        value = Get<uint16_t>();
        break;
      case 0x3:
        value = Get<uint32_t>();
        break;
      case 0x9:
        value = static_cast<uintptr_t>(Signed());
        break;
      case 0xa:
        value = static_cast<uintptr_t>(Get<int16_t>());
        break;
      case 0xb:
        value = static_cast<uintptr_t>(Get<int32_t>());
        break;
      default:
        good_ = false;
    }
    if ((encoding & 0xf0) == 0x10) return here + value;
    if ((encoding & 0xf0) != 0) good_ = false;
    return value;
  }

 private:
  const unsigned char* Take(uint64_t n) {
    good_ = good_ && n <= static_cast<uint64_t>(end_ - at_);
    if (!good_) return nullptr;
    at_ += n;
    return at_ - n;
  }
  uint64_t Leb(bool is_signed) {
    uint64_t value = 0;
    for (int shift = 0; good_ && shift < 64; shift += 7) {
      const auto byte = Get<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) != 0) continue;
      if (is_signed && (byte & 0x40) != 0 && shift + 7 < 64) value |= ~uint64_t{0} << (shift + 7);
      return value;
    }
    good_ = false;
    return 0;
  }

  const unsigned char *at_, *end_;
  bool good_ = true;
};

// Where the caller's value of a register is.
struct Rule {
  enum class Kind { kSame, kUndefined, kOffset, kValueOffset, kRegister, kExpression, kValueExpression };
  Kind kind = Kind::kSame;
  int64_t value = 0;  // an offset, a register, or the size of the expression
  const unsigned char* expression = nullptr;
};

struct Row {
  Rule registers[kRegisters];
  Rule cfa;  // kRegister with `offset`, or kExpression
  int64_t offset = 0;
};

// What a common and a frame's entry say.
struct Frame {
  uintptr_t begin = 0, end = 0;  // of the function
  uint64_t code_align = 1;
  int64_t data_align = 1;
  bool is_signal = false;
  Bytes common = {nullptr, nullptr}, own = {nullptr, nullptr};
};

class Walk {
 public:
  explicit Walk(const StackCopy& stack) : stack_(stack) { memcpy(registers_, stack.registers, sizeof registers_); }

  uintptr_t pc() const { return registers_[kPc]; }
  // Goes to the caller. False: it is not known.
  bool Up() {
    found_ = false;
    dl_iterate_phdr(OnModule, this);
    return found_;
  }

 private:
  static int OnModule(dl_phdr_info* module, size_t, void* walk) { return static_cast<Walk*>(walk)->InModule(*module); }
  // Within the loader's lock, so that the tables stay. 1: the code is in this module.
  int InModule(const dl_phdr_info& module) {
    const uintptr_t at = registers_[kPc] - (is_return_ ? 1 : 0);  // a call may be the last instruction of its function
    const unsigned char *table = nullptr, *begin = nullptr, *end = nullptr;
    bool here = false;
    for (int i = 0; i < module.dlpi_phnum; ++i) {
      const auto& part = module.dlpi_phdr[i];
      const uintptr_t from = module.dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_GNU_EH_FRAME) table = reinterpret_cast<const unsigned char*>(from);
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) here = here || at - from < part.p_memsz;
    }
    if (!here) return 0;
    for (int i = 0; table != nullptr && i < module.dlpi_phnum; ++i) {
      const auto& part = module.dlpi_phdr[i];
      const auto* const from = reinterpret_cast<const unsigned char*>(module.dlpi_addr + part.p_vaddr);
      if (part.p_type != PT_LOAD || table < from || table >= from + part.p_memsz) continue;
      begin = from;
      end = from + part.p_memsz;
    }
    Frame frame;
    Row row;
    found_ = begin != nullptr && Find(table, begin, end, at, &frame) && RowAt(frame, at, &row) && Apply(row, frame);
    return 1;
  }

  // Looks the function up in .eh_frame_hdr; all tables are in [begin, end).
  static bool Find(const unsigned char* table, const unsigned char* begin, const unsigned char* end, uintptr_t at,
                   Frame* frame) {
    constexpr unsigned kCountEncoding = 0x03, kTableEncoding = 0x3b;  // what linkers write
    Bytes header(table, end);
    const auto version = header.Get<uint8_t>(), of_frames = header.Get<uint8_t>(), of_count = header.Get<uint8_t>(),
               of_table = header.Get<uint8_t>();
    if (version != 1 || of_count != kCountEncoding || of_table != kTableEncoding) return false;
    header.Address(of_frames);
    const auto count = header.Get<uint32_t>();
    const unsigned char* const entries = header.at();
    header.Skip(uint64_t{count} * 8);
    if (!header.good() || count == 0) return false;
    const auto offset = [&](uint32_t i) { return Load<int32_t>(entries + 8 * size_t{i}); };
    uint32_t low = 0, high = count;  // the last one that does not begin after `at`
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (reinterpret_cast<uintptr_t>(table) + offset(middle) <= at ? low : high) = middle;
    }
    return Parse(table + Load<int32_t>(entries + 8 * size_t{low} + 4), begin, end, frame) &&
           at - frame->begin < frame->end - frame->begin;
  }

  // The contents of an entry of .eh_frame.
  static Bytes Entry(const unsigned char* at, const unsigned char* begin, const unsigned char* end) {
    if (at < begin || at >= end) return {nullptr, nullptr};
    Bytes head(at, end);
    const auto size = head.Get<uint32_t>();
    const unsigned char* const from = head.at();
    head.Skip(size);
    return head.good() ? Bytes(from, from + size) : Bytes(nullptr, nullptr);
  }

  static bool Parse(const unsigned char* at, const unsigned char* begin, const unsigned char* end, Frame* frame) {
    frame->own = Entry(at, begin, end);
    const unsigned char* const link = frame->own.at();
    const auto distance = frame->own.Get<uint32_t>();
    if (!frame->own.good() || distance > static_cast<uint64_t>(link - begin)) return false;
    Bytes& common = frame->common = Entry(link - distance, begin, end);
    if (common.Get<uint32_t>() != 0) return false;
    const auto version = common.Get<uint8_t>();
    const char* const augmentation = reinterpret_cast<const char*>(common.at());
    while (common.Get<char>() != 0) {
    }
    frame->code_align = common.Unsigned();
    frame->data_align = common.Signed();
    const uint64_t return_register = version == 1 ? common.Get<uint8_t>() : common.Unsigned();
    if (!common.good() || return_register != kPc || (version != 1 && version != 3)) return false;
    unsigned encoding = 0;
    const bool sized = augmentation[0] == 'z';
    if (!sized && augmentation[0] != 0) return false;
    const uint64_t size = sized ? common.Unsigned() : 0;
    Bytes data = common;
    common.Skip(size);
    for (const char* c = augmentation + sized; *c != 0; ++c) {
      if (*c == 'R') encoding = data.Get<uint8_t>();
      if (*c == 'L') data.Skip(1);
      if (*c == 'P') data.Address(data.Get<uint8_t>() & 0x0f);
      frame->is_signal = frame->is_signal || *c == 'S';
    }
    frame->begin = frame->own.Address(encoding);
    frame->end = frame->begin + frame->own.Address(encoding & 0x0f);
    if (sized) frame->own.Skip(frame->own.Unsigned());
    return common.good() && data.good() && frame->own.good();
  }

  // Runs the instructions of both entries up to `at`.
  static bool RowAt(const Frame& frame, uintptr_t at, Row* row) {
    Row initial;
    return Run(frame, frame.common, ~uintptr_t{0}, initial, row) &&
           ((initial = *row), Run(frame, frame.own, at, initial, row));
  }

  static bool Run(const Frame& frame, Bytes code, uintptr_t at, const Row& initial, Row* row) {
    using Kind = Rule::Kind;
    Row remembered[kRemembered];
    int depth = 0;
    uintptr_t pc = frame.begin;
    Rule ignored;  // of a register that is none of ours
    const auto of = [&](uint64_t r) -> Rule& { return r < kRegisters ? row->registers[r] : ignored; };
    const auto before = [&](uint64_t r) { return r < kRegisters ? initial.registers[r] : Rule(); };
    const auto number = [&] { return static_cast<int64_t>(code.Unsigned()); };
    const auto scaled = [&](int64_t n) {  // without overflow, whatever a damaged table says
      return static_cast<int64_t>(static_cast<uint64_t>(n) * static_cast<uint64_t>(frame.data_align));
    };
    const auto expression = [&](Kind kind) {
      const int64_t size = number();
      const Rule rule = {kind, size, code.at()};
      code.Skip(static_cast<uint64_t>(size));
      return rule;
    };
    while (code.more() && pc <= at) {
      const unsigned byte = code.Get<uint8_t>(), high = byte & 0xc0, low = byte & 0x3f;
      if (high == kAdvance) {
        pc += low * frame.code_align;
        continue;
      }
      // These have the register in the operation.
      const unsigned op = high != 0 ? high : low;
      const bool has_register = (op >= kOffsetExtended && op <= kRegister) ||
                                (op >= kExpression && op <= kOffsetExtendedSigned) ||
                                (op >= kValueOffset && op <= kValueExpression);
      const uint64_t r = high != 0 ? low : has_register ? code.Unsigned() : 0;
      switch (op) {
        case kNothing:
          break;
        case kAdvance1:
          pc += code.Get<uint8_t>() * frame.code_align;
          break;
        case kAdvance2:
          pc += code.Get<uint16_t>() * frame.code_align;
          break;
        case kAdvance4:
          pc += code.Get<uint32_t>() * frame.code_align;
          break;
        case kOffset:
        case kOffsetExtended:
          of(r) = {Kind::kOffset, scaled(number()), nullptr};
          break;
        case kOffsetExtendedSigned:
          of(r) = {Kind::kOffset, scaled(code.Signed()), nullptr};
          break;
        case kRestore:
        case kRestoreExtended:
          of(r) = before(r);
          break;
        case kUndefined:
          of(r) = {Kind::kUndefined, 0, nullptr};
          break;
        case kSameValue:
          of(r) = Rule();
          break;
        case kRegister:
          of(r) = {Kind::kRegister, number(), nullptr};
          break;
        case kValueOffset:
          of(r) = {Kind::kValueOffset, scaled(number()), nullptr};
          break;
        case kValueOffsetSigned:
          of(r) = {Kind::kValueOffset, scaled(code.Signed()), nullptr};
          break;
        case kExpression:
          of(r) = expression(Kind::kExpression);
          break;
        case kValueExpression:
          of(r) = expression(Kind::kValueExpression);
          break;
        case kRememberState:
          if (depth == kRemembered) return false;
          remembered[depth++] = *row;
          break;
        case kRestoreState:
          if (depth == 0) return false;
          *row = remembered[--depth];
          break;
        case kCfa:
          row->cfa = {Kind::kRegister, number(), nullptr};
          row->offset = number();
          break;
        case kCfaSigned:
          row->cfa = {Kind::kRegister, number(), nullptr};
          row->offset = scaled(code.Signed());
          break;
        case kCfaRegister:
          row->cfa = {Kind::kRegister, number(), nullptr};
          break;
        case kCfaOffset:
          row->offset = number();
          break;
        case kCfaOffsetSigned:
          row->offset = scaled(code.Signed());
          break;
        case kCfaExpression:
          row->cfa = expression(Kind::kExpression);
          break;
        case kArgumentsSize:
          number();
          break;
        default:
          return false;
      }
    }
    return code.good();
  }

  bool Read(uintptr_t at, uintptr_t* value) const {
    const uintptr_t offset = at - stack_.begin;
    if (stack_.size < sizeof *value || offset > stack_.size - sizeof *value) return false;
    *value = Load<uintptr_t>(stack_.bytes + offset);
    return true;
  }

  bool Evaluate(const Rule& rule, const uintptr_t* cfa, uintptr_t* value) const {
    uintptr_t stack[kDepth] = {};
    int n = 0;
    if (cfa != nullptr) stack[n++] = *cfa;
    Bytes code(rule.expression, rule.expression + rule.value);
    while (code.more()) {
      const unsigned op = code.Get<uint8_t>();
      const bool pushes = op == kByte || op == kConstant || op >= kLiteral;
      const int needs = pushes ? 0 : op == kDereference || op == kPlusConstant ? 1 : 2;
      if (n < needs || n == kDepth) return false;
      if (op >= kLiteral && op < kLiteralEnd) {
        stack[n++] = op - kLiteral;
      } else if (op >= kRegisterPlus && op < kRegisterPlus + kRegisters) {
        stack[n++] = registers_[op - kRegisterPlus] + static_cast<uintptr_t>(code.Signed());
      } else if (op == kByte) {
        stack[n++] = code.Get<uint8_t>();
      } else if (op == kConstant) {
        stack[n++] = code.Unsigned();
      } else if (op == kDereference) {
        if (!Read(stack[n - 1], &stack[n - 1])) return false;
      } else if (op == kPlusConstant) {
        stack[n - 1] += code.Unsigned();
      } else if (op == kAnd || op == kPlus || op == kShift || op == kNotLess) {
        const uintptr_t y = stack[--n], x = stack[n - 1];
        stack[n - 1] = op == kAnd     ? x & y
                       : op == kPlus  ? x + y
                       : op == kShift ? (y < 64 ? x << y : 0)
                                      : static_cast<intptr_t>(x) >= static_cast<intptr_t>(y);
      } else {
        return false;
      }
    }
    if (!code.good() || n == 0) return false;
    *value = stack[n - 1];
    return true;
  }

  // The caller's registers.
  bool Apply(const Row& row, const Frame& frame) {
    using Kind = Rule::Kind;
    uintptr_t cfa = 0;
    if (row.cfa.kind == Kind::kExpression) {
      if (!Evaluate(row.cfa, nullptr, &cfa)) return false;
    } else if (row.cfa.kind == Kind::kRegister && row.cfa.value >= 0 && row.cfa.value < kRegisters) {
      cfa = registers_[row.cfa.value] + static_cast<uintptr_t>(row.offset);
    } else {
      return false;
    }
    // A stack grows down; a signal may have come on another one.
    if (cfa <= registers_[kSp] && !frame.is_signal) return false;
    uintptr_t next[kRegisters];
    memcpy(next, registers_, sizeof next);
    next[kSp] = cfa;
    for (int r = 0; r < kRegisters; ++r) {
      const Rule& rule = row.registers[r];
      bool known = true;
      switch (rule.kind) {
        case Kind::kSame:
          known = r != kPc;
          break;
        case Kind::kUndefined:
          known = false;
          break;
        case Kind::kOffset:
          known = Read(cfa + static_cast<uintptr_t>(rule.value), &next[r]);
          break;
        case Kind::kValueOffset:
          next[r] = cfa + static_cast<uintptr_t>(rule.value);
          break;
        case Kind::kRegister:
          known = rule.value >= 0 && rule.value < kRegisters;
          if (known) next[r] = registers_[rule.value];
          break;
        case Kind::kExpression:
          known = Evaluate(rule, &cfa, &next[r]) && Read(next[r], &next[r]);
          break;
        case Kind::kValueExpression:
          known = Evaluate(rule, &cfa, &next[r]);
          break;
      }
      if (!known && r == kPc) return false;
      if (!known) next[r] = 0;
    }
    memcpy(registers_, next, sizeof registers_);
    is_return_ = !frame.is_signal;
    return registers_[kPc] != 0;
  }

  const StackCopy& stack_;
  uintptr_t registers_[kRegisters];
  bool is_return_ = false, found_ = false;
};

}  // namespace

void StackCopy::Take(const void* context) {
#if defined(__x86_64__)
  constexpr int kOrder[kRegisters] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                                      REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  const auto& from = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  for (int r = 0; r < kRegisters; ++r) registers[r] = static_cast<uintptr_t>(from[kOrder[r]]);
  begin = registers[kSp];
  // The system reads as far as there is memory, and nothing at an address that is none.
  for (int page = 0; page < kGuardPages; ++page) {
    iovec to = {bytes, kBytes};
    iovec parts[kBytes / kPage + 1];
    size_t count = 0, whole = 0;
    for (uintptr_t at = begin; whole < kBytes; ++count) {
      const size_t n = std::min(kBytes - whole, static_cast<size_t>(kPage - at % kPage));
      parts[count] = {reinterpret_cast<void*>(at), n};
      at += n;
      whole += n;
    }
    const ssize_t n = process_vm_readv(getpid(), &to, 1, parts, count, 0);
    size = n > 0 ? static_cast<size_t>(n) : 0;
    if (size > 0) return;
    begin = (begin / kPage + 1) * kPage;
  }
#else
  (void)context;
#endif
}

int Unwind(const StackCopy& stack, uintptr_t* pcs, int limit) {
  Walk walk(stack);
  int count = 0;
  if (walk.pc() == 0) return 0;
  do {
    if (count == limit) break;
    pcs[count++] = walk.pc();
  } while (walk.Up());
  return count;
}

}  // namespace mslua
