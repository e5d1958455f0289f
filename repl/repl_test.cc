// What is typed: locals, completion, pretty printing, descriptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attach/client/output.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/session.h"
#include "repl/chunk.h"
#include "repl/describe.h"
#include "repl/line_editor.h"
#include "repl/show.h"

namespace mslua::repl {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

std::unique_ptr<Session> Opened() {
  SessionOptions options;
  options.verb = "repl";
  auto session = *OpenSession(options);
  EXPECT_TRUE(session->RunText("ms = require 'mslua' nn, ops = ms.nn, ms.ops", "=mslua/repl").ok());
  return session;
}

std::string Shown(Session& session, const std::string& expression) {
  const StackGuard guard(session.lua());
  const Status s = session.RunText("return " + expression, "=test");
  return s.ok() ? Show(session, session.lua(), -1) : std::string(s.message());
}

TEST(Chunk, OutermostLocalsAreKept) {
  EXPECT_EQ(KeepLocals("local x = 1"), "x = 1");
  EXPECT_EQ(KeepLocals("local a, b = 1, 2; local c"), "a, b = 1, 2; c = nil");
  EXPECT_EQ(KeepLocals("local function f() local y = 1 return y end"), "function f() local y = 1 return y end");
  EXPECT_EQ(KeepLocals("for i = 1, 2 do local x = i end local z = 3"), "for i = 1, 2 do local x = i end z = 3");
  EXPECT_EQ(KeepLocals("if a then local b = 1 elseif c then local d else local e end local f"),
            "if a then local b = 1 elseif c then local d else local e end f = nil");
  EXPECT_EQ(KeepLocals("repeat local x = 1 until x local y = 2"), "repeat local x = 1 until x y = 2");
  EXPECT_EQ(KeepLocals("s = 'local x' -- local y\nt = [[local z]]"), "s = 'local x' -- local y\nt = [[local z]]");
  EXPECT_EQ(KeepLocals("s = \"a\\\" local x\" local y = 1"), "s = \"a\\\" local x\" y = 1");
  EXPECT_EQ(KeepLocals("localized = 1"), "localized = 1");
}

TEST(Chunk, UnfinishedStatementsGoOn) {
  auto session = Opened();
  lua_State* L = session->lua();
  for (const char* text : {"for i = 1, 2 do", "f(", "x = {", "function g()"}) {
    const StackGuard guard(L);
    bool complete = true;
    EXPECT_TRUE(Load(L, text, "stdin", &complete).ok()) << text;
    EXPECT_FALSE(complete) << text;
  }
  bool complete = false;
  const Status wrong = Load(L, "x = = 1", "stdin", &complete);
  EXPECT_TRUE(complete);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("stdin:1: "));
}

TEST(Show, TensorsAndTables) {
  auto session = Opened();
  EXPECT_EQ(Shown(*session, "ms.ones{2, 2}"), "f32[2,2]\n[[1., 1.],\n [1., 1.]]");
  EXPECT_EQ(Shown(*session, "ms.Tensor(2.5)"), "2.5");
  EXPECT_THAT(Shown(*session, "ms.arange(100000)"), HasSubstr("..."));
  EXPECT_EQ(Shown(*session, "{3, 'x', n = 1, ['a b'] = ms.zeros{4}}"), "{3, \"x\", [\"a b\"] = f32[4], n = 1}");
  EXPECT_EQ(Shown(*session, "(function() local t = {} t[1] = t return t end)()"), "{{...}}");
  EXPECT_THAT(Shown(*session, "ms.Parameter(ms.zeros{2}, 'w')"), StartsWith("Parameter w f32[2]\n[0., 0.]"));
  EXPECT_THAT(Shown(*session, "setmetatable({}, {__tostring = function() error('no') end})"), HasSubstr("no"));
}

// Nothing catches a Lua error here: what users made of their tables is not called outside a protected call.
TEST(Show, TablesThatRaiseOrChange) {
  auto session = Opened();
  EXPECT_THAT(Shown(*session, "setmetatable({1}, {__index = function() error('no') end})"), HasSubstr("1"));
  ASSERT_TRUE(
      session
          ->RunText("t = {} for i = 1, 8 do t['k' .. i] = setmetatable({}, {__tostring = function()"
                    " for k in pairs(t) do t[k] = nil end for j = 1, 99 do t[j .. 'new'] = j end return 'x' end}) end",
                    "=test")
          .ok());
  EXPECT_THAT(Shown(*session, "t"), HasSubstr("x"));
  ASSERT_TRUE(
      session->RunText("tostring = nil setmetatable(_G, {__index = function(_, k) error('no ' .. k) end})", "=t").ok());
  EXPECT_FALSE(Shown(*session, "print").empty());
}

