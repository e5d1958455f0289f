// Lua snippets through a Session: eager tensors, operators, traces, parameters, gradients, and what bad input gives.
#include "lua/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "lua/open_session.h"
#include "lua/testing/evaluate.h"

namespace mslua {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : session_(*OpenSession({})) {
    EXPECT_TRUE(session_->RunText("core = require 'mslua.core' f = core.functions", "=setup").ok());
  }

  std::string Eval(const std::string& code) { return testing::Evaluate(*session_, code); }

  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, TensorsPrintAsNumPyDoes) {
  EXPECT_EQ(Eval("return core.zeros({2, 1})"), "[[0.],\n [0.]]");
  EXPECT_EQ(Eval("return core.tensor {1.5, 2.25, -3}"), "[ 1.5 ,  2.25, -3.  ]");
  EXPECT_EQ(Eval("return core.tensor {{1, 2}, {3, 4}}"), "[[1., 2.],\n [3., 4.]]");
  EXPECT_EQ(Eval("return core.tensor({{1, 20}, {3, 4}}, 'int32')"), "[[ 1, 20],\n [ 3,  4]]");
  EXPECT_EQ(Eval("return core.tensor {true, false}"), "[ True, False]");
  EXPECT_EQ(Eval("return core.tensor(0.5)"), "0.5");
  EXPECT_EQ(Eval("return core.tensor(3)"), "3.0");
  EXPECT_EQ(Eval("return core.tensor {1e10, 1.5e-5}"), "[1.0e+10, 1.5e-05]");
  EXPECT_EQ(Eval("return core.tensor({0.1, 1/3}, 'float64')"), "[0.1       , 0.33333333]");
  EXPECT_EQ(Eval("return core.tensor {1/0, -1/0, 1}"), "[ inf, -inf,   1.]");
  EXPECT_EQ(Eval("return core.zeros({0})"), "[]");
  EXPECT_EQ(Eval("return core.arange(2000)"), "[   0,    1,    2, ..., 1997, 1998, 1999]");
  EXPECT_EQ(Eval("return core.zeros({2, 1, 2})"), "[[[0., 0.]],\n\n [[0., 0.]]]");
}

TEST_F(SessionTest, AnErrorHasTheExitCodeOfWhatWasRaised) {
  session_->NoteRaised(WithExitCode(absl::InvalidArgumentError("no space left"), kExitStorage));
  EXPECT_EQ(ExitCodeIn(session_->RunText("error('save: no space left')", "=test")), kExitStorage);
  EXPECT_EQ(ExitCodeIn(session_->RunText("error('wrong shape')", "=test")), kExitOk);
}

TEST_F(SessionTest, AnErrorWithoutAMessageGivesItsExitCodeToNoOther) {
  session_->NoteRaised(WithExitCode(absl::InvalidArgumentError(""), kExitStorage));
  EXPECT_EQ(ExitCodeIn(session_->RunText("error('wrong shape')", "=test")), kExitOk);
}

TEST_F(SessionTest, MakersAndFields) {
  EXPECT_EQ(Eval("local t = core.full({2, 3}, 7, 'int64') return t.shape[1], t.shape[2], t.dtype, t.size, #t, t.ndim"),
            "2 3 int64 6 2 2");
  EXPECT_EQ(Eval("return core.eye(2)"), "[[1., 0.],\n [0., 1.]]");
  EXPECT_EQ(Eval("return core.arange(1, 2, 0.25)"), "[1.  , 1.25, 1.5 , 1.75]");
  EXPECT_EQ(Eval("return core.arange(3, 'int64').dtype, core.arange(3).dtype"), "int64 int32");
  EXPECT_EQ(Eval("local t = core.tensor {{1, 2}, {3, 4}} return t[1][2], t[-1][1], t[2]"), "2 3 [3., 4.]");
  EXPECT_EQ(Eval("return core.tensor({1, 2, 3, 4}, 'float32', {2, 2}):reshape(-1), core.tensor(2.5):item()"),
            "[1., 2., 3., 4.] 2.5");
  EXPECT_EQ(Eval("local t = core.tensor({{1, 2}, {3, 4}}, 'int32'):totable() return t[2][1], "
                 "core.tensor({3.7}):astype('int32')"),
            "3 [3]");
  EXPECT_EQ(Eval("return core.kind(core.zeros({1})), core.kind({}), core.kind(1)"), "Tensor nil nil");
  EXPECT_EQ(Eval("return core.tensor(9007199254740993 , 'int64'):astype('int32').ndim"), "0");
}

