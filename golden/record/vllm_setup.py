"""vLLM's own configuration objects for the configuration of a trace."""

import dataclasses
import json
import pathlib
import tempfile

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    LoRAConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVCacheTensor,
    MambaSpec,
    SlidingWindowSpec,
)

import connectors
from trace_file import Json

# The scheduler reads only the lengths of it; there are no weights.
_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 1 << 20,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def make_model_directory(overrides: Json | None = None) -> str:
    """Writes the config.json of a tiny model to a temporary directory and returns its path."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="record-model-"))
    text = json.dumps(_MODEL | (overrides or {}))
    (directory / "config.json").write_text(text, encoding="utf-8")
    return str(directory)


@dataclasses.dataclass
class Setup:
    """What vLLM's scheduler is constructed from."""

    vllm_config: VllmConfig
    kv_cache_config: KVCacheConfig


def make_setup(config: Json, model_directory: str) -> Setup:
    """Builds vLLM's configuration for `config`.

    vLLM's own validation adjusts some fields while it builds (the block size, asynchronous
    scheduling for a drafter that it wouldn't allow); they are set to the trace's values afterwards.
    Raises ValueError for an unknown kind of group or connector, and what vLLM's validation raises.
    """
    block_size: int = config["block_size"]
    groups: list[Json] = config.get("groups") or [{"type": "full", "block_size": block_size}]
    specs = [_group_spec(group) for group in groups]
    kv_cache_config = KVCacheConfig(
        num_blocks=config["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[
            KVCacheGroupSpec([f"layer{index}"], spec) for index, spec in enumerate(specs)
        ],
    )
    optional = {}
    num_speculative_tokens = config.get("num_speculative_tokens", 0)
    if num_speculative_tokens:
        optional["speculative_config"] = SpeculativeConfig(
            model="ngram", num_speculative_tokens=num_speculative_tokens
        )
    if config.get("kv_events"):
        optional["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    if config.get("max_loras"):
        optional["lora_config"] = LoRAConfig(
            max_lora_rank=8, max_loras=config["max_loras"], lora_dtype="float16"
        )
    connector = config.get("connector")
    if connector:
        page_size = sum(spec.page_size_bytes for spec in specs)
        # The offloading connector reads the size of a block from the tensors.
        kv_cache_config.kv_cache_tensors = [
            KVCacheTensor(size=page_size * config["num_blocks"], shared_by=["layer0"])
        ]
        optional["kv_transfer_config"] = KVTransferConfig(
            engine_id="engine-0",
            **connectors.transfer_config(connector, page_size // block_size),
        )
    cache_config = CacheConfig(
        block_size=block_size,
        gpu_memory_utilization=0.9,
        cache_dtype="auto",
        enable_prefix_caching=config.get("enable_prefix_caching", True),
    )
    cache_config.num_gpu_blocks = config["num_blocks"]
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=model_directory,
            tokenizer=model_directory,
            skip_tokenizer_init=True,
            dtype="float16",
            seed=0,
            max_model_len=config["max_model_len"],
        ),
        scheduler_config=_scheduler_config(config, len(groups)),
        cache_config=cache_config,
        device_config=DeviceConfig("cpu"),
        parallel_config=ParallelConfig(),
        **optional,
    )
    vllm_config.scheduler_config.async_scheduling = config.get("async_scheduling", False)
    cache_config.block_size = block_size
    cache_config.num_gpu_blocks = config["num_blocks"]
    mamba_modes = {spec.mamba_cache_mode for spec in specs if isinstance(spec, MambaSpec)}
    if mamba_modes:
        if len(mamba_modes) > 1:
            raise ValueError(f"Mamba groups of several modes: {sorted(mamba_modes)}")
        cache_config.mamba_cache_mode = mamba_modes.pop()
    if num_speculative_tokens and config.get("use_eagle", False):
        # All that the scheduler asks the drafter's configuration. An EAGLE drafter proper would
        # need a model of its own.
        vllm_config.speculative_config.use_eagle = lambda: True
    return Setup(vllm_config, kv_cache_config)


def _scheduler_config(config: Json, num_groups: int) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_model_len=config["max_model_len"],
        is_encoder_decoder=config.get("encoder_decoder", False),
        long_prefill_token_threshold=config.get("long_prefill_token_threshold", 0),
        enable_chunked_prefill=config.get("enable_chunked_prefill", True),
        policy=config.get("policy", "fcfs"),
        async_scheduling=False,
        scheduler_reserve_full_isl=config.get("scheduler_reserve_full_isl", True),
        disable_hybrid_kv_cache_manager=bool(config.get("connector")) and num_groups == 1,
    )


def _group_spec(group: Json) -> KVCacheSpec:
    block_size = group["block_size"]
    attention = {
        "block_size": block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
    }
    match group["type"]:
        case "full":
            return FullAttentionSpec(**attention)
        case "sliding_window":
            return SlidingWindowSpec(sliding_window=group["window"], **attention)
        case "chunked_local":
            return ChunkedLocalAttentionSpec(attention_chunk_size=group["chunk"], **attention)
        case "cross_attention":
            return CrossAttentionSpec(**attention)
        case "mamba":
            return MambaSpec(
                block_size=block_size,
                shapes=((1,),),
                dtypes=(torch.float32,),
                mamba_cache_mode=group["mode"],
                num_speculative_blocks=group.get("speculative_blocks", 0),
            )
        case kind:
            raise ValueError(f"unknown group {json.dumps(kind)}")
