#include "core/sharding/strategy_file.h"

#include <filesystem>

#include "core/base/atomic_file.h"
#include "core/base/input_file.h"
#include "core/graph/builder.h"
#include "core/sharding/search/search.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

namespace fs = std::filesystem;

Graph Net(int64_t width, const char* activation, const char* scope = "Net/dense") {
  GraphBuilder g;
  g.SetLocation(std::make_shared<Location>(Location{scope, "net.lua", 7, ""}));
  const Value x = g.Input("x", kData, {DType::kF32, {16, width}}),
              w = g.Input("w", kParameter, {DType::kF32, {width, 16}});
  g.Output("y", g.Op(activation, {g.Op("matmul", {x, w})}));
  return *g.Finish();
}

class StrategyFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/strategies";
    fs::remove_all(folder_);
    path_ = folder_ + "/made/too/plan.json";
    chosen_ = Search(graph_, mesh_, {})->chosen;
  }
  std::string LoadError(const Graph& graph, const Mesh& mesh) const {
    return std::string(LoadStrategy(path_, graph, mesh).status().message());
  }
  const Graph graph_ = Net(32, "relu");
  const Mesh mesh_ = *Mesh::Of(8);
  std::string folder_, path_;
  std::vector<absl::optional<Sharding>> chosen_;
};

TEST_F(StrategyFileTest, ReadsBackAndMakesFolders) {
  ASSERT_TRUE(SaveStrategy(path_, graph_, mesh_, chosen_).ok());
  const auto back = LoadStrategy(path_, graph_, mesh_);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), chosen_.size());
  for (size_t i = 0; i < chosen_.size(); ++i) EXPECT_TRUE((*back)[i] == chosen_[i]);
}

TEST_F(StrategyFileTest, AFolderIsNoFile) {
  fs::create_directories(folder_);
  const std::string want = "strategy file '" + folder_ + "' is a folder, expected the name of a file";
  EXPECT_EQ(SaveStrategy(folder_, graph_, mesh_, chosen_).message(), want);
  EXPECT_EQ(LoadStrategy(folder_, graph_, mesh_).status().message(), want);
}

TEST_F(StrategyFileTest, NamesTheFirstDifference) {
  ASSERT_TRUE(SaveStrategy(path_, graph_, mesh_, chosen_).ok());
  const std::string file = "strategy file '" + path_ + "' ";
  EXPECT_EQ(LoadError(graph_, *Mesh::Of(4)),
            file +
                "is for 8 devices, here are 4: start that many ranks, or write a file for "
                "these with strategy_ckpt_save_file");
  EXPECT_EQ(LoadError(Net(32, "tanh"), mesh_),
            file +
                "is for another network: its node 4 (Net/dense) is relu: f32[16,16] -> f32[16,16], here it is tanh: "
                "f32[16,16] -> f32[16,16] (Tanh (Net/dense @ net.lua:7)): give the file that this network wrote, with "
                "batches of this size");
  EXPECT_EQ(LoadError(Net(64, "relu"), mesh_).find(file + "is for another network: its node 1 (Net/dense) is "), 0u);
  GraphBuilder longer(graph_);
  longer.Output("z", longer.Op("relu", {longer.graph().outputs[0].value}));
  EXPECT_EQ(LoadError(*longer.Finish(), mesh_),
            file +
                "is for another network: it has 4 nodes, here are 5: give the file that "
                "this network wrote, with batches of this size");
  ASSERT_TRUE(SaveStrategy(path_, Net(32, "relu", ""), mesh_, chosen_).ok());
  EXPECT_EQ(LoadError(Net(64, "relu"), mesh_).find(file + "is for another network: its node 1 is input: "), 0u);
}

// `axes` counts: a text that says another strategy would have no effect.
TEST_F(StrategyFileTest, TheTextSaysWhatTheAxesGive) {
  ASSERT_TRUE(SaveStrategy(path_, graph_, mesh_, chosen_).ok());
  const std::string good = *ReadFile(path_, 1 << 20);
  const std::string member = "\"strategy\":\"";
  const size_t at = good.rfind(member) + member.size(), end = good.find('"', at);
  const std::string said = good.substr(at, end - at);
  for (const char* other : {"((16,1))", "((3,1))", "", "text"}) {
    std::string wrong = good;
    wrong.replace(at, said.size(), other);
    ASSERT_TRUE(WriteFileAtomically(path_, wrong).ok());
    const std::string error = LoadError(graph_, mesh_);
    const std::string want = "strategy file '" + path_ + "' node 4 (ReLU (Net/dense @ net.lua:7)): its strategy is \"" +
                             other + "\", expected \"" + said + "\", which its axes {";
    EXPECT_EQ(error.substr(0, want.size()), want);
  }
  std::string spaces = good;
  spaces.insert(at + 1, " ");
  ASSERT_TRUE(WriteFileAtomically(path_, spaces).ok());
  EXPECT_EQ(LoadError(graph_, mesh_), "");
}

TEST_F(StrategyFileTest, DamagedFilesAreErrors) {
  ASSERT_TRUE(SaveStrategy(path_, graph_, mesh_, chosen_).ok());
  const std::string good = *ReadFile(path_, 1 << 20);
  for (size_t cut = 0; cut + 3 < good.size(); cut += 7) {
    ASSERT_TRUE(WriteFileAtomically(path_, good.substr(0, cut)).ok());
    EXPECT_FALSE(LoadStrategy(path_, graph_, mesh_).ok()) << cut;
  }
  std::string wrong = good;
  const size_t at = wrong.find("\"axes\":{\"");
  ASSERT_NE(at, std::string::npos);
  wrong.replace(at + 9, 1, "?");
  ASSERT_TRUE(WriteFileAtomically(path_, wrong).ok());
  EXPECT_NE(LoadError(graph_, mesh_).find("the operator has no factor"), std::string::npos);
}

}  // namespace
}  // namespace mslua
