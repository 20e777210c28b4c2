// The zip and the pickle of torch.save: what is read, and what is refused by name.
#include "runtime/checkpoint/import/pickle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <numeric>

#include "runtime/checkpoint/import/torch_file.hpp"
#include "runtime/checkpoint/import/zip_file.hpp"
#include "tests/runtime/checkpoint/support.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Kind = PickleValue::Kind;
using testing::pickled_int;
using testing::pickled_tensor;
using testing::pickled_text;
using testing::torch_file;
using testing::torch_state;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

PickleTree parsed(const std::string& body, const PickleLimits& limits = {}) {
  return parse_pickle(bytes_of("\x80\x02" + body + "."), "f.pt", 100, limits);
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "(accepted)";
}
std::string pickle_refusal(const std::string& body) {
  return refusal([&] { (void)parsed(body); });
}
std::string file_refusal(const std::string& file) {
  return refusal([&] { (void)parse_torch_file(bytes_of(file), "f.pt"); });
}

// A tensor with attributes, as Megatron's fp32 weights have them, names the function that makes it.
TEST(Pickle, TensorsWithAttributes) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::string plain = pickled_tensor({{2, 3}, {}, values}, "0");
  const std::string function = "ctorch._utils\n_rebuild_tensor_v2\n";
  ASSERT_TRUE(plain.starts_with(function) && plain.ends_with("R")) << plain;
  const std::string arguments = plain.substr(function.size(), plain.size() - function.size() - 1);
  const auto typed = [&](const std::string& call, const std::string& type) {
    const PickleTree tree =
        parsed("ctorch._tensor\n_rebuild_from_type_v2\n(" + call + type + arguments + "}" +
               pickled_text("partition_dim") + pickled_int(0) + "stR");
    return tree.at(tree.root);
  };
  EXPECT_EQ(typed(function, "ctorch\nTensor\n").kind, Kind::kTensor);
  EXPECT_EQ(typed(function, "ctorch.nn.parameter\nParameter\n").kind, Kind::kTensor);
  // What another type's storage means is not known, and no other function is called.
  EXPECT_EQ(typed(function, "cmine\nTensor\n").kind, Kind::kOpaque);
  EXPECT_EQ(typed("cos\nsystem\n", "ctorch\nTensor\n").kind, Kind::kOpaque);
  EXPECT_THAT(pickle_refusal("ctorch._tensor\n_rebuild_from_type_v2\n(NNtR"),
              HasSubstr("makes a tensor with attributes of no four values"));
}

TEST(Pickle, NumbersTextsAndContainers) {
  using namespace std::string_literals;
  const PickleTree tree =
      parsed("}(" + pickled_text("i") + pickled_int(-5) + pickled_text("long") +
             "\x8a\x06\0\0\0\0\0\x01"s + pickled_text("minus") + "\x8a\x01\xFF"s +
             pickled_text("f") + "G\x40\x04\0\0\0\0\0\0"s + pickled_text("list") + "](K\x07Ne" +
             pickled_text("t") + "\x88\x85" + pickled_text("i") + "K\x09u");
  const PickleValue& root = tree.at(tree.root);
  ASSERT_EQ(root.kind, Kind::kDict);
  EXPECT_EQ(tree.find(root, "i")->number, 9);  // the later one
  EXPECT_EQ(tree.find(root, "long")->number, std::int64_t{1} << 40);
  EXPECT_EQ(tree.find(root, "minus")->number, -1);
  EXPECT_EQ(tree.find(root, "f")->real, 2.5);
  ASSERT_EQ(tree.find(root, "list")->items.size(), 2U);
  EXPECT_EQ(tree.at(tree.find(root, "list")->items[0]).number, 7);
  EXPECT_EQ(tree.find(root, "t")->kind, Kind::kTuple);
  EXPECT_EQ(tree.find(root, "none"), nullptr);
  EXPECT_EQ(tree.entries(root).size(), 6U);
}