TEST_F(SessionTest, RandomTensorsAreFunctionsOfSeedAndStream) {
  EXPECT_EQ(Eval("core.set_seed(3) local a = core.randn({4}) core.set_seed(3) local b = core.randn({4}) return "
                 "tostring(a) == tostring(b)"),
            "true");
  EXPECT_EQ(Eval("return tostring(core.rand({4}, 'float32', 'a')) == tostring(core.rand({4}, 'float32', 'b'))"),
            "false");
}

TEST_F(SessionTest, ArithmeticBroadcasts) {
  EXPECT_EQ(Eval("return core.tensor {{1}, {2}} + core.tensor {10, 20}"), "[[11., 21.],\n [12., 22.]]");
  EXPECT_EQ(Eval("return 2 * core.tensor {1, 2} - 1"), "[1., 3.]");
  EXPECT_EQ(Eval("return -core.tensor {1, 2} ^ 2"), "[-1., -4.]");
  EXPECT_EQ(Eval("return 1 / core.tensor {2, 4}"), "[0.5 , 0.25]");
  EXPECT_EQ(Eval("return core.tensor({1, 2}, 'int32') + 1"), "[2, 3]");
  EXPECT_EQ(Eval("return core.tensor {1, 2, 3} + core.tensor {1, 2}"),
            "test.lua:1: add: shapes [3] and [2] do not broadcast: 3 against 2");
  EXPECT_EQ(Eval("return core.tensor({1, 2}, 'int32') * 0.5"),
            "test.lua:1: Mul: the number 0.5 meets int32: cast the tensor to a float type first");
}

TEST_F(SessionTest, MethodsReduceAndTranspose) {
  EXPECT_EQ(
      Eval("local t = core.tensor {{1, 2}, {3, 6}} return t:sum(), t:mean(1), t:max(-1), t:argmax(), t:argmax(2)"),
      "12.0 [2., 4.] [2., 6.] 3 [1, 1]");
  EXPECT_EQ(Eval("return core.tensor {{1, 2}, {3, 4}}:transpose()"), "[[1., 3.],\n [2., 4.]]");
  EXPECT_EQ(Eval("return core.zeros({2, 3, 4}):transpose(2, 1, 3).shape[1]"), "3");
}

TEST_F(SessionTest, OperatorsTakePositionalAndNamedAttributes) {
  EXPECT_EQ(Eval("return f.matmul(core.tensor {{1, 2}}, core.tensor {{3, 4}}, {transpose_b = true})"), "[[11.]]");
  EXPECT_EQ(Eval("return f.matmul(core.tensor {{1, 2}}, core.tensor {{3, 4}}, false, true)"), "[[11.]]");
  EXPECT_EQ(Eval("return core.op('matmul', {core.tensor {{1, 2}}, core.tensor {{3, 4}}}, {transpose_b = true, "
                 "_in_strategy = '((1,1),(1,1))'})"),
            "[[11.]]");
  EXPECT_EQ(Eval("return f.concat({core.ones({1}), core.zeros({1})}, 1)"), "[1., 0.]");
  EXPECT_EQ(Eval("return core.bind_attrs('matmul', {true}).transpose_a, core.bind_attrs('matmul', {{transpose_b = "
                 "true}}).transpose_b"),
            "true true");
  EXPECT_EQ(Eval("return f.reduce_sum(core.ones({2, 3}), {2})"), "[3., 3.]");
}

