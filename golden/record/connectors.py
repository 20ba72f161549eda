"""KV connectors of a recording: the scripted one, and the transfer configuration of all."""

import json
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.request import RequestStatus

from trace_file import Json

# Requests that end so may have their blocks saved.
_SAVED_STATUSES = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


class ScriptedMetadata(KVConnectorMetadata):
    """What the workers are told of each load: [request id, external tokens, block ids a group]."""

    def __init__(self, loads: list[list[Any]]) -> None:
        self.loads = loads


class ScriptedConnector(KVConnectorBase_V1, SupportsHMA):
    """Answers as each request's `kv.scripted` says (trace format, "Connectors").

    As the n-th child of a multi connector it reads `kv.scripted<n>` instead.
    """

    def __init__(self, vllm_config, role, kv_cache_config=None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._key = "scripted" + extra.get("child", "")
        self._loads: list[list[Any]] = []
        # How many look-ups of a request were answered with "not known yet".
        self._deferrals: dict[str, int] = {}
        # Requests whose held prefix was used by an allocation.
        self._loaded: set[str] = set()

    def _script(self, request) -> Json:
        return (request.kv_transfer_params or {}).get(self._key) or {}

    # The scheduler's side.

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        script = self._script(request)
        deferrals = self._deferrals.get(request.request_id, 0)
        if deferrals < script.get("defer", 0):
            self._deferrals[request.request_id] = deferrals + 1
            return None, False
        forgotten = script.get("once", True) and request.request_id in self._loaded
        held = 0 if forgotten else script.get("held", 0)
        matched = max(held - num_computed_tokens, 0)
        return matched, matched > 0 and bool(script.get("async", False))

    def update_state_after_alloc(self, request, blocks, num_external_tokens) -> None:
        if num_external_tokens == 0:
            return
        self._loaded.add(request.request_id)
        block_ids = [list(group) for group in blocks.get_block_ids()]
        self._loads.append([request.request_id, num_external_tokens, block_ids])

    def build_connector_meta(self, scheduler_output) -> ScriptedMetadata:
        loads, self._loads = self._loads, []
        return ScriptedMetadata(loads)

    def request_finished(self, request, block_ids):
        self._deferrals.pop(request.request_id, None)
        self._loaded.discard(request.request_id)
        if request.status in _SAVED_STATUSES and self._script(request).get("save", False):
            return True, {"saved_blocks": len(block_ids)}
        return False, None

    def request_finished_all_groups(self, request, block_ids):
        return self.request_finished(request, block_ids[0])

    # The workers' side: there are no workers.

    def start_load_kv(self, forward_context, **kwargs) -> None:
        pass

    def wait_for_layer_load(self, layer_name) -> None:
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs) -> None:
        pass

    def wait_for_save(self) -> None:
        pass


def transfer_config(connector: Json, bytes_per_token: int, child: str = "") -> Json:
    """The arguments of vLLM's KVTransferConfig for `connector` of a trace's configuration.

    `bytes_per_token` is what a token takes in the KV cache: vLLM sizes the host's blocks in bytes.
    Raises ValueError for a connector that the format doesn't have.
    """
    common = {
        "kv_role": "kv_both",
        "kv_load_failure_policy": connector.get("load_failure_policy", "recompute"),
    }
    match connector["type"]:
        case "scripted":
            return common | {
                "kv_connector": ScriptedConnector.__name__,
                "kv_connector_module_path": __name__,
                "kv_connector_extra_config": {"child": child},
            }
        case "nixl":
            return common | {"kv_connector": "NixlConnector"}
        case "offloading":
            block_size = connector["block_size"]
            size = connector["num_cpu_blocks"] * block_size * bytes_per_token
            return common | {
                "kv_connector": "OffloadingConnector",
                "kv_connector_extra_config": {
                    "cpu_bytes_to_use": size,
                    "block_size": block_size,
                    "eviction_policy": connector.get("eviction", "lru"),
                },
            }
        case "multi":
            children = [
                transfer_config(config, bytes_per_token, str(index))
                for index, config in enumerate(connector["connectors"])
            ]
            return common | {
                "kv_connector": "MultiConnector",
                "kv_connector_extra_config": {"connectors": children},
            }
        case kind:
            raise ValueError(f"unknown connector {json.dumps(kind)}")
