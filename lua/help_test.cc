// The reference text of the library's names (mslua/help.lua): every public name has some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/session.h"

namespace mslua {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class Help : public testing::Test {
 protected:
  Help() : session_(*OpenSession({})) {
    EXPECT_TRUE(
        session_->RunText("ms = require 'mslua' nn, ops = ms.nn, ms.ops help = require 'mslua.help'", "=test").ok());
  }

  // What a chunk returns, or its error.
  std::string Run(const std::string& text) {
    const StackGuard guard(session_->lua());
    const Status s = session_->RunText(text, "=test");
    if (!s.ok()) return "error: " + std::string(s.message());
    const char* found = lua_tostring(session_->lua(), -1);
    return found == nullptr ? "nil" : found;
  }
  std::string Describe(const std::string& name) { return Run("return (help.describe([==[" + name + "]==], 100))"); }

  std::unique_ptr<Session> session_;
};

TEST_F(Help, EveryPublicNameHasText) {
  EXPECT_EQ(Run("local missing, count = {}, 0\n"
                "for _, e in ipairs(help.list()) do\n"
                "  count = count + 1\n"
                "  if not e.text:find '%a%a' or e.signature == '' then missing[#missing + 1] = e.name end\n"
                "end\n"
                "assert(count > 300, count)\n"
                "return table.concat(missing, ' ')"),
            "");
}

TEST_F(Help, EveryPublicKeyHasAMeaning) {
  EXPECT_EQ(Run("local missing, count = {}, 0\n"
                "local function check(name, keys)\n"
                "  for _, key in ipairs(keys) do\n"
                "    count = count + 1\n"
                "    if not key.text:find '%a%a' then missing[#missing + 1] = name .. ' ' .. key.name end\n"
                "  end\n"
                "end\n"
                "for _, e in ipairs(help.list()) do\n"
                "  check(e.name, e.keys)\n"
                "  for _, method in ipairs(e.methods) do check(e.name .. ':' .. method.name, method.keys) end\n"
                "end\n"
                "assert(count > 1500, count)\n"
                "return table.concat(missing, ', ')"),
            "");
}

TEST_F(Help, EveryNameOfTheModulesIsListed) {
  EXPECT_EQ(Run("local listed, missing = {}, {}\n"
                "for _, e in ipairs(help.list()) do listed[e.name] = true end\n"
                "for module, t in pairs { ms = ms, nn = nn, ops = ops, ['ms.dataset'] = ms.dataset,\n"
                "    ['ms.dataset.vision'] = ms.dataset.vision, ['ms.dataset.transforms'] = ms.dataset.transforms,\n"
                "    ['ms.communication'] = ms.communication, ['ms.text'] = ms.text } do\n"
                "  for key in pairs(t) do\n"
                "    local name = module .. '.' .. key\n"
                "    if not listed[name] and not listed[key] then missing[#missing + 1] = name end\n"
                "  end\n"
                "end\n"
                "return table.concat(missing, ' ')"),
            "");
}

TEST_F(Help, ModulesListTheirMembers) {
  EXPECT_THAT(Describe("nn"), HasSubstr("Dense"));
  EXPECT_THAT(Describe("ms"), HasSubstr("set_context"));
  EXPECT_THAT(Describe("ops"), HasSubstr("matmul"));
  EXPECT_THAT(Describe("ms.dataset"), HasSubstr("MnistDataset"));
  EXPECT_THAT(Describe("ms.dataset.vision"), HasSubstr("RandomCrop"));
}

TEST_F(Help, SignaturesKeysTypesAndDefaults) {
  const std::string adam = Describe("nn.Adam");
  EXPECT_THAT(adam, HasSubstr("nn.Adam(params = nil, learning_rate = 0.001, beta1 = 0.9"));
  EXPECT_THAT(adam, HasSubstr("beta2          a number, at least 0 and below 1 (default 0.999)"));
  EXPECT_THAT(adam, HasSubstr("Kingma"));
  EXPECT_EQ(Describe("Adam"), adam);
  EXPECT_THAT(Describe("ms.dataset.MnistDataset"), ContainsRegex("usage +one of \"train\", \"test\", \"all\""));
  EXPECT_THAT(Describe("ms.CheckpointConfig"),
              HasSubstr("keep_checkpoint_max            an integer, at least 0 (default 5)"));
  EXPECT_THAT(Describe("ms.Callback"), HasSubstr("on_train_step_end"));
  EXPECT_THAT(Describe("nn.CellList"), HasSubstr("append(...)"));
  EXPECT_THAT(Describe("nn.Conv2d"), HasSubstr("pad_mode"));  // bound by a function of its own
  EXPECT_THAT(Describe("ms.recipe"), HasSubstr("train.accumulate_steps"));
  EXPECT_THAT(Describe("ms.set_auto_parallel_context"), HasSubstr("gradients_mean"));
  EXPECT_THAT(Describe("ops.AllReduce"), HasSubstr("group  a string (default \"world\")"));
  EXPECT_THAT(Describe("ms.Model.train"), HasSubstr("dataset_sink_mode"));
  EXPECT_THAT(Describe("ms.zeros"), HasSubstr("ms.zeros(shape, dtype = float32)"));
}

TEST_F(Help, VariablesAndFunctionsOfTheUser) {
  ASSERT_EQ(Run("net = nn.Dense(2, 3) function twice(x) return 2 * x end ds = "
                "ms.dataset.NumpySlicesDataset({ms.zeros{4, 2}})"),
            "nil");
  EXPECT_THAT(Describe("net"), HasSubstr("net is an instance of:\nnn.Dense(in_channels"));
  EXPECT_THAT(Describe("net:get_parameters"), HasSubstr("in order of registration"));
  EXPECT_THAT(Describe("ds:batch"), HasSubstr("drop_remainder"));
  EXPECT_THAT(Describe("twice"), HasSubstr("twice(x)\n  defined at test:1"));
  EXPECT_EQ(Describe("no_such_name"), "nil");
  EXPECT_EQ(Describe("1 +"), "nil");
  EXPECT_THAT(Describe("nn.Linear"), HasSubstr("there is no ms.nn.Linear: ms.nn.Dense"));
}

// A table that raises when it is read stops the description, not the program.
TEST_F(Help, TablesThatRaise) {
  ASSERT_EQ(Run("strict = setmetatable({}, {__index = function() error 'not here' end})"), "nil");
  EXPECT_THAT(Describe("strict.x"), HasSubstr("not here"));
  EXPECT_EQ(Describe("strict"), "nil");
}

}  // namespace
}  // namespace mslua