TEST_F(SessionTest, BadCallsNameTheLineAndTheMend) {
  EXPECT_EQ(Eval("local a = core.zeros({8, 32})\nlocal y = f.matmul(a, core.zeros({16, 16}))"),
            "test.lua:2: MatMul: x is f32[8,32] and w is f32[16,16]: size of 'k' differs: dimension 2 of x is 32, "
            "dimension 1 of w is 16");
  EXPECT_EQ(Eval("local y = f.matmul(core.zeros({2, 2}))"), "test.lua:1: MatMul: takes 2 inputs (x, w), got 1");
  EXPECT_EQ(Eval("local y = f.matmul({}, core.zeros({2, 2}))"),
            "test.lua:1: MatMul: x: expected a tensor or a number, got a table (an operator is called with a dot, "
            "self.op(x); a list becomes one by ms.Tensor)");
  EXPECT_EQ(Eval("local y = f.matmul(core.zeros({2, 2}), core.zeros({2, 2}), {transpos_a = true})"),
            "test.lua:1: MatMul: unknown attribute 'transpos_a' (did you mean 'transpose_a'?); attributes: "
            "transpose_a, transpose_b");
  EXPECT_EQ(Eval("local y = f.matmul(core.zeros({2, 2}), core.zeros({2, 2}), {transpose_a = 1})"),
            "test.lua:1: MatMul: attribute 'transpose_a': expected true or false, got 1");
  EXPECT_EQ(
      Eval("local y = f.reduce_sum(core.ones({2}), {0})"),
      "test.lua:1: ReduceSum: attribute 'axis': axis 0 does not exist: axes count from 1, or from the end with -1");
  EXPECT_EQ(Eval("local y = core.op('matmull', {})"),
            "test.lua:1: this build has no operator 'matmull' (did you mean 'matmul'?)");
  EXPECT_EQ(Eval("return core.zeros({2})[3]"),
            "test.lua:1: subscript 3 of f32[2]: expected 1 to 2, or -1 to -2 from the end");
  EXPECT_EQ(Eval("return core.zeros({2})[0]"),
            "test.lua:1: subscript 0 of f32[2]: expected 1 to 2, or -1 to -2 from the end");
  EXPECT_EQ(Eval("local y = core.tensor {{1, 2}, {3}}"),
            "test.lua:1: Tensor: lists are ragged: expected 2 elements at depth 2, got 1");
  EXPECT_EQ(Eval("local y = core.tensor {1, 'x'}"), "test.lua:1: Tensor: expected a number at depth 2, got \"x\"");
  EXPECT_EQ(Eval("local y = core.zeros({-1})"), "test.lua:1: shape[1]: expected a size, got -1");
  EXPECT_EQ(Eval("local y = core.zeros({1e9, 1e9})"),
            "test.lua:1: shape: [1000000000,1000000000] has too many elements");
  EXPECT_EQ(Eval("local y = core.zeros({1e12, 1e12, 0})"),
            "test.lua:1: shape: [1000000000000,1000000000000,0] has too many elements");
  EXPECT_EQ(Eval("local y = f.reshape(core.zeros({0}), {4294967296, 4294967296})"),
            "test.lua:1: Reshape: x is f32[0]: [4294967296,4294967296] has too many elements");
  EXPECT_EQ(Eval("local y = f.broadcast_to(core.zeros({1}), {4294967296, 4294967296})"),
            "test.lua:1: BroadcastTo: x is f32[1]: the result f32[4294967296,4294967296] has too many elements");
  EXPECT_EQ(Eval("local y = core.zeros({2}, 'flot32')"),
            "test.lua:1: dtype: expected a dtype (ms.float32, float64, bfloat16, float16, int32, int64, uint8, bool), "
            "got \"flot32\"");
  EXPECT_EQ(Eval("local t = core.zeros({2}) t:free() return t + 1"), "test.lua:1: Add: the Tensor was freed");
  EXPECT_EQ(
      Eval("local t = core.zeros({2}) t[1] = 3"),
      "test.lua:1: a Tensor cannot be changed: ops.where(mask, value, x) and ops.update_slice(x, piece, start) give "
      "another one");
  EXPECT_EQ(
      Eval("return core.ones({2}) < core.ones({2})"),
      "test.lua:1: < gives one boolean in Lua, and f32[2] has 2 elements: use ops.less(x, y) for the elements, or "
      "compare two of them");
  EXPECT_EQ(Eval("return core.ones({1}) <= core.zeros({})"), "false");
  EXPECT_EQ(
      Eval("return core.ones({2}) < 3"),
      "test.lua:1: a tensor is compared with a value of another kind: Lua cannot compare these; use ops.less(x, y) "
      "or ops.greater(x, y) for the elements, x:item() for one number");
  EXPECT_EQ(Eval("core.fail('%s is %d', 'x', 3)"), "test.lua:1: x is 3");
  EXPECT_EQ(Eval("return core.did_you_mean('epohcs', {'epochs', 'lr'})"), " (did you mean 'epochs'?)");
  EXPECT_EQ(Eval("local x = = 1"), "test.lua:1: unexpected symbol near '='");
}

