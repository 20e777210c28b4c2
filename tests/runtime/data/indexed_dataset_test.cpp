#include "runtime/data/indexed_dataset.hpp"

#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"
#include "tests/runtime/data/data_testing.hpp"
#include "tests/runtime/data/megatron_files.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<std::int64_t> all(const TokenSource& source) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

template <typename T>
void round_trip(std::uint8_t code, const std::vector<std::vector<std::int64_t>>& documents) {
  const TempFolder folder;
  write_megatron<T>(folder / "d", code, documents);
  const IndexedDataset data(folder / "d");
  std::vector<std::int64_t> tokens, starts{0};
  for (const auto& document : documents) {
    tokens.insert(tokens.end(), document.begin(), document.end());
    starts.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  EXPECT_EQ(all(data), tokens);
  EXPECT_THAT(data.document_starts(), ElementsAreArray(starts));
}

TEST(IndexedDataset, EveryIntegerType) {
  round_trip<std::uint8_t>(1, {{0, 255}, {7}});
  round_trip<std::int8_t>(2, {{0, 127}, {7}});
  round_trip<std::int16_t>(3, {{32767}, {7, 8, 9}});
  round_trip<std::int32_t>(4, {{70000, 1}, {2147483647}});
  round_trip<std::int64_t>(5, {{70000, 1}, {std::int64_t{1} << 40}});
  round_trip<std::uint16_t>(8, {{50256, 65535}, {}, {1}});
}

class Damaged : public ::testing::Test {
 protected:
  Damaged() {
    write_megatron<std::uint16_t>(folder_ / "d", 8, {{1, 2, 3}, {4, 5}});
    idx_ = read_file(folder_ / "d.idx");
    bin_ = read_file(folder_ / "d.bin");
  }
  template <typename T>
  std::string with(std::size_t at, T value) const {
    std::string changed = idx_;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return changed;
  }
  std::string fails(const std::string& idx) { return fails(idx, bin_); }
  std::string fails(const std::string& idx, const std::string& bin) {
    write_file(folder_ / "d.idx", idx);
    write_file(folder_ / "d.bin", bin);
    return message_of([&] { IndexedDataset data(folder_ / "d"); });
  }
  TempFolder folder_;
  std::string idx_, bin_;
};

TEST_F(Damaged, Header) {
  EXPECT_THAT(fails(""), HasSubstr("d.idx is not a usable Megatron index: it has 0 bytes"));
  EXPECT_THAT(fails(with(0, 'X')), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(fails(with<std::uint64_t>(9, 2)), HasSubstr("version 2, expected 1"));
  EXPECT_THAT(fails(with<std::uint8_t>(17, 7)), HasSubstr("floating-point"));
  EXPECT_THAT(fails(with<std::uint8_t>(17, 9)), HasSubstr("unknown token type 9"));
  EXPECT_THAT(fails(with<std::uint64_t>(18, 0)), HasSubstr("holds no sequence"));
  EXPECT_THAT(fails(with<std::uint64_t>(18, 3)),
              HasSubstr("3 sequences and 3 document positions need"));
  EXPECT_THAT(fails(with<std::uint64_t>(18, ~std::uint64_t{0})), HasSubstr("cut short"));
}

TEST_F(Damaged, EveryCutOfTheIndexAndTheTokens) {
  for (std::size_t size = 0; size < idx_.size(); ++size) EXPECT_NE(fails(idx_.substr(0, size)), "");
  EXPECT_THAT(fails(idx_, bin_.substr(0, 9)), HasSubstr("sequence 1 ends at byte 10 but"));
  EXPECT_THAT(fails(idx_, bin_ + "x"), HasSubstr("its sequences end at byte 10 but"));
}

TEST_F(Damaged, SequencesAndDocuments) {
  EXPECT_THAT(fails(with<std::int32_t>(34, -1)), HasSubstr("sequence 0 has a negative length"));
  EXPECT_THAT(fails(with<std::int32_t>(38, 2147483647)), HasSubstr("sequence 1 ends at byte"));
  EXPECT_THAT(fails(with<std::int64_t>(42, -2)), HasSubstr("negative"));
  EXPECT_THAT(fails(with<std::int64_t>(50, std::int64_t{1} << 62)),
              HasSubstr("sequence 1 ends at byte"));
  EXPECT_THAT(fails(with<std::int64_t>(58, 1)), HasSubstr("documents do not go from sequence 0"));
  EXPECT_THAT(fails(with<std::int64_t>(66, -1)), HasSubstr("document 1 begins before"));
  EXPECT_THAT(fails(with<std::int64_t>(74, 1)), HasSubstr("documents do not go"));
  EXPECT_THAT(fails(with<std::int64_t>(74, 3)), HasSubstr("documents do not go"));
}

TEST_F(Damaged, MissingFiles) {
  std::filesystem::remove(folder_ / "d.bin");
  EXPECT_THAT(message_of([&] { IndexedDataset data(folder_ / "d"); }), HasSubstr("d.bin"));
  EXPECT_THAT(message_of([&] { IndexedDataset data(folder_ / "none.idx"); }),
              HasSubstr("none.bin"));
}

TEST_F(Damaged, SequencesMayLieInAnyOrder) {
  std::string swapped =
      with<std::int64_t>(42, 4);  // sequence 0 (3 tokens) at byte 4, 1 (2 tokens) at 0
  const std::int64_t zero = 0;
  std::memcpy(swapped.data() + 50, &zero, sizeof zero);
  write_file(folder_ / "d.idx", swapped);
  const IndexedDataset data(folder_ / "d.idx");
  EXPECT_THAT(all(data), ElementsAre(3, 4, 5, 1, 2));
  std::vector<std::int64_t> part(3);
  data.read(2, part);
  EXPECT_THAT(part, ElementsAre(5, 1, 2));
}

TEST_F(Damaged, ModesAreLetBe) {
  write_file(folder_ / "d.idx", idx_ + std::string(2, '\0'));
  EXPECT_EQ(IndexedDataset(folder_ / "d.bin").size(), 5);
}

TEST(Mutation, IndexedFiles) {
  run_mutations("indexed", fuzz_indexed,
                {std::string(8, '\0'), std::string(8, '\xFF'), std::string(4, '\x7F'),
                 std::string(7, '\0') + "\x80", std::string(1, '\x40')},
                [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
