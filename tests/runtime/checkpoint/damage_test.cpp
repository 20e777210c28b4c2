// Every byte of a checkpoint matters: flipped, cut off, exchanged or missing, it is refused with
// the file, the tensor and the offset, and the checkpoint before is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>

#include "base/error.hpp"
#include "runtime/checkpoint/io/convert.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::int64_t kBlock = 64;

class Damage : public ::testing::Test {
 protected:
  Damage() {
    std::mt19937 random(31);
    layout_ =
        make_layout({{"wte.weight", {13, 7}}, {"ln", {5}}}, {2, 1, TensorDType::kBF16}, random);
    save(files_, dir_.path(), 10, layout_, kBlock);
    step_ = save(files_, dir_.path(), 20, layout_, kBlock).path();
    manifest_ = open_checkpoint(files_, step_).manifest();
  }
  // The reason for which step 20 is refused; 10 must be what is left.
  std::string refusal(Trust trust) {
    const NewestComplete found = newest_complete(files_, dir_.path(), trust);
    EXPECT_EQ(found.name, "step-00000010");
    if (found.refused.size() != 1 || found.refused[0].name != "step-00000020") {
      ADD_FAILURE() << "step 20 was not refused, or not alone";
      return "";
    }
    return found.refused[0].reason;
  }
  std::string file(int rank) const { return step_ + "/" + rank_file_name(rank); }
  void read_all() { expect_loads(files_, step_, 20, layout_); }

  FileSystem& files_ = local_file_system();
  TempDir dir_;
  Layout layout_;
  std::string step_;
  Manifest manifest_;
};

// A tokenizer of equal size decodes nonsense.
TEST_F(Damage, EveryByteOfTheTokenizer) {
  const TokenizerFile& record = manifest_.run.tokenizer.files.at(0);
  const std::string path = step_ + "/" + record.name;
  for (std::int64_t byte = 0; byte < record.bytes; ++byte) {
    flip_bit(path, byte, 1);
    const VerifyReport report = verify(files_, step_);
    ASSERT_EQ(report.defects.size(), 1U);
    EXPECT_EQ(report.defects[0].file, path);
    EXPECT_THAT(report.defects[0].what, HasSubstr("is not the one that was saved"));
    TokenizerRecord tokenizer = manifest_.run.tokenizer;
    EXPECT_THROW(read_tokenizer_files(files_, step_, tokenizer), CheckpointError);
    Checkpoint from = open_checkpoint(files_, step_);
    EXPECT_THROW((void)convert(files_, from, dir_.path() + "/other", {}), CheckpointError);
    flip_bit(path, byte, 1);
  }
  TokenizerRecord tokenizer = manifest_.run.tokenizer;
  read_tokenizer_files(files_, step_, tokenizer);
  EXPECT_EQ(*tokenizer.files.at(0).text, "#version: 0.2\na b\n");
  fs::resize_file(path, 3);
  EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("has 3 bytes instead of 18"));
  fs::remove(path);
  EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("merges.txt: is missing"));
}

// As those that were saved before checkpoints had their tokenizer.
TEST_F(Damage, AManifestWithoutATokenizerIsWhole) {
  Manifest old = manifest_;
  old.run.tokenizer = {};
  const std::string text = encode_manifest(old);
  EXPECT_EQ(text.find("tokenizer"), std::string::npos);
  EXPECT_FALSE(parse_manifest(text, "m").run.tokenizer.known());
}

// No name leads out of the checkpoint's directory, or to its own files.
TEST_F(Damage, ATokenizersFileHasItsName) {
  for (const char* name : {"../vocab.json", "manifest.json", "rank-00000.safetensors", ""}) {
    Manifest other = manifest_;
    other.run.tokenizer.files[0].name = name;
    EXPECT_THROW((void)parse_manifest(encode_manifest(other), "m"), CheckpointError) << name;
  }
}

