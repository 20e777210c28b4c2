// The mesh, the stages of the pipeline, and what data-parallel ranks shard.
#include <string>
#include <vector>

#include "configs/migrate/peers/megatron_map.hpp"

namespace sluice::migrate {
namespace {

class PipelineMap {
 public:
  explicit PipelineMap(MegatronRun& run)
      : args_(run.args),
        map_(run.map),
        stages_(args_.count("--pipeline-model-parallel-size")),
        layers_(args_.count(args_.has("--encoder-num-layers") ? "--encoder-num-layers"
                                                              : "--num-layers")) {}

  void run() {
    map_.set("--pipeline-model-parallel-size", "parallel.pipeline", std::to_string(stages_));
    if (stages_ < 2 || layers_ < 1) return ignore();
    const std::int64_t pieces = virtual_stages();
    if (pieces > 1) {
      map_.set_own("parallel.schedule", "interleaved", "virtual stages");
    } else {
      map_.set_own("parallel.schedule", "1f1b", "Megatron-LM's order without virtual stages");
    }
    place(std::max<std::int64_t>(1, pieces));
  }

 private:
  void ignore() {
    for (const std::string_view name :
         {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
          "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers",
          "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"}) {
      if (args_.has(name)) {
        map_.reclass(name, KeyClass::kIgnored, "no effect with one stage");
      }
    }
  }

  // 1 where there are none.
  std::int64_t virtual_stages() {
    constexpr std::string_view kLayers = "--num-layers-per-virtual-pipeline-stage";
    constexpr std::string_view kStages = "--num-virtual-stages-per-pipeline-rank";
    std::int64_t pieces = 1;
    std::string_view from = kStages;
    if (args_.has(kLayers) && args_.has(kStages)) {
      map_.error(kStages,
                 std::string(kLayers) + " is given too, Megatron-LM stops; leave one of both out");
    } else if (args_.has(kStages)) {
      pieces = args_.count(kStages);
    } else if (args_.has(kLayers)) {
      from = kLayers;
      const std::int64_t each = args_.count(kLayers);
      if (each < 1 || balanced_layers() % stages_ != 0 || balanced_layers() / stages_ % each != 0) {
        map_.error(kLayers, std::to_string(layers_) + " layers of " + std::to_string(stages_) +
                                " stages are no multiple, Megatron-LM stops; give another number");
        return 1;
      }
      pieces = balanced_layers() / stages_ / each;
    }
    if (pieces > 1) map_.set(from, "parallel.virtual_stages", std::to_string(pieces));
    return pieces;
  }

  // Embedding and loss count as a layer each where the arguments say so.
  [[nodiscard]] std::int64_t balanced_layers() const {
    return layers_ + (args_.has("--account-for-embedding-in-pipeline-split") ? 1 : 0) +
           (args_.has("--account-for-loss-in-pipeline-split") ? 1 : 0);
  }

  // Blocks of each piece, in the model's order.
  void place(std::int64_t pieces) {
    const bool first = args_.has("--decoder-first-pipeline-num-layers");
    const bool last = args_.has("--decoder-last-pipeline-num-layers");
    if (first || last) return place_uneven(first, last, pieces);
    const std::int64_t all = stages_ * pieces;
    if (all > layers_ || balanced_layers() % all != 0) {
      map_.error("--pipeline-model-parallel-size",
                 std::to_string(layers_) + " layers are no multiple of " + std::to_string(all) +
                     " stages, Megatron-LM stops; change one of both");
      return;
    }
    std::vector<std::int64_t> blocks(static_cast<std::size_t>(all), balanced_layers() / all);
    if (args_.has("--account-for-embedding-in-pipeline-split")) --blocks.front();
    if (args_.has("--account-for-loss-in-pipeline-split")) --blocks.back();
    write("--pipeline-model-parallel-size", blocks);
  }

