#include "core/step/aggregation.h"

#include <gtest/gtest.h>

#include "core/op/marks.h"

namespace mslua {
namespace {

using Box = std::vector<int64_t>;

// Where the random numbers of the third of four ranks begin, and the whole that they are a part of; empty: not placed.
std::pair<Box, Box> PlaceOf(GraphBuilder& g, Value random) {
  g.Output("y", random);
  Graph graph = *g.Finish();
  PlaceRandomRows(graph, 4, 2);
  const Attrs& attrs = graph.nodes[static_cast<size_t>(random.node)].attrs;
  return {mark::kBegin.GetOr(attrs, {}), mark::kGlobal.GetOr(attrs, {})};
}

Value Data(GraphBuilder& g, std::vector<int64_t> shape) {
  return g.Input("x", kData, {DType::kF32, Shape(shape.begin(), shape.end())});
}

Value Step(GraphBuilder& g) { return g.Input("step", kScalar, {DType::kI64, {}}); }

Value Dropout(GraphBuilder& g, Value x) { return g.Op("dropout", {x, Step(g)}, {{"p", 0.5}}); }

Value Noise(GraphBuilder& g, Box shape) { return g.Op("random_normal", {Step(g)}, {{"shape", std::move(shape)}}); }

TEST(PlaceRandomRows, RowsAreTheFirstDimensionOfData) {
  GraphBuilder g;
  EXPECT_EQ(PlaceOf(g, Dropout(g, Data(g, {3, 5}))), std::make_pair(Box({6, 0}), Box({12, 5})));
}

// As in recurrent networks, whose batch is the second dimension.
TEST(PlaceRandomRows, RowsAreFollowedThroughTransposes) {
  for (const int64_t rows : {3, 1}) {
    GraphBuilder g;
    const Value steps = Transpose(g, Data(g, {rows, 7, 5}), {1, 0, 2});
    EXPECT_EQ(PlaceOf(g, Dropout(g, steps)), std::make_pair(Box({0, 2 * rows, 0}), Box({7, 4 * rows, 5})));
  }
}

// The second micro-batch of two, as the training step takes it: every other row.
Value MicroBatch(GraphBuilder& g, int64_t rows) {
  const Value split = Reshape(g, Data(g, {2 * rows, 7, 5}), {rows, 2, 7, 5});
  const Value part = g.Op("strided_slice", {split},
                          {{"begin", Box{0, 1, 0, 0}}, {"end", Box{rows, 2, 7, 5}}, {"strides", Box{1, 1, 1, 1}}});
  return g.Op("reshape", {part}, {{"shape", Box{rows, 7, 5}}, {mark::kRowsFirst.name, true}});
}

// Noise of a table of positions is the same on each rank, noise of one row is not.
TEST(PlaceRandomRows, AMicroBatchOfOneRowMeetsATableOfOneRow) {
  const auto table = [](GraphBuilder& g) { return g.Input("w", kParameter, {DType::kF32, {1, 7, 5}}); };
  GraphBuilder dropped, scaled, added;
  const Value of_table = Dropout(dropped, table(dropped));
  Add(dropped, MicroBatch(dropped, 1), of_table);
  EXPECT_EQ(PlaceOf(dropped, of_table).second, Box());
  const Value factor = Noise(scaled, {1, 7, 5});
  Add(scaled, MicroBatch(scaled, 1), Mul(scaled, factor, table(scaled)));
  EXPECT_EQ(PlaceOf(scaled, factor).second, Box());
  const Value noise = Noise(added, {1, 7, 5});
  Add(added, Add(added, MicroBatch(added, 1), noise), table(added));
  EXPECT_EQ(PlaceOf(added, noise).second, Box({4, 7, 5}));
}

TEST(PlaceRandomRows, AMicroBatchOfOneRowHasRows) {
  for (const int64_t rows : {3, 1}) {
    GraphBuilder g, transposed;
    EXPECT_EQ(PlaceOf(g, Dropout(g, MicroBatch(g, rows))),
              std::make_pair(Box({2 * rows, 0, 0}), Box({4 * rows, 7, 5})));
    const Value steps = Transpose(transposed, MicroBatch(transposed, rows), {1, 0, 2});
    EXPECT_EQ(PlaceOf(transposed, Dropout(transposed, steps)),
              std::make_pair(Box({0, 2 * rows, 0}), Box({7, 4 * rows, 5})));
    GraphBuilder split;
    const Value apart = Transpose(split, Reshape(split, MicroBatch(split, rows), {rows, 5, 7}), {1, 0, 2});
    EXPECT_EQ(PlaceOf(split, Dropout(split, apart)), std::make_pair(Box({0, 2 * rows, 0}), Box({5, 4 * rows, 7})));
  }
}

TEST(PlaceRandomRows, RowsThatAreJoinedWithWhatFollowsThemStayBlocks) {
  GraphBuilder g;
  const Value joined = Reshape(g, Data(g, {3, 7, 5}), {21, 5});
  EXPECT_EQ(PlaceOf(g, Dropout(g, joined)), std::make_pair(Box({42, 0}), Box({84, 5})));
}

// Noise that is drawn by itself and added.
TEST(PlaceRandomRows, RowsAreFollowedBack) {
  GraphBuilder g;
  const Value steps = Transpose(g, Data(g, {3, 7}), {1, 0});
  const Value noise = Noise(g, {7, 3});
  Add(g, steps, noise);
  EXPECT_EQ(PlaceOf(g, noise), std::make_pair(Box({0, 6}), Box({7, 12})));
}

TEST(PlaceRandomRows, OneNumberIsThatOfTheBatchWhereItHasSeveralRows) {
  for (const int64_t rows : {3, 1}) {
    GraphBuilder g;
    const Value x = Data(g, {rows, 1}), noise = Noise(g, {1});
    Add(g, x, BroadcastTo(g, noise, {rows, 1}));
    EXPECT_EQ(PlaceOf(g, noise).second, rows == 1 ? Box({4}) : Box());
  }
  // Of a batch of one row, not of the batch.
  GraphBuilder g;
  EXPECT_EQ(PlaceOf(g, Dropout(g, Data(g, {1, 1}))), std::make_pair(Box({2, 0}), Box({4, 1})));
}

// The gradient of a sum is connected to no data.
TEST(PlaceRandomRows, ADropoutsGradientDrawsItsNumbers) {
  GraphBuilder g;
  const Value y = Dropout(g, Transpose(g, Data(g, {3, 7}), {1, 0}));
  const Value dy = BroadcastTo(g, g.Constant(1, DType::kF32), {7, 3});
  const Attrs attrs = g.graph().nodes[static_cast<size_t>(y.node)].attrs;
  const Value dx = g.Op("dropout", {dy, g.graph().nodes[static_cast<size_t>(y.node)].inputs[1]}, attrs);
  EXPECT_EQ(PlaceOf(g, dx), std::make_pair(Box({0, 6}), Box({7, 12})));
}

TEST(PlaceRandomRows, NoiseOfWeightsIsTheSameOnEachRank) {
  GraphBuilder g;
  const Value x = Data(g, {3, 5}), w = g.Input("w", kParameter, {DType::kF32, {5, 8}});
  const Value dropped = Dropout(g, w);
  g.Output("z", g.Op("matmul", {x, dropped}));
  EXPECT_EQ(PlaceOf(g, dropped), std::make_pair(Box(), Box()));
}

// Of a generator: its noise is drawn by itself, row by row.
TEST(PlaceRandomRows, WhatIsMadeOfNoiseHasItsRows) {
  for (const bool meets_data : {true, false}) {
    GraphBuilder g;
    const Value w = g.Input("w", kParameter, {DType::kF32, {5, 8}});
    const Value dropped = Dropout(g, g.Op("matmul", {Noise(g, {3, 5}), w}));
    const Value x = Data(g, {3, 8});
    if (meets_data) Add(g, x, dropped);
    EXPECT_EQ(PlaceOf(g, dropped), std::make_pair(Box({6, 0}), Box({12, 8})));
  }
}

// Queries that are learned, one set for each row.
TEST(PlaceRandomRows, AParameterThatIsRepeatedForEachRowHasRows) {
  for (const int64_t rows : {3, 1}) {
    GraphBuilder g;
    const Value queries = g.Input("w", kParameter, {DType::kF32, {7, 5}});
    const Value dropped = Dropout(g, BroadcastTo(g, queries, {rows, 7, 5}));
    Add(g, Data(g, {rows, 7, 5}), dropped);
    EXPECT_EQ(PlaceOf(g, dropped), std::make_pair(Box({2 * rows, 0, 0}), Box({4 * rows, 7, 5})));
  }
}

// Embeddings of positions.
TEST(PlaceRandomRows, WhatHoldsNoRowsIsTheSameOnEachRank) {
  GraphBuilder g;
  const Value x = Data(g, {3, 7, 8}), table = g.Input("w", kParameter, {DType::kF32, {20, 8}});
  const Value positions = g.Op("iota", {}, {{"size", int64_t{7}}});
  const Value dropped = Dropout(g, g.Op("gather", {table, positions}));
  Add(g, x, BroadcastTo(g, dropped, {3, 7, 8}));
  EXPECT_EQ(PlaceOf(g, dropped), std::make_pair(Box(), Box()));
}

TEST(PlaceRandomRows, AFactorOfAllRowsIsTheSameOnEachRank) {
  GraphBuilder g;
  const Value x = Data(g, {3, 8}), factor = Noise(g, {1, 8});
  Mul(g, x, BroadcastTo(g, factor, {3, 8}));
  EXPECT_EQ(PlaceOf(g, factor), std::make_pair(Box(), Box()));
}

TEST(PlaceRandomRows, WhatNothingConnectsHasItsRowsFirst) {
  GraphBuilder g;
  EXPECT_EQ(PlaceOf(g, Noise(g, {3, 2})), std::make_pair(Box({6, 0}), Box({12, 2})));
}

}  // namespace
}  // namespace mslua