TEST_F(Damage, EveryByteOfEveryRankFile) {
  for (const FileRecord& record : manifest_.files) {
    const std::string path = step_ + "/" + record.name;
    for (std::int64_t byte = 0; byte < record.bytes; ++byte) {
      const int bit = static_cast<int>(byte % 8);
      flip_bit(path, byte, bit);
      SCOPED_TRACE(record.name + ", byte " + std::to_string(byte));
      const VerifyReport report = verify(files_, step_);
      ASSERT_EQ(report.defects.size(), 1U);
      const Defect& defect = report.defects[0];
      EXPECT_EQ(defect.file, path);
      std::string tensor;
      std::int64_t offset = 0;
      for (const RangeRecord& range : record.ranges) {
        if (byte < range.offset || byte >= range.offset + range.range.bytes()) continue;
        tensor = tensor_name(range.range);
        offset = range.offset + (byte - range.offset) / kBlock * kBlock;
      }
      EXPECT_EQ(defect.tensor, tensor);
      EXPECT_EQ(defect.offset, offset);
      EXPECT_THAT(defect.what, HasSubstr(record.name));
      EXPECT_THAT(defect.what, HasSubstr(tensor));
      if (byte % 7 == 0) {
        EXPECT_EQ(refusal(Trust::kContents), defect.what);
        EXPECT_THROW(read_all(), CheckpointError);
      }
      flip_bit(path, byte, bit);
      if (HasFailure()) return;
    }
  }
  read_all();
}

TEST_F(Damage, EveryByteOfTheManifest) {
  const std::string path = step_ + "/manifest.json";
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path));
  for (std::int64_t byte = 0; byte < bytes; ++byte) {
    for (const int bit : {static_cast<int>(byte % 8), 5}) {
      flip_bit(path, byte, bit);
      EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("manifest.json")) << byte;
      flip_bit(path, byte, bit);
    }
    if (HasFailure()) return;
  }
  read_all();
}

TEST_F(Damage, EveryLengthOfEveryFile) {
  for (const char* const name :
       {"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::string path = step_ + "/" + name;
    fs::copy_file(path, dir_.path() + "/whole");
    const auto bytes = static_cast<std::int64_t>(fs::file_size(path));
    for (std::int64_t length = bytes - 1; length >= 0; length -= length > 2 ? 3 : 1) {
      fs::resize_file(path, static_cast<std::uintmax_t>(length));
      const std::string reason = refusal(Trust::kManifest);
      EXPECT_THAT(reason, HasSubstr(name)) << length;
      if (path == file(0)) {
        EXPECT_THAT(reason, HasSubstr("cut short")) << length;
        EXPECT_THAT(reason, HasSubstr("byte " + std::to_string(length)));
        EXPECT_THAT(reason, HasSubstr("tensor "));
      }
      EXPECT_FALSE(verify(files_, step_).sound());
      if (HasFailure()) return;
    }
    fs::resize_file(path, static_cast<std::uintmax_t>(bytes + 1));
    (void)refusal(Trust::kManifest);
    fs::remove(path);
    fs::rename(dir_.path() + "/whole", path);
  }
  read_all();
}

TEST_F(Damage, AShardOfAnotherStep) {
  fs::copy_file(dir_.path() + "/step-00000010/rank-00001.safetensors", file(1),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(Trust::kContents), ::testing::AllOf(HasSubstr("rank-00001.safetensors"),
                                                          HasSubstr("a file of step 10, not 20")));
  EXPECT_THROW(read_all(), CheckpointError);
}

TEST_F(Damage, AShardOfAnotherSaveOfTheStep) {
  const SaveTarget again = save(files_, dir_.path(), 20, layout_, kBlock);
  EXPECT_EQ(again.name, "step-00000020.1");
  fs::copy_file(again.path() + "/rank-00000.safetensors", file(0),
                fs::copy_options::overwrite_existing);
  const VerifyReport report = verify(files_, step_);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_THAT(report.defects[0].what, HasSubstr("a file of save_id " + again.save_id));
}

TEST_F(Damage, SwappedRankFiles) {
  fs::rename(file(0), dir_.path() + "/x");
  fs::rename(file(1), file(0));
  fs::rename(dir_.path() + "/x", file(1));
  const VerifyReport report = verify(files_, step_);
  ASSERT_EQ(report.defects.size(), 2U);
  EXPECT_THAT(report.defects[0].what, HasSubstr("a file of rank 1, not 0"));
  EXPECT_THAT(report.defects[1].what, HasSubstr("a file of rank 0, not 1"));
  (void)refusal(Trust::kContents);
  EXPECT_THROW(read_all(), CheckpointError);
}

TEST_F(Damage, MissingFiles) {
  fs::rename(file(1), dir_.path() + "/x");
  EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("rank-00001.safetensors: is missing"));
  fs::rename(dir_.path() + "/x", file(1));
  fs::rename(step_ + "/manifest.json", dir_.path() + "/x");
  EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("never completed"));
  EXPECT_THROW(read_all(), CheckpointError);
  fs::copy_file(dir_.path() + "/step-00000010/manifest.json", step_ + "/manifest.json");
  EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("is the manifest of step 10"));
}