  void place_uneven(bool first, bool last, std::int64_t pieces) {
    const std::string_view from =
        first ? "--decoder-first-pipeline-num-layers" : "--decoder-last-pipeline-num-layers";
    const std::int64_t head = first ? args_.count("--decoder-first-pipeline-num-layers") : 0;
    const std::int64_t tail = last ? args_.count("--decoder-last-pipeline-num-layers") : 0;
    const std::int64_t middle = stages_ - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t rest = layers_ - head - tail;
    if (pieces > 1) {
      map_.stop(from, "uneven stages have no virtual stages");
      return;
    }
    if ((first && head < 1) || (last && tail < 1) || rest < middle ||
        (middle == 0 ? rest != 0 : rest % middle != 0)) {
      map_.error(from, std::to_string(rest) + " layers remain for " + std::to_string(middle) +
                           " stages, no multiple, Megatron-LM stops; change one of both");
      return;
    }
    std::vector<std::int64_t> blocks;
    if (first) blocks.push_back(head);
    if (middle > 0) blocks.insert(blocks.end(), static_cast<std::size_t>(middle), rest / middle);
    if (last) blocks.push_back(tail);
    write(from, blocks);
    if (first && last) write("--decoder-last-pipeline-num-layers", blocks);
  }

  void write(std::string_view from, const std::vector<std::int64_t>& blocks) {
    std::string text;
    for (const std::int64_t each : blocks) {
      text += (text.empty() ? "" : ", ") + std::to_string(each);
    }
    map_.set(from, "parallel.stage_layers", "[" + text + "]");
  }

  const MegatronArgs& args_;
  PeerMap& map_;
  std::int64_t stages_;
  std::int64_t layers_;
};

void map_fsdp(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  if (args.has("--use-torch-fsdp2")) {
    const bool keeps = args.has("--torch-fsdp2-no-reshard-after-forward");
    run.map.set(keeps ? "--torch-fsdp2-no-reshard-after-forward" : "--use-torch-fsdp2",
                "zero.stage", keeps ? "2" : "3");
    return;
  }
  const std::string strategy = args.text("--data-parallel-sharding-strategy");
  std::string stage = "3";
  if (strategy == "no_shard") stage = "0";
  if (strategy == "optim") stage = "1";
  if (strategy == "optim_grads") stage = "2";
  run.map.set("--use-megatron-fsdp", "zero.stage", stage);
  run.map.set("--data-parallel-sharding-strategy", "zero.stage", stage);
}

void map_zero(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const bool fsdp = args.has("--use-torch-fsdp2") || args.has("--use-megatron-fsdp");
  if (fsdp) {
    map_fsdp(run);
    if (args.has("--use-distributed-optimizer")) {
      run.map.reclass("--use-distributed-optimizer", KeyClass::kNotNeeded,
                      "the strategy of FSDP gives zero.stage");
    }
  } else {
    run.map.set("--use-distributed-optimizer", "zero.stage",
                args.has("--use-distributed-optimizer") ? "1" : "0");
    for (const std::string_view name :
         {"--data-parallel-sharding-strategy", "--torch-fsdp2-no-reshard-after-forward"}) {
      if (args.has(name)) run.map.reclass(name, KeyClass::kIgnored, "no effect without FSDP");
    }
  }
  if (args.has("--ddp-bucket-size")) {
    const std::int64_t elements = args.count("--ddp-bucket-size");
    if (elements > (std::int64_t{1} << 60)) {
      run.map.error("--ddp-bucket-size", "too many elements; give a smaller number");
      return;
    }
    run.map.set("--ddp-bucket-size", "zero.bucket_bytes", std::to_string(4 * elements));
    run.map.changed("--ddp-bucket-size", std::to_string(elements) + " elements there, " +
                                             std::to_string(4 * elements) + " bytes here");
  }
}

}  // namespace

void map_megatron_ranks(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  for (const std::string_view name :
       {"--tensor-model-parallel-size", "--pipeline-model-parallel-size"}) {
    if (args.count(name) >= 1) continue;
    run.map.error(name, "Megatron-LM needs a number above 0; give one");
    return;
  }
  const bool tensor = args.count("--tensor-model-parallel-size") > 1;
  run.map.set("--tensor-model-parallel-size", "parallel.tensor",
              args.text("--tensor-model-parallel-size"));
  if (tensor) {
    run.map.set("--sequence-parallel", "parallel.sequence",
                args.has("--sequence-parallel") ? "true" : "false");
  } else if (args.has("--sequence-parallel")) {
    run.map.reclass("--sequence-parallel", KeyClass::kIgnored,
                    "Megatron-LM turns the argument off with one tensor-parallel rank");
  }
  PipelineMap(run).run();
  map_zero(run);
}

}  // namespace sluice::migrate
