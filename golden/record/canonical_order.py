"""Gives the sets that upstream walks in hash order the order of the trace format.

scheduler.md DET-2; the trace format, "Order where upstream has none". Only the order of one
scheduler's own walks is changed, by wrapping its methods.
"""

from vllm.v1.core.sched.scheduler import Scheduler


def fix_order(scheduler: Scheduler) -> None:
    """Wraps the methods of `scheduler` (and of its connector) that walk sets."""
    _finish_in_table_order(scheduler)
    _fail_in_table_order(scheduler)
    _evict_ascending(scheduler)
    if scheduler.connector is not None:
        _complete_preempted_stores_ascending(scheduler)


def _finish_in_table_order(scheduler: Scheduler) -> None:
    finish_requests = scheduler.finish_requests

    def finish_one_by_one(request_ids, finished_status):
        if request_ids is None or isinstance(request_ids, str):
            return finish_requests(request_ids, finished_status)
        wanted = set(request_ids)
        finished = []
        for request_id in [known for known in scheduler.requests if known in wanted]:
            finished += finish_requests(request_id, finished_status)
        return finished

    scheduler.finish_requests = finish_one_by_one


def _fail_in_table_order(scheduler: Scheduler) -> None:
    handle_invalid_blocks = scheduler._handle_invalid_blocks

    def handle_in_order(*args, **kwargs):
        failed = handle_invalid_blocks(*args, **kwargs)
        # A dict keeps the order in which it was filled; the caller only walks it and looks in it.
        return dict.fromkeys(known for known in scheduler.requests if known in failed)

    scheduler._handle_invalid_blocks = handle_in_order


def _evict_ascending(scheduler: Scheduler) -> None:
    manager = scheduler.kv_cache_manager
    evict_blocks = manager.evict_blocks
    manager.evict_blocks = lambda block_ids: evict_blocks(sorted(block_ids))


def _complete_preempted_stores_ascending(scheduler: Scheduler) -> None:
    connector = scheduler.connector
    build_connector_meta = connector.build_connector_meta

    def build_in_order(scheduler_output):
        preempted = sorted(scheduler_output.preempted_req_ids or ())
        scheduler_output.preempted_req_ids = dict.fromkeys(preempted)
        return build_connector_meta(scheduler_output)

    connector.build_connector_meta = build_in_order
