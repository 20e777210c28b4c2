#include "runtime/checkpoint/format/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

std::string file_of(const std::string& json, std::size_t data_bytes) {
  std::string file(8, '\0');
  const std::uint64_t length = json.size();
  std::memcpy(file.data(), &length, sizeof(length));
  return file + json + std::string(data_bytes, 'x');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)),
                                  static_cast<std::int64_t>(file.size()), "m.safetensors");
}

std::string refusal(const std::string& json, std::size_t data_bytes) {
  try {
    (void)parse(file_of(json, data_bytes));
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.file(), "m.safetensors");
    return error.what();
  }
  return "accepted";
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"b":{"shape":[2,3],"dtype":"BF16","data_offsets":[8,20]},)"
      R"( "a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
      R"( "none":{"dtype":"I32","shape":[0,4],"data_offsets":[20,20]}}   )";
  const SafetensorsHeader header = parse(file_of(json, 20));
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].offset, header.header_bytes + 8);
  EXPECT_EQ(header.tensors[1].bytes, 12);
  EXPECT_EQ(header.tensors[1].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.find("none")->bytes, 0);
  EXPECT_EQ(header.find("x"), nullptr);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty());
}

TEST(Safetensors, RefusesWhatIsNotExact) {
  const auto tensor = [](const char* name, const char* shape, const char* offsets) {
    return std::string("\"") + name + R"(":{"dtype":"F32","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}";
  };
  struct Case {
    std::string json;
    std::size_t bytes;
    const char* what;
  };
  const std::vector<Case> cases{
      {"{" + tensor("a", "[2]", "[0,8]") + "," + tensor("a", "[2]", "[8,16]") + "}", 16,
       "tensor a: occurs twice"},
      {"{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[2]", "[4,12]") + "}", 12,
       "overlaps the tensor before it"},
      {"{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[2]", "[12,20]") + "}", 20,
       "tensor b, byte 129: leaves a hole"},
      {"{" + tensor("a", "[2]", "[4,12]") + "}", 12, "leaves a hole"},
      {"{" + tensor("a", "[2]", "[0,8]") + "}", 7, "tensor a, byte 62: reaches to byte 70"},
      {"{" + tensor("a", "[2]", "[0,8]") + "}", 9, "the tensors end here"},
      {"{" + tensor("a", "[3]", "[0,8]") + "}", 8, "make 12 bytes"},
      {"{" + tensor("a", "[2]", "[8,0]") + "}", 8, "data_offsets [8, 0)"},
      {"{" + tensor("a", "[4611686018427387904,4]", "[0,0]") + "}", 0, "more than 2^63 bytes"},
      {"{" + tensor("a", "[9223372036854775808]", "[0,0]") + "}", 0, "over 2^63"},
      {"{" + tensor("a", "[-1]", "[0,8]") + "}", 8, "negative"},
      {"{" + tensor("a", "[2.0]", "[0,8]") + "}", 8, "no whole one"},
      {"{" + tensor("a", "[2]", "[0,8,9]") + "}", 8, "more than two"},
      {"{" + tensor("a", "[2]", "[0]") + "}", 8, "data_offsets of two numbers"},
      {"{" + tensor("a", "[[2]]", "[0,8]") + "}", 8, "a list where none belongs"},
      {"{" + tensor("a", "[0]", "[9223372036854775807,9223372036854775807]") + "}", 0, "over 2^63"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "no dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2, "8-bit and smaller"},
      {R"({"a":{"dtype":"U64","shape":[2],"data_offsets":[0,16]}})", 16, "has dtype U64"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4, "dtype twice"},
      {R"({"a":{"dtype":"F32","x":1,"shape":[],"data_offsets":[0,4]}})", 4, "does not know"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", 0, "key a twice"},
      {R"({"__metadata__":{"a":1}})", 0, "a number where none belongs"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "occurs twice"},
      {R"({"a":null})", 0, "null"},
      {R"({"a":[]})", 0, "a list"},
      {R"({"a":"b"})", 0, "a text"},
      {std::string("{}\0", 3), 0, "byte 10: the safetensors header holds a NUL byte"},
      {"{", 0, "not JSON"},
      {"{}x", 0, "not JSON"},
      {"{} {}", 0, "not JSON"},
      {"[]", 0, "does not begin with"},
      {" {}", 0, "does not begin with"},
      {"{\"\xFF\":{}}", 0, "not JSON"},
      {"{\"a\":" + std::string(100'000, '[') + "}", 0, "a list"},
  };
  for (const Case& one : cases) {
    EXPECT_THAT(refusal(one.json, one.bytes), HasSubstr(one.what)) << one.json.substr(0, 200);
  }
}

TEST(Safetensors, LengthsOfTheHeader) {
  const auto length = [](std::uint64_t n, std::size_t bytes) {
    std::string file(8 + bytes, '{');
    std::memcpy(file.data(), &n, sizeof(n));
    try {
      (void)parse(file);
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(length(0, 4), HasSubstr("does not begin with"));
  EXPECT_THAT(length(1, 1), HasSubstr("not JSON"));
  EXPECT_THAT(length(5, 4), HasSubstr("needs 13 bytes"));
  EXPECT_THAT(length(100'000'001, 4), HasSubstr("limit of 100 MB"));
  EXPECT_THAT(length(UINT64_MAX, 4), HasSubstr("limit of 100 MB"));
  EXPECT_THROW((void)parse("abcdefg"), CheckpointError);
  try {
    (void)parse("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    ADD_FAILURE();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("git lfs pull"));
  }
  EXPECT_THROW((void)parse(""), CheckpointError);
}

TEST(Safetensors, WrittenAtOffsetsInAnyOrder) {
  TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  const std::vector<TensorDecl> decls{{"half", TensorDType::kF16, {3}},
                                      {"double \"q\"", TensorDType::kF64, {}},
                                      {"none", TensorDType::kI8, {0, 3}},
                                      {"bytes", TensorDType::kU8, {5, 1}},
                                      {"single", TensorDType::kF32, {7}}};
  SafetensorsWriter writer(local_file_system(), path, decls, {{"format", "pt"}});
  std::vector<std::vector<std::byte>> data;
  for (const TensorEntry& entry : writer.layout().tensors) {
    data.emplace_back(static_cast<std::size_t>(entry.bytes));
    for (std::byte& b : data.back())
      b = static_cast<std::byte>(data.size() * 40 + data.back().size());
    EXPECT_EQ(entry.offset % size_of(entry.dtype), 0);  // aligned
  }
  writer.write(4, 12, std::span(data[4]).subspan(12));
  writer.write(0, 0, data[0]);
  writer.write(3, 0, data[3]);
  writer.write(2, 0, {});
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.write(4, 8, std::span(data[4]).first(8)), Error);   // written before
  EXPECT_THROW(writer.write(4, 24, std::span(data[4]).first(8)), Error);  // past the end
  writer.write(4, 0, std::span(data[4]).first(4));
  writer.write(4, 4, std::span(data[4]).subspan(4, 8));
  try {
    writer.finish();
    ADD_FAILURE() << "finished without a tensor";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("double \"q\""));
  }
  writer.write(1, 0, data[1]);
  writer.finish();
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors().size(), decls.size());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (std::size_t i = 0; i < decls.size(); ++i) {
    const TensorEntry& entry = file.at(decls[i].name);
    EXPECT_EQ(entry.dtype, decls[i].dtype);
    EXPECT_EQ(entry.shape, decls[i].shape);
    const auto bytes = file.bytes(entry);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data[i].begin(), data[i].end()));
  }
  EXPECT_EQ(file.find("other"), nullptr);
  EXPECT_THROW((void)file.at("other"), CheckpointError);
  EXPECT_THROW(SafetensorsFile(dir.path()), IoError);
  EXPECT_THROW(SafetensorsFile(path + "x"), IoError);
}

TEST(Safetensors, WhatCannotBeDeclared) {
  const auto plan = [](const std::vector<TensorDecl>& decls) { (void)plan_safetensors(decls, {}); };
  EXPECT_THROW(plan({{"a", TensorDType::kF32, {1}}, {"a", TensorDType::kF32, {1}}}), Error);
  EXPECT_THROW(plan({{"__metadata__", TensorDType::kF32, {1}}}), Error);
  EXPECT_THROW(plan({{"a", TensorDType::kF32, {-1}}}), Error);
  EXPECT_THROW(plan({{"a", TensorDType::kF32, {1LL << 40, 1LL << 40}}}), Error);
  EXPECT_EQ(plan_safetensors({}, {}).file_bytes, 16);
}

TEST(Safetensors, ALargeHeaderIsQuick) {
  std::vector<TensorDecl> decls;
  for (int i = 0; i < 20'000; ++i) {
    decls.push_back({"t" + std::to_string(i), TensorDType::kBF16, {1}});
  }
  const SafetensorsLayout layout = plan_safetensors(decls, {});
  const SafetensorsHeader header =
      parse_safetensors_header(std::as_bytes(std::span(layout.header)), layout.file_bytes, "big");
  EXPECT_EQ(header.tensors.size(), decls.size());
}

}  // namespace
}  // namespace sluice::testing
