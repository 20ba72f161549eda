"""What the real engine's objects say in a trace: the "out" of schedule and update."""

from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.metrics.stats import PrefixCacheStats, SchedulerStats

from trace_file import Json

_PREFIX_CACHE_FIELDS = (
    "reset",
    "requests",
    "queries",
    "hits",
    "preempted_requests",
    "preempted_queries",
    "preempted_hits",
)


def free_blocks(scheduler: Scheduler) -> int:
    return scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


def _per_group(block_ids) -> list[list[int]]:
    return [list(group) for group in block_ids]


def _ids(queue) -> list[str]:
    return [request.request_id for request in queue]


def schedule_answer(output: SchedulerOutput, scheduler: Scheduler) -> Json:
    """The answer of a `schedule` that gave `output`; reads the queues as they are now."""
    cached = output.scheduled_cached_reqs
    answer: Json = {
        "new": [
            [request.req_id, _per_group(request.block_ids), request.num_computed_tokens]
            for request in output.scheduled_new_reqs
        ],
        "cached": [
            [
                request_id,
                None if new_blocks is None else _per_group(new_blocks),
                num_computed_tokens,
                num_output_tokens,
                request_id in cached.resumed_req_ids,
            ]
            for request_id, new_blocks, num_computed_tokens, num_output_tokens in zip(
                cached.req_ids,
                cached.new_block_ids,
                cached.num_computed_tokens,
                cached.num_output_tokens,
                strict=True,
            )
        ],
        "tokens": [list(entry) for entry in output.num_scheduled_tokens.items()],
        "preempted": sorted(output.preempted_req_ids or ()),
        "finished": sorted(output.finished_req_ids),
        "common_prefix": list(output.num_common_prefix_blocks),
        "running": _ids(scheduler.running),
        "waiting": _ids(scheduler.waiting),
        "skipped": _ids(scheduler.skipped_waiting),
        "free_blocks": free_blocks(scheduler),
    }
    if output.scheduled_encoder_inputs:
        answer["encoder"] = [
            [request_id, list(inputs)]
            for request_id, inputs in output.scheduled_encoder_inputs.items()
        ]
    if output.free_encoder_mm_hashes:
        answer["freed_encoder"] = list(output.free_encoder_mm_hashes)
    if output.scheduled_spec_decode_tokens:
        answer["spec"] = [
            [request_id, list(drafts)]
            for request_id, drafts in output.scheduled_spec_decode_tokens.items()
        ]
    if output.new_block_ids_to_zero:
        answer["zero_blocks"] = list(output.new_block_ids_to_zero)
    if output.kv_connector_metadata is not None:
        answer["connector"] = _connector_metadata(output.kv_connector_metadata)
    return answer


def output_row(output: EngineCoreOutput) -> Json:
    """A row of an update's `outputs`."""
    row: Json = {"id": output.request_id, "tokens": list(output.new_token_ids)}
    if output.pooling_output is not None:
        row["pooled"] = True
    if output.finish_reason is not None:
        row["finish"] = str(output.finish_reason)
    if output.stop_reason is not None:
        row["stop_reason"] = output.stop_reason
    if output.prefill_stats is not None:
        stats = output.prefill_stats
        row["prefill"] = {name: getattr(stats, name) for name in stats.__dataclass_fields__}
    if output.events:
        row["events"] = [[event.type.name.lower(), event.timestamp] for event in output.events]
    if output.kv_transfer_params:
        row["kv"] = _lists(output.kv_transfer_params)
    return row


def stats_answer(stats: SchedulerStats) -> Json:
    """The `stats` of an update's answer."""
    answer: Json = {
        "running": stats.num_running_reqs,
        "waiting": stats.num_waiting_reqs,
        "skipped": stats.num_skipped_waiting_reqs,
        "kv_usage": stats.kv_cache_usage,
        "prefix_cache": _prefix_cache(stats.prefix_cache_stats),
    }
    if stats.connector_prefix_cache_stats is not None:
        answer["connector_prefix_cache"] = _prefix_cache(stats.connector_prefix_cache_stats)
    drafting = stats.spec_decoding_stats
    if drafting is not None:
        answer["spec_decoding"] = {
            "drafts": drafting.num_drafts,
            "draft_tokens": drafting.num_draft_tokens,
            "accepted_tokens": drafting.num_accepted_tokens,
            "accepted_per_position": list(drafting.num_accepted_tokens_per_pos),
        }
    return answer


def kv_event(event) -> Json:
    """An entry of an update's `events`."""
    match type(event).__name__:
        case "BlockStored":
            hashes = [block_hash.hex() for block_hash in event.block_hashes]
            parent = event.parent_block_hash
            answer: Json = {
                # On the host's side upstream gives a set.
                "stored": sorted(hashes) if event.medium == "CPU" else hashes,
                "parent": parent.hex() if parent else None,
                "tokens": list(event.token_ids),
                "block_size": event.block_size,
                "medium": event.medium,
            }
            if event.lora_name is not None:
                answer["lora"] = event.lora_name
            if event.extra_keys and any(event.extra_keys):
                answer["extra_keys"] = _lists(event.extra_keys)
        case "BlockRemoved":
            hashes = [block_hash.hex() for block_hash in event.block_hashes]
            answer = {"removed": hashes, "medium": event.medium}
        case "AllBlocksCleared":
            return {"cleared": True}
        case name:
            raise TypeError(f"unknown KV event {name}")
    if event.group_idx:
        answer["group"] = event.group_idx
    return answer


def _prefix_cache(stats: PrefixCacheStats | None) -> Json | None:
    if stats is None:
        return None
    return {name: int(getattr(stats, name)) for name in _PREFIX_CACHE_FIELDS}


def _connector_metadata(metadata) -> Json:
    """What the connector tells the workers, by the kind of its metadata."""
    match type(metadata).__name__:
        case "ScriptedMetadata":
            return {"loads": metadata.loads}
        case "NixlConnectorMetadata":
            return {
                "recv": {
                    request_id: {
                        "local": _lists(request.local_block_ids),
                        "remote": _lists(request.remote.block_ids if request.remote else None),
                    }
                    for request_id, request in sorted(metadata.reqs_to_recv.items())
                },
                "send": sorted(metadata.reqs_to_send),
                "in_batch": sorted(metadata.reqs_in_batch),
                "not_processed": sorted(metadata.reqs_not_processed),
            }
        case "OffloadingConnectorMetadata":
            return {
                "load": _transfers(metadata.reqs_to_load),
                "store": _transfers(metadata.reqs_to_store),
                "flush": sorted(metadata.reqs_to_flush or ()),
            }
        case "MultiKVConnectorMetadata":
            answer: Json = {"children": [_connector_metadata(child) for child in metadata.metadata]}
            if metadata.extra_async_saves:
                answer["extra_async_saves"] = dict(sorted(metadata.extra_async_saves.items()))
            return answer
        case name:
            raise TypeError(f"unknown connector metadata {name}")


def _transfers(requests) -> list[list[Any]]:
    return [
        [
            request_id,
            [int(block) for block in source.block_ids],
            [int(block) for block in destination.block_ids],
        ]
        for request_id, (source, destination) in requests.items()
    ]


def _lists(value: Any) -> Any:
    """`value` with lists in place of tuples, at every depth."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_lists(item) for item in value]
    return value