TEST(Pickle, WhatIsNotKnownIsNotRun) {
  const PickleTree tree = parsed("cos\nsystem\n" + pickled_text("false") + "\x85R");
  EXPECT_EQ(tree.at(tree.root).kind, Kind::kOpaque);
  EXPECT_EQ(tree.at(tree.root).text, "os system");
  EXPECT_EQ(tree.at(tree.root).at, 100 + 2 + 11 + 10 + 1);
  // An object's attributes are its state.
  const PickleTree object = parsed("cargparse\nNamespace\n)\x81}" + pickled_text("a") + "K\x03sb");
  EXPECT_EQ(object.find(object.at(object.root), "a")->number, 3);
  // One that holds itself is built, and nobody walks it.
  const PickleTree ring = parsed("]q\x01h\x01" + std::string("a"));
  EXPECT_EQ(ring.at(ring.root).items.front(), ring.root);
}

TEST(Pickle, RefusalsNameByteAndOpcode) {
  EXPECT_THAT(pickle_refusal("i"), HasSubstr("f.pt, byte 102: holds the pickle opcode 0x69"));
  EXPECT_THAT(pickle_refusal("P0\n"), HasSubstr("opcode 0x50"));
  EXPECT_THAT(pickle_refusal("s"), HasSubstr("takes a value that does not exist"));
  EXPECT_THAT(pickle_refusal("K\x01(s"), HasSubstr("takes a value that does not exist"));
  EXPECT_THAT(pickle_refusal("t"), HasSubstr("ends a list that was not begun"));
  EXPECT_THAT(pickle_refusal("h\x05"), HasSubstr("takes value 5"));
  EXPECT_THAT(pickle_refusal("NN"), HasSubstr("more than one value"));
  EXPECT_THAT(pickle_refusal("}(K\x01u"), HasSubstr("a key without a value"));
  EXPECT_THAT(pickle_refusal("NK\x01s"), HasSubstr("takes a value that does not exist"));
  EXPECT_THAT(pickle_refusal("NK\x01K\x02s"), HasSubstr("adds elements to None"));
  EXPECT_THAT(pickle_refusal("N)R"), HasSubstr("calls None"));
  EXPECT_THAT(pickle_refusal("X\xFF\xFF\xFF\xFF"), HasSubstr("ends within"));
  EXPECT_THAT(pickle_refusal("c" + std::string(200, 'a') + "\nb\n"), HasSubstr("160 characters"));
  EXPECT_THAT(refusal([] { (void)parse_pickle(bytes_of("\x80\x06N."), "f.pt"); }),
              HasSubstr("protocol 6"));
  EXPECT_THAT(refusal([] { (void)parse_pickle(bytes_of("\x80\x02N"), "f.pt"); }),
              HasSubstr("ends within"));
  EXPECT_THAT(refusal([] { (void)parsed("NN\x86", {.values = 2}); }),
              HasSubstr("more than 2 values"));
  EXPECT_THAT(refusal([] { (void)parsed("N", {.bytes = 3}); }), HasSubstr("over the limit of 3"));
}

TEST(Pickle, ATensorLiesInItsStorage) {
  const std::vector<float> values(6);
  const auto tensor = [&](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
    return pickle_refusal(pickled_tensor({std::move(shape), std::move(strides), values}, "0"));
  };
  EXPECT_EQ(tensor({2, 3}, {}), "(accepted)");
  EXPECT_EQ(tensor({2, 3}, {1, 2}), "(accepted)");
  EXPECT_EQ(tensor({0, 1000}, {1000, 1000}), "(accepted)");
  EXPECT_THAT(tensor({2, 4}, {}), HasSubstr("_rebuild_tensor_v2: it reaches beyond its storage 0"));
  EXPECT_THAT(tensor({2, 3}, {3, 2}), HasSubstr("reaches beyond"));
  EXPECT_THAT(tensor({1 << 30, 1 << 30, 1 << 30}, {0, 0, 0}), HasSubstr("reaches beyond"));
  EXPECT_THAT(tensor({-1}, {1}), HasSubstr("shape or strides are none"));
  EXPECT_THAT(tensor({2}, {1, 1}), HasSubstr("shape or strides are none"));
  EXPECT_THAT(tensor(std::vector<std::int64_t>(9, 1), {}), HasSubstr("shape or strides are none"));
  EXPECT_THAT(pickle_refusal("(" + pickled_text("storage") + "ctorch\nComplexFloatStorage\n" +
                             pickled_text("0") + pickled_text("cpu") + "K\x01tQ"),
              HasSubstr("torch ComplexFloatStorage, which is not read"));
}

class TorchFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = dir_.path() + "/" + std::to_string(next_++) + ".pt";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  testing::TempDir dir_;
  int next_ = 0;
};

TEST_F(TorchFiles, RowsByStrides) {
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 0.0F);
  const auto row = [](TorchFile& file, std::int64_t r, std::int64_t col, std::size_t n) {
    std::vector<float> out(n);
    file.check_storage(file.root(), "x");
    file.read_row(file.root(), r, col, out);
    return out;
  };
  TorchFile plain(write(torch_state({{3, 4}, {}, values}, false)));
  EXPECT_EQ(row(plain, 2, 1, 3), (std::vector<float>{9, 10, 11}));
  TorchFile turned(write(torch_state({{4, 3}, {1, 4}, values}, false)));
  EXPECT_EQ(row(turned, 1, 0, 3), (std::vector<float>{1, 5, 9}));
  TorchFile flat(write(torch_state({{12}, {}, values}, false)));
  EXPECT_EQ(row(flat, 0, 5, 2), (std::vector<float>{5, 6}));
}

TEST_F(TorchFiles, AFlippedBitIsFound) {
  const std::vector<float> values(100, 1.5F);
  std::string bytes = torch_state({{10, 10}, {}, values});
  const std::size_t at = bytes.find(std::string("\0\0\xC0\x3F", 4));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 41] = static_cast<char>(bytes[at + 41] ^ 4);
  TorchFile file(write(bytes));
  EXPECT_THAT(refusal([&] { file.check_storage(*file.tree().find(file.root(), "param"), "x"); }),
              HasSubstr("tensor x, byte " + std::to_string(at) +
                        ": the 400 bytes from here are not what was written"));
}

TEST(TorchFile, WhatIsNoWholeFileIsRefused) {
  const std::vector<float> values(4);
  const std::string good = torch_state({{2, 2}, {}, values});
  EXPECT_EQ(file_refusal(good), "(accepted)");
  for (std::size_t length = 0; length < good.size(); ++length) {
    ASSERT_NE(file_refusal(good.substr(0, length)), "(accepted)") << length;
  }
  EXPECT_THAT(file_refusal(good + "x"), HasSubstr("no zip directory at its end"));
  EXPECT_THAT(file_refusal("x" + good), HasSubstr("not a whole file of torch.save"));
  EXPECT_THAT(file_refusal("\x80\x02}."), HasSubstr("is a bare pickle"));
  using testing::ZipPart;
  using testing::zipped;
  const ZipPart pickle{"a/data.pkl", "\x80\x02N."};
  EXPECT_EQ(file_refusal(zipped({pickle}, false)), "(accepted)");
  EXPECT_THAT(file_refusal(zipped({pickle, pickle})), HasSubstr("lists a/data.pkl twice"));
  EXPECT_THAT(file_refusal(zipped({pickle, {"b/x", ""}})), HasSubstr("beside the one folder"));
  EXPECT_THAT(file_refusal(zipped({{"data.pkl", ""}})), HasSubstr("beside the one folder"));
  EXPECT_THAT(file_refusal(zipped({{"a/x", ""}})), HasSubstr("no data.pkl"));
  EXPECT_THAT(file_refusal(zipped({pickle, {"a/byteorder", "big"}})), HasSubstr("little-endian"));
  const std::string body = testing::pickled_tensor({{2, 2}, {}, values}, "0");
  EXPECT_THAT(file_refusal(torch_file(body)), HasSubstr("has no data/0"));
  EXPECT_THAT(file_refusal(torch_file(body, {std::span(values).first(3)})),
              HasSubstr("data/0 of 12 bytes, not the 16"));
  std::string packed = zipped({pickle});
  packed[packed.find("PK\1\2") + 10] = 8;
  EXPECT_THAT(file_refusal(packed), HasSubstr("is compressed"));
}

TEST(Zip, ChecksumsAreThoseOfZip) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xCBF43926U);
  const std::string text = "The quick brown fox jumps over the lazy dog";
  EXPECT_EQ(crc32(bytes_of(text)), 0x414FA339U);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32(bytes_of(text.substr(cut)), crc32(bytes_of(text.substr(0, cut)))), 0x414FA339U);
  }
}

}  // namespace
}  // namespace sluice