TEST(Complete, NamesFieldsMethodsAndParameters) {
  auto session = Opened();
  ASSERT_TRUE(
      session->RunText("t = ms.ones{2} net = nn.Dense(2, 3) complete = require('mslua.complete').complete", "=test")
          .ok());
  const auto words = [&](const std::string& before) {
    const StackGuard guard(session->lua());
    const Status s = session->RunText("local n, w = complete([==[" + before +
                                          "]==], {'.pause', '.params'}, {'conv1.weight', 'fc.weight'})"
                                          " return n .. ':' .. table.concat(w, ' ')",
                                      "=test");
    return s.ok() ? std::string(lua_tostring(session->lua(), -1)) : std::string(s.message());
  };
  EXPECT_EQ(words("ms.nn.Dens"), "4:Dense");
  EXPECT_THAT(words("y = t:su"), HasSubstr("sum"));
  EXPECT_THAT(words("t.sh"), HasSubstr("shape"));
  EXPECT_THAT(words("net.w"), HasSubstr("weight"));
  EXPECT_THAT(words("net:get_p"), HasSubstr("get_parameters"));
  EXPECT_EQ(words(".pa"), "3:.params .pause");
  EXPECT_EQ(words(".stat conv"), "4:conv1.weight");
  EXPECT_EQ(words("f('fc."), "3:fc.weight");
  EXPECT_THAT(words("?matm"), HasSubstr("matmul"));
  EXPECT_EQ(words("ms.no_such.x"), "1:");
  ASSERT_TRUE(session
                  ->RunText("opened = 0 local made = {}\n"
                            "require('mslua.complete').scope = { names = {'dataset', 'broken'}, get = function(name)\n"
                            "  if name == 'broken' then error 'no data' end\n"
                            "  if name == 'dataset' then opened = opened + 1 end\n"
                            "  made[name] = made[name] or ms.dataset.NumpySlicesDataset({ms.zeros{4, 2}})\n"
                            "  return name == 'dataset' and made[name] or nil end }",
                            "=test")
                  .ok());
  EXPECT_EQ(words("datas"), "5:dataset");
  EXPECT_THAT(words("dataset:ba"), HasSubstr("batch"));
  EXPECT_EQ(words("broken."), "0:");
}

TEST(Describe, OperatorsFunctionsAndOthers) {
  auto session = Opened();
  EXPECT_THAT(*DescribeName(*session, "matmul"), HasSubstr("transpose_b"));
  EXPECT_THAT(*DescribeName(*session, "ms.Model"), HasSubstr("ms.Model(net"));
  EXPECT_THAT(*DescribeName(*session, "ms.version"), HasSubstr("version of mslua"));
  ASSERT_TRUE(
      session->RunText("number = 3 strict = setmetatable({}, {__index = function() error 'no' end})", "=t").ok());
  EXPECT_EQ(*DescribeName(*session, "number"), "number is 3");
  for (const char* module : {"ms", "nn", "ops", "ms.dataset", "ms.dataset.vision", "ms.communication"})
    EXPECT_TRUE(DescribeName(*session, module).ok()) << module;
  EXPECT_TRUE(DescribeName(*session, "strict").ok());
  EXPECT_THAT(DescribeName(*session, "nn.Linear").status().message(), HasSubstr("ms.nn.Dense"));
  EXPECT_FALSE(DescribeName(*session, "no_such_name").ok());
  EXPECT_FALSE(DescribeName(*session, "x = = 1").ok());
}

TEST(Output, AnswersAsCommaSeparatedValues) {
  EXPECT_EQ(*ToCsv(R"({"ranks":[{"rank":0,"host":"a,b"},{"rank":1,"host":"c\"d","more":[1,2]}]})"),
            "rank,host,more\n0,\"a,b\",\n1,\"c\"\"d\",\"[1,2]\"");
  EXPECT_EQ(*ToCsv(R"({"step":3,"phase":"run"})"), "step,phase\n3,run");
  EXPECT_FALSE(ToCsv("paused").ok());
}

TEST(LineEditor, CommonPrefix) {
  EXPECT_EQ(CommonPrefix({"params", "pause"}), "pa");
  EXPECT_EQ(CommonPrefix({"one"}), "one");
  EXPECT_EQ(CommonPrefix({}), "");
}

}  // namespace
}  // namespace mslua::repl