TEST_F(Damage, SeveralFlipsAreAllReported) {
  std::vector<std::int64_t> offsets;
  for (const RangeRecord& range : manifest_.files[0].ranges) {
    flip_bit(file(0), range.offset + range.range.bytes() - 1, 7);
    offsets.push_back(range.offset + (range.range.bytes() - 1) / kBlock * kBlock);
  }
  const VerifyReport report = verify(files_, step_);
  ASSERT_EQ(report.defects.size(), offsets.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(report.defects[i].offset, offsets[i]);
  // Shared out between two: each reports its own files.
  EXPECT_EQ(verify(files_, step_, 0, 2).defects.size(), offsets.size());
  EXPECT_TRUE(verify(files_, step_, 1, 2).sound());
}

TEST_F(Damage, WhatOthersReadIsStillRead) {
  const RangeRecord& last = manifest_.files[1].ranges.back();
  flip_bit(file(1), last.offset);
  Checkpoint checkpoint = open_checkpoint(files_, step_);
  for (const RangeRecord& record : manifest_.files[1].ranges) {
    std::vector<std::byte> memory(static_cast<std::size_t>(record.range.bytes()));
    if (&record == &last) {
      EXPECT_THROW(checkpoint.read_range(record.range, memory), CheckpointError);
    } else {
      checkpoint.read_range(record.range, memory);
      EXPECT_EQ(memory, expected_bytes(record.range, 20));
    }
  }
}

// The error is the one of the first wrong block, whatever has been read behind it by then.
TEST_F(Damage, ReadInParts) {
  for (const RangeRecord& record : manifest_.files[0].ranges) {
    const std::int64_t last = record.offset + record.range.bytes() - 1;
    flip_bit(file(0), last, 3);
    flip_bit(file(1), manifest_.files[1].ranges.back().offset);
    Checkpoint checkpoint = open_checkpoint(files_, step_);
    try {
      (void)read_in_small_parts(checkpoint, layout_[0]);
      ADD_FAILURE() << tensor_name(record.range) << " was read";
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.file(), file(0));
      EXPECT_EQ(error.tensor(), tensor_name(record.range));
      EXPECT_EQ(error.offset(), record.offset + (record.range.bytes() - 1) / kBlock * kBlock);
    }
    EXPECT_THROW((void)read_in_small_parts(checkpoint, layout_[1]), CheckpointError);
    flip_bit(file(0), last, 3);
    flip_bit(file(1), manifest_.files[1].ranges.back().offset);
  }
  read_all();
}

// Bytes that would be read whole are not asked for before somebody has looked at their number.
TEST_F(Damage, AHeaderLengthBeyondReason) {
  for (const std::int64_t length : {std::int64_t{1} << 60, std::int64_t{100'000'009}}) {
    Manifest absurd = manifest_;
    absurd.files[0].header_bytes = length;
    replace_durably(files_, step_ + "/manifest.json", encode_manifest(absurd));
    EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("header_bytes"));
    const VerifyReport report = verify(files_, step_);
    ASSERT_EQ(report.defects.size(), 1U);
    EXPECT_THAT(report.defects[0].what, HasSubstr("header_bytes"));
  }
}

TEST_F(Damage, AnotherVersion) {
  Manifest newer = manifest_;
  newer.version = 2;
  replace_durably(files_, step_ + "/manifest.json", encode_manifest(newer));
  EXPECT_THAT(refusal(Trust::kManifest), HasSubstr("format 2 by a newer Sluice"));
}

}  // namespace
}  // namespace sluice::testing