TEST_F(SessionTest, TracesBecomeGraphs) {
  const std::string text = Eval(
      "local w = core.parameter {name = 'w', shape = {3, 2}, init = 'normal'}\n"
      "local g = core.trace(function(x)\n"
      "  core.push_scope('Net')\n"
      "  local y = f.tanh(f.matmul(x, w) + 1)\n"
      "  core.pop_scope()\n"
      "  return y\n"
      "end, {{name = 'x', dtype = 'float32', shape = {4, 3}}})\n"
      "return g");
  EXPECT_NE(text.find("%x: f32[4,3] = input()"), std::string::npos) << text;
  EXPECT_NE(text.find("matmul(%x, %w)"), std::string::npos) << text;
  EXPECT_NE(text.find("# Net @ test.lua:4"), std::string::npos) << text;
  EXPECT_EQ(Eval("return core.store()[1]"), "nil") << "tracing needs no weights";
}

TEST_F(SessionTest, TraceErrors) {
  const auto trace = [&](const std::string& body) {
    return Eval("local g = core.trace(function(x)\n" + body + "\nend, {{shape = {2}}})\nreturn g");
  };
  EXPECT_EQ(trace("if x < x then return x end"),
            "test.lua:2: < on traced values: Lua's conditions run while the graph is traced; use ops.less(x, y), and "
            "ops.select(condition, a, b) for the choice");
  EXPECT_EQ(
      trace("if x < 3 then return x end"),
      "test.lua:2: a traced value is compared in Lua: while the graph is traced it has no elements; use ops.less(x, "
      "y) or ops.greater(x, y), and ops.select(condition, a, b) for the choice");
  EXPECT_EQ(trace("return x:sum():item()"),
            "test.lua:2: :item() of a traced value: it has no elements while the graph is traced; use "
            "ops.select(condition, a, b) for a choice, or return it from construct");
  EXPECT_EQ(trace("return f.matmul(x, x)").substr(0, 19), "test.lua:2: MatMul:");
  EXPECT_EQ(trace("kept = x return x + 1").substr(0, 5), "graph");
  EXPECT_EQ(Eval("return kept + 1"),
            "test.lua:1: Add: a traced value is used after its trace has ended: construct must not keep values for "
            "later calls");
  EXPECT_EQ(trace("local y = x"), "test.lua:1: trace: the function gives nothing; does construct end in a return?");
  EXPECT_EQ(trace("return 'x'"), "test.lua:1: trace: result 1 of the function should be a tensor, got \"x\"");
  EXPECT_EQ(trace("local y = nil + x"), "test.lua:2: Add: a: expected a tensor or a number, got nil");
  EXPECT_EQ(trace("error('mine')"), "test.lua:2: mine");
  // A failed trace leaves nothing behind.
  EXPECT_EQ(Eval("return core.is_tracing(), core.ones({1}) + 1"), "false [2.]");
}

TEST_F(SessionTest, LoopsThatTraceForeverStop) {
  const std::string message = Eval("return core.trace(function(x)\nwhile true do x = x + 1 end\nend, {{shape = {2}}})");
  EXPECT_EQ(message.substr(0, 60), "test.lua:2: the traced graph has more than 100000 nodes: loo");
}

