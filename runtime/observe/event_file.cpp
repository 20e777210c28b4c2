#include "runtime/observe/event_file.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

// Field numbers of event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
enum SessionField { kStatus = 1 };
constexpr std::uint64_t kStatusStart = 1;

// Wire types of protobuf.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr std::array<std::uint32_t, 256> crc_table() {
  constexpr std::uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = rest;
  }
  return table;
}

template <typename Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(int field, WireType type) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
}

std::string bytes_field(int field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

// As TFRecord stores it: a CRC over data that holds CRCs is a weak one.
std::string masked_crc(std::string_view bytes) {
  constexpr std::uint32_t kDelta = 0xa282ead8;
  return little_endian(std::rotr(crc32c(bytes), 15) + kDelta);
}

std::string tf_record(std::string_view message) {
  const std::string length = little_endian(std::uint64_t{message.size()});
  return length + masked_crc(length) + std::string(message) + masked_crc(message);
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// `what`: the event's only field beside time and step.
std::string event(double wall_time, std::int64_t step, const std::string& what) {
  std::string message =
      key(kWallTime, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(wall_time));
  if (step != 0) message += key(kStep, kVarint) + varint(static_cast<std::uint64_t>(step));
  return tf_record(message + what);
}

std::string summary_of(const std::vector<EventScalar>& scalars) {
  std::string values;
  for (const EventScalar& scalar : scalars) {
    values += bytes_field(
        kValue, bytes_field(kTag, scalar.tag) + key(kSimpleValue, kFixed32) +
                    little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value))));
  }
  return bytes_field(kSummary, values);
}

std::string new_path(const std::string& folder, const std::string& host, double wall_time) {
  const std::string path = folder + "/events.out.tfevents." +
                           std::to_string(static_cast<std::int64_t>(wall_time)) + "." + host;
  std::string free = path;
  // Of the same second: TensorBoard reads the files of a folder in the order of their names.
  for (int i = 1; std::filesystem::exists(free); ++i) free = path + "." + std::to_string(i);
  return free;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::vector<EventScalar> event_scalars(const StepRecord& record) {
  std::vector<EventScalar> scalars{{"train/loss", record.loss},
                                   {"train/grad_norm", record.grad_norm},
                                   {"train/lr", record.lr},
                                   {"train/loss_scale", record.loss_scale},
                                   {"train/skipped", record.skipped ? 1.0 : 0.0},
                                   {"train/tokens", static_cast<double>(record.tokens)},
                                   {"perf/step_ms", record.step_ms},
                                   {"perf/tokens_per_s", record.tokens_per_s},
                                   {"perf/tflops", record.tflops}};
  const auto add_known = [&](const char* tag, double value) {
    if (value != 0) scalars.push_back({tag, value});
  };
  const auto add_given = [&](const char* tag, const std::optional<double>& value) {
    if (value) scalars.push_back({tag, *value});
  };
  add_known("perf/mfu", record.mfu);
  add_known("perf/mfu_of_card", record.mfu_of_card.value_or(0));
  add_known("memory/device_peak", static_cast<double>(record.memory.device_peak));
  add_known("memory/host_peak", static_cast<double>(record.memory.host_peak));
  add_known("memory/pinned", static_cast<double>(record.memory.pinned));
  add_known("memory/nvme", static_cast<double>(record.memory.nvme));
  add_known("memory/resident_peak", static_cast<double>(record.memory.resident_peak));
  const StepTimers& timers = record.timers_ms;
  scalars.insert(scalars.end(), {{"timers_ms/forward", timers.forward},
                                 {"timers_ms/backward", timers.backward},
                                 {"timers_ms/comm", timers.comm},
                                 {"timers_ms/optimizer", timers.optimizer},
                                 {"timers_ms/io", timers.io},
                                 {"timers_ms/data", timers.data}});
  const PlanError error = record.plan_error.value_or(PlanError{});
  add_given("plan_error/device", error.device);
  add_given("plan_error/host", error.host);
  add_given("plan_error/nvme", error.nvme);
  add_given("plan_error/step_ms", error.step_ms);
  add_given("perf/checkpoint_ms", record.checkpoint_ms);
  add_given("eval/loss", record.eval_loss);
  add_given("eval/ppl", record.eval_ppl);
  for (const auto& [name, loss] : record.eval_losses)
    scalars.push_back({"eval/loss/" + name, loss});
  return scalars;
}

EventFile::EventFile(const std::string& folder, const std::string& host, std::int64_t first_step) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (const int error = failed.value()) {
    throw_io_error("create", folder, error, write_remedy(error, "output.dir"));
  }
  const double now = unix_seconds();
  path_ = new_path(folder, host, now);
  file_ = open_for_append(path_);
  const std::string start = key(kStatus, kVarint) + varint(kStatusStart);
  append_whole(file_.get(),
               event(now, 0, bytes_field(kFileVersion, "brain.Event:2")) +
                   event(now, first_step, bytes_field(kSessionLog, start)),
               path_);
}

void EventFile::write(const StepRecord& record) {
  try {
    append_whole(file_.get(), event(unix_seconds(), record.step, summary_of(event_scalars(record))),
                 path_);
  } catch (const IoError& error) {
    if (!failed_) {
      log_warning(std::string(error.what()) +
                  ". The run goes on; steps that cannot be written are missing in TensorBoard");
    }
    failed_ = true;
  }
}

}  // namespace sluice