TEST_F(SessionTest, ParametersAreMadeOnUse) {
  EXPECT_EQ(Eval("p = core.parameter {name = 'a', shape = {2}, init = {'constant', 3}} return #core.store(), p.value, "
                 "#core.store()"),
            "0 [3., 3.] 1");
  EXPECT_EQ(Eval("p.value = {1, 2} return p.value, p + 1, p.name, p.requires_grad, p.shape[1]"),
            "[1., 2.] [2., 3.] a true 2");
  EXPECT_EQ(Eval("p.name = 'b' return p.name, core.store()[1].name"), "b a");  // the store's key stays
  EXPECT_EQ(Eval("p.name = ''"), "test.lua:1: parameter 'b': name: expected a name, got \"\"");
  EXPECT_EQ(Eval("p.required_grad = true"),
            "test.lua:1: parameter 'b' has no settable field 'required_grad' (did you mean 'requires_grad'?)");
  EXPECT_EQ(Eval("p.value = {1, 2, 3}"), "test.lua:1: parameter 'b' is f32[2], the value is f32[3]");
  EXPECT_EQ(Eval("local q = core.parameter {name = 'a', shape = {2}, init = 'ones'} return q.value, p.value"),
            "[1., 1.] [1., 2.]");
  EXPECT_EQ(Eval("return core.parameter {name = 'x', init = {{1, 2}}}.shape[2]"), "2");
  EXPECT_EQ(
      Eval("local p = core.parameter {name = 'x', shape = {2}, init = 'nromal'}"),
      "test.lua:1: Parameter 'x': init: unknown initializer 'nromal' (did you mean 'normal'?): expected one of zeros, "
      "ones, constant, identity, normal, uniform, truncated_normal, xavier_uniform, xavier_normal, he_uniform, "
      "he_normal");
  EXPECT_EQ(Eval("local p = core.parameter {name = 'x'}"),
            "test.lua:1: Parameter 'x': a shape is needed, or a tensor as its init");
  EXPECT_EQ(Eval("return core.parameter {name = 'y', shape = {2}, init = 'he_normal'}.value"),
            "test.lua:1: parameter 'y': init 'he_normal': needs a shape of two or more dimensions, got [2]");
}

TEST_F(SessionTest, InitialValuesDependOnSeedAndNameAlone) {
  const std::string first =
      Eval("return core.parameter {name = 'n.w', shape = {4}, init = {'normal', sigma = 1}}.value");
  auto other = *OpenSession({});
  std::swap(session_, other);
  Eval(
      "core = require 'mslua.core' core.randn({7}) core.parameter {name = 'else', shape = {9}, init = "
      "'normal'}.value:sum()");
  EXPECT_EQ(Eval("return core.parameter {name = 'n.w', shape = {4}, init = {'normal', sigma = 1}}.value"), first);
  EXPECT_NE(
      Eval("core.set_seed(2) return core.parameter {name = 'n.w', shape = {4}, init = {'normal', sigma = 1}}.value"),
      first);
}

TEST_F(SessionTest, ValueAndGrad) {
  EXPECT_EQ(Eval("g = core.value_and_grad(function(x, y) return (x * x * y):sum() end, {1, 2})\n"
                 "local v, d = g(core.tensor {1, 2}, core.tensor {3, 4}) return v[1], d[1], d[2]"),
            "19.0 [ 6., 16.] [1., 4.]");
  EXPECT_EQ(Eval("local v, d = g(core.tensor {1, 2, 3}, core.tensor {1, 1, 1}) return d[1]"), "[2., 4., 6.]");
  EXPECT_EQ(Eval("local w = core.parameter {name = 'w', init = {2, 3}}\n"
                 "local h = core.value_and_grad(function(x) return (w * x):sum(), x + 1 end, {}, {w})\n"
                 "local v, a, d = h(core.tensor {5, 7}) return v[1], v[2], #a, d[1]"),
            "31.0 [6., 8.] 0 [5., 7.]");
  // The gradient of a gradient: inside a trace the calls nest.
  EXPECT_EQ(Eval("local inner = core.value_and_grad(function(x) return (x ^ 2 * x):sum() end)\n"
                 "local outer = core.value_and_grad(function(x) local v, d = inner(x) return d[1]:sum() end)\n"
                 "local v, d = outer(core.tensor {1, 2}) return v[1], d[1]"),
            "15.0 [ 6., 12.]");
  EXPECT_EQ(Eval("core.value_and_grad(function(x) return x end)(core.tensor {1, 2})"),
            "test.lua:1: value_and_grad: the function's first result should be a float scalar, got f32[2] (take its "
            ":sum() or :mean())");
  EXPECT_EQ(Eval("core.value_and_grad(3)"), "test.lua:1: value_and_grad: expected a function or a Cell, got 3");
}

TEST_F(SessionTest, AssignmentsInATraceUpdateTheStore) {
  EXPECT_EQ(
      Eval("s = core.state {name = 'mean', shape = {1}, init = 'zeros'}\n"
           "local g = core.value_and_grad(function(x) core.assign(s, s + x) core.assign(s, s * 2) return x:sum() end)\n"
           "g(core.tensor {3}) return s.value"),
      "[6.]");
  EXPECT_EQ(Eval("core.assign(s, {1}) return s.value"), "[1.]");
  EXPECT_EQ(Eval("core.assign(s, {1, 2})"), "test.lua:1: parameter 'mean' is f32[1], the value is f32[2]");
}

TEST_F(SessionTest, RandomOperatorsDifferFromCallToCall) {
  EXPECT_EQ(
      Eval("local x = core.ones({64}) return tostring(f.dropout(x, {p = 0.5})) == tostring(f.dropout(x, {p = 0.5}))"),
      "false");
}

TEST_F(SessionTest, MemoryIsReturned) {
  // 1 GB of tensors passes through; the collector keeps up.
  EXPECT_EQ(Eval("for i = 1, 64 do local t = core.zeros({1024, 1024, 4}) end return 'done'"), "done");
  EXPECT_LT(session_->allocator().live_bytes(), int64_t{400} << 20);
}

TEST_F(SessionTest, FreedTensorsCauseNoCollection) {
  EXPECT_EQ(Eval(R"(
    local collected = setmetatable({}, {__mode = 'v'})
    collectgarbage 'stop'
    collected[1] = {}
    for i = 1, 64 do core.zeros({1024, 1024}):free() end
    local after_freed = collected[1] == nil
    for i = 1, 64 do core.zeros({1024, 1024}) end
    collectgarbage 'restart'
    return tostring(after_freed) .. ' ' .. tostring(collected[1] == nil))"),
            "false true");
}

TEST_F(SessionTest, TensorsOfOneNumberHoldIt) {
  for (const char* dtype : {"float32", "float16", "bfloat16", "float64", "int32", "uint8"}) {
    EXPECT_EQ(Eval(absl::StrCat("for _, n in ipairs {1, 2047, 2048, 2049, 6000} do for _, v in ipairs {0, 3} do ",
                                "local list = core.full({n}, v, '", dtype, "'):totable() for i = 1, n do ",
                                "if list[i] ~= v then return n .. ' ' .. i end end end end return 'equal'")),
              "equal");
  }
}

TEST_F(SessionTest, ListsKeepWhatFloat32CannotHold) {
  EXPECT_EQ(Eval("return tostring(core.tensor {0.5, 16777216, -3, 2 ^ 24 + 2, 0 / 0, -1 / 0})"),
            Eval("return tostring(core.tensor({0.5, 16777216, -3, 2 ^ 24 + 2, 0 / 0, -1 / 0}, 'float32'))"));
  EXPECT_EQ(Eval("return core.tensor {1, 2, 16777217}"),
            "Tensor: the number 16777217 would be rounded to 16777216 by float32, the default: give a "
            "dtype, such as \"int32\"");
}

// Lua's own way to free an object, called by hand: on each kind twice, and on what is none of its kind.
TEST_F(SessionTest, FinalizersAreHarmless) {
  EXPECT_EQ(Eval(R"(
    local ms = require 'mslua'
    local w = core.parameter {name = 'freed', shape = {2}, init = 'ones'}
    local value = w.value
    local columns = {{name = 'x', value = core.ones {4, 1}}}
    local d = core.dataset {source = {kind = 'numpy_slices', data = columns}, ops = {}}
    local traced
    local g = core.trace(function(x) traced = x return x + 1 end, {{name = 'x', dtype = 'float32', shape = {2}}})
    local kinds = {}
    for _, object in ipairs {core.ones {1000}, w, d, g, traced} do
      kinds[#kinds + 1] = core.kind(object)
      local finalize = getmetatable(object).__gc
      for _, other in ipairs {{}, 1, core.zeros {1}, io.stdout, value} do finalize(other) end
      finalize(object)
      finalize(object)
      finalize()
      assert(core.kind(object) == nil)
    end
    collectgarbage()
    collectgarbage()
    return table.concat(kinds, ' '), core.zeros {1})"),
            "Tensor Parameter Dataset Graph Value [0.]");
}

TEST_F(SessionTest, LibraryLinesAreNotTheUsers) {
  EXPECT_EQ(Eval("local ms = require 'mslua'\n local z = ms.zeros({-2})"),
            "test.lua:2: shape[1]: expected a size, got -2");
}

TEST_F(SessionTest, CallsOfWhatACellLacksNameItsClassAndTheNearest) {
  ASSERT_EQ(Eval("local ms = require 'mslua'\n nn = ms.nn\n Net = nn.Cell:extend 'Net'\n"
                 "function Net:init() self.fc = nn.Dense(2, 2) end\n function Net:extra_loss() end net = Net()\n"
                 "return 'made'"),
            "made");
  const std::string method = "test.lua:1: attempt to call method ";
  EXPECT_EQ(Eval("net:get_paramters()"),
            method +
                "'get_paramters' (a nil value): Net has no method 'get_paramters' (did you mean "
                "'get_parameters'?)");
  EXPECT_EQ(Eval("net:clone()"),
            method + "'clone' (a nil value): Net has no method 'clone': make another one by calling its class");
  const std::string listed = Eval("net:optimise()");
  EXPECT_EQ(listed.find(method + "'optimise' (a nil value): Net has no method 'optimise'; it has construct, "), 0u)
      << listed;
  EXPECT_NE(listed.find(", extra_loss, "), std::string::npos) << listed;
  EXPECT_EQ(Eval("net.fc1(2)"),
            "test.lua:1: attempt to call field 'fc1' (a nil value): Net has no field 'fc1' (did you mean 'fc'?)");
  EXPECT_EQ(Eval("nn.SGD({net.fc.weight}, 0.1):stepp()").find("test.lua:1: "), 0u);
  EXPECT_EQ(Eval("nn.SGD({net.fc.weight}, 0.1):zero_grad()")
                .find(method + "'zero_grad' (a nil value): SGD has no "
                               "method 'zero_grad': gradients are results"),
            0u);
  EXPECT_EQ(Eval("return net.weight.value"),
            "test.lua:1: attempt to index field 'weight' (a nil value): Net has no field 'weight'; it has fc");
  EXPECT_EQ(Eval("return nn.Dense(2, 2).weight:ndim()"),
            method + "'ndim' (a number value): it is a field of a tensor: x.ndim");
  EXPECT_EQ(Eval("local s = ('%.3f'):format(require('mslua').Tensor(1.5)) return s"),
            "test.lua:1: bad argument #1 to 'format' (number expected, got userdata): of a tensor with one element "
            "x:item() is the number");
  // What is no cell's stays Lua's own, and fields may be asked for.
  EXPECT_EQ(Eval("local t = {} return t.x.y"), "test.lua:1: attempt to index field 'x' (a nil value)");
  EXPECT_EQ(Eval("local t = {} if net.bias == nil then t:clone() end"), method + "'clone' (a nil value)");
  EXPECT_EQ(Eval("return net.bias, net.fc.has_bias_or_so == nil"), "nil true");
}

TEST_F(SessionTest, FilesReportTheirLines) {
  // A short name: Lua shortens long ones in its own messages.
  ASSERT_EQ(chdir(::testing::TempDir().c_str()), 0);
  const std::string path = "broken.lua";
  std::ofstream(path) << "local a = {}\nlocal b = a.x.y\n";
  const Status status = session_->RunFile(path);
  EXPECT_EQ(std::string(status.message()), path + ":2: attempt to index field 'x' (a nil value)");
  EXPECT_FALSE(session_->RunFile("/nonexistent.lua").ok());
}

}  // namespace
}  // namespace mslua
